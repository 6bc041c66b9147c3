"""LPSR: label partitioning for sub-linear ranking (Weston, Makadia and Yee, 2013)."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc._core.params import as_seed, require_whole
from blockxmc._core.progress import Reporter
from blockxmc.errors import BlockXMCError
from blockxmc.learners.sklearn_adapter import as_learner
from blockxmc.linear.scorers import pack_scorer
from blockxmc.model.routed import RoutedModel
from blockxmc.paper._blockwise import KMeansBaseline
from blockxmc.paper._centroids import centroid_router, kmeans_blocks
from blockxmc.paper.naive_bayes import NaiveBayes
from blockxmc.training.per_block import offset_terms

Ids = NDArray[np.int64]


class LPSR(KMeansBaseline):
    """A label scorer trained once on all rows, asked only about a fixed number of labels per cluster of rows.

    With the default base this is LPSR-NB, the system of the paper's tables.

    Parameters
    ----------
    base : the label scorer; None means ``NaiveBayes()``.
    n_blocks : number of k-means clusters.
    n_labels : labels attached to each cluster.
    assign : ``"frequency"`` attaches the most frequent labels of the cluster; ``"rank"`` prefers labels that are often
        right and seldom out-rank a right one (see :func:`rank_gains`).
    route : clusters a row visits.

    >>> from blockxmc.baselines import LPSR
    >>> X = [[1.0, 0], [0.9, 0.1], [0, 1.0], [0.1, 0.9]]
    >>> clf = LPSR(n_blocks=2, n_labels=1).fit(X, [["red"], ["red"], ["blue"], ["blue"]])
    >>> clf.label_names_[clf.predict_topk([[1.0, 0.0]], k=1)[0][0]].tolist()
    ['red']
    """

    def __init__(
        self,
        base: Any = None,
        n_blocks: int = 8,
        n_labels: int = 100,
        assign: Literal["frequency", "rank"] = "frequency",
        route: int = 1,
        n_jobs: int | None = None,
        random_state: int | None = 0,
        verbose: int = 0,
    ) -> None:
        self.base = base
        self.n_blocks = n_blocks
        self.n_labels = n_labels
        self.assign = assign
        self.route = route
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _fit(self, X: sparse.csr_array, Y: sparse.csr_array, reporter: Reporter) -> None:
        for name in ("n_blocks", "n_labels", "route"):
            require_whole(self, name)
        if self.assign not in ("frequency", "rank"):
            raise BlockXMCError(f"assign must be 'frequency' or 'rank', got {self.assign!r}")
        learner = as_learner(self.base, NaiveBayes)
        learner._check_params()
        seed = as_seed(self.random_state)
        with reporter.phase("train label scorer", Y.shape[1]) as phase:
            weights: Any = learner._train(X, Y, learner._context(self._threads, phase, seed))
        with reporter.phase("cluster rows"):
            assignment, seen = kmeans_blocks(X, Y, self.n_blocks, seed=seed, threads=self._threads)
        with reporter.phase("attach labels"):
            gains = Y
            if self.assign == "rank":
                full = pack_scorer([weights], [np.arange(Y.shape[1])], n_features=X.shape[1], n_labels=Y.shape[1])
                ranking = full.topk(X, None, min(200, Y.shape[1]), threads=self._threads)[0]
                gains = rank_gains(Y, ranking)
            clusters = best_labels(gains, assignment, len(seen), self.n_labels)
        scorer = pack_scorer(list(weights.split(clusters)), clusters, n_features=X.shape[1], n_labels=Y.shape[1])
        router = centroid_router(X, assignment, len(clusters))
        offset = offset_terms([weights], X.shape[1])
        self._finish(RoutedModel(router.scorer, scorer, min(self.route, len(clusters)), offset=offset), learner, X)

    def __sklearn_tags__(self) -> Any:
        """Naive Bayes, the default base, takes non-negative features only, and expects counts."""
        tags = super().__sklearn_tags__()
        naive = self.base is None or isinstance(self.base, NaiveBayes)
        tags.input_tags.positive_only = tags.classifier_tags.poor_score = naive
        return tags


def rank_gains(Y: sparse.csr_array, ranking: Ids, power: float = 1.0) -> sparse.csr_array:
    """What attaching label j would win or lose on row i, given the scorer's ranking of labels for the row.

    Each right label t of a row stands for one example of weight 1/|y| times a decreasing function of its rank (rows
    the scorer cannot solve count little). Attaching t wins that weight; attaching a wrong label that the scorer ranks
    above t loses it. The gain of a label set is then the sum of its labels' gains: a linear form, so the best set of
    a given size is a top list.

    >>> Y = sparse.csr_array(np.array([[0, 1, 0]], np.float32))
    >>> rank_gains(Y, np.array([[2, 1, 0]])).toarray().tolist()
    [[0.0, 0.5, -0.5]]
    """
    n, depth = ranking.shape
    rows = np.repeat(np.arange(n), depth)
    listed = ranking.ravel()
    hit = (np.asarray(Y[rows, np.maximum(listed, 0)]).ravel() > 0) & (listed >= 0)
    size = np.maximum(np.diff(Y.indptr), 1)
    weight = (hit.reshape(n, depth) / (np.arange(depth) + 1.0) ** power) / size[:, None]
    # Right labels that are not even listed: every listed wrong label stands above them.
    unlisted = (np.diff(Y.indptr) - hit.reshape(n, depth).sum(axis=1)) / size / (depth + 1.0) ** power
    below = weight.sum(axis=1, keepdims=True) - np.cumsum(weight, axis=1) + unlisted[:, None]
    values = np.where(hit.reshape(n, depth), weight, -below).ravel()
    gains = sparse.csr_array((values[listed >= 0], (rows[listed >= 0], listed[listed >= 0])), shape=Y.shape)
    missed = sparse.csr_array(Y - Y.multiply(abs(gains) > 0))
    return sparse.csr_array(gains + sparse.diags_array(1 / size / (depth + 1.0) ** power) @ missed)


def best_labels(gains: sparse.csr_array, assignment: NDArray[np.integer], n_blocks: int, n_labels: int) -> list[Ids]:
    """The ``n_labels`` labels of largest total gain in each block, among those that gain anything; ids ascending."""
    member = sparse.csr_array(
        (np.ones(assignment.size), (assignment, np.arange(assignment.size))), shape=(n_blocks, assignment.size)
    )
    totals = sparse.csr_array(member @ gains)
    totals.sort_indices()
    chosen = []
    for a, b in zip(totals.indptr[:-1], totals.indptr[1:], strict=True):
        ids, values = totals.indices[a:b], totals.data[a:b]
        order = np.lexsort((ids, -values))[:n_labels]
        chosen.append(np.sort(ids[order[values[order] > 0]]).astype(np.int64))
    return chosen
