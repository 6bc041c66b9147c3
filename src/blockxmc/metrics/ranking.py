"""Metrics of ranked labels. All of them are sums over one table: which of the first k labels of a row are right."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from blockxmc._core.matrix import as_indicator
from blockxmc.errors import BlockXMCError

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


def precision_at_k(Y: Any, labels: Any, k: int) -> float:
    """P@k: share of the first k labels that are right, averaged over all rows.

    >>> precision_at_k([[1, 0, 1], [0, 1, 0]], np.array([[0, 1], [0, 1]]), k=2)
    0.5
    """
    return Ranking.of(Y, labels, k).precision(k)


def ndcg_at_k(Y: Any, labels: Any, k: int) -> float:
    """nDCG@k: hits discounted by 1 / log2(rank + 1), relative to the best order, over the rows that have labels.

    >>> ndcg_at_k([[1, 0, 1], [0, 0, 0]], np.array([[2, 0], [0, 1]]), k=2)
    1.0
    """
    return Ranking.of(Y, labels, k).ndcg(k)


def recall_at_k(Y: Any, labels: Any, k: int) -> float:
    """R@k: share of a row's labels found among the first k, averaged over the rows that have labels.

    >>> recall_at_k([[1, 0, 1], [0, 0, 0]], np.array([[2, 1], [0, 1]]), k=2)
    0.5
    """
    return Ranking.of(Y, labels, k).recall(k)


def psp_at_k(Y: Any, labels: Any, k: int, inverse_propensity: ArrayLike) -> float:
    """PSP@k: hits weighted by inverse propensity, relative to the best reachable (ratio of means, as published).

    >>> psp_at_k([[1, 0, 1]], np.array([[0]]), k=1, inverse_propensity=[1.0, 1.0, 4.0])
    0.25
    """
    return Ranking.of(Y, labels, k).weighted(inverse_propensity).psp(k)


def psndcg_at_k(Y: Any, labels: Any, k: int, inverse_propensity: ArrayLike) -> float:
    """PSnDCG@k: nDCG with inverse propensities as gains, relative to the best reachable (ratio of means).

    >>> psndcg_at_k([[1, 0, 1]], np.array([[2, 0]]), k=2, inverse_propensity=[1.0, 1.0, 4.0])
    1.0
    """
    return Ranking.of(Y, labels, k).weighted(inverse_propensity).psndcg(k)


def coverage_at_k(Y: Any, labels: Any, k: int) -> float:
    """Share of all labels (columns of Y) that are predicted correctly at least once among the first k.

    >>> coverage_at_k([[1, 0, 1, 0], [1, 0, 0, 0]], np.array([[0], [0]]), k=1)
    0.25
    """
    return Ranking.of(Y, labels, k).coverage(k)


def inverse_propensity(Y_train: Any, a: float = 0.55, b: float = 1.5) -> F64:
    """Inverse propensity of each label: 1 + C (N + b)^-a with C = (ln n - 1)(b + 1)^a, counted in the training set.

    Customary (a, b): Wikipedia sets 0.5, 0.4; Amazon-670K and Amazon-3M 0.6, 2.6; all others 0.55, 1.5.

    >>> inverse_propensity([[1, 0], [1, 1], [1, 0], [1, 0]]).round(3).tolist()
    [1.25, 1.386]
    """
    Y = indicator(Y_train)
    return inverse_propensity_from_counts(np.bincount(Y.indices, minlength=Y.shape[1]), Y.shape[0], a, b)


def inverse_propensity_from_counts(counts: ArrayLike, n_rows: int, a: float = 0.55, b: float = 1.5) -> F64:
    """:func:`inverse_propensity` from the number of training rows of each label (models store it) and of all rows.

    A propensity is a probability, so fewer than three training rows (ln n < 1) give 1 for every label.

    >>> inverse_propensity_from_counts([4, 1], n_rows=4).round(3).tolist()
    [1.25, 1.386]
    """
    occurrences = np.asarray(counts, np.float64)
    if occurrences.ndim != 1 or (occurrences < 0).any():
        raise BlockXMCError("label counts must be one non-negative number per label")
    scale = max(np.log(max(n_rows, 1)) - 1.0, 0.0) * (b + 1.0) ** a
    return np.asarray(1.0 + scale * (occurrences + b) ** -a, np.float64)


@dataclass(frozen=True)
class Ranking:
    """Ranked labels beside the truth; build it once for the largest k, then read every metric at any smaller k."""

    truth: sparse.csr_array  # n x m indicator
    labels: I64  # n x K, -1 pads
    hits: NDArray[np.bool_]  # n x K
    n_true: I64  # labels per row

    @classmethod
    def of(cls, Y: Any, labels: Any, k: int) -> Ranking:
        """Compare the first k labels of each row with Y."""
        truth = indicator(Y)
        ranked = _first_k(labels, check_k(k), truth.shape)
        n, m = truth.shape
        n_true = np.diff(truth.indptr).astype(np.int64)
        known = np.repeat(np.arange(n), n_true) * m + truth.indices  # ascending: truth is canonical
        asked = np.arange(n)[:, None] * m + ranked
        return cls(truth, ranked, is_among(asked, known) & (ranked >= 0), n_true)

    def precision(self, k: int) -> float:
        """P@k."""
        return _ratio(int(self.hits[:, :k].sum()), k * self.hits.shape[0])

    def recall(self, k: int) -> float:
        """R@k."""
        return self._mean_of_labelled(self.hits[:, :k].sum(axis=1), self.n_true)

    def f1(self, k: int) -> float:
        """F1@k."""
        given = (self.labels[:, :k] >= 0).sum(axis=1)
        return self._mean_of_labelled(2 * self.hits[:, :k].sum(axis=1), given + self.n_true)

    def ndcg(self, k: int) -> float:
        """nDCG@k."""
        return self.mean_dcg(self.hits, k)

    def weighted(self, inverse_propensity: ArrayLike) -> Weighted:
        """The same ranking with hits weighted by inverse propensity."""
        weight = np.asarray(inverse_propensity, np.float64)
        if weight.shape != (self.truth.shape[1],):
            raise BlockXMCError(f"inverse propensity has shape {weight.shape}, but Y has {self.truth.shape[1]} labels")
        if not (np.isfinite(weight).all() and (weight >= 0).all()):
            raise BlockXMCError("inverse propensities must be finite and not negative")
        Y = self.truth
        weights = sparse.csr_array((weight[Y.indices], Y.indices, Y.indptr), shape=Y.shape)
        best = rank_scores(weights, self.labels.shape[1])
        padded = np.append(weight, 0.0)  # label -1 weighs nothing
        return Weighted(self, np.where(self.hits, padded[self.labels], 0.0), padded[best])

    def coverage(self, k: int) -> float:
        """coverage@k."""
        return _ratio(np.unique(self.labels[:, :k][self.hits[:, :k]]).size, self.truth.shape[1])

    def mean_dcg(self, gains: NDArray[Any], k: int) -> float:
        """DCG of the first k gains relative to the unweighted ideal, averaged over the rows that have labels."""
        return self._mean_of_labelled(_dcg(gains[:, :k]), _dcg(np.arange(k) < self.n_true[:, None]))

    def _mean_of_labelled(self, values: NDArray[Any], reference: NDArray[Any]) -> float:
        some = self.n_true > 0
        return float((values[some] / reference[some]).mean()) if some.any() else 0.0


@dataclass(frozen=True)
class Weighted:
    """Inverse propensities of the hits by rank, and of the row's own labels in the best order."""

    ranking: Ranking
    gains: F64  # n x K
    best: F64  # n x K

    def psp(self, k: int) -> float:
        """PSP@k."""
        return _ratio(float(self.gains[:, :k].sum()), float(self.best[:, :k].sum()))

    def psndcg(self, k: int) -> float:
        """PSnDCG@k: both means are normalised by the unweighted ideal, as in the published scripts."""
        return _ratio(self.ranking.mean_dcg(self.gains, k), self.ranking.mean_dcg(self.best, k))


