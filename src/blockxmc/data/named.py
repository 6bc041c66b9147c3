"""Functions that are named by a user: what makes extra columns is code, and no model directory holds code."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from blockxmc.errors import BlockXMCError


def named_function(name: str) -> Any:
    """What ``MODULE:NAME`` or ``FILE.py:NAME`` names; its code is run to find it.

    Modules of the working directory are found, too.

    >>> named_function("math:sqrt")(9.0)
    3.0
    """
    place, _, attribute = name.rpartition(":")
    if not place or not attribute:
        raise BlockXMCError(f"--extra {name}: give MODULE:FUNCTION or FILE.py:FUNCTION")
    module = _of_file(Path(place)) if place.endswith(".py") else _of_name(place)
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise BlockXMCError(f"--extra {name}: {place} has no {attribute!r}") from None


def _of_name(name: str) -> Any:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)  # behind all others: it hides no installed module
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise BlockXMCError(f"--extra {name}: the module cannot be imported: {_in_one_line(error)}") from error


def _of_file(path: Path) -> Any:
    if not path.is_file():
        raise BlockXMCError(f"--extra {path}: there is no such file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise BlockXMCError(f"--extra {path}: the file cannot be run: {_in_one_line(error)}") from error
    return module


def _in_one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
