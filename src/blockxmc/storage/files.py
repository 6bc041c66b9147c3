"""Single files of a model: written with size and checksum, opened without trusting anything they claim."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, overload

import numpy as np
from numpy.typing import NDArray

from blockxmc.errors import BlockXMCError, ModelFormatError

Entry = dict[str, Any]

# No separator and no leading dot: a name cannot leave the folder.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}\.(npy|txt)")
_DTYPE = re.compile(r"[<|][biuf][0-9]{1,2}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CHUNK = 1 << 20


class Writer:
    """Writes the files of one model into a folder and notes size, checksum and shape of each in ``entries``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.entries: dict[str, Entry] = {}
        self._taken: set[str] = set()

    def array(self, hint: str, array: NDArray[Any]) -> str:
        """Write an array of numbers; return the name of its file."""
        if array.dtype.kind not in "biuf":
            raise BlockXMCError(f"{hint} cannot be saved: an array of {array.dtype} is neither numbers nor Booleans")
        plain = np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
        name = self._name(hint, "npy")
        with self._create(name) as out:
            np.lib.format.write_array(out, plain, version=(1, 0), allow_pickle=False)
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
        name = self._name(hint, "txt")
        with self._create(name) as out:
            out.write(lines[1:-1] + b"\n" if strings else b"")
        self.entries[name]["lines"] = len(strings)
        return name

    def _name(self, hint: str, suffix: str) -> str:
        """A file name that resembles the hint, and differs from all others even where case does not count."""
        stem = re.sub(r"[^A-Za-z0-9_.-]", "_", hint)[:100].lstrip(".-") or "value"
        name, number = f"{stem}.{suffix}", 1
        while name.lower() in self._taken:
            number += 1
            name = f"{stem}-{number}.{suffix}"
        self._taken.add(name.lower())
        return name

    @contextmanager
    def _create(self, name: str) -> Iterator[_HashingFile]:
        with open(self.folder / name, "xb") as file:
            out = _HashingFile(file)
            yield out
            flush_to_disk(file)
        self.entries[name] = {"bytes": out.size, "sha256": out.sha256.hexdigest()}


