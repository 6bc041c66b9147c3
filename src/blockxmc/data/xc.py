"""The XC text format: an optional first line ``n d m``, then ``label,label feature:value feature:value`` per row."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc import _kernels
from blockxmc._core.matrix import as_csr, as_indicator, csr_args, csr_of
from blockxmc._core.memory import check_file_widths
from blockxmc._core.progress import thread_count
from blockxmc.data._source import Block, PathLike, SlowPhase, once, read_blocks, sibling_names, write_atomic
from blockxmc.data.dataset import Dataset
from blockxmc.data.lines import Lines, together
from blockxmc.data.repository import labels_beside, left_out_pairs
from blockxmc.errors import DataFormatError

MAX_SIZE = 2**31 - 1
ROWS_PER_WRITE = 1 << 16
_HEADER = re.compile(rb"[ \t]*(\d+)[ \t]+(\d+)[ \t]+(\d+)[ \t\r]*\n?\Z")
_BOM = b"\xef\xbb\xbf"
_TOKEN = re.compile(rb"[^ \t\r\n]*")

# What the kernel found (xc::Finding) -> what it means and what to do about it.
_FINDINGS = {
    1: "{token} is not a label id; labels are whole numbers joined by commas at the start of the line",
    2: "{token} is not feature:value; separate features by spaces and give each an index and a value",
    3: "{token}: a label id is negative; ids start at 0",
    4: "{token}: a feature index is negative; indices start at 0",
    5: "{token}: a label id is out of range ({n_labels} labels, ids start at 0); correct the row or the header",
    6: "{token}: a feature index is out of range ({n_features} features, indices start at 0);"
    " correct the row or the header",
    7: "{token}: the value is not a number; write it like 0.25 or 2.5e-1",
    8: "{token}: the value is not finite; remove it or give a number",
    9: "{token}: the value is too large for a 32-bit float; rescale the features",
}


def read_xc(
    path: PathLike,
    *,
    n_features: int | None = None,
    n_labels: int | None = None,
    label_names: Sequence[str] | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Dataset:
    """Read an XC text file (plain, .gz or .xz; ``-`` is standard input).

    Without a header line, sizes are taken from ``n_features`` and ``n_labels`` or, failing that, from the largest ids;
    with one, the arguments may widen what it says. Indices are sorted, repeated features are added up, repeated labels
    and zero values are dropped. Names come from ``label_names`` or from ``labels.txt`` and ``features.txt`` beside the
    file, one name per line.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "tiny.txt"
    >>> _ = file.write_text("2 3 4\\n1,3 0:0.5 2:1\\n 1:2e-1\\n")
    >>> data = read_xc(file)
    >>> data.X.shape, data.Y.indices.tolist(), data.X.data.tolist()
    ((2, 3), [1, 3], [0.5, 1.0, 0.20000000298023224])
    """
    X, Y = read_matrices(path, n_features, n_labels, n_jobs, verbose)
    return with_names(path, X, Y, label_names)


def read_matrices(
    path: PathLike, n_features: int | None, n_labels: int | None, n_jobs: int | None, verbose: int
) -> tuple[sparse.csr_array, sparse.csr_array]:
    """X and Y of an XC text file, or of a pair of files ``*_X_Xf.txt`` and ``*_X_Y.txt``."""
    path = once(path)
    if (labels := labels_beside(path)) is not None:
        parts = (path, n_features), (labels, n_labels)
        X, Y = (_parsed(part, size, 0, n_jobs, verbose, bare=True)[0] for part, size in parts)
        if X.shape[0] != Y.shape[0]:
            raise DataFormatError(f"{labels}: has {Y.shape[0]} rows, but {path} has {X.shape[0]}")
        return X, as_indicator(Y)
    return _parsed(path, n_features, n_labels, n_jobs, verbose)


def _parsed(
    path: PathLike,
    n_features: int | None,
    n_labels: int | None,
    n_jobs: int | None,
    verbose: int,
    *,
    bare: bool = False,
) -> tuple[sparse.csr_array, sparse.csr_array]:
    """X and Y of one file; a ``bare`` one has rows of ``index:value`` only, and two numbers as its header."""
    given = read_blocks(path, verbose)
    with contextlib.closing(
        _as_features(given, path) if bare else given
    ) as blocks:  # closed also when a row is refused
        header, block = _split_header(_without_bom(next(blocks)))
        sizes = _Sizes(path, header, n_features, n_labels)
        parser = _kernels.XcParser(sizes.feature_limit, sizes.label_limit)
        threads = thread_count(n_jobs)
        while block is not None:
            finding, row, offset = parser.feed(block, threads)
            if finding:
                raise sizes.fault(finding, row, _token_at(block, offset))
            block = next(blocks, None)
    n_rows = sizes.rows_to_keep(parser.n_rows, parser.trailing_empty)
    shape, label_shape = sizes.shapes(n_rows, parser.max_feature, parser.max_label)
    indptr, indices, data, label_indptr, label_indices = parser.finish(n_rows)
    ones = np.ones(label_indices.size, np.float32)
    X, Y = _canonical(data, indices, indptr, shape), _canonical(ones, label_indices, label_indptr, label_shape)
    if n_features is None or n_labels is None:  # the caller's own sizes need no support by the rows
        check_file_widths(path, X, Y, "the header" if header else "the largest index")
    return X, Y


def _as_features(blocks: Iterator[Block], path: PathLike) -> Generator[Block]:
    """Rows of ``index:value`` as rows of XC text without labels."""
    first = _without_bom(next(blocks)).tobytes()
    head, _, rest = first.partition(b"\n")
    if len(sizes := head.split()) != 2 or not all(size.isdigit() for size in sizes):
        raise DataFormatError(f"{path}: line 1: {head[:40]!a} is not a header of two numbers: rows and columns")
    yield np.frombuffer(b" ".join([*sizes, b"0"]) + b"\n" + _indented(rest), np.uint8)
    for block in blocks:
        yield np.frombuffer(_indented(block.tobytes()), np.uint8)


def _indented(lines: bytes) -> bytes:
    """Every line behind a space: XC text has labels before the first."""
    return b"".join(b" " + line for line in lines.splitlines(keepends=True))


class XcRows:
    """The rows of an XC text file, some megabytes at a time; when all have come, their widths are known."""

    def __init__(self, path: PathLike, n_jobs: int | None = None, verbose: int = 0) -> None:
        self.path = once(path)
        self._threads, self._verbose = thread_count(n_jobs), verbose
        self.n_features = self.n_labels = 0

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Row pointers, columns and values of X, and row pointers and columns of Y."""
        with contextlib.closing(read_blocks(self.path, self._verbose)) as blocks:
            header, block = _split_header(_without_bom(next(blocks)))
            sizes = _Sizes(self.path, header, None, None)
            done = blank = 0  # rows that were given, and empty ones behind them, which may be the end of the file
            widest = [-1, -1]
            while block is not None:
                parser = _kernels.XcParser(sizes.feature_limit, sizes.label_limit)
                finding, row, offset = parser.feed(block, self._threads)
                if finding:
                    raise sizes.fault(finding, done + blank + row, _token_at(block, offset))
                n_rows = parser.n_rows - parser.trailing_empty
                if n_rows:
                    yield from _empty_rows(blank)
                    yield parser.finish(n_rows)
                    done, blank = done + blank + n_rows, 0
                blank += parser.trailing_empty
                widest = [max(widest[0], parser.max_feature), max(widest[1], parser.max_label)]
                block = next(blocks, None)
        n_rows = sizes.rows_to_keep(done + blank, blank)
        yield from _empty_rows(n_rows - done)
        (_, self.n_features), (_, self.n_labels) = sizes.shapes(n_rows, *widest)


