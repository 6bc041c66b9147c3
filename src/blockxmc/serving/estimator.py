"""What estimators that answer through a routed model share."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from blockxmc._core.allowed import Mask, allowed_labels
from blockxmc._core.base import TopK, XMCEstimator


class Served(Protocol):
    """A fitted model that answers rows: :class:`RoutedModel`, or several of them together."""

    @property
    def calibration(self) -> tuple[float, float] | None:
        """How scores became probabilities; None: they are margins."""

    @property
    def slope(self) -> float:
        """How much block probabilities count."""

    def topk(self, X: sparse.csr_array, k: int, threads: int, allowed: Mask | None = None) -> TopK:
        """Best k allowed labels of each row."""

    def one(self, indices: ArrayLike, values: ArrayLike, k: int, allowed: Mask | None = None) -> TopK:
        """Best k allowed labels of one sparse row."""

    def scores(self, X: sparse.csr_array, threads: int) -> sparse.csr_array:
        """Scores of all candidates of each row."""

    def visited(self, X: sparse.csr_array, threads: int) -> NDArray[np.int32] | None:
        """The blocks each row is sent to, best first; None: the only one."""

    def cost(self, X: sparse.csr_array, threads: int) -> dict[str, float]:
        """Mean work per row."""

    def state(self) -> dict[str, Any]:
        """Nested dict of arrays for the model directory."""


class RoutedEstimator(XMCEstimator):
    """Serving and cost of a classifier whose fitted model is one :class:`RoutedModel` or several."""

    model_: Served

    def _topk(self, X: sparse.csr_array, k: int, allowed: Mask | None = None) -> TopK:
        return self.model_.topk(X, k, self._threads, allowed)

    def _scores(self, X: sparse.csr_array) -> sparse.csr_array:
        return self.model_.scores(X, self._threads)

    def cost_on(self, X: Any) -> dict[str, float]:
        """Mean work per row as these rows are routed."""
        return self.model_.cost(self._validated(X), self._threads)

    def predict_one(
        self, indices: ArrayLike, values: ArrayLike, k: int = 5, allow: Any = None, deny: Any = None
    ) -> TopK:
        """Best k labels of one sparse row (sorted indices): no validation, no threads, the latency path."""
        return self.model_.one(indices, values, k, allowed_labels(self.targets_, allow, deny))