class _HashingFile:
    """Passes bytes on to a file and keeps their number and checksum."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.size, self.sha256 = file, 0, hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        self.size += len(data)
        return self._file.write(data)


class Reader:
    """Opens the files that a manifest lists, after checking that they are what it says."""

    def __init__(self, folder: Path, entries: Any) -> None:
        self.folder = folder
        if not isinstance(entries, dict):
            raise ModelFormatError(f"{folder}: the manifest lists no files")
        for name, entry in entries.items():
            if not _is_entry(name, entry):
                raise ModelFormatError(f"{folder}: the manifest has a malformed entry for the file {name!r}")
        self.entries: dict[str, Entry] = entries

    def array(self, name: Any) -> NDArray[Any]:
        """Map an array read-only; of its content only the header is read."""
        with self._open(name, "npy") as file:
            entry = self.entries[name]
            try:
                if np.lib.format.read_magic(file) != (1, 0):
                    raise ValueError("unknown .npy version")
                shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
            except ValueError as error:
                raise self._damaged(name, f"has no valid .npy header ({_first_line(error)})") from None
            if dtype.str != entry["dtype"] or list(shape) != entry["shape"] or fortran:
                raise self._damaged(name, "holds another type or shape than the manifest says")
            start, size = file.tell(), dtype.itemsize
            for extent in shape:
                size *= extent
            if start + size != entry["bytes"]:
                raise self._damaged(name, f"should be {start + size} bytes long for its shape")
            if size == 0:
                empty = np.empty(shape, dtype)
                empty.flags.writeable = False
                return empty
            return np.memmap(file, dtype=dtype, mode="r", offset=start, shape=shape)

    def strings(self, name: Any) -> Strings:
        """Strings that are decoded when first looked at."""
        with self._open(name, "txt") as file:
            entry = self.entries[name]
            pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if entry["bytes"] else b""
        return Strings(pages, entry["lines"], f"{self.folder}: {name}")

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
            raise ModelFormatError(f"{self.folder}: the manifest refers to a file {name!r} that it does not list")
        with open_regular(self.folder / name) as file:
            size = os.fstat(file.fileno()).st_size
            if size != self.entries[name]["bytes"]:
                raise self._damaged(name, f"is {size} bytes long instead of {self.entries[name]['bytes']}")
            yield file

    def _damaged(self, name: str, finding: str) -> ModelFormatError:
        return ModelFormatError(f"{self.folder}: the model is damaged: {name} {finding}; copy or train it again")


class Strings(Sequence[str]):
    """A sequence of strings in a file, decoded when first looked at; pickles and compares as a plain list.

    >>> names = Strings(b'"a"\\n"two\\\\nlines"\\n', 2, "labels.txt")
    >>> len(names), names[1], names == ["a", "two\\nlines"]
    (2, 'two\\nlines', True)
    """

    def __init__(self, encoded: bytes | mmap.mmap, length: int, what: str) -> None:
        self._encoded, self._length, self._what = encoded, length, what
        self._decoded: list[str] | None = None

    def tolist(self) -> list[str]:
        """All strings as a plain list (the same one every time)."""
        if self._decoded is None:
            try:
                text = str(self._encoded[:], "utf-8")
                found = json.loads(f"[{text[:-1].replace(chr(10), ',')}]")
            except ValueError as error:
                raise ModelFormatError(f"{self._what} does not hold one string per line: {error}") from None
            if len(found) != self._length or not all(isinstance(item, str) for item in found):
                raise ModelFormatError(f"{self._what} does not hold {self._length} strings, one per line")
            self._decoded, self._encoded = found, b""
        return self._decoded

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


@contextmanager
def open_regular(path: Path) -> Iterator[IO[bytes]]:
    """Open a plain file for reading; a link, device or folder in its place is refused."""
    try:
        # Without O_NONBLOCK, a named pipe in place of the file would block the open for ever.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except (FileNotFoundError, NotADirectoryError):
        raise ModelFormatError(f"{path.parent} is not a complete model directory: {path.name} is missing") from None
    except OSError as error:
        if path.is_symlink():
            raise ModelFormatError(f"{path} is a symbolic link, which a model directory must not contain") from None
        raise error
    if not stat.S_ISREG(os.fstat(handle).st_mode) or path.is_symlink():
        os.close(handle)
        raise ModelFormatError(f"{path} is not a regular file")
    with open(handle, "rb") as file:
        yield file


def check_row_pointers(indptr: NDArray[Any], n_rows: int, n_entries: int, what: str) -> None:
    """Refuse row pointers that do not rise from 0 to the number of entries.

    >>> check_row_pointers(np.array([0, 2, 3]), 2, 3, "weights")
    """
    if indptr.ndim != 1 or indptr.dtype.kind != "i" or indptr.size != n_rows + 1:
        raise ModelFormatError(f"{what}: expected {n_rows + 1} integer row pointers")
    if indptr[0] != 0 or indptr[-1] != n_entries or (indptr[1:] < indptr[:-1]).any():
        raise ModelFormatError(f"{what}: row pointers do not rise from 0 to {n_entries}")


def check_indices(indices: NDArray[Any], upper: int, what: str) -> None:
    """Refuse indices outside 0..upper-1; call it once for a stretch of a model before a kernel reads it.

    >>> check_indices(np.array([0, 5]), 5, "labels of block 3")
    Traceback (most recent call last):
        ...
    blockxmc.errors.ModelFormatError: labels of block 3: index 5 lies outside 0..4
    """
    if indices.size and (indices.min() < 0 or indices.max() >= upper):
        wrong = indices.min() if indices.min() < 0 else indices.max()
        raise ModelFormatError(f"{what}: index {wrong} lies outside 0..{upper - 1}")


def flush_to_disk(file: IO[bytes]) -> None:
    """Return when the content of a file is on the disk."""
    file.flush()
    os.fsync(file.fileno())


def flush_folder(folder: Path) -> None:
    """Return when the names in a folder are on the disk (nothing to do where folders cannot be opened)."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _is_entry(name: Any, entry: Any) -> bool:
    if not isinstance(entry, dict) or _NAME.fullmatch(name) is None:
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
        and all(is_size(extent) for extent in shape)
        and isinstance(dtype, str)
        and _DTYPE.fullmatch(dtype) is not None
    )


def is_size(value: Any) -> bool:
    """Whether a value of a manifest is a number of things."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
