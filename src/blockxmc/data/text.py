"""From texts with label names to a data set."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from blockxmc._core.matrix import as_csr, csr_of
from blockxmc._core.progress import Phase, reporter_for
from blockxmc._core.targets import Targets, as_names, form_of_matrix
from blockxmc.data._source import PathLike, SlowPhase
from blockxmc.data.corpus import Fields, read_corpus
from blockxmc.data.dataset import Dataset
from blockxmc.data.label_lists import are_lists, listed_names
from blockxmc.data.label_names import clean_names
from blockxmc.data.repository import label_titles, left_out_pairs
from blockxmc.data.tfidf import TextVectorizer
from blockxmc.errors import BlockXMCError, DataFormatError


def read_text(
    path: PathLike,
    vectorizer: TextVectorizer | None = None,
    label_names: Sequence[str] | None = None,
    *,
    require_labels: bool = True,
    kind: str | None = None,
    fields: Fields | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Dataset:
    """Read JSONL, JSON, TSV or CSV with text and label names (plain, .gz or .xz; ``-`` is standard input).

    - JSONL: ``{"text": "...", "labels": ["...", ...]}`` per line (or Annif's ``subjects``); JSON: an array of such objects;
    - TSV: text, a tab, labels separated by spaces, each a name, a URI or ``<URI>``;
    - CSV: a header line that names text columns (text, title, abstract, ...: joined) and one label column
      (``subject_uris``: separated by spaces; ``labels``: by semicolons).

    Training data learns its own words and label names. For test data give those of the training data: unknown labels
    are counted in ``unseen_labels`` and left out. ``kind`` (jsonl, json, tsv or csv) names the format where neither suffix
    nor content does; ``fields`` says what fields with other names hold.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "fruit.jsonl"
    >>> _ = file.write_text('{"text": "red apple", "labels": ["fruit"]}\\n{"text": "green leaf", "labels": []}\\n')
    >>> data = read_text(file)
    >>> data.label_names, data.feature_names, data.Y.toarray().tolist()
    (['fruit'], ['apple', 'green', 'leaf', 'red'], [[1.0], [0.0]])
    """
    corpus = read_corpus(path, require_labels, verbose, kind=kind, fields=fields)
    try:
        data = _dataset(corpus.texts, corpus.labels, vectorizer, label_names, n_jobs, verbose)
    except BlockXMCError as error:
        raise DataFormatError(f"{path}: {error}") from error
    data = _without_left_out(path, data)
    if data.unseen_labels:
        text = f"{path}: {data.unseen_labels:,} label occurrences are unknown and left out"
        reporter_for(verbose).say(text, logging.WARNING)
    return data


def _without_left_out(path: PathLike, data: Dataset) -> Dataset:
    """The data without the pairs of a row and a label that a file beside them leaves out of scoring."""
    titles = label_titles(path)
    if titles is None or data.label_names is None:
        return data
    pairs = left_out_pairs(path, (data.n_rows, len(titles)))
    if pairs is None:
        return data
    column = {name: number for number, name in enumerate(data.label_names)}
    places = np.array([column.get(title, -1) for title in titles])[pairs.indices]
    rows = np.repeat(np.arange(data.n_rows), np.diff(pairs.indptr))[places >= 0]
    ones = np.ones(rows.size, np.float32)
    left_out = sparse.csr_array((ones, (rows, places[places >= 0])), shape=data.Y.shape)
    Y = as_csr(data.Y - data.Y.multiply(left_out))
    Y.eliminate_zeros()
    return replace(data, Y=Y, left_out=left_out)


def from_texts(
    texts: Any,
    labels: Any,
    vectorizer: TextVectorizer | None = None,
    label_names: Sequence[str] | None = None,
    *,
    more: Sequence[str] = (),
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Dataset:
    """A data set from texts and, for each, a list of label names (or a 0-1 matrix, its columns named by ``label_names``).

    A vectorizer that has learnt no words yet learns those of the texts, and of ``more``, like names of labels.

    >>> train = from_texts(["red apple", "green leaf"], [["fruit"], ["plant"]])
    >>> test = from_texts(["green apple"], [["fruit", "rare"]], train.vectorizer, train.label_names)
    >>> test.Y.toarray().tolist(), test.unseen_labels
    ([[1.0, 0.0]], 1)
    """
    return _dataset(*as_rows(texts, labels), vectorizer, label_names, n_jobs, verbose, more)


def training_set(
    texts: Any,
    labels: Any,
    vectorizer: TextVectorizer,
    label_names: Any,
    more: Sequence[str] = (),
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Dataset:
    """``from_texts``, where all labels must be known."""
    found = from_texts(texts, labels, vectorizer, label_names, more=more, n_jobs=n_jobs, verbose=verbose)
    if found.unseen_labels:
        raise BlockXMCError(
            f"{found.unseen_labels:,} labels of texts are not among label_names; leave it out, or add them"
        )
    return found


def as_rows(texts: Any, labels: Any) -> tuple[list[str], Any]:
    """Texts as a list, and the labels of each as lists of names or as a matrix. One text has one list of names.

    >>> as_rows("red apple", ["fruit"]), as_rows(["red apple"], [["fruit"]])
    ((['red apple'], [['fruit']]), (['red apple'], [['fruit']]))
    """
    listed, one = as_texts(texts)
    if one and _is_list(labels) and not _is_matrix(labels):
        labels = list(labels)
        labels = labels if any(_is_list(name) for name in labels) else [labels]
    rows = clean_rows(labels)
    n_rows = rows.shape[0] if _is_matrix(rows) else len(rows)
    if len(listed) != n_rows:
        raise BlockXMCError(f"{len(listed)} texts but {n_rows} lists of labels")
    return listed, rows


def as_texts(texts: Any) -> tuple[list[str], bool]:
    """A list of texts from a list, an array, a Series or one text; and whether it was one.

    >>> as_texts("red apple"), as_texts(np.array(["red", "apple"]))
    ((['red apple'], True), (['red', 'apple'], False))
    """
    if isinstance(texts, str):
        return [texts], True
    if getattr(texts, "ndim", 1) != 1 or not isinstance(texts, Iterable) or isinstance(texts, (bytes, dict)):
        raise BlockXMCError(f"texts must be a list, an array or a Series of text, got {type(texts).__name__}")
    listed = texts.tolist() if hasattr(texts, "tolist") else list(texts)
    wrong = next((i for i, text in enumerate(listed) if not isinstance(text, str)), None)
    if wrong is not None:
        empty = _how_to_fill(listed[wrong])
        raise BlockXMCError(
            f"text {wrong} is {listed[wrong]!r:.60}; every text must be text, if only an empty one{empty}"
        )
    return listed, False


def clean_rows(labels: Any) -> Any:
    """Label lists with stripped names and without empty ones, as files are read; a matrix as it is.

    Text that is a list, as a table that was written and read again has it, is taken for one where all of it is.

    >>> clean_rows([[" a", ""], ("<b>",), []]), clean_rows(["['a', 'b']", "[]", ""])
    ([['a'], ['<b>'], []], [['a', 'b'], [], []])
    """
    if _is_matrix(labels):
        return labels
    if not _is_list(labels):
        raise BlockXMCError(f"labels must be a matrix or a list with a list of names per text, got {labels!r:.60}")
    rows, labels = [], list(labels)
    if are_lists(labels):
        labels = [listed_names(cell) or [] for cell in labels]
    for i, row in enumerate(labels):
        if not _is_list(row):
            raise BlockXMCError(
                f'row {i} of the labels is {row!r:.60}; give a list of names per text, like ["a", "b"] (a column of'
                f' joined names becomes one by .str.split(";")){_how_to_fill(row)}'
            )
        rows.append(clean_names(row, f"row {i} of the labels"))
    return rows


def _how_to_fill(value: Any) -> str:
    """What to do about a cell that a table left empty."""
    return '; empty cells become empty text by .fillna("")' if _is_missing(value) else ""


def _is_missing(value: Any) -> bool:
    """Whether this is None, NaN, or the NA of pandas, which does not say whether it equals itself.

    >>> import pandas as pd
    >>> [_is_missing(value) for value in (None, float("nan"), pd.NA, "", np.zeros(2))]
    [True, True, True, False, False]
    """
    try:
        return value is None or bool(value != value)
    except TypeError:
        return True
    except ValueError:  # an array
        return False


def _is_list(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes))


def _is_matrix(labels: Any) -> bool:
    return form_of_matrix(labels) is not None


def _dataset(
    texts: list[str],
    labels: Any,
    vectorizer: TextVectorizer | None,
    label_names: Sequence[Any] | None,
    n_jobs: int | None,
    verbose: int,
    more: Sequence[str] = (),
) -> Dataset:
    vectorizer = TextVectorizer() if vectorizer is None else vectorizer
    with SlowPhase("counting words", len(texts), verbose) as phase:
        shown = _Shown(texts, phase)
        X = (
            vectorizer.transform(shown, n_jobs)
            if vectorizer.n_features
            else vectorizer.fit_transform(shown, n_jobs, more)
        )
        end = X.indptr[len(texts)]
        X = csr_of(X.indptr[: len(texts) + 1], X.indices[:end], X.data[:end], (len(texts), X.shape[1]))
    if _is_matrix(labels):
        Y, names, unseen = *_named_columns(labels, label_names), 0
    elif label_names is None:
        targets, Y = Targets.encode(labels)
        names, unseen = [] if targets.names is None else targets.names.tolist(), 0
    else:
        (Y, unseen), names = indicator(labels, label_names), list(label_names)
    return Dataset(X, Y, vectorizer.feature_names, names, vectorizer, unseen)


def _named_columns(labels: Any, names: Sequence[Any] | None) -> tuple[sparse.csr_array, list[Any]]:
    """A 0-1 matrix and the names of its columns: those given, those of a DataFrame, or numbers."""
    targets, Y = Targets.encode(labels)
    found = as_names(getattr(labels, "columns", range(targets.n_labels)) if names is None else names).tolist()
    if len(found) != targets.n_labels or len(set(found)) != len(found):
        raise BlockXMCError(f"{len(set(found))} different label names for {targets.n_labels} columns of labels")
    return Y, found


class _Shown:
    """Texts that move a bar while they are read."""

    def __init__(self, texts: Sequence[str], phase: Phase) -> None:
        self._texts, self._phase = texts, phase

    def __len__(self) -> int:
        return len(self._texts)

    def __iter__(self) -> Iterator[str]:
        for done, text in enumerate(self._texts):
            if done % 1000 == 0:
                self._phase.update(done)
            yield text


def indicator(labels: Sequence[Sequence[str]], names: Sequence[str]) -> tuple[sparse.csr_array, int]:
    """Label lists as a 0-1 matrix over ``names``, and the number of occurrences of other names."""
    index = {name: j for j, name in enumerate(names)}
    if len(index) != len(names):
        raise BlockXMCError("label names are not unique")
    rows = [sorted({index[name] for name in row if name in index}) for row in labels]
    unseen = sum(name not in index for row in labels for name in set(row))
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)])
    flat = np.array([j for row in rows for j in row], dtype=np.int32)
    pointers = indptr.astype(np.int32) if flat.size < 2**31 else indptr
    Y = sparse.csr_array((np.ones(flat.size, np.float32), flat, pointers), shape=(len(rows), len(names)))
    return Y, unseen
