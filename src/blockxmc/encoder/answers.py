"""A classifier and an encoder that answer the same texts: in place of the classifier where a model has an encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc._core.allowed import allowed_labels
from blockxmc._core.base import TopK
from blockxmc.encoder.explain import explained
from blockxmc.encoder.model import Encoded
from blockxmc.errors import BlockXMCError
from blockxmc.model.calibration import f1_thresholds
from blockxmc.model.explanations import Explanation


class WithEncoder:
    """What a classifier is asked about features, answered for rows of which the ``texts`` are known, too."""

    def __init__(self, classifier: Any, encoded: Encoded, texts: Sequence[str]) -> None:
        if classifier.rank_by == "propensity":
            raise BlockXMCError('rank_by="propensity" does not go with an encoder: rank by probability')
        self.classifier, self.encoded, self.texts, self.rank_by = classifier, encoded, texts, classifier.rank_by

    def predict_topk(self, X: sparse.csr_array, k: int, allow: Any = None, deny: Any = None) -> TopK:
        """As the classifier's: the best allowed labels, padded with -1 / -inf."""
        classifier = self.classifier
        allowed = allowed_labels(classifier.targets_, allow, deny)
        X = classifier._validated(X)
        labels, scores = self.encoded.topk(classifier.model_, X, self.texts, k, classifier._threads, allowed)
        if labels.shape[1] == k:
            return labels, scores
        missing = ((0, 0), (0, k - labels.shape[1]))
        return np.pad(labels, missing, constant_values=-1), np.pad(scores, missing, constant_values=-np.inf)

    def predict(self, X: sparse.csr_array) -> Any:
        """As the classifier's: label sets, cut at its ``threshold`` as fitted for the encoder's scores."""
        classifier = self.classifier
        classifier._check_threshold()
        X = classifier._validated(X)
        labels, scores = self.encoded.first(classifier.model_, X, self.texts, classifier._threads)
        if classifier.threshold == "top-k":
            kept = np.broadcast_to(np.arange(labels.shape[1]) < self.encoded.fusion.f1_labels, labels.shape)
        else:
            kept = scores > (self.f1_least(scores) if classifier.threshold == "f1" else float(classifier.threshold))
        at, columns = np.nonzero(kept & (labels >= 0))
        chosen = np.ones(at.size, np.float32), (at, labels[at, columns])
        shape = len(labels), classifier.targets_.n_labels
        return classifier.targets_.decode(sparse.csr_array(chosen, shape=shape))

    def explain(self, X: sparse.csr_array, label: Any = None, k: int = 5, **options: Any) -> list[Explanation]:
        """As the classifier's, with the encoder's part, of one text."""
        return explained(self.encoded, self.classifier, X, self.texts[0], label, k, **options)

    def f1_least(self, ranked: NDArray[np.float32]) -> Any:
        """What probabilities must exceed for the best F1, where rows have these, best first."""
        return f1_thresholds(ranked, self.encoded.fusion.f1_size)

    def score(self, X: sparse.csr_array, labels: Any, sample_weight: Any = None) -> float:
        """Precision at 1."""
        Y, best = self.classifier.targets_.encode_more(labels)[0], self.predict_topk(X, 1)[0][:, 0]
        if Y.shape[0] != best.size:
            raise BlockXMCError(f"there are {best.size} texts but labels of {Y.shape[0]}: the numbers must agree")
        hit = np.asarray(Y[np.arange(best.size), np.maximum(best, 0)]).ravel() * (best >= 0)
        return float(np.average(hit, weights=sample_weight))

    def predict_proba(self, X: sparse.csr_array) -> sparse.csr_array:
        """Probabilities of all labels that the linear model scores."""
        classifier = self.classifier
        return self.encoded.scores(classifier.model_, classifier._validated(X), self.texts, classifier._threads)

    decision_function = predict_proba
