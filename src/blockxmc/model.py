"""BlockwiseClassifier: partition, router and base classifiers joined into one estimator."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import clone

from blockxmc._base import TopK, XMCEstimator
from blockxmc.blocks import Blocks, train_blocks, train_global
from blockxmc.errors import BlockXMCError
from blockxmc.learners._learner import Learner
from blockxmc.learners.dismec import DiSMEC
from blockxmc.learners.sklearn_adapter import as_learner
from blockxmc.partition import Partitioner
from blockxmc.progress import Reporter
from blockxmc.routing import Router, assess_routing
from blockxmc.scoring import Scorer

WEIGHTS = ("auto", "per-block", "global")


class BlockwiseClassifier(XMCEstimator):
    """Extreme multi-label classification by block-wise partitioning.

    Training rows are divided into blocks, each block gets the labels that matter there, a router learns to find the
    block of a row from its features, and the labels of the visited blocks are scored, so that a few hundred labels are
    looked at instead of all of them.

    Parameters
    ----------
    base : a blockxmc learner or any scikit-learn classifier; None means ``DiSMEC()``.
    partitioner : a :class:`Partitioner` with further options of the partition; None means its defaults.
    n_blocks : number of blocks, ``"paper"`` (the paper's search), ``"cost"`` (fewest products) or ``"auto"`` (= cost).
    lam : the paper's lambda (larger: fewer labels per block), or ``"auto"``.
    weights : ``"per-block"`` (the paper: a label has one vector per block, trained on the block's rows), ``"global"``
        (one vector per label, trained on all rows; blocks only choose candidates) or ``"auto"`` (per-block).
    route : number of blocks a row visits, or ``"auto"`` (1).
    n_jobs : threads; None means all cores. Results do not depend on it.

    Examples
    --------
    >>> from blockxmc import BlockwiseClassifier
    >>> X = [[1.0, 0], [0.9, 0.1], [0, 1.0], [0.1, 0.9]]
    >>> Y = [["red", "warm"], ["red"], ["blue"], ["blue", "cold"]]
    >>> clf = BlockwiseClassifier(n_blocks=2, lam=0.1).fit(X, Y)
    >>> labels, scores = clf.predict_topk([[1.0, 0.0]], k=1)
    >>> clf.label_names_[labels[0]].tolist()
    ['red']
    """

    def __init__(
        self,
        base: Any = None,
        partitioner: Partitioner | None = None,
        n_blocks: int | str = "auto",
        lam: float | str = "auto",
        weights: Literal["auto", "per-block", "global"] = "auto",
        route: int | str = "auto",
        n_partitions: int = 1,
        n_jobs: int | None = None,
        random_state: int | None = 0,
        verbose: int = 0,
    ) -> None:
        self.base = base
        self.partitioner = partitioner
        self.n_blocks = n_blocks
        self.lam = lam
        self.weights = weights
        self.route = route
        self.n_partitions = n_partitions
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def paper(cls, base: Any = None, n_blocks: int | str = "paper", lam: float | str = "auto", **options: Any) -> Self:
        """The paper's system: per-block weights, one visited block, the quadratic objective, the base's margins.

        >>> BlockwiseClassifier.paper(n_blocks=4, lam=1.0).route
        1
        """
        partitioner = options.pop("partitioner", None) or Partitioner(objective="quadratic")
        return cls(base, partitioner, n_blocks, lam, weights="per-block", route=1, **options)

    # ---- fitting ----
    def _fit(self, X: sparse.csr_array, Y: sparse.csr_array, reporter: Reporter) -> None:
        learner = self._learner()
        seed = self.random_state or 0
        self.partition_ = self._partition(X, Y, reporter)
        assignment, clusters = self.partition_.assignment_, self.partition_.label_clusters_
        route = min(1 if self.route == "auto" else int(self.route), len(clusters))
        with reporter.phase("assess routing") as _:
            held_out = assess_routing(X, Y, assignment, clusters, route, threads=self._threads, seed=seed)
        reporter.say(_expectation(len(clusters), self.partition_, held_out))
        router = Router().fit(X, assignment, n_blocks=len(clusters), threads=self._threads, reporter=reporter)
        options: dict[str, Any] = {"threads": self._threads, "seed": seed}
        if self.weights == "global":
            weights = train_global(learner, X, Y, clusters, reporter, **options)
        else:
            weights = train_blocks(learner, X, Y, assignment, clusters, reporter, **options)
        scorer = Scorer.pack(weights, clusters, n_features=X.shape[1], n_labels=Y.shape[1])
        self.blocks_ = Blocks(router, scorer, route)
        self.cost_ = held_out | self.blocks_.cost(X, self._threads)
        self._threshold = learner._threshold

    def _learner(self) -> Learner:
        if self.weights == "shared":
            raise BlockXMCError('weights="shared" is not available yet: choose "per-block" or "global"')
        if self.weights not in WEIGHTS:
            raise BlockXMCError(f"weights must be one of {', '.join(WEIGHTS)}, got {self.weights!r}")
        if self.route != "auto" and (not isinstance(self.route, (int, np.integer)) or self.route < 1):
            raise BlockXMCError(f'route must be "auto" or a number of blocks of at least 1, got {self.route!r}')
        if self.n_partitions != 1:
            raise BlockXMCError("n_partitions above 1 is not available yet")
        learner = as_learner(self.base, DiSMEC)
        learner._check_params()
        return learner

    def _partition(self, X: sparse.csr_array, Y: sparse.csr_array, reporter: Reporter) -> Partitioner:
        partitioner: Partitioner = Partitioner() if self.partitioner is None else clone(self.partitioner)
        # What is said on the classifier wins over what the partitioner carries along.
        for name in ("n_blocks", "lam"):
            if getattr(self, name) != "auto":
                partitioner.set_params(**{name: getattr(self, name)})
        partitioner.set_params(random_state=self.random_state, n_jobs=self.n_jobs, verbose=self.verbose)
        return partitioner._fit(X, Y, reporter)

    # ---- answering ----
    def _topk(self, X: sparse.csr_array, k: int) -> TopK:
        return self.blocks_.topk(X, k, self._threads)

    def _scores(self, X: sparse.csr_array) -> sparse.csr_array:
        return self.blocks_.scores(X, self._threads)

    def cost_on(self, X: Any) -> dict[str, float]:
        """Mean work per row as these rows are routed."""
        return self.blocks_.cost(self._validated(X), self._threads)

    def predict_one(self, indices: ArrayLike, values: ArrayLike, k: int = 5) -> TopK:
        """Best k labels of one sparse row (sorted indices): no validation, no threads, the latency path."""
        return self.blocks_.one(indices, values, k)

    # ---- storing ----
    def _state(self) -> dict[str, Any]:
        return {
            "blocks": self.blocks_.state(),
            "partition": self.partition_.state(),
            "cost": self.cost_,
            "threshold": self._threshold,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.blocks_ = Blocks.from_state(state["blocks"])
        self.partition_ = Partitioner.from_state(state["partition"])
        self.cost_ = state["cost"]
        self._threshold = state["threshold"]


def _expectation(n_blocks: int, partition: Partitioner, held_out: dict[str, float]) -> str:
    return (
        f"{n_blocks} blocks, lam {partition.lam_:.4g}: {partition.captured_:.1%} of the training labels captured; "
        f"on held-out rows the router is right for {held_out['router_accuracy']:.1%}, "
        f"candidates hold {held_out['candidate_recall']:.1%} of a row's labels, "
        f"{held_out['products']:.0f} products per row"
    )
