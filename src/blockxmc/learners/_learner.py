"""A base classifier: trains weights for a set of labels on a set of rows. Alone, it is one block with all labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from blockxmc._core.allowed import Mask, allowed_labels
from blockxmc._core.base import TopK
from blockxmc._core.params import as_seed
from blockxmc._core.progress import Phase, Reporter
from blockxmc.linear.scorers import pack_scorer, restore_scorer
from blockxmc.linear.weights import Weights
from blockxmc.model.estimator import Explained
from blockxmc.model.routed import RoutedModel


@dataclass(frozen=True)
class Context:
    """Circumstances of one training: threads to use, seed, and where to report finished labels."""

    threads: int
    seed: int
    phase: Phase


class Learner(Explained):
    """Base of the base classifiers. A subclass implements ``_train``; everything else follows."""

    # True where every label is trained on its own (then labels may share one vector across blocks).
    one_vs_all: ClassVar[bool] = False
    # True where ``_train`` takes ``costs``: what each row counts as a positive, and as a negative.
    takes_costs: ClassVar[bool] = False
    # True where labels that come in a fixed order (training/batches.py) may be trained in batches of any size.
    any_batch: ClassVar[bool] = False

    def _train(self, X: sparse.csr_array, Y: sparse.csr_array, job: Context) -> Weights:
        """Weights of all columns of Y from all rows of X; reports ``job.phase.update(labels_done)``."""
        raise NotImplementedError

    def _context(self, threads: int, phase: Phase, seed: int | None = None) -> Context:
        """A training that this learner is asked for: its own ``random_state`` counts, on top of the caller's seed."""
        return Context(threads, (seed or 0) + as_seed(self.random_state), phase)

    def _check_params(self) -> None:
        """Raise BlockXMCError in one line for a parameter out of range; called before training."""

    def _fit(self, X: sparse.csr_array, Y: sparse.csr_array, reporter: Reporter) -> None:
        self._check_params()
        with reporter.phase(f"train {type(self).__name__}", Y.shape[1]) as phase:
            weights = self._train(X, Y, self._context(self._threads, phase))
        self.scorer_ = pack_scorer([weights], [np.arange(Y.shape[1])], n_features=X.shape[1], n_labels=Y.shape[1])

    def _topk(self, X: sparse.csr_array, k: int, allowed: Mask | None = None) -> TopK:
        return self.scorer_.topk(X, None, k, threads=self._threads, allowed=allowed)

    def _scores(self, X: sparse.csr_array) -> sparse.csr_array:
        return self.scorer_.scores(X, None, threads=self._threads)

    def predict_one(
        self, indices: ArrayLike, values: ArrayLike, k: int = 5, allow: Any = None, deny: Any = None
    ) -> TopK:
        """Best k labels of one sparse row (sorted indices): no validation, no threads, the latency path."""
        return self.scorer_.one(indices, values, None, k, allowed_labels(self.targets_, allow, deny))

    def _served(self) -> RoutedModel:
        return RoutedModel(None, self.scorer_, 1)

    def _state(self) -> dict[str, Any]:
        return {"scorer": self.scorer_.state()}

    def _restore(self, state: dict[str, Any]) -> None:
        self.scorer_ = restore_scorer(state["scorer"])
        self._check_sizes(self.scorer_.n_labels, self.scorer_.n_features)
