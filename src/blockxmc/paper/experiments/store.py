"""Finished cells on disk: one JSON file each, written as soon as it is finished, so that a stopped run loses nothing."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from blockxmc._core.results import DamagedError, ResultFolder


def to_json(value: Any, indent: int | None = None) -> str:
    """JSON in which NaN and infinity are null."""
    return json.dumps(_plain(value), indent=indent, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


class Store:
    """Cells of a folder by id and setting: another setting is another cell.

    >>> import tempfile
    >>> store = Store(Path(tempfile.mkdtemp()))
    >>> store.put("bibtex/fastxml", {"seed": 0}, {"row": {"P@1": 63.0}})
    >>> store.get("bibtex/fastxml", {"seed": 0})["row"]
    {'P@1': 63.0}
    >>> store.get("bibtex/fastxml", {"seed": 1}) is None
    True
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._kept = ResultFolder(folder)

    def path(self, cell: str, setting: dict[str, Any]) -> Path:
        """Where a cell lies."""
        return self._kept.path(_name(cell, setting))

    def get(self, cell: str, setting: dict[str, Any]) -> dict[str, Any] | None:
        """The stored cell, or None; a damaged one counts as missing."""
        try:
            stored: dict[str, Any] | None = self._kept.get(_name(cell, setting))
        except DamagedError:
            return None
        return stored if stored and stored.get("cell") == cell and stored.get("setting") == setting else None

    def put(self, cell: str, setting: dict[str, Any], content: dict[str, Any]) -> None:
        """Store a finished cell."""
        self._kept.put(_name(cell, setting), _plain({"cell": cell, "setting": setting, **content}))


def _name(cell: str, setting: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(setting, sort_keys=True).encode()).hexdigest()[:8]
    return f"{cell.replace('/', '--')}--{digest}"
