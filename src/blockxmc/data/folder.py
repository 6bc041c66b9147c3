"""Which reader a path needs, and folders that hold a training and a test set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc._core.params import as_path
from blockxmc.data._source import COMPRESSED_SUFFIXES, PathLike, Piped, bare_name, once, sibling_names
from blockxmc.data.corpus import Fields, text_format
from blockxmc.data.dataset import Dataset
from blockxmc.data.lines import open_text
from blockxmc.data.npz import read_npz
from blockxmc.data.repository import is_archive, unpacked
from blockxmc.data.shards import is_shards, read_shards
from blockxmc.data.text import read_text
from blockxmc.data.tfidf import TextVectorizer
from blockxmc.data.xc import read_matrices, read_xc, with_names
from blockxmc.errors import DataFormatError

# Where a folder holds the same set in several formats, the first of these is read.
_KINDS = (".npz", ".txt", ".xc", ".svm", ".jsonl", ".ndjson", ".json", ".tsv", ".csv")


def data_format(path: PathLike) -> str:
    """``shards``, ``zip``, ``npz``, ``xc``, ``jsonl``, ``json``, ``tsv`` or ``csv``, by suffix or else by content.

    >>> data_format("train.npz"), data_format("train.jsonl.xz")
    ('npz', 'jsonl')
    """
    if isinstance(path, Piped):  # it has no suffix: an archive tells itself by its first bytes
        is_npz = path.content.startswith(b"PK") and b"xl/workbook.xml" not in path.content
        return "npz" if is_npz else (text_format(path) or "xc")
    if is_shards(path):
        return "shards"
    if is_archive(path):
        return "zip"
    return "npz" if Path(path).suffix == ".npz" else (text_format(path) or "xc")


def read_dataset(
    path: PathLike,
    vectorizer: TextVectorizer | None = None,
    label_names: Sequence[str] | None = None,
    *,
    n_features: int | None = None,
    n_labels: int | None = None,
    require_labels: bool = True,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Dataset:
    """Read a data file of any known format.

    ``vectorizer`` and ``label_names`` are those of the training data when text to be tested or labelled is read;
    ``n_features`` and ``n_labels`` do the same for XC text without a header.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "tiny.txt"
    >>> _ = file.write_text("0 0:1\\n1 1:1\\n")
    >>> read_dataset(file).Y.shape
    (2, 2)
    """
    path = once(path)
    kind = data_format(path)
    if kind == "shards":
        return read_shards(path, n_features=n_features, n_labels=n_labels, label_names=label_names)
    if kind == "npz":
        return read_npz(path)
    if kind == "zip":  # its training rows, or for a model its test rows
        return read_data_dir(path, n_jobs=n_jobs, verbose=verbose)[n_features is not None or vectorizer is not None]
    if kind == "xc":
        return read_xc(
            path, n_features=n_features, n_labels=n_labels, label_names=label_names, n_jobs=n_jobs, verbose=verbose
        )
    return read_text(path, vectorizer, label_names, require_labels=require_labels, n_jobs=n_jobs, verbose=verbose)


def read_data_dir(
    folder: PathLike, *, fields: Fields | None = None, n_jobs: int | None = None, verbose: int = 0
) -> tuple[Dataset, Dataset]:
    """Training and test set of a folder; of texts, ``fields`` says where they and their labels stand.

    Understood are folders of shards, ``train`` and ``test``; ``train.*`` and ``test.*`` (with ``labels.txt`` for XC
    text); and the Extreme Classification Repository's own names: ``*_train.txt`` and ``*_test.txt``, ``*_data.txt``
    with ``*_trSplit.txt`` and ``*_tstSplit.txt``, of which the first column counts, ``trn_X_Xf.txt`` and ``tst_X_Xf.txt``
    with ``*_X_Y.txt``, or ``trn.json`` and ``tst.json`` with ``lbl.json`` (texts). Pairs in ``filter_labels_test.txt`` are
    left out of scoring. A zip archive of such a folder is read as it is.

    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "tiny_data.txt").write_text("3 2 2\\n0 0:1\\n1 1:1\\n0,1 0:1 1:1\\n")
    >>> _ = (folder / "tiny_trSplit.txt").write_text("1 2\\n2 3\\n")
    >>> _ = (folder / "tiny_tstSplit.txt").write_text("3 1\\n")
    >>> train, test = read_data_dir(folder)
    >>> train.n_rows, test.Y.toarray().tolist()
    (2, [[1.0, 1.0]])
    """
    if is_archive(as_path(folder)):
        with unpacked(folder) as inner:
            return read_data_dir(inner, fields=fields, n_jobs=n_jobs, verbose=verbose)
    if not as_path(folder).is_dir():
        raise DataFormatError(f"{folder}: no such folder; give a folder with train.* and test.*")
    pair = train_and_test(Path(folder))
    if pair is not None:
        return read_pair(*pair, fields=fields, n_jobs=n_jobs, verbose=verbose)
    data = _only(Path(folder), "_data.txt")
    train_rows, test_rows = _only(Path(folder), "_trSplit.txt"), _only(Path(folder), "_tstSplit.txt")
    if data is None or train_rows is None or test_rows is None:
        raise DataFormatError(
            f"{folder}: holds neither train.* and test.*, nor *_train.txt and *_test.txt,"
            " nor *_data.txt with *_trSplit.txt and *_tstSplit.txt, nor trn_X_Xf.txt and tst_X_Xf.txt, nor trn.json and"
            " tst.json; give the files such names"
        )
    whole = read_xc(data, n_jobs=n_jobs, verbose=verbose)
    return whole.rows(read_split(train_rows, whole.n_rows)), whole.rows(read_split(test_rows, whole.n_rows))


def read_split(path: PathLike, n_rows: int) -> NDArray[np.intp]:
    """Zero-based rows from the first column of a split file, which counts from 1.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "split.txt"
    >>> _ = file.write_text("2 5\\n1 4\\n")
    >>> read_split(file, n_rows=3).tolist()
    [1, 0]
    """
    rows = []
    with open_text(path) as lines:
        for number, line in enumerate(lines, 1):
            fields = line.split()
            if not fields:
                continue
            if not fields[0].isascii() or not fields[0].isdigit() or not 1 <= int(fields[0][:20]) <= n_rows:
                raise DataFormatError(
                    f"{path}: line {number}: {fields[0][:40]!a} is not a row number from 1 to {n_rows};"
                    " check that the split belongs to this data"
                )
            rows.append(int(fields[0]) - 1)
    return np.array(rows, dtype=np.intp)


def train_and_test(folder: Path) -> tuple[Path, Path] | None:
    """The training and the test set of a folder, if they are files of their own, or shards."""
    if is_shards(folder / "train") and is_shards(folder / "test"):
        return folder / "train", folder / "test"
    for kind in _KINDS:
        pair = [_named(folder, stem + kind) for stem in ("train", "test")]
        if pair[0] and pair[1]:
            return pair[0], pair[1]
    for ending in ("_X_Xf.txt", ".json"):
        pair = [_named(folder, stem + ending) for stem in ("trn", "tst")]
        if pair[0] and pair[1]:
            return pair[0], pair[1]
    train, test = _only(folder, "_train.txt"), _only(folder, "_test.txt")
    return (train, test) if train and test else None


def _named(folder: Path, name: str) -> Path | None:
    return next(
        (folder / (name + end) for end in ("", *COMPRESSED_SUFFIXES) if (folder / (name + end)).is_file()), None
    )


def _only(folder: Path, ending: str) -> Path | None:
    """The one file whose name ends so (compressed or not)."""
    found = sorted(file for file in folder.iterdir() if bare_name(file).lower().endswith(ending.lower()))
    if len(found) > 1:
        names = ", ".join(file.name for file in found)
        raise DataFormatError(f"{folder}: more than one file ends in {ending} ({names}); keep one data set per folder")
    return found[0] if found else None


def read_pair(
    train_path: PathLike,
    test_path: PathLike,
    *,
    vectorizer: TextVectorizer | None = None,
    fields: Fields | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> tuple[Dataset, Dataset]:
    """A training and a test set with the same features and labels: words and names are those of the training set.

    Of texts, ``vectorizer`` says what is a feature, and ``fields`` where texts and labels stand.
    """
    kind = data_format(train_path)
    if kind in ("shards", "npz"):
        train, test = read_dataset(train_path), read_dataset(test_path)
    elif kind == "xc":
        return _read_xc_pair(train_path, test_path, n_jobs, verbose)
    else:
        options: Any = {"fields": fields, "n_jobs": n_jobs, "verbose": verbose}
        train = read_text(train_path, vectorizer, **options)
        test = read_text(test_path, train.vectorizer, train.label_names, **options)
    if (train.n_features, train.n_labels) != (test.n_features, test.n_labels):
        raise DataFormatError(
            f"{test_path}: has {test.n_features} features and {test.n_labels} labels, but {train_path} has"
            f" {train.n_features} and {train.n_labels}; convert both from the same source"
        )
    return train, test


def _read_xc_pair(
    train_path: PathLike, test_path: PathLike, n_jobs: int | None, verbose: int
) -> tuple[Dataset, Dataset]:
    """Both files at the width of the wider one: without headers, each shows only the ids that it happens to hold."""
    pairs = [read_matrices(path, None, None, n_jobs, verbose) for path in (train_path, test_path)]
    d, m = (max(pair[which].shape[1] for pair in pairs) for which in (0, 1))
    X, Y = (_widened(matrix, width) for matrix, width in zip(pairs[0], (d, m), strict=True))
    train = with_names(train_path, X, Y, sibling_names(train_path, "labels.txt", m, "labels"))
    X, Y = (_widened(matrix, width) for matrix, width in zip(pairs[1], (d, m), strict=True))
    return train, replace(with_names(test_path, X, Y, train.label_names), feature_names=train.feature_names)


def _widened(matrix: sparse.csr_array, width: int) -> sparse.csr_array:
    if matrix.shape[1] == width:
        return matrix
    return sparse.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=(matrix.shape[0], width))
