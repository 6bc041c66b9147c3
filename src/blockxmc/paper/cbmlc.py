"""CBMLC: clustering-based multi-label classification (Nasierding, Tsoumakas and Kouzani, 2009)."""

from __future__ import annotations

from typing import Any

from scipy import sparse

from blockxmc._core.params import as_seed, require_whole
from blockxmc._core.progress import Reporter
from blockxmc.learners.dismec import DiSMEC
from blockxmc.learners.sklearn_adapter import as_learner
from blockxmc.linear.scorers import pack_scorer
from blockxmc.model.routed import RoutedModel
from blockxmc.paper._blockwise import KMeansBaseline
from blockxmc.paper._centroids import centroid_router, kmeans_blocks
from blockxmc.training.job import Job
from blockxmc.training.per_block import offset_terms, train_blocks


class CBMLC(KMeansBaseline):
    """K-means on the rows, one base classifier per cluster on all labels seen there, rows to the nearest centroid.

    The label set is not reduced on purpose, so the paper reports a nominal speed-up of 1; labels without a positive in
    a cluster need no model all the same, and ``cost_`` counts what is really scored.

    >>> from blockxmc.baselines import CBMLC
    >>> X = [[1.0, 0], [0.9, 0.1], [0, 1.0], [0.1, 0.9]]
    >>> clf = CBMLC(n_blocks=2).fit(X, [["red"], ["red"], ["blue"], ["blue"]])
    >>> clf.predict([[1.0, 0.0]])
    [['red']]
    """

    def __init__(
        self,
        base: Any = None,
        n_blocks: int = 8,
        n_jobs: int | None = None,
        random_state: int | None = 0,
        verbose: int = 0,
    ) -> None:
        self.base = base
        self.n_blocks = n_blocks
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _fit(self, X: sparse.csr_array, Y: sparse.csr_array, reporter: Reporter) -> None:
        require_whole(self, "n_blocks")
        learner = as_learner(self.base, DiSMEC)
        learner._check_params()
        seed = as_seed(self.random_state)
        with reporter.phase("cluster rows"):
            assignment, clusters = kmeans_blocks(X, Y, self.n_blocks, seed=seed, threads=self._threads)
        weights = train_blocks(
            learner, X, Y, assignment, clusters, Job(reporter=reporter), threads=self._threads, seed=seed
        )
        scorer = pack_scorer(weights, clusters, n_features=X.shape[1], n_labels=Y.shape[1])
        router, offset = centroid_router(X, assignment, len(clusters)), offset_terms(weights, X.shape[1])
        self._finish(RoutedModel(router.scorer, scorer, 1, offset=offset), learner, X)
