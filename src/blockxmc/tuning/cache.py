"""Finished work of a tuning run, kept on disk so that an interrupted run goes on from it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from blockxmc._core.files import write_atomically
from blockxmc._version import __version__
from blockxmc.errors import BlockXMCError

# Layout of the file: another number is another layout.
_FORMAT = 1


class Notebook:
    """Named results in one JSON file, written again after each result; without a folder they are in memory only.

    A file that cannot be read, or was written for other data or settings, is ignored, and ``notes`` says so.

    >>> book = Notebook(None, "fold-0", "a key")
    >>> book.once("base", lambda: {"P@1": 60.0}), book.once("base", lambda: {"P@1": 0.0}), book.reused
    ({'P@1': 60.0}, {'P@1': 60.0}, 1)
    """

    def __init__(self, folder: str | os.PathLike[str] | None, name: str, key: str) -> None:
        self.path = None if folder is None else Path(folder) / f"{name}-{key[:16]}.json"
        self.key = key
        self.notes: list[str] = []
        self.reused = 0
        self._entries: dict[str, dict[str, Any]] = self._read()

    def once(self, name: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The entry of this name, computed now and kept where there is none."""
        if name in self._entries:
            self.reused += 1
        else:
            self._entries[name] = compute()
            self._write()
        return self._entries[name]

    def _read(self) -> dict[str, dict[str, Any]]:
        if self.path is None or not self.path.exists():
            return {}
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            if content["format"] != _FORMAT or content["key"] != self.key:
                raise ValueError("it was written for other data or settings")
            entries = content["entries"]
            if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
                raise ValueError("its entries are damaged")
        except (OSError, ValueError, KeyError, TypeError) as error:
            self.notes.append(f"{self.path} was ignored and will be rewritten: {error}")
            return {}
        return entries

    def _write(self) -> None:
        if self.path is None:
            return
        content = json.dumps({"format": _FORMAT, "key": self.key, "entries": self._entries})
        try:
            write_atomically(self.path, content)
        except FileExistsError:
            raise BlockXMCError(f"{self.path.parent} is a file: the cache must be a folder") from None


def digest(X: sparse.csr_array, Y: sparse.csr_array, settings: dict[str, Any]) -> str:
    """A key for results that depend on these data, these settings and this version of the library."""
    state = hashlib.blake2b(digest_size=20)
    for matrix in (X, Y):
        state.update(repr(matrix.shape).encode())
        for array, dtype in ((matrix.indptr, np.int64), (matrix.indices, np.int32), (matrix.data, np.float32)):
            state.update(np.ascontiguousarray(array, dtype=dtype).data)
    state.update(json.dumps([__version__, settings], sort_keys=True, default=repr).encode())
    return state.hexdigest()