def rank_scores(scores: Any, k: int) -> I64:
    """The k stored entries of highest score in each row: best first, ties to the lower id, padded with -1.

    >>> rank_scores(sparse.csr_array([[0.5, 0, 2.0], [0, -1.0, 0]]), 2).tolist()
    [[2, 0], [1, -1]]
    """
    S = sparse.csr_array(scores)
    if not S.has_canonical_format:
        S = S.copy()
        S.sum_duplicates()
    data = S.data if S.data.dtype.kind == "f" else S.data.astype(np.float64)
    if np.isnan(data).any():
        raise BlockXMCError("scores hold NaN and cannot be ranked")
    rows = np.repeat(np.arange(S.shape[0]), np.diff(S.indptr))
    order = np.lexsort((-data, rows))  # stable: equal scores keep ascending ids
    rank = np.arange(rows.size) - S.indptr[rows]
    kept = rank < k
    labels = np.full((S.shape[0], k), -1, np.int64)
    labels[rows[kept], rank[kept]] = S.indices[order[kept]]
    return labels


def is_among(asked: I64, known: I64) -> NDArray[np.bool_]:
    """Which of the numbers asked for are among the known ones (ascending)."""
    return np.asarray(np.append(known, -1)[np.searchsorted(known, asked)] == asked)