def _empty_rows(n_rows: int) -> Iterator[tuple[Any, ...]]:
    """Rows without features and labels, where there are any."""
    if n_rows:
        pointers = np.zeros(n_rows + 1, np.int64)
        nothing = np.empty(0, np.int32)
        yield pointers, nothing, np.empty(0, np.float32), pointers, nothing


def stream_xc(
    lines: Lines, path: PathLike, *, n_features: int, n_labels: int, at_once: int, n_jobs: int | None = None
) -> Iterator[sparse.csr_array]:
    """Features of XC text as its lines come, at most ``at_once`` rows at a time."""
    header = parse_header(lines.first())
    sizes = _Sizes(path, header, n_features, n_labels)
    if header:
        next(lines)
    done, threads = 0, thread_count(n_jobs)
    for batch in together(_lines_of_rows(lines, sizes.n_rows), lines, at_once):
        block = np.frombuffer("".join(batch).encode(), np.uint8)
        parser = _kernels.XcParser(sizes.feature_limit, sizes.label_limit)
        finding, row, offset = parser.feed(block, threads)
        if finding:
            raise sizes.fault(finding, done + row, _token_at(block, offset))
        indptr, indices, data, _, _ = parser.finish(len(batch))
        done += len(batch)
        yield _canonical(data, indices, indptr, (len(batch), n_features))
    sizes.rows_to_keep(done, 0)


