"""Files that are complete or absent."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

# A file that is not complete yet: hidden, and known by its ending.
PART = ".part"


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
