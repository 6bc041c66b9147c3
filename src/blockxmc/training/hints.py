"""What may be told beside rows and their labels: how much each row counts, and what labels are about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc._core.matrix import LARGEST_VALUE, as_csr, check_values, matrix_digest, without_rows
from blockxmc.errors import BlockXMCError
from blockxmc.linear.weights import F32


@dataclass(frozen=True)
class Hints:
    """Nothing by default: all rows count alike, and rows alone say what labels are about."""

    sample_weight: F32 | None = None  # of each row: what its loss counts
    label_features: sparse.csr_array | None = None  # labels x features: what is known of labels by themselves
    always: bool = True  # whether labels' features count in any case; else where held-out rows gain by them

    @classmethod
    def checked(
        cls, X: sparse.csr_array, Y: sparse.csr_array, sample_weight: Any, label_features: Any, use: str = "always"
    ) -> Self:
        """The hints of these rows and labels, or one clear line.

        >>> eye = sparse.csr_array(np.eye(2, dtype=np.float32))
        >>> Hints.checked(eye, eye, [1, 2], None).sample_weight.tolist()
        [1.0, 2.0]
        """
        weights = None if sample_weight is None else _weights(sample_weight, X.shape[0])
        if use not in ("always", "auto"):
            raise BlockXMCError(f'use_label_features must be "always" or "auto", got {use!r:.60}')
        if label_features is None:
            return cls(weights)
        return cls(weights, checked_features(label_features, (Y.shape[1], X.shape[1])), use == "always")

    @property
    def teaching(self) -> NDArray[np.bool_] | None:
        """The rows that count; None: all."""
        if self.sample_weight is None or (self.sample_weight > 0).all():
            return None
        return self.sample_weight > 0

    def among(self, rows: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
        """Those of the rows (None: all) that count."""
        if rows is None or self.teaching is None:
            return self.teaching if rows is None else rows
        return rows & self.teaching

    def digests(self) -> dict[str, str]:
        """What tells these hints from others: a name and a digest of each that there is."""
        weights = None if self.sample_weight is None else as_csr(self.sample_weight[None])
        given = {"sample_weight": weights, "label_features": self.label_features}
        return {name: matrix_digest(matrix)[:16] for name, matrix in given.items() if matrix is not None}

    def taught(self, Y: sparse.csr_array) -> sparse.csr_array:
        """The labels as far as they count: those of a row of weight 0 do not.

        >>> Hints(np.array([0, 1], np.float32)).taught(sparse.csr_array(np.eye(2, dtype=np.float32))).toarray().tolist()
        [[0.0, 0.0], [0.0, 1.0]]
        """
        return Y if self.teaching is None else without_rows(Y, ~self.teaching)


NO_HINTS = Hints()


def checked_features(given: Any, shape: tuple[int, int]) -> sparse.csr_array:
    """A row of features for each label."""
    try:
        features = as_csr(given)
    except (TypeError, ValueError):
        raise BlockXMCError(f"label_features must be a matrix of numbers, got {type(given).__name__}") from None
    if features.shape != shape:
        wanted = f"a row for each of the {shape[0]} labels and {shape[1]} features"
        raise BlockXMCError(f"label_features must have {wanted}, got shape {features.shape}")
    check_values(features, "label_features")
    return features


def _weights(given: Any, n_rows: int) -> F32:
    try:
        weights = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise BlockXMCError(f"sample_weight must be a number per row, got {given!r:.60}") from None
    if weights.ndim == 0:
        weights = np.full(n_rows, weights)
    if weights.shape != (n_rows,):
        raise BlockXMCError(f"sample_weight must be 1-d with a number per row, {n_rows}, got shape {weights.shape}")
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise BlockXMCError("sample_weight must be finite numbers of at least 0, and not all of them zero")
    strange = weights[(weights > 0) & ((weights < 1 / LARGEST_VALUE) | (weights > LARGEST_VALUE))]
    if strange.size:
        span = f"from {1 / LARGEST_VALUE:.0e} to {LARGEST_VALUE:.0e}"
        raise BlockXMCError(
            f"sample_weight holds {strange[0]:.0e}, and must be 0 or {span}; multiply all by one number"
        )
    return weights.astype(np.float32)
