"""A backend for Annif (the ``annif`` extra): ``backend=blockxmc`` in projects.cfg; docs/howto/annif.md has the whole.

Annif's command line loads the entry points of the group ``flask.commands``; ours is :func:`command` below, and loading it
makes the backend known. Servers that are started without that command line use :func:`create_app`.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from blockxmc.errors import MissingExtraError

NAME = "blockxmc"


def register() -> None:
    """Make the backend known to Annif; once is enough."""
    try:
        from annif import backend
    except ImportError as error:
        raise MissingExtraError(error.name or "annif", "annif") from None
    backend._backend_fns[NAME] = _backend


def create_app(config_name: str | None = None) -> Any:
    """Annif's own web application, with the backend: ``uvicorn --factory blockxmc.annif:create_app``."""
    register()
    import annif

    return annif.create_app(config_name)


@click.command(NAME)
def command() -> None:
    """Show the parameters of the blockxmc backend.

    Each can be set in projects.cfg, or for one run by -b blockxmc.NAME=VALUE.
    """
    from blockxmc.annif.parameters import PARAMETERS

    for name, parameter in PARAMETERS.items():
        default = "" if parameter.default is None else parameter.default
        click.echo(f"{f'{name}={default}':20} {parameter.meaning}")


def _backend() -> Any:
    from blockxmc.annif.backend import BlockxmcBackend

    return BlockxmcBackend


# Other Flask programs load entry points, too, and have nothing to do with Annif.
if "annif" in sys.modules:
    register()
