"""Files as the readers see them: plain, gzip or xz by content; whole lines; one-line errors; a bar when it takes long."""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
import logging
import lzma
import mmap
import os
import stat
import sys
import tempfile
import time
import zlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from blockxmc._core.memory import check_space
from blockxmc._core.params import as_path
from blockxmc._core.progress import Phase, reporter_for
from blockxmc.data.sheets import as_csv, is_sheet
from blockxmc.errors import DataFormatError

PathLike = str | os.PathLike[str]
Block = NDArray[np.uint8]

STDIN = "-"
BLOCK_BYTES = 8 << 20
_PIECE_BYTES = 64 << 20
MAX_LINE_BYTES = 64 << 20
SHOW_AFTER_SECONDS = 2.0

_GZIP, _XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"
COMPRESSED_SUFFIXES = (".gz", ".xz")
_ARCHIVE_ERRORS = (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error)


def bare_name(path: PathLike) -> str:
    """The file's name without a compression suffix.

    >>> bare_name("data/train.txt.xz")
    'train.txt'
    """
    name = Path(path).name
    for suffix in COMPRESSED_SUFFIXES:
        name = name.removesuffix(suffix)
    return name


@dataclass(frozen=True)
class Piped:
    """What came through a pipe or standard input: it can be read only once, so it is kept, with a name for messages."""

    name: str
    content: bytes

    def __fspath__(self) -> str:
        return self.name

    def __str__(self) -> str:
        return self.name


def once(path: PathLike) -> PathLike:
    """The path itself; or, for standard input (``-``), a pipe or a device, all that comes out of it."""
    if isinstance(path, Piped):
        return path
    as_path(path)
    if str(path) == STDIN:
        if sys.stdin is None:
            raise DataFormatError("standard input is closed; name a file")
        return Piped("standard input", _whole_stdin(sys.stdin.buffer))
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return path  # whoever opens it says what is wrong
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return path
    with open(path, "rb") as pipe:
        if not stat.S_ISFIFO(mode) and not pipe.isatty():
            raise DataFormatError(f"{path}: is a device, which may never end; name a file or a pipe")
        return Piped(str(path), _whole(pipe, path))


class SlowPhase:
    """A progress phase that appears only after the work has taken a while."""

    def __init__(self, title: str, total: int | None, verbose: int) -> None:
        self._title, self._total, self._verbose = title, total, verbose
        self._began = time.monotonic()
        self._phase: Phase | None = None
        self._stack = contextlib.ExitStack()

    def update(self, done: int) -> None:
        """Set the number of finished steps."""
        if self._phase is None and self._verbose and time.monotonic() - self._began > SHOW_AFTER_SECONDS:
            self._phase = self._stack.enter_context(reporter_for(self._verbose).phase(self._title, self._total))
        if self._phase is not None:
            self._phase.update(done)

    def say(self, text: str) -> None:
        """Tell the user one finding."""
        reporter_for(self._verbose).say(text, logging.WARNING)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)


@contextlib.contextmanager
def archive_errors(path: PathLike) -> Iterator[None]:
    """Turn what gzip and lzma raise on damaged input into one clear line."""
    try:
        yield
    except _ARCHIVE_ERRORS as error:
        raise DataFormatError(f"{path}: the archive is truncated or damaged ({error}); fetch it again") from error


def unpacked(raw: IO[bytes], path: PathLike) -> IO[bytes]:
    """The content of an open file, through a decompressor where its first bytes ask for one."""
    magic = raw.getvalue()[: len(_XZ)] if isinstance(raw, io.BytesIO) else cast(io.BufferedReader, raw).peek(len(_XZ))
    if magic.startswith(_GZIP):
        return cast(IO[bytes], gzip.open(raw))
    if magic.startswith(_XZ):
        return lzma.open(raw)
    if is_sheet(magic):
        return cast(IO[bytes], io.BufferedReader(io.BytesIO(as_csv(raw.read(), str(path)))))
    if magic and Path(path).suffix in COMPRESSED_SUFFIXES:
        kind = "gzip" if Path(path).suffix == ".gz" else "xz"
        raise DataFormatError(
            f"{path}: has the name of a {kind} archive but other content; rename it or fetch it again"
        )
    return raw


