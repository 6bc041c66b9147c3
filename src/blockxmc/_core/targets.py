"""Labels as users have them (sparse or dense 0-1 matrix, lists of names, one class per row) and as the library does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from blockxmc._core.matrix import as_indicator
from blockxmc.errors import BlockXMCError

Kind = Literal["csr_array", "csr_matrix", "dense", "names", "classes"]


@dataclass(frozen=True)
class Targets:
    """How labels came in, so that predictions go out the same way.

    >>> targets, Y = Targets.encode([["b", "a"], [], ["b"]])
    >>> targets.names.tolist(), Y.toarray().astype(int).tolist()
    (['a', 'b'], [[1, 1], [0, 0], [0, 1]])
    >>> targets.decode(Y)
    [['a', 'b'], [], ['b']]
    """

    kind: Kind
    n_labels: int
    names: NDArray[Any] | None = None  # label names, or the distinct classes

    @classmethod
    def encode(cls, Y: Any) -> tuple[Targets, sparse.csr_array]:
        """Recognise what Y is and return it as a 0-1 CSR matrix."""
        if Y is None:
            raise ValueError("This estimator requires y to be passed, but the target y is None.")
        if sparse.issparse(Y):
            kind: Kind = "csr_matrix" if sparse.isspmatrix(Y) else "csr_array"
            indicator = as_indicator(Y)
            return cls(kind, indicator.shape[1]), indicator
        if _is_name_lists(Y):
            names = sorted({name for row in Y for name in row})
            # Text as objects: a fixed width would give every name the room of the longest.
            text = all(isinstance(name, str) for name in names)
            targets = cls("names", len(names), np.array(names, dtype=object if text else None))
            return targets, targets._from_names(Y)
        values = np.asarray(Y)
        if values.ndim == 2 and (values.shape[1] > 1 or np.isin(values, (0, 1)).all()):
            if values.dtype.kind not in "biuf" or not np.isin(values, (0, 1)).all():
                raise BlockXMCError(f"Unknown label type: {type_of_target(values)}: a 2-d Y must hold 0 and 1 only")
            return cls("dense", values.shape[1]), as_indicator(values)
        check_classification_targets(values)
        classes, which = np.unique(values.ravel(), return_inverse=True)
        rows = np.arange(which.size + 1)
        Y01 = sparse.csr_array((np.ones(which.size, np.float32), which, rows), shape=(which.size, classes.size))
        return cls("classes", classes.size, classes), as_indicator(Y01)

    def encode_more(self, Y: Any) -> tuple[sparse.csr_array, int]:
        """Other data in the labels known already; also the number of occurrences of labels that are not."""
        if self.kind != "names" or not _is_name_lists(Y):
            more, Y01 = Targets.encode(Y)
            if more.kind != "classes" and self.kind != "classes":
                if more.n_labels != self.n_labels:
                    raise BlockXMCError(f"Y has {more.n_labels} labels, the model has {self.n_labels}")
                return Y01, 0
            Y = [[row] for row in np.asarray(Y).ravel()]
        assert self.names is not None
        known = set(self.names.tolist())
        unseen = sum(name not in known for row in Y for name in row)
        return self._from_names([[name for name in row if name in known] for row in Y]), unseen

    def _from_names(self, rows: Sequence[Sequence[Any]]) -> sparse.csr_array:
        assert self.names is not None
        index = {name: j for j, name in enumerate(self.names.tolist())}
        ids = [sorted({index[name] for name in row}) for row in rows]
        indptr = np.concatenate([[0], np.cumsum([len(row) for row in ids], dtype=np.int64)])
        flat = np.array([j for row in ids for j in row], dtype=np.int32)
        return sparse.csr_array((np.ones(flat.size, np.float32), flat, indptr), shape=(len(ids), self.n_labels))

    def decode(self, Y: sparse.csr_array) -> Any:
        """A predicted 0-1 matrix in the user's own form (for ``classes`` see the estimator's argmax)."""
        if self.kind == "names":
            assert self.names is not None
            return [self.names[Y.indices[a:b]].tolist() for a, b in zip(Y.indptr[:-1], Y.indptr[1:], strict=True)]
        if self.kind == "dense":
            return Y.toarray().astype(np.int64)
        whole = Y.astype(np.int64)
        return sparse.csr_matrix(whole) if self.kind == "csr_matrix" else whole


def _is_name_lists(Y: Any) -> bool:
    """Rows of label names, as against a rectangular array of numbers."""
    if isinstance(Y, np.ndarray) and Y.dtype != object:
        return False
    if not isinstance(Y, (Sequence, np.ndarray)) or isinstance(Y, str) or getattr(Y, "ndim", 1) != 1:
        return False
    rows = list(Y)
    if not rows or not all(isinstance(row, (list, tuple, set, frozenset, np.ndarray)) for row in rows):
        return False
    if any(isinstance(row, (set, frozenset)) for row in rows) or len({len(row) for row in rows}) > 1:
        return True
    return any(isinstance(name, str) for row in rows for name in row)
