"""Several partitions, averaged: each sees other neighbors of a row, and what one misses another finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from blockxmc._core import stored
from blockxmc._core.allowed import Mask
from blockxmc._core.base import TopK
from blockxmc._core.matrix import row_parts
from blockxmc.model.calibration import Calibration
from blockxmc.model.routed import RoutedModel

# Labels of a row that each member is asked for where few are wanted.
WIDE = 64
# Models that answer together, at most.
MOST_MEMBERS = 16


@dataclass(frozen=True)
class Ensemble:
    """The models of several partitions; a label's score is the mean of its probabilities, 0 where it is no candidate."""

    members: Sequence[RoutedModel]

    @property
    def calibration(self) -> Calibration | None:
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

    def topk(self, X: sparse.csr_array, k: int, threads: int, allowed: Mask | None = None) -> TopK:
        """Best k allowed labels of each row: best first, ties to the lower label id, padded with -1 / -inf.

        Probabilities that a member ranks beyond its first ``WIDE`` count as none: they are too small to matter.
        """
        found = []
        for rows in row_parts(X):
            of_members = [member.topk(rows, max(k, WIDE), threads, allowed) for member in self.members]
            found.append(self._merged(of_members, k))
        return np.concatenate([labels for labels, _ in found]), np.concatenate([scores for _, scores in found])

    def one(self, indices: ArrayLike, values: ArrayLike, k: int, allowed: Mask | None = None) -> TopK:
        """Best k allowed labels of one sparse row, without threads."""
        found = [member.one(indices, values, max(k, WIDE), allowed) for member in self.members]
        labels, scores = self._merged([(labels[None], scores[None]) for labels, scores in found], k)
        return labels[0], scores[0]

    def _merged(self, found: list[TopK], k: int) -> TopK:
        """Mean scores of the labels that members have found, the best k of each row."""
        labels, scores = (np.hstack(parts) for parts in zip(*found, strict=True))
        order = np.argsort(labels, axis=1, kind="stable")
        labels, scores = np.take_along_axis(labels, order, 1), np.take_along_axis(scores, order, 1)
        first = np.ones(labels.shape, bool)
        first[:, 1:] = labels[:, 1:] != labels[:, :-1]
        means = np.full(labels.shape, -np.inf, np.float32)
        means[first] = np.add.reduceat(scores.ravel(), np.flatnonzero(first)) / np.float32(len(self.members))
        # Labels ascend, so that of equal means the lower label comes first; -inf is padding, or a label met before.
        best = np.argsort(-means, axis=1, kind="stable")[:, :k]
        scores = np.take_along_axis(means, best, 1)
        return np.where(np.isneginf(scores), -1, np.take_along_axis(labels, best, 1)), scores

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
        members = stored.mapping(state["members"], "the list of members")
        # They may all name the same few files, and each makes its own arrays of them.
        stored.require(0 < len(members) <= MOST_MEMBERS, f"an ensemble has 1 to {MOST_MEMBERS} members")
        return cls([RoutedModel.from_state(members[str(i)]) for i in range(len(members))])
