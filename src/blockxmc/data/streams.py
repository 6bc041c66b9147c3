"""From files to shards in a stream: memory holds some megabytes of rows at a time, and the names of labels and words."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from blockxmc._core.progress import reporter_for
from blockxmc.data._source import PathLike, once, sibling_names
from blockxmc.data.corpus import TEXT_FORMATS, Fields, Row, rows_of, text_format
from blockxmc.data.dataset import Dataset
from blockxmc.data.folder import data_format, read_dataset
from blockxmc.data.lines import open_text
from blockxmc.data.shards import Names, Rows, ShardWriter, parts_of
from blockxmc.data.text import indicator
from blockxmc.data.tfidf import TextVectorizer
from blockxmc.data.words import BATCH
from blockxmc.data.xc import XcRows
from blockxmc.errors import BlockXMCError, DataFormatError


class _Stream(Protocol):
    """Rows that come once; their widths and names are known when all have come."""

    def __iter__(self) -> Iterator[Rows]: ...
    def widths(self) -> tuple[int, int]: ...
    def names(self, n_features: int, n_labels: int) -> Names: ...


@dataclass(frozen=True)
class Reading:
    """How texts are read: where they stand in a file, and the words and labels of the training data, if they are others."""

    fields: Fields | None = None
    vectorizer: TextVectorizer | None = None
    label_names: Sequence[str] | None = None
    require_labels: bool = True
    n_jobs: int | None = None
    verbose: int = 0


def convert_to_shards(source: PathLike, folder: PathLike, n_shards: int, reading: Reading | None = None) -> None:
    """Write the rows of a file to a folder of shards; XC text, JSONL, TSV and CSV are read in a stream.

    Texts are read twice: for their words and labels, and for their rows. The numbers are those of ``read_dataset``.

    >>> import tempfile, pathlib
    >>> from blockxmc.data import read_shards
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "tiny.txt").write_text("0 0:1\\n1 1:1\\n")
    >>> convert_to_shards(folder / "tiny.txt", folder / "tiny", n_shards=2)
    >>> read_shards(folder / "tiny").Y.shape
    (2, 2)
    """
    reading = reading or Reading()
    with ShardWriter(folder) as writer:
        stream = _opened(source, reading)
        _pour(stream, writer)
        widths = stream.widths()
        writer.finish(n_shards, *widths, stream.names(*widths), reading.verbose)


def convert_pair_to_shards(
    train: PathLike, test: PathLike, folders: tuple[PathLike, PathLike], n_shards: int, reading: Reading | None = None
) -> None:
    """Two files with the same features and labels: words and names are those of the first."""
    reading = reading or Reading()
    if os.path.realpath(folders[0]) == os.path.realpath(folders[1]):
        raise DataFormatError(f"{folders[0]}: two data sets need two folders; choose another name for one")
    with ShardWriter(folders[0]) as first, ShardWriter(folders[1]) as second:
        stream = _opened(train, reading)
        _pour(stream, first)
        # Names beside XC text are those of both files: how many there must be is known when both have been read.
        known = Names() if isinstance(stream, _Xc) else stream.names(*stream.widths())
        like = Reading(reading.fields, known.vectorizer, known.labels, n_jobs=reading.n_jobs, verbose=reading.verbose)
        other = _opened(test, like)
        _pour(other, second)
        d, m = (max(pair) for pair in zip(stream.widths(), other.widths(), strict=True))
        _check_widths((train, stream), (test, other), known)
        names = stream.names(d, m)
        if isinstance(other, _Whole):
            _check_names(train, names, test, other.names(d, m))
        for writer in (first, second):
            writer.finish(n_shards, d, m, names, reading.verbose)


def _opened(source: PathLike, reading: Reading) -> _Stream:
    source = once(source)
    kind = data_format(source)
    if kind in TEXT_FORMATS:
        return _Texts(source, reading)
    if kind == "xc":
        return _Xc(source, reading)
    return _Whole(read_dataset(source, n_jobs=reading.n_jobs, verbose=reading.verbose))


def _check_widths(train: tuple[PathLike, _Stream], test: tuple[PathLike, _Stream], known: Names) -> None:
    """Refuse a test set that cannot have the features and labels of the training set; only XC text may be widened."""
    (path, stream), (other_path, other) = train, test
    if isinstance(other, _Texts) and known.vectorizer is None:
        raise DataFormatError(f"{other_path}: holds texts, but {path} does not; convert both from the same source")
    (d, m), (its_d, its_m) = stream.widths(), other.widths()
    wider = its_d > d or its_m > m
    if (isinstance(other, _Whole) and (d, m) != (its_d, its_m)) or (wider and not isinstance(stream, _Xc)):
        raise DataFormatError(
            f"{other_path}: has {its_d} features and {its_m} labels, but {path} has {d} and {m};"
            " convert both from the same source"
        )


def _check_names(path: PathLike, names: Names, other_path: PathLike, others: Names) -> None:
    """Refuse a test set with names that are not those of the training set; it may have none."""
    pairs = (("labels", names.labels, others.labels), ("features", names.features, others.features))
    wrong = [what for what, own, its in pairs if its is not None and (own is None or list(own) != list(its))]
    if wrong:
        raise DataFormatError(
            f"{other_path}: its {wrong[0]} have other names than those of {path}; convert both from the same source"
        )
    if names.vectorizer and others.vectorizer and not names.vectorizer.has_words_of(others.vectorizer):
        raise DataFormatError(f"{other_path}: its words weigh otherwise than those of {path}; convert both together")


def _pour(stream: _Stream, writer: ShardWriter) -> None:
    for rows in stream:
        writer.add(rows)


class _Whole:
    """A data set that is there already."""

    def __init__(self, data: Dataset) -> None:
        self._data = data

    def __iter__(self) -> Iterator[Rows]:
        return parts_of(self._data)

    def widths(self) -> tuple[int, int]:
        return self._data.n_features, self._data.n_labels

    def names(self, n_features: int, n_labels: int) -> Names:
        if (n_features, n_labels) != self.widths():
            return Names()
        return Names(self._data.label_names, self._data.feature_names, self._data.vectorizer)


class _Xc:
    """XC text."""

    def __init__(self, path: PathLike, reading: Reading) -> None:
        self._path, self._rows = path, XcRows(path, reading.n_jobs, reading.verbose)

    def __iter__(self) -> Iterator[Rows]:
        return (Rows(*rows) for rows in self._rows)

    def widths(self) -> tuple[int, int]:
        return self._rows.n_features, self._rows.n_labels

    def names(self, n_features: int, n_labels: int) -> Names:
        labels = sibling_names(self._path, "labels.txt", n_labels, "labels")
        return Names(labels, sibling_names(self._path, "features.txt", n_features, "features"))


class _Texts:
    """Texts and label names; where words or labels are not given, those of the file are learnt first."""

    def __init__(self, path: PathLike, reading: Reading) -> None:
        self._path, self._reading = path, reading
        self._vectorizer = reading.vectorizer or TextVectorizer()
        self._labels = reading.label_names
        if not self._vectorizer.n_features or self._labels is None:
            self._learn()

    def _texts(self) -> Iterator[Row]:
        reading, found = self._reading, 0
        kind = text_format(self._path)
        assert kind is not None
        with open_text(self._path, reading.verbose) as lines:
            for row in rows_of(lines, self._path, kind, reading.require_labels, reading.fields or Fields()):
                found += 1
                yield row
        if not found:
            raise DataFormatError(f"{self._path}: holds no rows; give a file with at least one row")

    def _learn(self) -> None:
        names: set[str] = set()

        def texts() -> Iterator[str]:
            for row in self._texts():
                names.update(row.labels)
                yield row.text

        try:
            if self._vectorizer.n_features:
                for _ in texts():
                    pass
            else:
                self._vectorizer.learn(texts(), self._reading.n_jobs)
        except BlockXMCError as error:
            if isinstance(error, DataFormatError):
                raise
            raise DataFormatError(f"{self._path}: {error}") from error
        self._labels = sorted(names) if self._labels is None else self._labels

    def __iter__(self) -> Iterator[Rows]:
        assert self._labels is not None
        rest, unseen = self._texts(), 0
        while batch := list(islice(rest, BATCH)):
            X = self._vectorizer.transform([row.text for row in batch], self._reading.n_jobs)
            Y, unknown = indicator([row.labels for row in batch], self._labels)
            unseen += unknown
            yield Rows.of(X, Y)
        if unseen:
            text = f"{self._path}: {unseen:,} label occurrences are unknown and left out"
            reporter_for(self._reading.verbose).say(text, logging.WARNING)

    def widths(self) -> tuple[int, int]:
        assert self._labels is not None
        return self._vectorizer.n_features, len(self._labels)

    def names(self, n_features: int, n_labels: int) -> Names:
        return Names(self._labels, self._vectorizer.feature_names, self._vectorizer)
