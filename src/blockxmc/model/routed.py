"""The routed model: router, scorer and what is added to their scores, as one thing that answers rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from blockxmc._core import stored
from blockxmc._core.allowed import Mask, best_allowed, enough_for, first_allowed
from blockxmc._core.base import TopK
from blockxmc._core.matrix import take_rows
from blockxmc.errors import BlockXMCError
from blockxmc.linear.packed import PackedScorer
from blockxmc.linear.scorer import Scorer
from blockxmc.linear.scorers import restore_scorer
from blockxmc.model.calibration import Calibration
from blockxmc.model.neighbors import Neighbors
from blockxmc.model.reranker import Reranker
from blockxmc.model.routed_scorer import RoutedScorer

F32 = NDArray[np.float32]

# Rows of which all candidates are scored at a time.
ROWS_AT_ONCE = 4096
# Labels of rows with ties that are looked at together.
MOST_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class RoutedModel:
    """Router and weights of one partition: a row visits ``route`` blocks and is scored on their labels.

    With a ``top_p`` below 1 it visits fewer: as many, best first, as have that share of the probability of all ``route``.

    ``slope`` is how much a block's log-probability counts in the scores of its labels; ``calibration`` turns scores into
    probabilities. Without it scores are the base's margins.
    ``neighbors`` are training rows whose labels gain where they are most like the row; ``reranker`` puts the labels that
    score best in order.
    """

    router: Scorer | None  # blocks are its labels; None where there is one block only: nothing to decide
    scorer: Scorer
    route: int
    slope: float = 0.0
    calibration: Calibration | None = None
    top_p: float = 1.0
    offset: sparse.csr_array | None = None  # features x blocks (or x 1 for all): added to all scores of a row alike
    neighbors: Neighbors | None = None
    reranker: Reranker | None = None

    def __post_init__(self) -> None:
        if self.offset is not None and self.offset.shape[1] > 1 and self.route > 1:
            raise BlockXMCError(
                "naive Bayes scores of different blocks cannot be compared: use route=1, or weights 'shared' or 'global'"
            )

    @cached_property
    def _routed(self) -> RoutedScorer | None:
        """None where there is one block only: nothing to route."""
        if self.router is None:
            return None
        neighbors = None if self.neighbors is None else self.neighbors.kernel
        reranker = None if self.reranker is None else self.reranker.kernel
        return RoutedScorer(self.router, self.scorer, self.route, self.slope, self.top_p, neighbors, reranker)

    def __getstate__(self) -> dict[str, Any]:
        """What is copied and sent to other processes: all but what is made anew."""
        return {name: value for name, value in vars(self).items() if name != "_routed"}

    def topk(self, X: sparse.csr_array, k: int, threads: int, allowed: Mask | None = None) -> TopK:
        """Best k allowed labels of each row, with the scores that they have among all candidates; ties to the lower id."""
        if allowed is not None and self.calibration is not None:
            return self._topk_among(X, k, threads, allowed)
        return self._first_of(self._asked(k), X, k, threads, allowed)

    def _first_of(self, asked: int, X: sparse.csr_array, k: int, threads: int, allowed: Mask | None) -> TopK:
        """The first k of as many as are asked for, and of more in rows where others may be as good as the k-th."""
        if self._routed is None:
            labels, scores = self.scorer.topk(X, None, asked, threads=threads, allowed=allowed)
        else:
            labels, scores = self._routed.topk(X, asked, threads=threads, allowed=allowed)
        if self.offset is not None:
            scores = scores + self._offset_of(X, threads)[:, None]
        tied = scores[:, k - 1] == scores[:, -1]
        self._put_in_order(labels, scores, threads)
        if asked == k:
            return labels, scores
        tied |= scores[:, k - 1] == scores[:, -1]
        rows = np.flatnonzero(tied & (labels[:, -1] >= 0)) if asked < self.n_labels else np.zeros(0, np.intp)
        labels, scores = labels[:, :k].copy(), scores[:, :k].copy()
        asked = min(8 * asked, self.n_labels)
        at_once = max(MOST_AT_ONCE // asked, 1)
        for first in range(0, rows.size, at_once):
            some = rows[first : first + at_once]
            labels[some], scores[some] = self._first_of(asked, take_rows(X, some), k, threads, allowed)
        return labels, scores

    def _topk_among(self, X: sparse.csr_array, k: int, threads: int, allowed: Mask) -> TopK:
        """The best k allowed labels where ranks among all candidates count: most rows have them among their first few."""
        (labels, scores), short = first_allowed(self.topk(X, enough_for(k, self.n_labels), threads), k, allowed)
        rows = np.flatnonzero(short)
        for first in range(0, rows.size, ROWS_AT_ONCE):
            some = rows[first : first + ROWS_AT_ONCE]
            labels[some], scores[some] = best_allowed(self.scores(take_rows(X, some), threads), k, allowed)
        return labels, scores

    def one(self, indices: ArrayLike, values: ArrayLike, k: int, allowed: Mask | None = None) -> TopK:
        """Best k allowed labels of one sparse row, without validation or threads."""
        if allowed is not None and self.calibration is not None:
            found = self.one(indices, values, enough_for(k, self.n_labels))
            best, short = first_allowed((found[0][None], found[1][None]), k, allowed)
            if short[0]:
                best = best_allowed(self.scores(self._row(indices, values), 1), k, allowed)
            return best[0][0], best[1][0]
        asked = self._asked(k)
        while True:
            if self._routed is None:
                labels, scores = self.scorer.one(indices, values, None, asked, allowed)
            else:
                labels, scores = self._routed.one(indices, values, asked, allowed)
            if self.offset is not None:
                scores = scores + self._offset_of(self._row(indices, values), 1)
            if asked == k:
                self._put_in_order(labels, scores)
                return labels, scores
            tied = scores.item(k - 1) == scores.item(-1)
            self._put_in_order(labels, scores)
            tied = tied or scores.item(k - 1) == scores.item(-1)
            if not tied or asked >= self.n_labels or labels.item(-1) < 0:
                return labels[:k], scores[:k]
            asked = min(8 * asked, self.n_labels)

    def _row(self, indices: ArrayLike, values: ArrayLike) -> sparse.csr_array:
        row = np.asarray(values, np.float32), np.asarray(indices, np.int32), np.array([0, np.size(indices)])
        return sparse.csr_array(row, shape=(1, self.scorer.n_features))

    def scores(self, X: sparse.csr_array, threads: int) -> sparse.csr_array:
        """Scores of all candidates of each row."""
        if self._routed is None:
            found = self.scorer.scores(X, None, threads=threads)
        else:
            found = self._routed.scores(X, threads=threads)
        if self.offset is not None:
            found.data = found.data + np.repeat(self._offset_of(X, threads), np.diff(found.indptr))
        if self.calibration is not None:
            self.calibration.apply(found, threads)
        return found

    def _offset_of(self, X: sparse.csr_array, threads: int) -> F32:
        """What all labels of a row gain alike, in the block the row is sent to."""
        assert self.offset is not None
        added = np.asarray((X @ self.offset).toarray(), np.float32)
        if self.offset.shape[1] == 1:
            return added[:, 0]
        visited = self.visited(X, threads)
        return added[:, 0] if visited is None else np.take_along_axis(added, visited[:, :1], axis=1)[:, 0]

    def _asked(self, k: int) -> int:
        """As many labels of a row as it takes to answer the first k, and mostly to see that no other is as good."""
        if self.calibration is None and self.reranker is None and self.offset is None:
            return k  # the kernel's own order
        n_labels = self.scorer.n_labels
        least = k + 1 if self.calibration is None else self.calibration.least_asked(k + 1, n_labels)
        return least if least <= n_labels else max(k, n_labels)

    def _put_in_order(self, labels: NDArray[np.int64], scores: F32, threads: int = 1) -> None:
        """Turn the scores of best labels into those that are shown, ties to the lower id; changes both arrays.

        Different scores may be shown as the same number. Where the last label that was asked for is as good as the last one
        that is wanted, before or after, others may be, too.
        """
        if self.calibration is not None:
            self.calibration.apply_topk((labels, scores), threads)
        elif self.offset is not None:
            order = np.lexsort((labels, -scores))
            for part in (labels, scores):
                part[...] = np.take_along_axis(part, order, -1)

    def visited(self, X: sparse.csr_array, threads: int) -> NDArray[np.int32] | None:
        """The blocks each row is sent to, best first; None: the only one."""
        return None if self._routed is None else self._routed.visits(X, threads=threads)[0]

    def visits(self, X: sparse.csr_array, threads: int) -> tuple[NDArray[np.int32], F32]:
        """The blocks each row is sent to (-1: none), best first, and their probabilities before they are normalised."""
        if self._routed is None:
            raise BlockXMCError("a model of one block routes no rows")
        blocks, weights = self._routed.visits(X, threads=threads)
        return blocks, np.ones(blocks.shape, np.float32) if weights is None else weights

    def work(self, visited: NDArray[np.int32] | None, threads: int = 1) -> tuple[float, float]:
        """Mean number of candidates and of vector products of rows that visit these blocks (None: the only one)."""
        candidates = float(self.scorer.n_candidates(visited, threads=threads).mean())
        neighbors = 0.0
        if self.neighbors is not None:
            neighbors = float(self.neighbors.rows.n_candidates(visited, threads=threads).mean())
        return candidates, self.router_products + candidates + neighbors

    def cost(self, X: sparse.csr_array, threads: int) -> dict[str, float]:
        """Mean number of candidates, vector products and touched weights per row, as these rows are routed."""
        visited = self.visited(X, threads)
        candidates, products = self.work(visited, threads) if X.shape[0] else (0.0, float(self.router_products))
        n_labels = self.scorer.n_labels
        touched = self.scorer.touched(X, visited, threads=threads) if X.shape[0] else 0.0
        # What the full classifier would touch is not known without training it: an average label is assumed to
        # cost in the full model what it costs here.
        full = touched / max(candidates, 1e-12) * n_labels
        touched += 0.0 if self.router is None else self.router.touched(X, None, threads=threads)
        if self.neighbors is not None:
            touched += self.neighbors.rows.touched(self.neighbors.compared(X, threads), visited, threads=threads)
        return {
            "candidates": candidates,
            "products": products,
            "speedup_paper": n_labels / max(candidates, 1e-12),
            "speedup": n_labels / max(products, 1e-12),
            "speedup_flops": full / max(touched, 1e-12),
        }

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return self.scorer.n_labels

    @property
    def n_features(self) -> int:
        """Number of features of a row."""
        return self.scorer.n_features

    @property
    def router_products(self) -> int:
        """Vector products that routing a row takes: one per block, none where there is nothing to decide."""
        return 0 if self.router is None or self.router.n_labels == 1 else self.router.n_labels

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        parts = (self.router, self.scorer, self.neighbors, self.reranker)
        return sum(part.nbytes for part in parts if part is not None)

    def state(self) -> dict[str, Any]:
        """Nested dict of arrays for the model directory."""
        return {
            "router": None if self.router is None else self.router.state(),
            "scorer": self.scorer.state(),
            "route": self.route,
            "slope": self.slope,
            "top_p": self.top_p,
            "calibration": None if self.calibration is None else self.calibration.state(),
            "offset": self.offset,
            "neighbors": None if self.neighbors is None else self.neighbors.state(),
            "reranker": None if self.reranker is None else self.reranker.state(),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> RoutedModel:
        """Take back what ``state`` gave, if its parts fit each other."""
        stored.mapping(state, "the routed model")
        router = None if state["router"] is None else restore_scorer(state["router"])
        how: Any = {name: stored.real(state[name], name) for name in ("slope", "top_p")}
        if state["calibration"] is not None:
            how["calibration"] = Calibration.from_state(state["calibration"])
        if state["neighbors"] is not None:
            how["neighbors"] = Neighbors.from_state(state["neighbors"])
        if state["reranker"] is not None:
            how["reranker"] = Reranker.from_state(state["reranker"])
        most = 1 if router is None else max(router.n_labels, 1)
        route = stored.whole(state["route"], "route", 1, most)
        scorer = restore_scorer(state["scorer"])
        if state["offset"] is not None:
            how["offset"] = stored.csr(state["offset"], "offset", (scorer.n_features, None))
        model = cls(router, scorer, route, **how)
        model._check_parts()
        return model

    def _check_parts(self) -> None:
        """Refuse parts of a stored model that do not belong together: kernels count on it."""
        n_labels, n_features, n_blocks = self.scorer.n_labels, self.scorer.n_features, self.scorer.n_blocks
        router, neighbors, reranker, offset = self.router, self.neighbors, self.reranker, self.offset
        if router is None:
            stored.require(n_blocks == 1, f"there is no router for {n_blocks} blocks")
            stored.require(neighbors is None and reranker is None, "neighbors and a reranker need a router")
        else:
            frequent = n_blocks == router.n_labels + 1
            stored.require(
                frequent or n_blocks == router.n_labels, f"a router of {router.n_labels} for {n_blocks} blocks"
            )
            stored.require(router.n_features == n_features, "the router has other features than the scorer")
            extras = frequent or self.slope or self.top_p < 1 or neighbors or reranker
            packed = isinstance(router, PackedScorer) and isinstance(self.scorer, PackedScorer)
            stored.require(packed or not extras, "only packed weights take a slope, top_p, neighbors or a reranker")
        if neighbors is not None:
            fit = neighbors.rows.n_blocks == n_blocks and neighbors.rows.n_features == n_features
            stored.require(fit and neighbors.n_labels == n_labels, "neighbors have other blocks, features or labels")
        if reranker is not None:
            stored.require(reranker.log_positives.size == n_labels, "the reranker has other labels than the scorer")
        if offset is not None:
            stored.require(
                offset.shape[1] in (1, n_blocks), f"offset has {offset.shape[1]} columns for {n_blocks} blocks"
            )
            one = offset.shape[1] == 1 or router is None or (self.route == 1 and n_blocks == router.n_labels)
            stored.require(one, "an offset of each block needs route 1 and no frequent labels")
