"""What a number of blocks can reach, measured before any base is trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc import metrics
from blockxmc.errors import BlockXMCError
from blockxmc.linear.scorers import pack_scorer
from blockxmc.linear.weights import LinearWeights
from blockxmc.training.trials.grid import GRID_ONE_VS_ALL, default_grid, lam_capturing
from blockxmc.training.trials.split import FixedBlocks, Split
from blockxmc.tuning.result import Point

# Steps of the bisection for lambda: each halves the interval on a logarithmic scale. Not measured.
_BISECTIONS = 14
# The search for lambda ends where this share of the positives is still captured. Not measured.
_LEAST_CAPTURED = 0.1


class Scout:
    """One assignment: products and candidate recall by lambda and route, known before any base is trained."""

    def __init__(self, split: Split, n_blocks: int, n_rows: int, assign_at: float | Literal["auto"] = "auto") -> None:
        self.split, self.n_blocks, self.n_rows = split, n_blocks, n_rows
        self.blocks = FixedBlocks(split, n_blocks, assign_at)
        path = self.blocks.partition.path()
        self.grid = default_grid(path, GRID_ONE_VS_ALL)
        self.low = float(self.grid[0])
        self.high = max(lam_capturing(path, _LEAST_CAPTURED), float(self.grid[-1]))
        self._visited: dict[int, NDArray[np.int32]] = {}

    def assigned_for(self, captured: float) -> Scout | None:
        """As many blocks, with rows assigned at the lambda that captures this share here; None where none is left."""
        lam = lam_capturing(self.blocks.partition.path(), captured)
        try:
            return Scout(self.split, self.n_blocks, self.n_rows, lam) if lam > self.blocks.partition.lam_ else None
        except BlockXMCError:
            return None

    @property
    def n_alive(self) -> int:
        """Blocks that have rows and labels."""
        return self.blocks.partition.n_blocks_

    def visited(self, route: int) -> NDArray[np.int32]:
        """The blocks that each held-out row visits."""
        if route not in self._visited:
            threads = self.split.task.threads
            self._visited[route] = self.blocks.router.route(self.split.X_held_out, route, threads=threads)[0]
        return self._visited[route]

    def products(self, lam: float, route: int) -> float:
        """Products per held-out row, router included."""
        clusters = self.blocks.partition.label_clusters_at(lam)
        empty = [_no_weights(len(labels)) for labels in clusters]
        scorer = pack_scorer(empty, clusters, n_features=self.split.X.shape[1], n_labels=self.split.Y.shape[1])
        return self.blocks.router.products + float(scorer.n_candidates(self.visited(route)).mean())

    def recall(self, lam: float, route: int) -> float:
        """Candidate recall of the held-out rows."""
        clusters = self.blocks.partition.label_clusters_at(lam)
        return metrics.candidate_recall(self.split.Y_held_out, (self.visited(route), clusters))

    def smallest_within(self, route: int, products: float) -> float | None:
        """The smallest lambda that takes at most so many products, or None."""
        return _first(lambda lam: self.products(lam, route) <= products, self.low, self.high)

    def largest_reaching(self, route: int, recall: float) -> float | None:
        """The largest lambda with at least this candidate recall, or None."""
        if self.recall(self.high, route) >= recall:
            return self.high
        return _first(lambda lam: self.recall(lam, route) < recall, self.low, self.high, last_false=True)

    def point(self, lam: float, found: dict[str, Any], kind: str, route: int) -> Point:
        """A setting and what was found for it, in the scale of the full data."""
        train_rows = self.split.X.shape[0]
        at = self.blocks.partition.lam_ * self.n_rows / train_rows
        names = ("candidates", "products", "recall")
        return Point(
            n_blocks=self.n_blocks,
            lam=lam * self.n_rows / train_rows,
            lam_rel=lam * self.n_blocks / train_rows,
            assigned_at=(at,),
            weights=kind,
            route=route,
            precision=tuple(found["precision"]),
            latency_us=found.get("latency_us"),
            **{name: found[name] for name in names},
        )


def _first(holds: Callable[[float], bool], low: float, high: float, *, last_false: bool = False) -> float | None:
    """By bisection, the first lambda at which a condition holds; ``last_false``: the last at which it does not."""
    if holds(low):
        return None if last_false else low
    if not holds(high):
        return None
    for _ in range(_BISECTIONS):
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if holds(middle) else (middle, high)
    return low if last_false else high


def _no_weights(n_labels: int) -> LinearWeights:
    """Weights of labels that are only counted."""
    nothing: Any = sparse.csr_array((0, n_labels), dtype=np.float32)
    return LinearWeights(nothing, np.zeros(n_labels, np.float32), features=np.zeros(0, np.int32))
