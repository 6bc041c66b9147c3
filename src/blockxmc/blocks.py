"""A partition made servable: train the labels of every block, and answer rows through the router.

BP, CBMLC and LPSR differ in how they cut blocks and pick labels; training and serving them is the same and lives here.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits

from blockxmc import _kernels
from blockxmc._base import TopK, XMCEstimator
from blockxmc._matrix import flat_positions
from blockxmc.errors import BlockXMCError
from blockxmc.learners._learner import Job, Learner
from blockxmc.neighbours import Neighbours
from blockxmc.progress import Phase, Reporter
from blockxmc.routing import Router
from blockxmc.scoring import Routed, Scorer
from blockxmc.second_look import SecondLook
from blockxmc.weights import Ids, LinearWeights, Weights

F32 = NDArray[np.float32]


@dataclass(frozen=True)
class Blocks:
    """Router and weights of one partition: a row visits ``route`` blocks and is scored on their labels.

    With a ``mass`` below 1 it visits fewer: as many, best first, as have that share of the probability of all ``route``.

    ``slope`` is how much a block's log-probability counts in the scores of its labels; ``calibration`` (scale, shift)
    turns scores into probabilities, ``sigmoid(scale * score + shift)``. Without it scores are the base's margins.
    ``neighbours`` are training rows whose labels gain where they are most like the row; ``look`` puts the labels that
    score best in order.
    """

    router: Router
    scorer: Scorer
    route: int
    slope: float = 0.0
    calibration: tuple[float, float] | None = None
    mass: float = 1.0
    common: sparse.csr_array | None = None  # features x blocks (or x 1 for all): added to all scores of a row alike
    neighbours: Neighbours | None = None
    look: SecondLook | None = None

    def __post_init__(self) -> None:
        if self.common is not None and self.common.shape[1] > 1 and self.route > 1:
            raise BlockXMCError(
                "naive Bayes scores of different blocks cannot be compared: use route=1, or weights 'shared' or 'global'"
            )

    @cached_property
    def _routed(self) -> Routed | None:
        """None where there is one block only: nothing to route."""
        if self.router.scorer is None:
            return None
        neighbours = None if self.neighbours is None else self.neighbours.kernel
        look = None if self.look is None else self.look.kernel
        return Routed(self.router.scorer, self.scorer, self.route, self.slope, self.mass, neighbours, look)

    def __getstate__(self) -> dict[str, Any]:
        """What is copied and sent to other processes: all but what is made anew."""
        return {name: value for name, value in vars(self).items() if name != "_routed"}

    def topk(self, X: sparse.csr_array, k: int, threads: int) -> TopK:
        """Best k labels of each row."""
        if self._routed is None:
            labels, scores = self.scorer.topk(X, None, k, threads=threads)
        else:
            labels, scores = self._routed.topk(X, k, threads=threads)
        if self.common is not None:
            scores = scores + self._common_of(X, threads)[:, None]
        return self._answers(labels, scores)

    def one(self, indices: ArrayLike, values: ArrayLike, k: int) -> TopK:
        """Best k labels of one sparse row, without validation or threads."""
        if self._routed is None:
            labels, scores = self.scorer.one(indices, values, None, k)
        else:
            labels, scores = self._routed.one(indices, values, k)
        if self.common is not None:
            row = np.asarray(values, np.float32), np.asarray(indices, np.int32), np.array([0, len(np.asarray(indices))])
            scores = scores + self._common_of(sparse.csr_array(row, shape=(1, self.scorer.n_features)), 1)
        return self._answers(labels, scores)

    def scores(self, X: sparse.csr_array, threads: int) -> sparse.csr_array:
        """Scores of all candidates of each row."""
        if self._routed is None:
            found = self.scorer.scores(X, None, threads=threads)
        else:
            found = self._routed.scores(X, threads=threads)
        if self.common is not None:
            found.data = found.data + np.repeat(self._common_of(X, threads), np.diff(found.indptr))
        if self.calibration is not None:
            _kernels.calibrate_scores(found.data, *self.calibration)
        return found

    def gains(self, X: sparse.csr_array, candidates: sparse.csr_array, threads: int) -> F32:
        """What each of the candidates (rows x labels, a pattern with sorted labels) gains from the row's neighbours."""
        out = np.zeros(candidates.nnz, np.float32)
        visited = self.visited(X, threads)
        if self.neighbours is not None and visited is not None:
            gains = self.neighbours.gains(X, visited, threads)
            wanted, there = (flat_positions(matrix) for matrix in (gains, candidates))
            places = np.minimum(np.searchsorted(there, wanted), max(there.size - 1, 0))
            listed = there[places] == wanted if there.size else np.zeros(wanted.size, bool)
            out[places[listed]] = gains.data[listed]
        return out

    def _common_of(self, X: sparse.csr_array, threads: int) -> F32:
        """What all labels of a row gain alike, in the block the row is sent to."""
        assert self.common is not None
        added = np.asarray((X @ self.common).toarray(), np.float32)
        if self.common.shape[1] == 1:
            return added[:, 0]
        visited = self.visited(X, threads)
        return added[:, 0] if visited is None else np.take_along_axis(added, visited[:, :1], axis=1)[:, 0]

    def _answers(self, labels: NDArray[np.int64], scores: F32) -> TopK:
        if self.calibration is not None:
            width = labels.shape[-1]
            _kernels.calibrate_topk(labels.reshape(-1, width), scores.reshape(-1, width), *self.calibration)
        return labels, scores

    def visited(self, X: sparse.csr_array, threads: int) -> NDArray[np.int32] | None:
        """The blocks each row is sent to, best first; None: the only one."""
        return None if self._routed is None else self._routed.visits(X, threads=threads)[0]

    def work(self, visited: NDArray[np.int32] | None) -> tuple[float, float]:
        """Mean number of candidates and of vector products of rows that visit these blocks (None: the only one)."""
        candidates = float(self.scorer.n_candidates(visited).mean())
        neighbours = 0.0 if self.neighbours is None else float(self.neighbours.rows.n_candidates(visited).mean())
        return candidates, self.router.products + candidates + neighbours

    def cost(self, X: sparse.csr_array, threads: int) -> dict[str, float]:
        """Mean number of candidates, vector products and touched weights per row, as these rows are routed."""
        visited = self.visited(X, threads)
        candidates, products = self.work(visited) if X.shape[0] else (0.0, float(self.router.products))
        n_labels = self.scorer.n_labels
        touched = self.scorer.touched(X, visited) if X.shape[0] else 0.0
        # What the full classifier would touch is not known without training it: an average label is assumed to
        # cost in the full model what it costs here.
        full = touched / max(candidates, 1e-12) * n_labels
        touched += 0.0 if self.router.scorer is None else self.router.scorer.touched(X, None)
        if self.neighbours is not None:
            touched += self.neighbours.rows.touched(self.neighbours.compared(X, threads), visited)
        return {
            "candidates": candidates,
            "products": products,
            "speedup_paper": n_labels / max(candidates, 1e-12),
            "speedup": n_labels / max(products, 1e-12),
            "speedup_flops": full / max(touched, 1e-12),
        }

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        parts = (self.router.scorer, self.scorer, self.neighbours, self.look)
        return sum(part.nbytes for part in parts if part is not None)

    def state(self) -> dict[str, Any]:
        """Nested dict of arrays for the model directory."""
        return {
            "router": self.router.state(),
            "scorer": self.scorer.state(),
            "route": self.route,
            "slope": self.slope,
            "mass": self.mass,
            "calibration": None if self.calibration is None else list(self.calibration),
            "common": self.common,
            "neighbours": None if self.neighbours is None else self.neighbours.state(),
            "look": None if self.look is None else self.look.state(),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Blocks:
        """Take back what ``state`` gave."""
        router, scorer = Router.from_state(state["router"]), Scorer.from_state(state["scorer"])
        scale_shift = state["calibration"]
        calibration = None if scale_shift is None else (float(scale_shift[0]), float(scale_shift[1]))
        how: Any = {"slope": float(state["slope"]), "mass": float(state.get("mass", 1.0)), "common": state["common"]}
        if state.get("neighbours") is not None:
            how["neighbours"] = Neighbours.from_state(state["neighbours"])
        if state.get("look") is not None:
            how["look"] = SecondLook.from_state(state["look"])
        return cls(router, scorer, int(state["route"]), calibration=calibration, **how)


def common_terms(weights: Sequence[Weights], n_features: int) -> sparse.csr_array | None:
    """The terms that blocks (or one scorer of all labels) add to all their labels alike, features x blocks."""
    columns = []
    for w in weights:
        values = getattr(w, "common", None)
        if values is None:
            return None
        rows = np.arange(n_features) if w.features is None else w.features  # type: ignore[attr-defined]
        columns.append(sparse.csc_array((values, (rows, np.zeros(rows.size, int))), shape=(n_features, 1)))
    return sparse.csr_array(sparse.hstack(columns, format="csr", dtype=np.float32)) if columns else None


class Served(Protocol):
    """A fitted model that answers rows: :class:`Blocks`, or several of them together."""

    @property
    def calibration(self) -> tuple[float, float] | None:
        """How scores became probabilities; None: they are margins."""

    @property
    def slope(self) -> float:
        """How much block probabilities count."""

    def topk(self, X: sparse.csr_array, k: int, threads: int) -> TopK:
        """Best k labels of each row."""

    def one(self, indices: ArrayLike, values: ArrayLike, k: int) -> TopK:
        """Best k labels of one sparse row."""

    def scores(self, X: sparse.csr_array, threads: int) -> sparse.csr_array:
        """Scores of all candidates of each row."""

    def visited(self, X: sparse.csr_array, threads: int) -> NDArray[np.int32] | None:
        """The blocks each row is sent to, best first; None: the only one."""

    def cost(self, X: sparse.csr_array, threads: int) -> dict[str, float]:
        """Mean work per row."""

    def state(self) -> dict[str, Any]:
        """Nested dict of arrays for the model directory."""


class BlocksEstimator(XMCEstimator):
    """Serving and cost of a classifier whose fitted model is one :class:`Blocks` or several."""

    blocks_: Served

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


def train_blocks(
    learner: Learner,
    X: sparse.csr_array,
    Y: sparse.csr_array,
    assignment: NDArray[np.integer],
    label_clusters: Sequence[Ids],
    reporter: Reporter,
    *,
    threads: int,
    seed: int,
) -> list[Weights]:
    """Per-block weights: the labels of each block trained on the rows of the block only (the paper's way)."""
    rows_of = _group_rows(assignment, len(label_clusters))
    row_sizes = np.diff(X.indptr)
    costs = [int(row_sizes[rows].sum()) * len(labels) for rows, labels in zip(rows_of, label_clusters, strict=True)]
    order = np.argsort(costs)[::-1]  # largest first, so that no worker is left with a giant at the end
    results: list[Weights | None] = [None] * len(label_clusters)
    # Many blocks: one thread per block. Few blocks: all threads inside each.
    inner = 1 if len(label_clusters) >= 2 * threads else threads

    def train(block: int, phase: Phase) -> None:
        job = learner._job(inner, phase, seed + block)
        results[block] = train_block(learner, X, Y, rows_of[block], label_clusters[block], job)

    if inner > 1 or threads == 1:
        for done, block in enumerate(order):
            title = f"train block {done + 1}/{len(order)}"
            with reporter.phase(title, len(label_clusters[block])) as phase:
                train(int(block), phase)
    else:
        silent = _Silent()
        with (
            reporter.phase("train blocks", len(order)) as phase,
            threadpool_limits(1),
            ThreadPoolExecutor(threads) as pool,
        ):
            futures = [pool.submit(train, int(block), silent) for block in order]
            try:
                for done, future in enumerate(as_completed(futures)):
                    future.result()
                    phase.update(done + 1)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    return [weights for weights in results if weights is not None]


def train_block(
    learner: Learner, X: sparse.csr_array, Y: sparse.csr_array, rows: NDArray[np.intp], labels: Ids, job: Job
) -> Weights:
    """Weights of ``labels`` from ``rows``; the learner sees only the features that occur in these rows."""
    own = X[rows]
    features, columns = np.unique(own.indices, return_inverse=True)
    if features.size == 0:  # no row has a feature: learners want to see at least one
        features = np.zeros(1, features.dtype)
    own = sparse.csr_array((own.data, columns.astype(np.int32), own.indptr), shape=(rows.size, features.size))
    if len(labels) == 0:
        nothing = sparse.csr_array(np.zeros((0, 0), np.float32))
        return LinearWeights(nothing, np.zeros(0, np.float32), features=np.zeros(0, np.int32))
    return learner._train(own, sparse.csr_array(Y[rows][:, labels]), job).on_features(features.astype(np.int32))


def train_global(
    learner: Learner, X: sparse.csr_array, Y: sparse.csr_array, reporter: Reporter, *, threads: int, seed: int
) -> Any:
    """Global weights: every label trained on all rows; split over blocks, which then only choose candidates."""
    with reporter.phase("train all labels", Y.shape[1]) as phase:
        return learner._train(X, Y, learner._job(threads, phase, seed))


def _group_rows(assignment: NDArray[np.integer], n_blocks: int) -> list[NDArray[np.intp]]:
    """Rows of each block, ascending."""
    order = np.argsort(assignment, kind="stable")
    return np.split(order, np.cumsum(np.bincount(assignment, minlength=n_blocks))[:-1])


class _Silent:
    def update(self, done: int) -> None: ...
