"""F1 of label sets: what ``predict`` gives, beside the truth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc.errors import BlockXMCError
from blockxmc.metrics.ranking import Ranking, indicator

I64 = NDArray[np.int64]


def f1_samples(Y: Any, predicted: Any) -> float:
    """Mean F1 of the rows that have labels: 2 hits / (labels predicted + labels of the row).

    >>> f1_samples([[1, 1, 0], [0, 0, 0]], [[1, 0, 0], [0, 1, 0]]) == 2 / 3
    True
    """
    return LabelSets.of(Y, predicted).f1_samples()


def f1_micro(Y: Any, predicted: Any) -> float:
    """F1 of all (row, label) pairs together: 2 hits / (labels predicted + labels there are).

    >>> f1_micro([[1, 1, 0], [0, 0, 0]], [[1, 0, 0], [0, 1, 0]])
    0.5
    """
    return LabelSets.of(Y, predicted).f1_micro()


def f1_macro(Y: Any, predicted: Any) -> float:
    """Mean F1 of all labels (columns of Y); a label that is neither there nor predicted counts 0, as in scikit-learn.

    >>> f1_macro([[1, 1, 0], [0, 0, 0]], [[1, 0, 0], [0, 1, 0]]) == 1 / 3
    True
    """
    return LabelSets.of(Y, predicted).f1_macro()


def f1_at_k(Y: Any, labels: Any, k: int) -> float:
    """Mean F1 of the rows that have labels, if the first k labels are predicted (fewer where a row has fewer).

    >>> f1_at_k([[1, 0, 1], [0, 0, 0]], np.array([[2, 1], [0, 1]]), k=2)
    0.5
    """
    return Ranking.of(Y, labels, k).f1(k)


@dataclass(frozen=True)
class LabelSets:
    """Numbers of hits, of predicted labels and of labels, by row and by label."""

    rows: tuple[I64, I64, I64]
    labels: tuple[I64, I64, I64]

    @classmethod
    def of(cls, Y: Any, predicted: Any) -> LabelSets:
        """Compare a 0-1 matrix of predictions with Y."""
        truth, guess = indicator(Y), indicator(predicted)
        if truth.shape != guess.shape:
            raise BlockXMCError(f"predictions have shape {guess.shape}, but Y has {truth.shape}")
        parts = [sparse.csr_array(truth.multiply(guess)), guess, truth]
        by_row = tuple(np.diff(part.indptr).astype(np.int64) for part in parts)
        by_label = tuple(np.bincount(part.indices, minlength=truth.shape[1]) for part in parts)
        return cls(by_row, by_label)  # type: ignore[arg-type]

    def f1_samples(self) -> float:
        """Mean F1 of the rows that have labels."""
        hits, given, there = (part[self.rows[2] > 0] for part in self.rows)
        return float((2 * hits / (given + there)).mean()) if hits.size else 0.0

    def f1_micro(self) -> float:
        """F1 of all pairs."""
        hits, given, there = (int(part.sum()) for part in self.rows)
        return 2 * hits / max(given + there, 1)

    def f1_macro(self) -> float:
        """Mean F1 of all labels."""
        hits, given, there = self.labels
        return float((2 * hits / np.maximum(given + there, 1)).mean()) if hits.size else 0.0
