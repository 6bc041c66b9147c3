"""A data set in a folder of memory-mapped arrays; stretches of its rows (shards) have checksums of their own.

docs/reference/shards.md has the format. ``shards.json`` is written last: without it, the folder holds no data.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc._core.files import PART, checksum_of, flush_to_disk, npy_header, open_plain, read_plain
from blockxmc._core.mapping import mapped
from blockxmc._core.matrix import as_pattern, csr_args, csr_of, matrix_digest, row_parts
from blockxmc._core.memory import check_file_widths
from blockxmc._core.params import as_path
from blockxmc._core.results import DamagedError, ResultFolder
from blockxmc.data._source import PathLike, Piped, SlowPhase, read_names, write_names
from blockxmc.data.dataset import Dataset
from blockxmc.data.tfidf import TextVectorizer
from blockxmc.errors import DataFormatError, ModelFormatError

FORMAT = 1
MANIFEST, WORDS = "shards", "words"
LABELS, FEATURES = "labels.txt", "features.txt"
OTHERS = (LABELS, FEATURES, f"{WORDS}.json", f"{WORDS}.npy")
# File name -> type of its numbers.
ARRAYS = {"X.indptr": "<i8", "X.indices": "<i4", "X.data": "<f4", "Y.indptr": "<i8", "Y.indices": "<i4"}
FIRST = "X.indptr.npy"  # the file that is made first: no other is there without it
# Numbers that are looked at together, where all of a file are: what is held of it in memory.
AT_A_TIME = 1 << 22
ALIGNED = 64  # where numbers start in a .npy file: at a multiple of this


class Rows(NamedTuple):
    """Some rows of X and Y, as arrays of two CSR matrices; every label is a one."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    data: NDArray[np.float32]
    label_indptr: NDArray[np.int64]
    label_indices: NDArray[np.int32]

    @classmethod
    def of(cls, X: sparse.csr_array, Y: sparse.csr_array) -> Rows:
        """The arrays of two matrices."""
        return cls(*csr_args(X), *csr_args(Y)[:2])


def is_shards(path: PathLike) -> bool:
    """Whether a folder holds shards."""
    return (Path(path) / f"{MANIFEST}.json").is_file()


