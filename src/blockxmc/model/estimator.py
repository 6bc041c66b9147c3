"""What estimators that answer through a routed model share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from blockxmc._core.allowed import Mask, allowed_labels, label_ids
from blockxmc._core.base import TopK, XMCEstimator
from blockxmc._core.matrix import take_rows
from blockxmc._core.params import check_k
from blockxmc._core.versions import of_one_version
from blockxmc.errors import BlockXMCError
from blockxmc.model.explanations import Explanation, explain_row
from blockxmc.model.routed import RoutedModel
from blockxmc.model.sources import Sources, with_sources

# Words of a name that an explanation shows.
MOST_WORDS = 6


class Explained(XMCEstimator):
    """An estimator that can say why: its answers are those of a routed model."""

    sources_: Sources | None = None  # what is known of the training rows, where that was kept

    def _served(self) -> Any:
        """The routed model behind the answers."""
        raise NotImplementedError

    def _worth_of_labels(self) -> NDArray[np.float32] | None:
        """What the probability of each label is multiplied by where answers are ranked; None: by nothing."""
        return None

    @of_one_version
    def explain(
        self, row: Any, label: Any = None, k: int = 5, feature_names: Any = None, most_features: int | None = None
    ) -> list[Explanation]:
        """Why labels were suggested for one row, or where they were lost: see :class:`Explanation`.

        ``label`` is one label or a list, by name or id; None: the k that are suggested. ``feature_names`` are those that
        the model knows, where nothing else is said. ``most_features`` lists the largest parts only; the others are one
        number. Printing an explanation shows a table; ``to_dict`` gives plain values.

        >>> from blockxmc import DiSMEC
        >>> clf = DiSMEC().fit([[1.0, 0], [0, 1.0]], [["red"], ["blue"]])
        >>> why = clf.explain([1.0, 0.0], label="red", k=1)[0]
        >>> why.fate, round(why.score - why.constant - sum(part.part for part in why.features), 6)
        ('suggested: rank 1 of 2 candidates', 0.0)
        """
        check_k(k)
        X = self._validated(row if sparse.issparse(row) or np.ndim(row) == 2 else np.atleast_2d(row))
        ids = None if label is None else label_ids(self.targets_, label, "explain")
        if most_features is not None and most_features < 0:
            raise BlockXMCError(f"most_features must be a whole number of at least 0 or None, got {most_features!r}")
        names = getattr(self, "feature_names_in_", None) if feature_names is None else feature_names
        known: Any = {
            "names": self.targets_.names,
            "features": names,
            "worth": self._worth_of_labels(),
            "most": most_features,
        }
        found = explain_row(self._served(), X, ids, k, **known)
        if self.sources_ is not None:
            found = with_sources(found, self.sources_)
        found = [replace(why, fate=why.fate + self._shared_words(X, why, names)) for why in found]
        untrained = self.label_counts_ == 0
        return [
            replace(why, fate=f"{why.fate}; no training row has it") if untrained[why.label] and why.rank else why
            for why in found
        ]

    def _shared_words(self, X: sparse.csr_array, why: Explanation, features: Any) -> str:
        """Which features the row shares with the name of the label, where names count in scores."""
        about = getattr(self, "names_", None)
        if about is None or not why.rank:
            return ""
        shared = np.intersect1d(X.indices, take_rows(about, np.array([why.label])).indices)
        words = " ".join(str(number if features is None else features[number]) for number in shared[:MOST_WORDS])
        return f"; the text shares `{words}` with the name" if shared.size else ""


class RoutedEstimator(Explained):
    """Serving and cost of a classifier whose fitted model is a :class:`RoutedModel`."""

    model_: RoutedModel

    def _served(self) -> Any:
        return self.model_

    def _topk(self, X: sparse.csr_array, k: int, allowed: Mask | None = None) -> TopK:
        return self.model_.topk(X, k, self._threads, allowed)

    def _scores(self, X: sparse.csr_array) -> sparse.csr_array:
        return self.model_.scores(X, self._threads)

    @of_one_version
    def cost_on(self, X: Any) -> dict[str, float]:
        """Mean work per row as these rows are routed."""
        return self.model_.cost(self._validated(X), self._threads)

    def predict_one(
        self, indices: ArrayLike, values: ArrayLike, k: int = 5, allow: Any = None, deny: Any = None
    ) -> TopK:
        """Best k labels of one sparse row (sorted indices): no validation, no threads, the latency path."""
        return self.model_.one(indices, values, k, allowed_labels(self.targets_, allow, deny))
