"""A data set in memory: features, labels and what they are called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc._core.matrix import matrix_digest, take_rows
from blockxmc.errors import DataFormatError

if TYPE_CHECKING:
    from blockxmc.data.tfidf import TextVectorizer


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set: features X (n x d) and labels Y (n x m, 0 or 1) of the same rows, both float32 CSR with sorted indices.

    >>> from scipy import sparse
    >>> data = Dataset(sparse.csr_array([[1.0, 0.0]]), sparse.csr_array([[0.0, 1.0, 1.0]]), label_names=["a", "b", "c"])
    >>> data.n_rows, data.n_features, data.n_labels, data.labels_per_row
    (1, 2, 3, 2.0)
    """

    X: sparse.csr_array
    Y: sparse.csr_array
    feature_names: Sequence[str] | None = None
    label_names: Sequence[str] | None = None
    vectorizer: TextVectorizer | None = None
    unseen_labels: int = 0  # label occurrences that are not among the given label names
    left_out: sparse.csr_array | None = None  # pairs of a row and a label that are not scored; Y is without them

    def __post_init__(self) -> None:
        """Refuse parts that do not fit together."""
        if self.X.shape[0] != self.Y.shape[0]:
            raise DataFormatError(f"X has {self.X.shape[0]} rows but Y has {self.Y.shape[0]}")
        for names, size, what in (
            (self.feature_names, self.n_features, "feature"),
            (self.label_names, self.n_labels, "label"),
        ):
            if names is not None and len(names) != size:
                raise DataFormatError(f"{len(names)} {what} names were given for {size} {what}s")

    @property
    def n_rows(self) -> int:
        """Number of rows n."""
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return int(self.X.shape[1])

    @property
    def n_labels(self) -> int:
        """Number of labels m."""
        return int(self.Y.shape[1])

    @property
    def labels_per_row(self) -> float:
        """Average number of labels of a row."""
        return self.Y.nnz / self.n_rows if self.n_rows else 0.0

    @property
    def features_per_row(self) -> float:
        """Average number of stored features of a row."""
        return self.X.nnz / self.n_rows if self.n_rows else 0.0

    @cached_property
    def digest(self) -> str:
        """SHA-256 over shapes and arrays: equal data has an equal digest, however it was stored."""
        return matrix_digest(self.X, self.Y)

    def rows(self, which: NDArray[np.intp]) -> Dataset:
        """The given rows, in that order."""
        left_out = None if self.left_out is None else take_rows(self.left_out, which)
        return replace(self, X=take_rows(self.X, which), Y=take_rows(self.Y, which), unseen_labels=0, left_out=left_out)
