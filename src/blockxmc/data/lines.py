"""Lines of text files, and of pipes as they come."""

from __future__ import annotations

import contextlib
import os
import select
import stat
import sys
from collections.abc import Iterator
from typing import IO, TypeVar

from blockxmc.data._source import (
    MAX_LINE_BYTES,
    STDIN,
    PathLike,
    Piped,
    SlowPhase,
    archive_errors,
    open_raw,
    too_long,
    unpacked,
)
from blockxmc.errors import DataFormatError

T = TypeVar("T")
_CHUNK = 1 << 18
# How long a line may wait for others that could be answered together with it.
_PATIENCE_SECONDS = 0.01


class Lines(Iterator[str]):
    """Lines of UTF-8 text with their ends (a byte-order mark is skipped)."""

    def __init__(self, raw: IO[bytes], path: PathLike, phase: SlowPhase, *, live: bool = False) -> None:
        """Lines of an open file, unpacked where needed; ``live``: of a pipe, whose next line may take a while."""
        self._raw, self._path, self._phase, self._live = raw, path, phase, live
        with archive_errors(path):
            self._content = unpacked(raw, path)
        self._here: list[bytes] = []  # whole lines that have been read, the next one last
        self._rest = b""
        self._ended = False
        self.number = 0  # of the last line

    def __next__(self) -> str:
        while not self._here:
            if self._ended:
                raise StopIteration
            self._read_more()
        line = self._here.pop()
        self.number += 1
        if len(line) > MAX_LINE_BYTES + 1:
            raise too_long(self._path, self.number)
        if b"\0" in line:
            wide = self.number == 1 and line[:2] in (b"\xff\xfe", b"\xfe\xff")
            what = (
                "this is UTF-16 text; convert the file (iconv -f UTF-16 -t UTF-8)"
                if wide
                else "this is not a text file"
            )
            raise DataFormatError(f"{self._path}: line {self.number}: holds a NUL byte; {what}")
        try:
            return line.decode("utf-8-sig" if self.number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise DataFormatError(
                f"{self._path}: line {self.number}: not UTF-8 text ({error.reason}); convert the file to UTF-8"
                " (from a spreadsheet: iconv -f WINDOWS-1252 -t UTF-8)"
            ) from error

    def first(self) -> bytes:
        """The first line that is not blank, which is still to be read; empty if there is none."""
        while not self._ended and not any(line.strip() for line in self._here):
            before = self._here
            self._read_more()
            self._here += before
        return next((line for line in reversed(self._here) if line.strip()), b"").removeprefix(b"\xef\xbb\xbf")

    def head(self) -> bytes:
        """The first two bytes of what comes next."""
        head: bytes = self._content.peek(2)[:2]  # type: ignore[attr-defined]
        return head

    @property
    def name(self) -> str:
        """What messages call the file."""
        return str(self._path)

    def say(self, text: str) -> None:
        """Tell the user one finding about the file."""
        self._phase.say(f"{self._path}: {text}")

    @property
    def live(self) -> bool:
        """Whether lines come as somebody writes them."""
        return self._live

    def idle(self) -> bool:
        """Whether the next line has not come yet, and does not come at once."""
        if self._here or self._ended or not self._live or self._content is not self._raw:
            return False
        return not select.select([self._raw], [], [], _PATIENCE_SECONDS)[0]

    def rest(self) -> bytes:
        """All that has not been read as lines."""
        parts = [*reversed(self._here), self._rest]
        with archive_errors(self._path):
            parts.append(self._content.read())
        self._here, self._rest, self._ended = [], b"", True
        return b"".join(parts)

    def _read_more(self) -> None:
        with archive_errors(self._path):
            chunk: bytes = self._content.read1(_CHUNK)  # type: ignore[attr-defined]
        content = self._rest + chunk
        self._ended = not chunk
        whole = len(content) if self._ended else content.rfind(b"\n") + 1
        if len(content) - whole > MAX_LINE_BYTES:
            raise too_long(self._path, self.number + content.count(b"\n") + 1)
        self._rest = content[whole:]
        lines = content[:whole].split(b"\n")
        last = lines.pop()  # what follows the last line end: only a file may end without one
        self._here = [line + b"\n" for line in lines] + ([last] if last else [])
        self._here.reverse()
        if not self._live:
            self._phase.update(self._raw.tell())


def together(rows: Iterator[T], lines: Lines, most: int) -> Iterator[list[T]]:
    """Rows that can be answered together: at most ``most``, and none that would wait for lines that are not there yet.

    Rows before a line that cannot be read are answered, too.
    """
    batch: list[T] = []
    fault: DataFormatError | None = None
    try:
        for row in rows:
            batch.append(row)
            if len(batch) >= most or lines.idle():
                yield batch
                batch = []
    except DataFormatError as error:
        fault = error
    if batch:
        yield batch
    if fault is not None:
        raise fault


@contextlib.contextmanager
def open_text(path: PathLike, verbose: int = 0) -> Iterator[Lines]:
    """Lines of a file, with progress over the bytes as stored; a pipe is read whole, before the first line."""
    with open_raw(path) as raw:
        total = raw.seek(0, os.SEEK_END)
        raw.seek(0)
        if total == 0:
            raise DataFormatError(f"{path}: is empty; give a file with at least one row")
        with SlowPhase(f"reading {os.path.basename(path)}", total, verbose) as phase:
            yield Lines(raw, path, phase)


@contextlib.contextmanager
def open_live(path: PathLike, verbose: int = 0) -> Iterator[Lines]:
    """Lines of a file or, as they come, of a pipe or standard input (``-``): nothing is kept."""
    if isinstance(path, Piped) or (str(path) != STDIN and not _is_pipe(path)):
        with open_text(path, verbose) as lines:
            yield lines
        return
    if str(path) == STDIN and sys.stdin is None:
        raise DataFormatError("standard input is closed; name a file")
    name = "standard input" if str(path) == STDIN else path
    with SlowPhase("predicting", None, 0) as phase, contextlib.ExitStack() as stack:
        raw = sys.stdin.buffer if str(path) == STDIN else stack.enter_context(open(path, "rb"))
        yield Lines(raw, name, phase, live=True)


def _is_pipe(path: PathLike) -> bool:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False  # whoever opens it says what is wrong
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)