def is_sparse(value: Any) -> bool:
    """Whether this is one of SciPy's sparse matrices (a plain Boolean: the stubs narrow to a type without a shape)."""
    return bool(sparse.issparse(value))


def indicator(Y: Any) -> sparse.csr_array:
    """Y as a canonical 0-1 CSR matrix."""
    if not is_sparse(Y):
        Y = np.asarray(Y)
    if Y.ndim != 2:
        raise BlockXMCError(f"Y must be a 0-1 matrix of rows x labels, but has {Y.ndim} dimension(s)")
    return as_indicator(Y)


def check_k(k: int) -> int:
    """K as a plain integer of at least 1."""
    if isinstance(k, (bool, np.bool_)) or not hasattr(k, "__index__") or operator.index(k) < 1:
        raise BlockXMCError(f"k must be an integer of at least 1, got {k!r}")
    return operator.index(k)


def _first_k(labels: Any, k: int, shape: tuple[int, int]) -> I64:
    """The first k labels of each row (-1 pads), checked: integers of 0..m-1, none twice in a row."""
    n, m = shape
    if is_sparse(labels):
        if labels.shape != shape:
            raise BlockXMCError(f"scores have shape {labels.shape}, but Y has {shape}")
        return rank_scores(labels, k)
    given = np.asarray(labels)
    if given.ndim != 2 or (given.size and given.dtype.kind not in "iu"):
        raise BlockXMCError(
            "labels must be integers in the shape (rows, k), best first and padded with -1, or a CSR matrix of scores; "
            f"got {given.dtype} in the shape {given.shape}"
        )
    if given.shape[0] != n:
        raise BlockXMCError(f"labels have {given.shape[0]} rows, but Y has {n}")
    if given.size and (given.min() < -1 or given.max() >= m):
        raise BlockXMCError(f"labels must lie in 0..{m - 1} (or be -1 for padding), found {given.min()}..{given.max()}")
    ranked = np.full((n, k), -1, np.int64)
    width = min(k, given.shape[1])
    ranked[:, :width] = given[:, :width]
    ordered = np.sort(ranked, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    if twice.any():
        row, rank = np.argwhere(twice)[0]
        raise BlockXMCError(f"row {row} names label {ordered[row, rank]} twice among its first {k}")
    return ranked


def _dcg(gains: NDArray[Any]) -> F64:
    """Sum of gains / log2(rank + 1). Added rank by rank, so that a perfect row equals its ideal to the last bit."""
    total = np.zeros(gains.shape[0])
    for rank, column in enumerate(gains.T, start=1):
        total += column / np.log2(rank + 1.0)
    return total


def _ratio(part: float, whole: float) -> float:
    return float(part) / whole if whole else 0.0
