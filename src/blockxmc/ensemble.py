"""Several partitions, averaged: each sees other neighbours of a row, and what one misses another finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from blockxmc._base import TopK
from blockxmc.blocks import Blocks
from blockxmc.scoring import as_row

# Candidates of this many rows are held at a time.
ROWS_AT_A_TIME = 4096


@dataclass(frozen=True)
class Ensemble:
    """The models of several partitions; a label's score is the mean of its probabilities, 0 where it is no candidate."""

    members: Sequence[Blocks]

    @property
    def calibration(self) -> tuple[float, float] | None:
        """That of the first member: scores are probabilities if its scores are."""
        return self.members[0].calibration

    @property
    def slope(self) -> float:
        """Mean slope on block probabilities."""
        return float(np.mean([member.slope for member in self.members]))

    def scores(self, X: sparse.csr_array, threads: int) -> sparse.csr_array:
        """Mean scores of all candidates of each row."""
        total = sparse.csr_array(reduce(add, (member.scores(X, threads) for member in self.members)))
        total.data /= np.float32(len(self.members))
        total.sort_indices()
        return total

    def topk(self, X: sparse.csr_array, k: int, threads: int) -> TopK:
        """Best k labels of each row: best first, ties to the lower label id, padded with -1 / -inf."""
        n = X.shape[0]
        labels, best = np.full((n, k), -1, np.int64), np.full((n, k), -np.inf, np.float32)
        for start in range(0, n, ROWS_AT_A_TIME):
            found = self.scores(sparse.csr_array(X[start : start + ROWS_AT_A_TIME]), threads)
            rows = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr))
            order = np.lexsort((found.indices, -found.data, rows))
            place = np.arange(found.nnz) - found.indptr[rows]
            kept = place < k
            labels[start + rows[kept], place[kept]] = found.indices[order][kept]
            best[start + rows[kept], place[kept]] = found.data[order][kept]
        return labels, best

    def one(self, indices: ArrayLike, values: ArrayLike, k: int) -> TopK:
        """Best k labels of one sparse row, without threads."""
        columns, data = as_row(indices, values)
        shape = (1, self.members[0].scorer.n_features)
        labels, scores = self.topk(sparse.csr_array((data, columns, [0, data.size]), shape=shape), k, 1)
        return labels[0], scores[0]

    def visited(self, X: sparse.csr_array, threads: int) -> Any:
        """The blocks that the first partition sends each row to."""
        return self.members[0].visited(X, threads)

    def cost(self, X: sparse.csr_array, threads: int) -> dict[str, float]:
        """Mean work per row: what the partitions cost together."""
        costs = [member.cost(X, threads) for member in self.members]
        total = {key: float(sum(cost[key] for cost in costs)) for key in ("candidates", "products")}
        speedups = [key for key in costs[0] if key.startswith("speedup")]
        return total | {key: 1 / sum(1 / max(cost[key], 1e-12) for cost in costs) for key in speedups}

    def state(self) -> dict[str, Any]:
        """Nested dict of arrays for the model directory."""
        return {"members": {str(i): member.state() for i, member in enumerate(self.members)}}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Ensemble:
        """Take back what ``state`` gave."""
        members = state["members"]
        return cls([Blocks.from_state(members[str(i)]) for i in range(len(members))])