def _lines_of_rows(lines: Lines, n_rows: int | None) -> Iterator[str]:
    """Lines without the empty ones at the end, but for those that the header counts."""
    blank, done = 0, 0
    for line in lines:
        if not line.strip():
            blank += 1
            continue
        yield from ["\n"] * blank
        yield line
        blank, done = 0, done + blank + 1
    yield from ["\n"] * min(blank, (n_rows or 0) - done)


def with_names(path: PathLike, X: sparse.csr_array, Y: sparse.csr_array, label_names: Sequence[str] | None) -> Dataset:
    """X and Y with the names that lie beside ``path``."""
    if label_names is None:
        label_names = sibling_names(path, "labels.txt", Y.shape[1], "labels")
    left_out = left_out_pairs(path, Y.shape)
    Y = Y if left_out is None else as_csr(Y - Y.multiply(left_out))
    Y.eliminate_zeros()
    return Dataset(X, Y, sibling_names(path, "features.txt", X.shape[1], "features"), label_names, left_out=left_out)


def write_xc(path: PathLike, X: Any, Y: Any, *, n_jobs: int | None = None, verbose: int = 0) -> None:
    """Write X and Y as XC text with a header (.gz and .xz by suffix); reading it back gives the same matrices.

    The file appears only when it is complete.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "tiny.txt"
    >>> write_xc(file, [[0.5, 0.0], [0.0, 0.1]], [[0, 1], [0, 0]])
    >>> file.read_text()
    '2 2 2\\n1 0:0.5\\n 1:0.1\\n'
    """
    X, Y = as_csr(X), as_indicator(Y)
    if X.shape[0] != Y.shape[0]:
        raise DataFormatError(f"X has {X.shape[0]} rows but Y has {Y.shape[0]}")
    if not np.isfinite(X.data).all():
        raise DataFormatError("X holds NaN or infinite values, which XC text cannot; remove them first")
    (indptr, indices, data), (label_indptr, label_indices, _) = csr_args(X), csr_args(Y)
    threads = thread_count(n_jobs)
    n_rows = X.shape[0]
    with write_atomic(path) as out, SlowPhase(f"writing {Path(path).name}", n_rows, verbose) as phase:
        out.write(f"{n_rows} {X.shape[1]} {Y.shape[1]}\n".encode())
        for start in range(0, n_rows, ROWS_PER_WRITE):
            stop = min(start + ROWS_PER_WRITE, n_rows)
            a, b = indptr[start], indptr[stop]
            c, d = label_indptr[start], label_indptr[stop]
            rows, label_rows = indptr[start : stop + 1] - a, label_indptr[start : stop + 1] - c
            out.write(_kernels.format_xc(rows, indices[a:b], data[a:b], label_rows, label_indices[c:d], threads))
            phase.update(stop)


