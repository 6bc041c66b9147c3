"""Files that are complete or absent, and files that are what they seem."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import IO

from blockxmc._core.memory import check_space

# A file that is not complete yet: hidden, and known by its ending.
PART = ".part"
# The header as NumPy writes it, and in no other form: nothing of it is evaluated.
_MAGIC = b"\x93NUMPY\x01\x00"
_HEADER = re.compile(
    rb"\{'descr': '([<|][biuf][0-9]{1,2})', 'fortran_order': False, 'shape': \(([0-9, ]{0,200})\), \} *\n"
)


class NotPlainError(ValueError):
    """In the place of a file stands something else."""


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file that appears under its name only when it is complete; folders are made where they are missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def writing(path: Path) -> Iterator[HashingFile]:
    """A file that appears under its name, on the disk, when all has been written to it, and not at all otherwise."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", suffix=PART, delete=False) as file:
        try:
            yield HashingFile(file)
            flush_to_disk(file)
            os.chmod(file.name, 0o644)
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
    flush_folder(path.parent)


@contextmanager
def open_plain(path: str | Path, folder: int | None = None) -> Iterator[BufferedReader]:
    """Open a file for reading, in an open folder if one is given; a link, pipe, device or folder is refused.

    A pipe would block for ever, a device may never end, and a link may lead to either.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    kind = os.stat(path, dir_fd=folder, follow_symlinks=False).st_mode
    if stat.S_ISLNK(kind):
        raise NotPlainError("is a symbolic link")
    if not stat.S_ISREG(kind):
        raise NotPlainError("is not a regular file")
    with open(os.open(path, flags, dir_fd=folder), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise NotPlainError("is not a regular file")
        yield file


def read_plain(path: Path) -> bytes:
    """The bytes of such a file, which must fit the memory."""
    with open_plain(path) as file:
        check_space(path, os.fstat(file.fileno()).st_size)
        return file.read()


def checksum_of(path: Path) -> str:
    """SHA-256 of such a file; empty where there is none."""
    try:
        with open_plain(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, NotPlainError):
        return ""


def npy_header(file: IO[bytes]) -> tuple[str, list[int], int]:
    """Type and shape of a plain .npy file, and where its numbers start."""
    opening = file.read(len(_MAGIC) + 2)
    length = int.from_bytes(opening[len(_MAGIC) :], "little")
    header = _HEADER.fullmatch(file.read(length)) if opening.startswith(_MAGIC) else None
    if header is None:
        raise NotPlainError("has no plain .npy header")
    return header[1].decode(), [int(n) for n in header[2].replace(b",", b" ").split()], len(opening) + length


class HashingFile:
    """Passes bytes on to a file and keeps their number and checksum."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.size, self.sha256 = file, 0, hashlib.sha256()

    def write(self, data: bytes) -> int:
        """Write, and count."""
        self.sha256.update(data)
        self.size += len(data)
        return self._file.write(data)


def flush_to_disk(file: IO[bytes]) -> None:
    """Return when the content of a file is on the disk."""
    file.flush()
    os.fsync(file.fileno())


def flush_file(path: Path) -> None:
    """Return when the content of a file that was closed is on the disk."""
    with open(path, "rb+") as file:
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