def read_shards(
    folder: PathLike,
    *,
    n_features: int | None = None,
    n_labels: int | None = None,
    label_names: Sequence[str] | None = None,
    verify: bool = False,
    check: bool = True,
) -> Dataset:
    """Open a folder that :func:`write_shards` wrote: its arrays are mapped, and read when they are used.

    ``n_features`` and ``n_labels`` may ask for more columns, and ``label_names`` name labels that have no names.
    ``verify`` compares all checksums, which reads everything; without ``check`` not even columns and values are looked
    at before they are used, for a process that needs few of the rows.

    >>> import tempfile
    >>> from blockxmc.data import make_synthetic, write_shards
    >>> train, _ = make_synthetic(n_train=20, n_test=5, n_features=30, n_labels=6, labels_per_row=2, nnz_per_row=5)
    >>> folder = tempfile.mkdtemp()
    >>> write_shards(folder, train, n_shards=3)
    >>> read_shards(folder, verify=True).digest == train.digest
    True
    """
    path = as_path(folder)
    known = _manifest(path)
    try:
        sizes = [int(known[name]) for name in ("rows", "features", "labels", "values", "positives")]
        files, digest = dict(known["files"]), str(known["digest"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise _damaged(path, f"{MANIFEST}.json lacks {error}") from None
    n, d, m, values, positives = sizes
    if min(sizes) < 0 or max(d, m) >= 2**31:
        raise _damaged(path, "its sizes are impossible")
    lengths = dict(zip(ARRAYS, (n + 1, values, values, n + 1, positives), strict=True))
    arrays = {name: _mapped_array(path / f"{name}.npy", length) for name, length in lengths.items()}
    if verify:
        _verify(path, arrays, files)
    X, Y = (_matrix(path, name, arrays, (n, width), check=check) for name, width in (("X", d), ("Y", m)))
    data = _named(path, files, X, Y)
    if check:
        check_file_widths(path, X, Y, "its shape")
    # The digest is over all numbers: whoever wrote them has computed it.
    data.__dict__["digest"] = digest
    return _called(path, _widened(path, data, n_features, n_labels), label_names, data.label_names)


def write_shards(folder: PathLike, data: Dataset, *, n_shards: int) -> None:
    """Write a data set to a new or empty folder, in so many shards of rows; :func:`read_shards` has an example."""
    with ShardWriter(folder) as writer:
        for rows in parts_of(data):
            writer.add(rows)
        names = Names(data.label_names, data.feature_names, data.vectorizer)
        writer.finish(n_shards, data.n_features, data.n_labels, names)


def parts_of(data: Dataset) -> Iterator[Rows]:
    """The rows of a data set, some thousand at a time."""
    for X, Y in zip(row_parts(data.X), row_parts(data.Y), strict=True):
        yield Rows.of(X, Y)


class Names(NamedTuple):
    """What labels and features are called, and the vectorizer by which texts become rows."""

    labels: Sequence[str] | None = None
    features: Sequence[str] | None = None
    vectorizer: TextVectorizer | None = None


NO_NAMES = Names()


class ShardWriter:
    """Writes rows as they come, and holds none of them; the folder has its data when ``finish`` has returned."""

    def __init__(self, folder: PathLike) -> None:
        self.folder = Path(folder)
        _check_new(self.folder)
        self.n_rows, self._ends = 0, {"X": 0, "Y": 0}
        self._files: dict[str, IO[bytes]] = {}
        self._written: list[Path] = []

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        # The file by which left-overs are known stays, until it is written over.
        for path in set(_own_files(self.folder)) - {self.folder / FIRST}:
            path.unlink(missing_ok=True)
        for name in ARRAYS:
            self._written.append(self.folder / f"{name}.npy")
            self._files[name] = open(self._written[-1], "wb")
            _write_header(self._files[name], name, 0)
        for matrix in ("X", "Y"):
            self._write(f"{matrix}.indptr", np.zeros(1, np.int64))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for file in self._files.values():
            file.close()
        if kind is not None:
            for path in reversed(self._written):
                path.unlink(missing_ok=True)

    def add(self, rows: Rows) -> None:
        """Write some more rows."""
        self.n_rows += rows.indptr.size - 1
        self._write("X.indptr", rows.indptr[1:] - rows.indptr[0] + self._ends["X"])
        self._write("X.indices", rows.indices)
        self._write("X.data", rows.data)
        self._write("Y.indptr", rows.label_indptr[1:] - rows.label_indptr[0] + self._ends["Y"])
        self._write("Y.indices", rows.label_indices)
        self._ends = {"X": self._ends["X"] + rows.indices.size, "Y": self._ends["Y"] + rows.label_indices.size}

    def finish(self, n_shards: int, n_features: int, n_labels: int, names: Names = NO_NAMES, verbose: int = 0) -> None:
        """Write names, compute checksums of what is on the disk, and last of all the manifest."""
        if self.n_rows == 0:
            raise DataFormatError(f"{self.folder}: there are no rows to write")
        lengths = dict(zip(ARRAYS, self._lengths(), strict=True))
        for name, file in self._files.items():
            file.seek(0)
            _write_header(file, name, lengths[name])
            flush_to_disk(file)
        arrays = {name: _mapped_array(self.folder / f"{name}.npy", length) for name, length in lengths.items()}
        shapes = (self.n_rows, n_features), (self.n_rows, n_labels)
        X = _matrix(self.folder, "X", arrays, shapes[0])
        Y = _matrix(self.folder, "Y", arrays, shapes[1])
        check_file_widths(self.folder, X, Y, "the data")
        sizes = {"rows": self.n_rows, "features": n_features, "labels": n_labels}
        counts = {"values": self._ends["X"], "positives": self._ends["Y"]}
        digests = {
            "digest": matrix_digest(X, Y),
            "shards": _checksums(arrays, row_ranges(self.n_rows, n_shards), verbose),
            "files": self._write_names(names),
        }
        self._written.append(ResultFolder(self.folder).path(MANIFEST))
        ResultFolder(self.folder).put(MANIFEST, {"shards_format": FORMAT} | sizes | counts | digests)

    def _lengths(self) -> tuple[int, ...]:
        rows, values, positives = self.n_rows + 1, self._ends["X"], self._ends["Y"]
        return rows, values, values, rows, positives

    def _write(self, name: str, numbers: NDArray[Any]) -> None:
        self._files[name].write(np.ascontiguousarray(numbers, ARRAYS[name]).data)

    def _write_names(self, names: Names) -> dict[str, str]:
        """Write names beside the arrays; the checksum of each file."""
        before = len(self._written)
        if names.vectorizer is not None:
            self._written += [self.folder / f"{WORDS}.json", self.folder / f"{WORDS}.npy"]
            ResultFolder(self.folder).put(WORDS, names.vectorizer.state())
        listed = {LABELS: names.labels, FEATURES: None if names.vectorizer is not None else names.features}
        for file, some in listed.items():
            if some is not None:
                self._written.append(self.folder / file)
                write_names(self.folder / file, [str(name) for name in some])
        return {path.name: checksum_of(path) for path in self._written[before:] if path.exists()}


def row_ranges(n_rows: int, n_shards: int) -> list[tuple[int, int]]:
    """Rows of each shard: as many in each, but for one; never none.

    >>> row_ranges(10, 3), row_ranges(2, 5)
    ([(0, 3), (3, 6), (6, 10)], [(0, 1), (1, 2)])
    """
    n_shards = min(n_shards, n_rows)
    return list(pairwise(n_rows * i // n_shards for i in range(n_shards + 1)))


def shard_ranges(folder: PathLike) -> list[tuple[int, int]]:
    """Rows of the shards of a folder: each from one up to another."""
    known = _manifest(Path(folder))
    try:
        ranges = [(int(shard["begin"]), int(shard["end"])) for shard in known["shards"]]
        ends = [0, *(end for _, end in ranges)]
        if ranges != list(pairwise(ends)) or ends[-1] != known["rows"] or sorted(set(ends)) != ends:
            raise ValueError("rows that belong to no shard, or to two")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise _damaged(Path(folder), str(error)) from None
    return ranges


# ---- inner workings ----
def _manifest(folder: Path) -> dict[str, Any]:
    try:
        known = ResultFolder(folder).get(MANIFEST)
    except DamagedError as error:
        raise DataFormatError(f"{error}; convert the data again") from None
    if not isinstance(known, dict):
        raise DataFormatError(f"{folder}: is no folder of shards ({MANIFEST}.json is missing); use blockxmc convert")
    if known.get("shards_format") != FORMAT:
        raise DataFormatError(
            f"{folder}: shards of format {known.get('shards_format')}, but this version reads {FORMAT}"
        )
    return known


def _damaged(folder: Path, what: str) -> DataFormatError:
    return DataFormatError(f"{folder}: damaged: {what}; convert the data again")


def _check_new(folder: Path) -> None:
    """Refuse a folder with anything in it but what a conversion that was killed has left."""
    if folder.exists() and not folder.is_dir():
        raise DataFormatError(f"{folder}: is a file; shards need a folder")
    if is_shards(folder):
        raise DataFormatError(f"{folder}: holds shards already; choose another name, or remove it")
    found = set(folder.iterdir()) if folder.is_dir() else set()
    if found and (folder / FIRST not in found or found - set(_own_files(folder))):
        raise DataFormatError(f"{folder}: exists and is not an empty folder; choose another name")


def _own_files(folder: Path) -> list[Path]:
    """What has a name that a writer of shards gives, whole or in part."""
    names = [f"{name}.npy" for name in ARRAYS] + [*OTHERS, f"{MANIFEST}.json"]
    parts = tuple(f".{name}-" for name in names)
    return [p for p in folder.iterdir() if p.name in names or (p.suffix == PART and p.name.startswith(parts))]


def _write_header(file: IO[bytes], name: str, length: int) -> None:
    """The header of a .npy file; NumPy leaves room for longer lengths, so that it may be written again."""
    described = {"descr": ARRAYS[name], "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(file, described)


def _mapped_array(path: Path, length: int) -> NDArray[Any]:
    dtype = np.dtype(ARRAYS[path.name.removesuffix(".npy")])
    try:
        with open_plain(path) as file:
            found, shape, start = npy_header(file)
            size = os.fstat(file.fileno()).st_size
            if found != dtype.str or shape != [length] or size != start + length * dtype.itemsize:
                raise ValueError(f"it does not hold {length:,} numbers of type {dtype.str}")
            if start % ALIGNED:
                raise ValueError(f"its numbers do not start at a multiple of {ALIGNED} bytes")
            file.seek(0)
            content = mapped(file, size)
    except (OSError, ValueError) as error:
        raise _damaged(path.parent, f"{path.name}: {error}") from None
    # Not a view of bytes: SciPy copies an array that has less than half of the elements of what it is a view of.
    numbers = np.frombuffer(content, dtype, offset=start)
    numbers.flags.writeable = False
    return numbers


def _matrix(
    folder: Path, name: str, arrays: Mapping[str, NDArray[Any]], shape: tuple[int, int], *, check: bool = True
) -> sparse.csr_array:
    """A matrix over mapped arrays, which are read once, to see that kernels may rely on them."""
    indptr, indices, data = (arrays.get(f"{name}.{part}") for part in ("indptr", "indices", "data"))
    assert indptr is not None
    assert indices is not None
    if indptr[0] != 0 or indptr[-1] != indices.size or (np.diff(indptr) < 0).any():
        raise _damaged(folder, f"the row pointers of {name}")
    if not check:
        return as_pattern(indptr, indices, shape) if data is None else csr_of(indptr, indices, data, shape)
    if indices.size and (indices.min() < 0 or indices.max() >= shape[1]):
        raise _damaged(folder, f"column numbers of {name} are out of range")
    # NaN makes either comparison false.
    if data is not None and not (data.max(initial=0) < np.inf and data.min(initial=0) > -np.inf):
        raise _damaged(folder, f"{name} holds NaN or infinite values")
    matrix = as_pattern(indptr, indices, shape) if data is None else csr_of(indptr, indices, data, shape)
    if not matrix.has_canonical_format:
        raise _damaged(folder, f"columns of a row of {name} are not in order, or repeat")
    return matrix


def _named(folder: Path, files: Mapping[str, str], X: sparse.csr_array, Y: sparse.csr_array) -> Dataset:
    """The matrices with the names that lie beside them."""
    labels, features = (_names_of(folder / name) if name in files else None for name in (LABELS, FEATURES))
    if f"{WORDS}.json" not in files:
        return Dataset(X, Y, features, labels)
    try:
        state = ResultFolder(folder).get(WORDS)
        if state is None:
            raise DamagedError(f"{WORDS}.json is missing")
        vectorizer = TextVectorizer.from_state(state)
    except (DamagedError, ModelFormatError, KeyError, TypeError) as error:
        raise _damaged(folder, f"its words: {error}") from None
    return Dataset(X, Y, vectorizer.feature_names, labels, vectorizer)


def _names_of(path: Path) -> list[str]:
    try:
        content = read_plain(path)
    except (OSError, ValueError) as error:
        raise _damaged(path.parent, f"{path.name}: {error}") from None
    return read_names(Piped(str(path), content))


def _widened(folder: Path, data: Dataset, n_features: int | None, n_labels: int | None) -> Dataset:
    """The data with as many columns as are asked for; what grows has no names any more."""
    wide: list[sparse.csr_array] = []
    for matrix, wanted, what in ((data.X, n_features, "features"), (data.Y, n_labels, "labels")):
        width = matrix.shape[1] if wanted is None else wanted
        if width < matrix.shape[1]:
            raise DataFormatError(f"{folder}: has {matrix.shape[1]} {what}, more than the {width} asked for")
        wide.append(csr_of(matrix.indptr, matrix.indices, matrix.data, (matrix.shape[0], width)))
    if (wide[0].shape[1], wide[1].shape[1]) == (data.n_features, data.n_labels):
        return data
    labels = data.label_names if wide[1].shape[1] == data.n_labels else None
    if wide[0].shape[1] > data.n_features:
        return Dataset(wide[0], wide[1], label_names=labels)
    return Dataset(wide[0], wide[1], data.feature_names, labels, data.vectorizer)


def _called(folder: Path, data: Dataset, label_names: Sequence[str] | None, own: Sequence[str] | None) -> Dataset:
    """The data with these names of labels; the first may have names of their own, but no others."""
    if label_names is None:
        return data
    if own is not None and list(own) != list(label_names[: len(own)]):
        raise DataFormatError(f"{folder}: its labels have other names; convert it together with the training data")
    named = replace(data, label_names=label_names)
    if "digest" in data.__dict__:
        named.__dict__["digest"] = data.digest
    return named


def _checksums(
    arrays: Mapping[str, NDArray[Any]], ranges: Sequence[tuple[int, int]], verbose: int
) -> list[dict[str, Any]]:
    """Of each shard its rows, and SHA-256 of its stretch of each array."""
    found = []
    with SlowPhase("computing checksums", len(ranges), verbose) as phase:
        for done, (begin, end) in enumerate(ranges, 1):
            sums = {name: _sha256(stretch) for name, stretch in _stretches(arrays, begin, end)}
            found.append({"begin": begin, "end": end, "sha256": sums})
            phase.update(done)
    return found


def _stretches(arrays: Mapping[str, NDArray[Any]], begin: int, end: int) -> Iterator[tuple[str, NDArray[Any]]]:
    """What rows from ``begin`` up to ``end`` have in each array."""
    for matrix in ("X", "Y"):
        indptr = arrays[f"{matrix}.indptr"]
        for name in arrays:
            if name == f"{matrix}.indptr":
                yield name, indptr[begin : end + 1]
            elif name.startswith(f"{matrix}."):
                yield name, arrays[name][indptr[begin] : indptr[end]]


def _verify(folder: Path, arrays: Mapping[str, NDArray[Any]], files: Mapping[str, str]) -> None:
    """Compare everything with its checksum."""
    found = _checksums(arrays, shard_ranges(folder), 0)
    known = _manifest(folder)["shards"]
    wrong = [number for number, (a, b) in enumerate(zip(known, found, strict=True)) if a != b]
    if wrong:
        raise _damaged(folder, f"the checksum of shard {wrong[0]} of {len(known)} is wrong")
    for name, sha256 in files.items():
        if name not in OTHERS or checksum_of(folder / name) != sha256:
            raise _damaged(folder, f"{ascii(name)[:60]} is missing or has another checksum")


def _sha256(numbers: NDArray[Any]) -> str:
    state = hashlib.sha256()
    for start in range(0, numbers.size, AT_A_TIME):
        state.update(numbers[start : start + AT_A_TIME].data)
    return state.hexdigest()