class _Sizes:
    """What header and arguments say about n, d and m, and whether the rows agree."""

    def __init__(
        self, path: PathLike, header: tuple[int, int, int] | None, n_features: int | None, n_labels: int | None
    ) -> None:
        self.path = path
        self.header = header
        self.n_rows = header[0] if header else None
        self.n_features = self._declared("n_features", n_features, header[1] if header else None)
        self.n_labels = self._declared("n_labels", n_labels, header[2] if header else None)
        self.feature_limit = MAX_SIZE if self.n_features is None else self.n_features
        self.label_limit = MAX_SIZE if self.n_labels is None else self.n_labels
        self.lines_before_rows = 1 if header else 0

    def _declared(self, name: str, argument: int | None, in_header: int | None) -> int | None:
        size = in_header if argument is None else argument
        if size is not None and not 0 <= size <= MAX_SIZE:
            where = f"{self.path}: line 1" if argument is None else str(self.path)
            raise DataFormatError(f"{where}: {name} = {size} is not between 0 and 2^31 - 1; split or re-index the data")
        if argument is not None and in_header is not None and argument < in_header:
            raise DataFormatError(
                f"{self.path}: line 1: the header says {name} = {in_header}, more than the {argument} asked for;"
                " leave the argument out or make it larger"
            )
        return size

    def fault(self, finding: int, row: int, token: bytes) -> DataFormatError:
        """The error for what the kernel found in a row."""
        if self.n_rows is not None and row >= self.n_rows:
            return self._too_many()
        line = row + 1 + self.lines_before_rows
        if b"\0" in token:
            return DataFormatError(f"{self.path}: line {line}: holds a NUL byte; this is not a text file")
        shown = ascii(token[:40].decode("utf-8", "replace"))
        what = _FINDINGS[finding].format(token=shown, n_features=self.feature_limit, n_labels=self.label_limit)
        if line == 1 and finding in (1, 2, 3):
            what += " (or start the file with a header: rows features labels)"
        return DataFormatError(f"{self.path}: line {line}: {what}")

    def _too_many(self) -> DataFormatError:
        assert self.n_rows is not None
        line = self.n_rows + 2
        return DataFormatError(
            f"{self.path}: line {line}: the header says {self.n_rows} rows, but more follow; correct the header"
        )

    def rows_to_keep(self, n_rows: int, trailing_empty: int) -> int:
        """Number of rows, without the empty lines at the end."""
        if self.n_rows is None:
            if n_rows == trailing_empty:
                raise DataFormatError(f"{self.path}: holds no rows; give a file with at least one row")
            return n_rows - trailing_empty
        if n_rows < self.n_rows:
            raise DataFormatError(
                f"{self.path}: line 1: the header says {self.n_rows} rows, but only {n_rows} follow;"
                " the file is cut off or the header is wrong"
            )
        if n_rows - trailing_empty > self.n_rows:
            raise self._too_many()
        return self.n_rows

    def shapes(self, n_rows: int, max_feature: int, max_label: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Shapes of X and Y."""
        d = max_feature + 1 if self.n_features is None else self.n_features
        m = max_label + 1 if self.n_labels is None else self.n_labels
        return (n_rows, d), (n_rows, m)


def parse_header(line: bytes) -> tuple[int, int, int] | None:
    """The three numbers of a header line, or None if it is a row.

    >>> parse_header(b"10 20 30\\n"), parse_header(b"1,2 3:4")
    ((10, 20, 30), None)
    """
    match = _HEADER.match(line)
    return (int(match[1]), int(match[2]), int(match[3])) if match and len(line) < 1000 else None


def looks_like_xc(line: bytes) -> bool:
    """Whether a line is an XC header or begins like an XC row."""
    return parse_header(line) is not None or re.match(rb"(\d+(,\d+)*)?([ \t]+\d+:|\s*\Z)|\d+:", line) is not None


def _without_bom(block: Block) -> Block:
    return block[3:] if block[:3].tobytes() == _BOM else block


def _split_header(block: Block) -> tuple[tuple[int, int, int] | None, Block | None]:
    head = block[:1000].tobytes()
    line = head[: head.find(b"\n") + 1] or head
    header = parse_header(line)
    return header, block[len(line) :] if header else block


def _token_at(block: Block, offset: int) -> bytes:
    match = _TOKEN.match(block[offset : offset + 200].tobytes())
    return match[0] if match else b""


def _canonical(
    data: NDArray[np.float32], indices: NDArray[np.int32], indptr: NDArray[np.int64], shape: tuple[int, int]
) -> sparse.csr_array:
    """A CSR array of what is known to be sorted and free of duplicates, without a copy of the large parts."""
    matrix = csr_of(indptr, indices, data, shape)
    matrix.has_canonical_format = True
    return matrix