@functools.lru_cache(maxsize=1)
def _whole_stdin(stream: IO[bytes]) -> bytes:
    """All of standard input, kept: a program may name it twice."""
    return _whole(stream, "standard input")


def _whole(stream: IO[bytes], name: PathLike) -> bytes:
    """All that a stream holds, as long as it fits the memory."""
    parts: list[bytes] = []
    while part := stream.read(_PIECE_BYTES):
        parts.append(part)
        check_space(name, len(parts) * _PIECE_BYTES)  # which are copied into one
    return b"".join(parts)


def open_raw(path: PathLike) -> IO[bytes]:
    """Open a file for reading bytes as stored; a pipe or standard input (``-``) is read whole."""
    source = once(path)
    if isinstance(source, Piped):
        return io.BytesIO(source.content)
    if Path(source).is_dir():
        raise DataFormatError(f"{path}: is a folder; name a file in it (in Python, read_data_dir takes a folder)")
    return open(source, "rb")


def first_line(path: PathLike) -> bytes:
    """The first line of a file that is not blank, shortened to what recognition needs; empty if there is none."""
    with open_raw(path) as raw, archive_errors(path):
        head = unpacked(raw, path).read(1 << 16)
    for line in head.removeprefix(b"\xef\xbb\xbf").splitlines():
        if line.strip():
            return line
    return b""


def read_blocks(path: PathLike, verbose: int = 0) -> Generator[Block]:
    """The bytes of a file in blocks of whole lines (only the last line may lack its newline)."""
    with open_raw(path) as raw:
        total = raw.seek(0, os.SEEK_END)
        raw.seek(0)
        if total == 0:
            raise DataFormatError(f"{path}: is empty; give a file with at least one row")
        with SlowPhase(f"reading {Path(path).name}", total, verbose) as phase:
            content = unpacked(raw, path)
            mapped = content is raw and not isinstance(raw, io.BytesIO)
            done = 0
            for block, done in _mapped_blocks(raw, path) if mapped else _streamed_blocks(content, raw, path):
                yield block
                phase.update(done)
            if not done:
                raise DataFormatError(f"{path}: the archive is empty; give a file with at least one row")


def _mapped_blocks(raw: IO[bytes], path: PathLike) -> Iterator[tuple[Block, int]]:
    """Blocks of a memory-mapped file; pages already read are given back, so that memory stays small."""
    mapped = mmap.mmap(raw.fileno(), 0, access=mmap.ACCESS_READ)
    size = len(mapped)
    everything = np.frombuffer(mapped, dtype=np.uint8)
    start = 0
    while start < size:
        stop = _line_end(mapped, start, size)
        if stop < 0:
            pieces = range(0, start, BLOCK_BYTES)
            lines = sum(mapped[a : min(a + BLOCK_BYTES, start)].count(b"\n") for a in pieces)
            raise too_long(path, lines + 1)
        yield everything[start:stop], stop
        if hasattr(mmap, "MADV_DONTNEED"):
            page = start - start % mmap.PAGESIZE
            mapped.madvise(mmap.MADV_DONTNEED, page, stop - page)
        start = stop


def _line_end(mapped: mmap.mmap, start: int, size: int) -> int:
    """End of a block that starts at ``start``: behind the last newline that fits, or -1 if a line is too long."""
    if size - start <= BLOCK_BYTES:
        return size
    stop = mapped.rfind(b"\n", start, start + BLOCK_BYTES) + 1
    if stop == 0:
        stop = mapped.find(b"\n", start + BLOCK_BYTES, start + MAX_LINE_BYTES + 1) + 1
    if stop == 0:
        return size if size - start <= MAX_LINE_BYTES else -1
    return stop


