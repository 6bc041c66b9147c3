"""Single files of a model: written with size and checksum, opened without trusting anything they claim."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, overload

import numpy as np
from numpy.typing import NDArray

from blockxmc._core.files import HashingFile, NotPlainError, flush_file, npy_header
from blockxmc._core.mapping import mapped
from blockxmc._core.stored import short
from blockxmc.errors import BlockXMCError, ModelFormatError
from blockxmc.storage.folder import FILE_NAME, Folder

Entry = dict[str, Any]

_DTYPES = {"|b1", "|i1", "|u1", *(f"<{kind}{size}" for kind in "iuf" for size in (2, 4, 8))}
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CHUNK = 1 << 20
_MOST_DIMENSIONS = 8
# Files that are flushed to the disk at a time.
_AT_ONCE = 16
# The shortest string takes three bytes: two quotes and the end of the line.
_LEAST_LINE = 3


class Writer:
    """Writes the files of one version of a model and notes size, checksum and shape of each in ``entries``.

    ``before`` are the entries of the version that is there: a file that would be the same is listed again, not written.
    """

    def __init__(self, folder: Path, version: str, before: dict[str, Entry] | None = None) -> None:
        self.folder, self.version = folder, version
        self.entries: dict[str, Entry] = {}
        self._taken: set[str] = set()
        self._written: list[Path] = []
        self._before = {name: entry for name, entry in (before or {}).items() if _is_entry(name, entry)}
        self._there = {_without_version(name): name for name in self._before}

    def array(self, hint: str, array: NDArray[Any]) -> str:
        """Write an array of numbers; return the name of its file."""
        plain = np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
        if plain.dtype.str not in _DTYPES:
            raise BlockXMCError(f"{hint} cannot be saved: an array of {array.dtype} is neither numbers nor Booleans")
        write = partial(np.lib.format.write_array, array=plain, version=(1, 0), allow_pickle=False)
        name = self._put(self._name(hint, "npy"), write)
        self.entries[name] |= {"dtype": plain.dtype.str, "shape": list(plain.shape)}
        return name

    def strings(self, hint: str, strings: Sequence[str]) -> str:
        """Write strings, one JSON string per line, so that any character survives; return the name of the file."""
        # The only line breaks are those between items: JSON escapes the ones inside.
        text = json.dumps(list(strings), ensure_ascii=False, separators=("\n", ":"))
        try:
            lines = text.encode()
        except UnicodeEncodeError:  # lone surrogates exist in escaped form only
            lines = json.dumps(list(strings), separators=("\n", ":")).encode()
        name = self._put(self._name(hint, "txt"), lambda out: out.write(lines[1:-1] + b"\n" if strings else b""))
        self.entries[name]["lines"] = len(strings)
        return name

    def _put(self, name: str, write: Callable[[Any], Any]) -> str:
        """See to it that there is a file of what ``write`` writes, of this name or an older one; return its name."""
        old = self._there.get(_without_version(name))
        if old is not None and self._is_same(old, write):
            self.entries[old] = dict(self._before[old])
            return old
        with self._create(name) as out:
            write(out)
        return name

    def _is_same(self, name: str, write: Callable[[Any], Any]) -> bool:
        """Whether a file of the version that is there holds just what would be written."""
        with suppress(ModelFormatError, _DifferentError), Folder(self.folder) as folder, folder.open(name) as file:
            write(_ComparedFile(file))
            return not file.read(1)
        return False

    def flush(self) -> None:
        """Return when all files that were written are on the disk."""
        # Side by side: a file system puts what is waiting on the disk together, where one after the other would wait each
        # for its own turn.
        try:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                list(pool.map(flush_file, self._written))
        except RuntimeError:  # no thread can be started any more: the interpreter is ending
            for path in self._written:
                flush_file(path)

    def _name(self, hint: str, suffix: str) -> str:
        """A file name that resembles the hint, and differs from all others even where case does not count."""
        stem = re.sub(r"[^A-Za-z0-9_.-]", "_", hint)[:100].lstrip(".-") or "value"
        plain, number = stem, 1
        while stem.lower() in self._taken:
            number += 1
            stem = f"{plain}-{number}"
        self._taken.add(stem.lower())
        return f"{stem}.{self.version}.{suffix}"

    @contextmanager
    def _create(self, name: str) -> Iterator[HashingFile]:
        with open(self.folder / name, "xb") as file:
            out = HashingFile(file)
            yield out
        self._written.append(self.folder / name)
        self.entries[name] = {"bytes": out.size, "sha256": out.sha256.hexdigest()}


class _DifferentError(Exception):
    """A file holds something else."""


class _ComparedFile:
    """Takes bytes as if to write them, and ends at the first that a file does not hold."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, data: bytes) -> int:
        if self._file.read(len(data)) != data:
            raise _DifferentError
        return len(data)


