"""What CBMLC and LPSR share: both answer through blocks found by k-means."""

from __future__ import annotations

from typing import Any

from scipy import sparse

from blockxmc._core import stored
from blockxmc.learners._learner import Learner
from blockxmc.model.estimator import RoutedEstimator
from blockxmc.model.routed import RoutedModel


class KMeansBaseline(RoutedEstimator):
    """Storage of a system whose fitted model is one :class:`RoutedModel` and nothing more."""

    def _finish(self, blocks: RoutedModel, learner: Learner, X: sparse.csr_array) -> None:
        self.model_ = blocks
        self.cost_ = blocks.cost(X, self._threads)
        self._threshold = learner._threshold

    def _state(self) -> dict[str, Any]:
        return {"blocks": self.model_.state(), "cost": self.cost_, "threshold": self._threshold}

    def _restore(self, state: dict[str, Any]) -> None:
        self.model_ = RoutedModel.from_state(state["blocks"])
        self._check_sizes(self.model_.n_labels, self.model_.n_features)
        self.cost_ = stored.numbers(state["cost"], "cost")
        self._threshold = stored.real(state["threshold"], "threshold")
