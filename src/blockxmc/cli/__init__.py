"""The command line: one small file per command, imported only when its command runs."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, Any

import typer

# Command -> module under blockxmc.cli that defines a function of the module's own name.
COMMANDS: dict[str, str] = {
    "demo": "demo",
    "train": "train",
    "predict": "predict",
    "evaluate": "evaluate",
    "inspect": "inspect",
    "partition": "partition",
    "tune": "tune",
    "stats": "stats",
    "convert": "convert",
    "experiment": "experiment",
}

app = typer.Typer(
    name="blockxmc",
    help="Extreme multi-label classification by block-wise partitioning.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from blockxmc import __version__

        print(f"blockxmc {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


for _name, _module in COMMANDS.items():
    app.command(_name)(getattr(import_module(f"blockxmc.cli.{_module}"), _module))


def main(args: list[str] | None = None) -> Any:
    """Run a command; bad input is one line on stderr and exit code 2, an interrupt is exit code 130."""
    try:
        app(args=args)
    except SystemExit as end:
        if end.code == 130:  # what typer makes of an interrupt, without a word
            print("interrupted: nothing half-written was left behind", file=sys.stderr)
        raise
    except (ValueError, OSError, MemoryError) as error:
        from blockxmc.errors import BlockXMCError

        # A plain ValueError that is not ours is a defect and deserves its traceback.
        if not isinstance(error, (BlockXMCError, OSError, MemoryError)):
            raise
        detail = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
        print(f"error: {detail or type(error).__name__}", file=sys.stderr)
        sys.exit(2)