def _without_version(name: str) -> str:
    """What the files of all versions have in common.

    >>> _without_version("state.bias.0123456789ab.npy")
    'state.bias.npy'
    """
    stem, _, suffix = name.rsplit(".", 2)
    return f"{stem}.{suffix}"


class Reader:
    """Opens the files that a manifest lists, after checking that they are what it says."""

    def __init__(self, folder: Folder, entries: Any) -> None:
        self.folder, self.path = folder, folder.path
        if not isinstance(entries, dict):
            raise ModelFormatError(f"{self.path}: the manifest lists no files")
        for name, entry in entries.items():
            if not _is_entry(name, entry):
                raise ModelFormatError(f"{self.path}: the manifest has a malformed entry for the file {name[:200]!r}")
        self.entries: dict[str, Entry] = entries
        self._arrays: dict[str, NDArray[Any]] = {}

    def array(self, name: Any) -> NDArray[Any]:
        """An array, read-only; of a large one only the header is read, the rest is mapped."""
        if isinstance(name, str) and name in self._arrays:  # however often it is referred to, a file is mapped once
            return self._arrays[name]
        with self._open(name, "npy") as file:
            entry = self.entries[name]
            start = self._check_header(name, entry, file)
            file.seek(0)
            content = mapped(file, entry["bytes"])
        try:
            found = np.frombuffer(content, dtype=np.uint8)[start:].view(entry["dtype"]).reshape(entry["shape"])
        except ValueError:  # no numbers at all, in a shape that NumPy does not know
            raise self._damaged(name, "has an impossible shape") from None
        found.flags.writeable = False
        self._arrays[name] = found
        return found

    def _check_header(self, name: str, entry: Entry, file: IO[bytes]) -> int:
        """Compare the header of an array with the manifest; return where its numbers start."""
        try:
            dtype, shape, start = npy_header(file)
        except NotPlainError as error:
            raise self._damaged(name, str(error)) from None
        if dtype != entry["dtype"] or shape != entry["shape"]:
            raise self._damaged(name, "holds another type or shape than the manifest says")
        size = np.dtype(entry["dtype"]).itemsize
        if start % 64:
            raise self._damaged(name, "does not start its numbers at a multiple of 64 bytes")
        for extent in shape:
            size *= extent
        if start + size != entry["bytes"]:
            raise self._damaged(name, f"is not {short(start + size)} bytes long, as its shape needs")
        return start

    def strings(self, name: Any) -> Strings:
        """Strings that are decoded when first looked at."""
        with self._open(name, "txt") as file:
            entry = self.entries[name]
            if entry["lines"] * _LEAST_LINE > entry["bytes"]:
                raise self._damaged(name, f"is too short for {entry['lines']} strings")
            return Strings(mapped(file, entry["bytes"]), entry["lines"], f"{self.path}: {name}")

    def sha256(self, name: str) -> str:
        """Checksum of a file as it is now."""
        digest = hashlib.sha256()
        with self._open(name, name[-3:]) as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
        return digest.hexdigest()

    @contextmanager
    def _open(self, name: Any, suffix: str) -> Iterator[IO[bytes]]:
        if not isinstance(name, str) or name not in self.entries or not name.endswith(f".{suffix}"):
            raise ModelFormatError(f"{self.path}: the manifest refers to a file {short(name)} that it does not list")
        with self.folder.open(name) as file:
            size = os.fstat(file.fileno()).st_size
            if size != self.entries[name]["bytes"]:
                raise self._damaged(name, f"is {size} bytes long instead of {self.entries[name]['bytes']}")
            yield file

    def _damaged(self, name: str, finding: str) -> ModelFormatError:
        return ModelFormatError(f"{self.path}: the model is damaged: {name} {finding}; copy or train it again")


