"""From texts with label names to a data set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from blockxmc._core.progress import reporter_for
from blockxmc.data._source import PathLike
from blockxmc.data.corpus import read_corpus
from blockxmc.data.dataset import Dataset
from blockxmc.data.tfidf import TextVectorizer
from blockxmc.errors import BlockXMCError, DataFormatError


def read_text(
    path: PathLike,
    vectorizer: TextVectorizer | None = None,
    label_names: Sequence[str] | None = None,
    *,
    require_labels: bool = True,
    verbose: int = 0,
) -> Dataset:
    """Read JSONL, TSV or CSV with text and label names (plain, .gz or .xz; ``-`` is standard input).

    - JSONL: ``{"text": "...", "labels": ["...", ...]}`` per line (or Annif's ``subjects``);
    - TSV: text, a tab, labels separated by spaces, each a name, a URI or ``<URI>``;
    - CSV: a header line that names text columns (text, title, abstract, ...: joined) and one label column
      (``subject_uris``: separated by spaces; ``labels``: by semicolons).

    Training data learns its own words and label names. For test data give those of the training data: labels that it
    does not know are counted in ``unseen_labels`` and left out.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "fruit.jsonl"
    >>> _ = file.write_text('{"text": "red apple", "labels": ["fruit"]}\\n{"text": "green leaf", "labels": []}\\n')
    >>> data = read_text(file)
    >>> data.label_names, data.feature_names, data.Y.toarray().tolist()
    (['fruit'], ['apple', 'green', 'leaf', 'red'], [[1.0], [0.0]])
    """
    corpus = read_corpus(path, require_labels, verbose)
    try:
        data = from_texts(corpus.texts, corpus.labels, vectorizer, label_names)
    except BlockXMCError as error:
        raise DataFormatError(f"{path}: {error}") from error
    if data.unseen_labels:
        reporter_for(verbose).say(f"{path}: {data.unseen_labels:,} label occurrences are unknown and left out")
    return data


def from_texts(
    texts: Sequence[str],
    labels: Sequence[Sequence[str]],
    vectorizer: TextVectorizer | None = None,
    label_names: Sequence[str] | None = None,
) -> Dataset:
    """A data set from Python lists: one text and one list of label names per row.

    >>> train = from_texts(["red apple", "green leaf"], [["fruit"], ["plant"]])
    >>> test = from_texts(["green apple"], [["fruit", "rare"]], train.vectorizer, train.label_names)
    >>> test.Y.toarray().tolist(), test.unseen_labels
    ([[1.0, 0.0]], 1)
    """
    if len(texts) != len(labels):
        raise BlockXMCError(f"{len(texts)} texts but {len(labels)} lists of labels")
    if vectorizer is None:
        vectorizer = TextVectorizer()
        X = vectorizer.fit_transform(texts)
    else:
        X = vectorizer.transform(texts)
    if label_names is None:
        label_names = sorted({name for row in labels for name in row})
    Y, unseen = _indicator(labels, label_names)
    return Dataset(X, Y, vectorizer.feature_names, list(label_names), vectorizer, unseen)


def _indicator(labels: Sequence[Sequence[str]], names: Sequence[str]) -> tuple[sparse.csr_array, int]:
    """Label lists as a 0-1 matrix over ``names``, and how many occurrences are not among them."""
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
