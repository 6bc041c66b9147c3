"""How an estimator is saved, without the base class knowing the storage room: the package root registers it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

Saver = Callable[[Any, "str | os.PathLike[str]"], None]
_registered: list[Saver] = []


def register(saver: Saver) -> None:
    """Let ``saver(estimator, path)`` write models."""
    _registered[:] = [saver]


def save(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to a directory."""
    _registered[0](estimator, path)