def _streamed_blocks(content: IO[bytes], raw: IO[bytes], path: PathLike) -> Iterator[tuple[Block, int]]:
    """Blocks of a stream that can only be read forward."""
    rest = b""
    line = 0
    while True:
        with archive_errors(path):
            more = content.read(BLOCK_BYTES)
        cut = more.rfind(b"\n") + 1
        if more and cut == 0:
            rest += more
            if len(rest) > MAX_LINE_BYTES:
                raise too_long(path, line + 1)
            continue
        block = rest + more[:cut]
        if block:
            yield np.frombuffer(block, dtype=np.uint8), raw.tell()
        if not more:
            return
        line += block.count(b"\n")
        rest = more[cut:]


def too_long(path: PathLike, line: int) -> DataFormatError:
    limit = f"{MAX_LINE_BYTES >> 20} MiB"
    return DataFormatError(f"{path}: line {line}: longer than {limit}; put one row on each line")


@contextlib.contextmanager
def write_atomic(path: PathLike) -> Iterator[IO[bytes]]:
    """Write a file (through gzip or xz by suffix) that appears under its name only when complete.

    A file of that name is replaced and keeps its permissions; a link keeps pointing to it; a pipe or a device is written
    to as it is.
    """
    target = Path(os.path.realpath(as_path(path)))
    if target.is_dir():
        raise DataFormatError(f"{path}: is a folder; name a file in it")
    if not target.parent.is_dir():
        raise DataFormatError(f"{path}: there is no folder {target.parent}; make it first")
    if target.exists() and not target.is_file():
        with open(target, "wb") as raw:
            yield raw
        return
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o666 & ~_umask()
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as raw:
            with _packed(raw, target.suffix) as content:
                yield content
            raw.flush()
            os.fsync(raw.fileno())
        os.chmod(name, mode)
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


@contextlib.contextmanager
def _packed(raw: IO[bytes], suffix: str) -> Iterator[IO[bytes]]:
    """An open file, through a compressor where its name asks for one."""
    if suffix == ".gz":
        with gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0) as packed:
            yield cast(IO[bytes], packed)
    elif suffix == ".xz":
        with lzma.open(raw, "wb") as packed_xz:
            yield cast(IO[bytes], packed_xz)
    else:
        yield raw


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def read_names(path: PathLike) -> list[str]:
    """Names from a text file, one per line, by id.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "labels.txt"
    >>> _ = file.write_text("cat\\ndog\\n")
    >>> read_names(file)
    ['cat', 'dog']
    """
    with open_raw(path) as raw, archive_errors(path):
        content = unpacked(raw, path).read()
    try:
        names = content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataFormatError(f"{path}: line {line}: not UTF-8 text; convert the file to UTF-8") from error
    if not names[-1]:
        names.pop()  # the last newline ends a name and begins none
    return [name.removesuffix("\r") for name in names]


def write_names(path: PathLike, names: Any) -> None:
    """Write names, one per line; a name that spans lines is refused."""
    broken = next((name for name in names if "\n" in name or "\r" in name), None)
    if broken is not None:
        raise DataFormatError(f"{path}: the name {broken!r} spans lines and cannot be written one name per line")
    with write_atomic(path) as out:
        out.write("".join(f"{name}\n" for name in names).encode())


def sibling_names(path: PathLike, name: str, size: int, what: str) -> list[str] | None:
    """Names from the file ``name`` (plain or compressed) beside ``path``, if there is one; it must hold ``size`` names."""
    if isinstance(path, Piped) or str(path) == STDIN:
        return None
    for suffix in ("", *COMPRESSED_SUFFIXES):
        beside = Path(path).parent / (name + suffix)
        if beside.is_file():
            names = read_names(beside)
            if len(names) != size:
                raise DataFormatError(
                    f"{beside}: holds {len(names)} names, but {path} has {size} {what}; correct, move or delete it"
                )
            return names
    return None
