"""From texts with label names to a data set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from scipy import sparse

from blockxmc._core.progress import Phase, reporter_for
from blockxmc.data._source import PathLike, SlowPhase
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
    kind: str | None = None,
    verbose: int = 0,
) -> Dataset:
    """Read JSONL, TSV or CSV with text and label names (plain, .gz or .xz; ``-`` is standard input).

    - JSONL: ``{"text": "...", "labels": ["...", ...]}`` per line (or Annif's ``subjects``);
    - TSV: text, a tab, labels separated by spaces, each a name, a URI or ``<URI>``;
    - CSV: a header line that names text columns (text, title, abstract, ...: joined) and one label column
      (``subject_uris``: separated by spaces; ``labels``: by semicolons).

    Training data learns its own words and label names. For test data give those of the training data: unknown labels
    are counted in ``unseen_labels`` and left out. ``kind`` (jsonl, tsv or csv) names the format where neither suffix nor
    content does.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "fruit.jsonl"
    >>> _ = file.write_text('{"text": "red apple", "labels": ["fruit"]}\\n{"text": "green leaf", "labels": []}\\n')
    >>> data = read_text(file)
    >>> data.label_names, data.feature_names, data.Y.toarray().tolist()
    (['fruit'], ['apple', 'green', 'leaf', 'red'], [[1.0], [0.0]])
    """
    corpus = read_corpus(path, require_labels, verbose, kind=kind)
    try:
        data = from_texts(corpus.texts, corpus.labels, vectorizer, label_names, verbose=verbose)
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
    *,
    verbose: int = 0,
) -> Dataset:
    """A data set from Python lists: one text and one list of label names per row.

    >>> train = from_texts(["red apple", "green leaf"], [["fruit"], ["plant"]])
    >>> test = from_texts(["green apple"], [["fruit", "rare"]], train.vectorizer, train.label_names)
    >>> test.Y.toarray().tolist(), test.unseen_labels
    ([[1.0, 0.0]], 1)
    """
    if len(texts) != len(labels):
        raise BlockXMCError(f"{len(texts)} texts but {len(labels)} lists of labels")
    with SlowPhase("counting words", len(texts), verbose) as phase:
        shown = _Shown(texts, phase)
        if vectorizer is None:
            vectorizer = TextVectorizer()
            X = vectorizer.fit_transform(shown)
        else:
            X = vectorizer.transform(shown)
    if label_names is None:
        label_names = sorted({name for row in labels for name in row})
    Y, unseen = _indicator(labels, label_names)
    return Dataset(X, Y, vectorizer.feature_names, list(label_names), vectorizer, unseen)


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


def _indicator(labels: Sequence[Sequence[str]], names: Sequence[str]) -> tuple[sparse.csr_array, int]:
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
