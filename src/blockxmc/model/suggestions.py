"""What texts get: labels with their scores, and what a score must exceed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc._core.base import TopK
from blockxmc._core.params import check_k
from blockxmc.errors import BlockXMCError


class Suggestion(NamedTuple):
    """A label and its probability (or its score, if the classifier's scores are not probabilities)."""

    label: Any
    score: float

    @property
    def trained(self) -> bool:
        """Whether a training row has the label; if not, the model knows it only by its description."""
        return True


class UntrainedSuggestion(Suggestion):
    """A suggestion of a label that no training row has: see ``label_texts`` of :meth:`TextClassifier.fit`."""

    @property
    def trained(self) -> bool:
        """No."""
        return False


def best_labels(answering: Any, X: sparse.csr_array, k: int, allow: Any, deny: Any) -> TopK:
    """What answers these rows, asked for their best labels; also where there is no row."""
    check_k(k, X.shape[0])
    if not X.shape[0]:
        return np.empty((0, k), np.int64), np.empty((0, k), np.float32)
    limits = {name: value for name, value in (("allow", allow), ("deny", deny)) if value is not None}
    found: TopK = answering.predict_topk(X, k, **limits)
    return found


def least_score(classifier: Any, threshold: Any) -> Callable[[NDArray[np.float32]], Any]:
    """What scores must exceed in rows that have these, best first: a number, ``"f1"`` the best for F1, None nothing."""
    if threshold is None:
        return lambda scores: -np.inf
    if threshold == "f1":
        if getattr(classifier, "rank_by", None) == "propensity":
            raise BlockXMCError('threshold "f1" is a probability, but labels are ranked by propensity: give a number')
        found: Callable[[NDArray[np.float32]], Any] = getattr(classifier, "f1_least", None) or classifier._least
        return found
    number = isinstance(threshold, (int, float, np.number)) and not isinstance(threshold, bool)
    if not number or np.isnan(threshold):
        raise BlockXMCError(f'threshold must be None, a number or "f1", got {threshold!r}')
    return lambda scores: float(threshold)