def fits_one_width(strings: Sequence[str]) -> bool:
    """Whether an array that gives every string the room of the longest stays near the size of all of them.

    >>> fits_one_width(["a", "b"]), fits_one_width(["a" * 10_000] + [""] * 10_000)
    (True, False)
    """
    room = len(strings) * max(map(len, strings), default=0)
    return room <= 16 * sum(map(len, strings)) + (1 << 18)


class Strings(Sequence[str]):
    """A sequence of strings in a file, decoded when first looked at; pickles and compares as a plain list.

    >>> names = Strings(b'"a"\\n"two\\\\nlines"\\n', 2, "labels.txt")
    >>> len(names), names[1], names == ["a", "two\\nlines"]
    (2, 'two\\nlines', True)
    """

    def __init__(self, encoded: bytes | memoryview, length: int, what: str) -> None:
        self._encoded, self._length, self._what = encoded, length, what
        self._decoded: list[str] | None = None

    def tolist(self) -> list[str]:
        """All strings as a plain list (the same one every time)."""
        if self._decoded is None:
            try:
                text = str(self._encoded, "utf-8")
                found = json.loads(f"[{text[:-1].replace(chr(10), ',')}]")
            except (ValueError, RecursionError) as error:
                raise ModelFormatError(f"{self._what} does not hold one string per line: {short(str(error))}") from None
            if len(found) != self._length or not all(isinstance(item, str) for item in found):
                raise ModelFormatError(f"{self._what} does not hold {self._length} strings, one per line")
            self._decoded, self._encoded = found, b""
        return self._decoded

    def toarray(self, kind: str) -> NDArray[Any]:
        """All strings as an array: of Unicode of one width (``array``) or of objects (``object``)."""
        strings = self.tolist()
        if kind == "array" and not fits_one_width(strings):
            raise ModelFormatError(f"{self._what}: strings of so different lengths do not go into one array")
        return np.array(strings, dtype={"array": np.str_, "object": object}[kind])

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self.tolist()[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (list, Strings)) and self.tolist() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{self._length} strings of {self._what}>"

    def __reduce__(self) -> tuple[type[list[str]], tuple[list[str]]]:
        return list, (self.tolist(),)


def _is_entry(name: Any, entry: Any) -> bool:
    if not isinstance(entry, dict) or FILE_NAME.fullmatch(name) is None:
        return False
    if not is_size(entry.get("bytes")) or not isinstance(entry.get("sha256"), str):
        return False
    if _SHA256.fullmatch(entry["sha256"]) is None:
        return False
    if name.endswith(".txt"):
        return is_size(entry.get("lines"))
    shape, dtype = entry.get("shape"), entry.get("dtype")
    return (
        isinstance(shape, list)
        and len(shape) <= _MOST_DIMENSIONS
        and all(is_size(extent) for extent in shape)
        and isinstance(dtype, str)
        and dtype in _DTYPES
    )


def is_size(value: Any) -> bool:
    """Whether a value of a manifest is a number of things."""
    return type(value) is int and 0 <= value < 1 << 63
