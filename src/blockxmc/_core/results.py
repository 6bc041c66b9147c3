"""Results that are kept in a folder, one by one: each is whole or absent, and damage is found.

A result is a nested dict of numbers, strings, arrays and CSR arrays. ``NAME.json`` holds it, with its own SHA-256; arrays
are in ``NAME.npy``, one after the other, and the JSON has the SHA-256 of that file. The JSON is written last: without it
there is no result.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc._core.files import PART, read_plain, write_atomically, writing
from blockxmc.errors import BlockXMCError

# Layout of the files: another number is another layout.
FORMAT = 1
# Characters of a file name, and those of the digest of a longer one.
_LONGEST, _DIGEST = 120, 8
_MARK = "$"  # starts the only key of a dict that stands for something else


class ResultFolder:
    """The results of a folder by name.

    >>> import tempfile
    >>> kept = ResultFolder(Path(tempfile.mkdtemp()))
    >>> kept.put("mean of rows", {"value": np.arange(3)})
    >>> kept.get("mean of rows")["value"].tolist(), kept.get("another") is None
    ([0, 1, 2], True)
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        """Where a result lies."""
        return self.folder / f"{_stem(name)}.json"

    def get(self, name: str) -> Any:
        """The result, or None where there is none; a damaged one raises DamagedError."""
        try:
            text = read_plain(self.path(name))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise DamagedError(f"{self.path(name)}: {error}") from None
        try:
            record = json.loads(text)
            sha256 = record.pop("sha256")
            if sha256 != hashlib.sha256(_text(record)).hexdigest() or record["format"] != FORMAT:
                raise DamagedError("its checksum is wrong")
            if record["name"] != name:
                return None
            return _decoded(record["result"], self._arrays(name, record["arrays"]))
        except (AttributeError, LookupError, TypeError, ValueError, EOFError, OSError) as error:
            raise DamagedError(f"{self.path(name)} is damaged: {error}") from None

    def put(self, name: str, result: Any) -> None:
        """Keep a result; when this returns, it is on the disk."""
        self.folder.mkdir(parents=True, exist_ok=True)
        arrays: list[NDArray[Any]] = []
        record: dict[str, Any] = {"format": FORMAT, "name": name, "result": _encoded(result, arrays), "arrays": None}
        if arrays:
            with writing(self.path(name).with_suffix(".npy")) as file:
                for array in arrays:
                    np.lib.format.write_array(file, array, allow_pickle=False)
            record["arrays"] = {"count": len(arrays), "bytes": file.size, "sha256": file.sha256.hexdigest()}
        record["sha256"] = hashlib.sha256(_text(record)).hexdigest()
        write_atomically(self.path(name), _text(record))

    def clear_parts(self) -> None:
        """Remove what a killed process has left half-written; no other may be writing."""
        for path in self.folder.glob(f".*{PART}"):
            path.unlink(missing_ok=True)

    def _arrays(self, name: str, listed: Any) -> list[NDArray[Any]]:
        if listed is None:
            return []
        content = read_plain(self.path(name).with_suffix(".npy"))
        if hashlib.sha256(content).hexdigest() != listed["sha256"]:
            raise DamagedError("the checksum of its arrays is wrong")
        file = io.BytesIO(content)
        return [np.load(file, allow_pickle=False) for _ in range(listed["count"])]


class DamagedError(ValueError):
    """A kept result is not what was written."""


def _stem(name: str) -> str:
    """A file name that resembles the name; what had to be cut off is told apart by its digest.

    >>> _stem("labels 0-16"), len(_stem("x" * 500))
    ('labels-0-16', 129)
    """
    plain = re.sub(r"[^A-Za-z0-9_.,-]+", "-", name).lstrip(".-") or "result"
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]
    return plain if len(plain) <= _LONGEST else f"{plain[:_LONGEST]}-{digest}"


def _text(record: dict[str, Any]) -> bytes:
    return json.dumps(record, indent=1).encode()


def _encoded(value: Any, arrays: list[NDArray[Any]]) -> Any:
    """A JSON value; arrays go to the list, and their places stand in for them."""
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biuf":
            raise BlockXMCError(f"an array of {value.dtype} cannot be kept: it is neither numbers nor Booleans")
        arrays.append(np.ascontiguousarray(value))
        return {"$array": len(arrays) - 1}
    if isinstance(value, (sparse.csr_array, sparse.csc_array)):
        parts = [_encoded(part, arrays) for part in (value.indptr, value.indices, value.data)]
        return {f"${value.format}": parts, "shape": [int(extent) for extent in value.shape]}
    if isinstance(value, tuple):
        return {"$tuple": [_encoded(item, arrays) for item in value]}
    if isinstance(value, list):
        return [_encoded(item, arrays) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) and not key.startswith(_MARK) for key in value):
        return {key: _encoded(item, arrays) for key, item in value.items()}
    raise BlockXMCError(f"a {type(value).__name__} cannot be kept: it is not data")


def _decoded(node: Any, arrays: list[NDArray[Any]]) -> Any:
    if isinstance(node, list):
        return [_decoded(item, arrays) for item in node]
    if not isinstance(node, dict):
        return node
    if "$array" in node:
        return arrays[node["$array"]]
    if "$tuple" in node:
        return tuple(_decoded(node["$tuple"], arrays))
    for mark, kind in (("$csr", sparse.csr_array), ("$csc", sparse.csc_array)):
        if mark in node:
            indptr, indices, data = _decoded(node[mark], arrays)
            return kind((data, indices, indptr), shape=tuple(node["shape"]))
    return {key: _decoded(item, arrays) for key, item in node.items()}
