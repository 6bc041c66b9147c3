"""The model directory itself: opened once for reading, held by one writer at a time, changed in one atomic step.

Every saved version has file names of its own, ``NAME.VERSION.npy`` and ``NAME.VERSION.txt``, with a random VERSION. What
the model is, ``manifest.json`` says, and this file alone is replaced, by ``os.replace``: before it the path is the old
model, after it the new one. Files that the manifest does not list belong to no model; the next writer removes them.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Self

from blockxmc._core.files import NotPlainError, flush_folder, flush_to_disk, open_plain
from blockxmc.errors import BlockXMCError, ModelFormatError

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

MANIFEST = "manifest.json"
# No separator and no leading dot: a name cannot leave the folder.
FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,150}\.[0-9a-f]{12}\.(npy|txt)")
_DRAFT = re.compile(r"manifest\.[0-9a-f]{12}\.json")
_RELATIVE = os.open in os.supports_dir_fd


class Folder:
    """A model directory that was opened once: a path that leads elsewhere a moment later changes nothing."""

    def __init__(self, path: Path) -> None:
        self.path, self._handle = path, None
        if _RELATIVE:
            try:
                self._handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:
                raise ModelFormatError(f"{path}: there is no such model directory") from None
            except NotADirectoryError:
                raise self._missing(MANIFEST) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._handle is not None:
            os.close(self._handle)

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """Open a plain file for reading; a link, device or folder in its place is refused."""
        with ExitStack() as opened:
            try:
                place = self.path / name if self._handle is None else name
                file = opened.enter_context(open_plain(place, self._handle))
            except (FileNotFoundError, NotADirectoryError):
                raise self._missing(name) from None
            except NotPlainError as error:
                raise ModelFormatError(
                    f"{self.path / name} {error}, which a model directory must not contain"
                ) from None
            yield file

    def _missing(self, name: str) -> ModelFormatError:
        return ModelFormatError(f"{self.path} is not a complete model directory: {name} is missing")


def is_ours(name: str) -> bool:
    """Whether a file of this name can only come from a writer of models."""
    return bool(FILE_NAME.fullmatch(name) or _DRAFT.fullmatch(name))


class Update:
    """A new version that is being written into a model directory."""

    def __init__(self, path: Path) -> None:
        self.path, self.version = path, secrets.token_hex(6)

    def publish(self, manifest: bytes) -> None:
        """Make the written files the model: one atomic step."""
        draft = self.path / f"manifest.{self.version}.json"
        with open(draft, "xb") as file:
            file.write(manifest)
            flush_to_disk(file)
        flush_folder(self.path)
        os.replace(draft, self.path / MANIFEST)
        flush_folder(self.path)


@contextmanager
def updating(path: Path, listed: Callable[[Path], set[str]]) -> Iterator[Update]:
    """Write a new version of the model at ``path``; ``listed`` tells which files its manifest lists at the moment.

    One writer at a time: the next one waits. Where the file system has no locks, writers do not wait for each other, and
    files of interrupted writers stay.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    made, lock = _hold(path)
    try:
        before = listed(path)
        if lock is not None:  # no other writer is at work: what is not listed was left by one that was killed
            _remove(path, _ours(path) - before)
        update = Update(path)
        try:
            yield update
        finally:
            now = listed(path)  # the new files, or after a failure still the old ones
            there = _ours(path)
            if lock is None:  # others may be writing: their files are neither ours nor of the old version
                there = {name for name in there if name in before or f".{update.version}." in name}
            _remove(path, there - now)
            if made and not now:
                with suppress(OSError):
                    os.rmdir(path)
    finally:
        if lock is not None:
            fcntl.flock(lock, fcntl.LOCK_UN)
            os.close(lock)


def _hold(path: Path) -> tuple[bool, int | None]:
    """Make the directory where there is none, and lock it: (was it made, the lock or None where there are no locks)."""
    while True:
        made = False
        with suppress(FileExistsError):
            path.mkdir()
            made = True
        if fcntl is None:
            return made, None
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:  # a writer that failed has just removed it
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:
            os.close(lock)
            return made, None
        except BaseException:
            os.close(lock)
            raise
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), os.stat(path)):
                return made, lock
        os.close(lock)


def _ours(path: Path) -> set[str]:
    return {name for name in os.listdir(path) if is_ours(name)}


def _remove(path: Path, names: set[str]) -> None:
    """Remove files; those that the system holds on to (Windows, while they are mapped) wait for the next writer."""
    for name in names:
        with suppress(OSError):
            os.unlink(path / name)


def check_empty(path: Path, ours: set[str]) -> None:
    """Refuse a directory with anything in it that no writer of models has put there."""
    if foreign := sorted(name for name in os.listdir(path) if name not in ours and not is_ours(name)):
        raise BlockXMCError(
            f"{path} holds {foreign[0]!r}, which is no part of a blockxmc model; choose another or an empty directory"
        )
