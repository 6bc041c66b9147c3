"""What CBMLC and LPSR share: both answer through blocks found by k-means."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike
from scipy import sparse

from blockxmc._base import TopK, XMCEstimator
from blockxmc.blocks import Blocks
from blockxmc.errors import BlockXMCError
from blockxmc.learners._learner import Learner


class KMeansBaseline(XMCEstimator):
    """Serving, cost and storage of a system whose fitted model is one :class:`Blocks`."""

    blocks_: Blocks

    def _finish(self, blocks: Blocks, learner: Learner, X: sparse.csr_array) -> None:
        self.blocks_ = blocks
        self.cost_ = blocks.cost(X, self._threads)
        self._threshold = learner._threshold

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

    def _state(self) -> dict[str, Any]:
        return {"blocks": self.blocks_.state(), "cost": self.cost_, "threshold": self._threshold}

    def _restore(self, state: dict[str, Any]) -> None:
        self.blocks_ = Blocks.from_state(state["blocks"])
        self.cost_ = state["cost"]
        self._threshold = state["threshold"]


def check_positive(**numbers: int) -> None:
    """Refuse counts below one, by name."""
    for name, value in numbers.items():
        if not isinstance(value, int) or value < 1:
            raise BlockXMCError(f"{name} must be a whole number of at least 1, got {value!r}")
