"""Updates: the encoder stays as it is, and vectors of labels learn from the kept vectors of training texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc._core.matrix import csr_of
from blockxmc._core.progress import reporter_for
from blockxmc.encoder.learn import Pairs, learned
from blockxmc.encoder.model import Encoded
from blockxmc.encoder.vectors import SCALE, LabelVectors

F32 = NDArray[np.float32]

# Rows that teach a label what it is not: those most like it by its vector, as many as it has positives, and at least some.
LEAST_WRONG, WRONG_PER_RIGHT = 100, 4
PASSES = 30


def rows_kept(vectors: F32) -> LabelVectors:
    """Vectors of texts as a model keeps them."""
    return LabelVectors.rounded(vectors, np.zeros(len(vectors), np.float32))


def added(encoded: Encoded | None, classifier: Any, texts: Sequence[str], n_before: int) -> Encoded | None:
    """After an update: the labels of the new texts learn again, new ones from their names on."""
    if encoded is None or encoded.rows is None:
        return encoded
    new = encoded.encoder.embed(texts, classifier._threads)
    numbers = np.arange(n_before, n_before + len(new))
    rows = encoded.rows.replaced(numbers, new, np.zeros(len(new), np.float32))
    Y = _labels(classifier)
    touched = np.unique(Y[numbers].indices).astype(np.int64)
    fresh = touched[touched >= len(encoded.labels.bias)]
    vectors, bias = _began(encoded, classifier, fresh)
    labels = encoded.labels.replaced(fresh, vectors, bias) if fresh.size else encoded.labels
    return _learned_again(replace(encoded, rows=rows, labels=labels), Y, touched, classifier)


def dropped(encoded: Encoded | None, classifier: Any, gone: NDArray[np.bool_], Y: sparse.csr_array) -> Encoded | None:
    """After rows are forgotten (``gone``, of those with labels Y): their labels learn anew, from their names on."""
    if encoded is None or encoded.rows is None:
        return encoded
    touched = np.unique(Y[np.flatnonzero(gone)].indices).astype(np.int64)
    left = (part[~gone] for part in vars(encoded.rows).values())
    labels = encoded.labels.replaced(touched, *_began(encoded, classifier, touched))
    changed = replace(encoded, rows=LabelVectors(*left), labels=labels)
    return _learned_again(changed, _labels(classifier), touched, classifier)


def _began(encoded: Encoded, classifier: Any, labels: NDArray[np.int64]) -> tuple[F32, F32]:
    """Where labels begin: at their names, where they have some, with the usual bias."""
    names = [name if isinstance(name, str) else "" for name in classifier.classes_[labels].tolist()]
    vectors = encoded.encoder.embed(names, classifier._threads) * np.float32(SCALE)
    vectors[[not name.strip() for name in names]] = 0
    return vectors, np.full(len(labels), np.median(encoded.labels.bias), np.float32)


def named(encoded: Encoded | None, texts: Sequence[str], threads: int) -> Encoded | None:
    """With labels behind its own that are called so; none has rows."""
    if encoded is None:
        return None
    n_old, bias = len(encoded.labels.bias), np.median(encoded.labels.bias)
    new, vectors = np.arange(n_old, n_old + len(texts)), encoded.encoder.embed(texts, threads) * np.float32(SCALE)
    return replace(encoded, labels=encoded.labels.replaced(new, vectors, np.full(len(texts), bias, np.float32)))


def _labels(classifier: Any) -> sparse.csr_array:
    _, Y = classifier.kept_.rows(classifier.n_features_in_, classifier.targets_.n_labels)
    return csr_of(Y.indptr, Y.indices, Y.data, Y.shape)


def _learned_again(encoded: Encoded, Y: sparse.csr_array, touched: NDArray[np.int64], classifier: Any) -> Encoded:
    """The vectors of some labels, learnt from their rows and from those most like them that lack them."""
    if not touched.size or encoded.rows is None:
        return encoded
    began, bias = encoded.labels.exact(touched), encoded.labels.bias[touched]
    right = sparse.csc_array(Y)
    texts = encoded.rows.exact(np.arange(Y.shape[0]))
    rows: list[NDArray[np.integer]] = []
    columns: list[NDArray[np.intp]] = []
    values: list[NDArray[np.bool_]] = []
    for at, label in enumerate(touched.tolist()):
        own = right.indices[right.indptr[label] : right.indptr[label + 1]]
        scores = texts @ began[at]
        scores[own] = -np.inf
        n_wrong = min(max(LEAST_WRONG, WRONG_PER_RIGHT * own.size), Y.shape[0] - own.size)
        wrong = np.argpartition(-scores, n_wrong - 1)[:n_wrong] if n_wrong else np.zeros(0, np.intp)
        rows += [own, wrong]
        columns.append(np.full(own.size + wrong.size, at))
        values.append(np.arange(own.size + wrong.size) < own.size)
    at_rows, at_columns, at_right = np.concatenate(rows), np.concatenate(columns), np.concatenate(values)
    order = np.lexsort((at_columns, at_rows))
    which, sizes = np.unique(at_rows, return_counts=True)
    place = (
        np.arange(at_rows.size) - np.repeat(np.cumsum(sizes) - sizes, sizes),
        np.repeat(np.arange(which.size), sizes),
    )
    labels = np.full((which.size, int(sizes.max())), -1, np.int64)
    is_right = np.zeros(labels.shape, bool)
    labels[place[1], place[0]], is_right[place[1], place[0]] = at_columns[order], at_right[order]
    vectors, bias = learned(
        Pairs(texts[which], labels, is_right), began / SCALE, bias, 0, reporter_for(classifier.verbose), PASSES
    )
    return replace(encoded, labels=encoded.labels.replaced(touched, vectors * np.float32(SCALE), bias))
