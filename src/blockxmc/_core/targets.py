"""Labels as users have them (0-1 matrix, lists of label names, one class per row) and as the library has them.

What Y is follows from its type alone:

- a sparse matrix, a 2-d NumPy array or a DataFrame is a 0-1 matrix, a column per label;
- a list (tuple, Series, 1-d object array) of lists, tuples or sets holds the labels of each row: text or whole numbers;
- a list, Series or 1-d array of text or numbers holds one class per row.

A plain list of equally long lists of 0 and 1 is a matrix where some row repeats a number, because the labels of a row do
not repeat. Else it may be a matrix or lists of the label numbers 0 and 1, and is refused: ``np.array(Y)`` says that it is
a matrix, ``[set(row) for row in Y]`` that it holds label numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral, Number
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets

from blockxmc._core.matrix import as_indicator
from blockxmc.errors import BlockXMCError

Kind = Literal["csr_array", "csr_matrix", "dense", "names", "classes"]
Rows = list[list[Any]]


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
        """Recognise what Y is and return it as a 0-1 CSR matrix; the columns of a DataFrame name the labels."""
        if hasattr(Y, "columns"):
            targets, indicator = cls.encode(np.asarray(Y))
            return replace(targets, names=_column_names(targets, Y.columns)), indicator
        Y = _without_pandas(Y)
        if Y is None:
            raise ValueError("This estimator requires y to be passed, but the target y is None.")
        if sparse.issparse(Y):
            indicator = as_indicator(Y)
            return cls(form_of_matrix(Y) or "csr_array", indicator.shape[1]), indicator
        rows = _label_lists(Y)
        if rows is None:
            return cls._of_array(_one_per_row(Y))
        if _may_be_matrix(Y, rows):
            if any(len(set(row)) < len(row) for row in rows):
                return cls._of_array(np.asarray(Y))
            raise BlockXMCError(
                "Y is a list of equally long lists of 0 and 1, which may be a 0-1 matrix or label numbers:"
                " pass np.array(Y) for a matrix, or [set(row) for row in Y] for label numbers"
            )
        names = as_names(_distinct_names(rows))
        targets = cls("names", names.size, names)
        return targets, targets._from_names(rows)

    @classmethod
    def _of_array(cls, values: NDArray[Any]) -> tuple[Targets, sparse.csr_array]:
        """A 0-1 matrix, or one class per row."""
        if values.ndim == 2 and (values.shape[1] > 1 or np.isin(values, (0, 1)).all()):
            wrong = values[~_zeros_and_ones(values)].tolist()
            if wrong:
                raise BlockXMCError(
                    f"Unknown label type: a 2-d Y must hold 0 and 1 only, and holds {_short(wrong[0])};"
                    " label names go into lists, one list per row"
                )
            return cls("dense", values.shape[1]), as_indicator(values.astype(np.float32))
        try:
            check_classification_targets(values)
            classes, which = np.unique(values.ravel(), return_inverse=True)
        except (ValueError, TypeError) as error:
            raise BlockXMCError(" ".join(str(error).split())) from error
        rows = np.arange(which.size + 1)
        Y01 = sparse.csr_array((np.ones(which.size, np.float32), which, rows), shape=(which.size, classes.size))
        return cls("classes", classes.size, classes), as_indicator(Y01)

    def encode_more(self, Y: Any) -> tuple[sparse.csr_array, int]:
        """Other data in the labels known already; also the number of occurrences of unknown labels."""
        Y = _without_pandas(Y)
        rows = None if sparse.issparse(Y) or Y is None else _label_lists(Y)
        if rows is not None and self.kind not in ("names", "classes") and _may_be_matrix(Y, rows):
            Y, rows = np.asarray(Y), None  # the model was fitted on a matrix: so this is one, too
        if rows is None:
            more, Y01 = Targets.encode(Y)
            if more.kind != "classes" and self.kind != "classes":
                if more.n_labels != self.n_labels:
                    raise BlockXMCError(f"Y has {more.n_labels} labels, the model has {self.n_labels}")
                return Y01, 0
            rows = [[row] for row in np.asarray(Y).ravel()]
        if self.names is None:
            raise BlockXMCError("the model was fitted on a 0-1 matrix: pass Y as a matrix, not as lists or classes")
        known = self.ids_by_name
        unseen = sum(name not in known for row in rows for name in row)
        return self._from_names([[name for name in row if name in known] for row in rows]), unseen

    def extended(self, Y: Any, names: Sequence[Any] | None = None) -> tuple[Targets, sparse.csr_array]:
        """Other data in the labels known already and in new ones, which get the next ids; ``names`` are those of columns.

        >>> targets, _ = Targets.encode([["b"], ["a"]])
        >>> more, Y = targets.extended([["c", "b"]])
        >>> more.names.tolist(), Y.indices.tolist()
        (['a', 'b', 'c'], [1, 2])
        """
        names = list(Y.columns) if names is None and hasattr(Y, "columns") and self.names is not None else names
        Y = _without_pandas(Y)
        rows = None if sparse.issparse(Y) or Y is None else _label_lists(Y)
        if rows is not None and self.kind not in ("names", "classes") and _may_be_matrix(Y, rows):
            Y, rows = np.asarray(Y), None  # the model was fitted on a matrix: so this is one, too
        if rows is None:
            more, Y01 = Targets.encode(Y)
            if more.kind != "classes" and self.kind != "classes":
                return self._extended_matrix(Y01, names)
            rows = [[row] for row in np.asarray(Y).ravel().tolist()]
        if self.names is None:
            raise BlockXMCError("the model was fitted on a 0-1 matrix: pass Y as a matrix, not as lists or classes")
        targets = self._with_names(_distinct_names(rows) if self.kind != "classes" else {row[0] for row in rows})
        return targets, targets._from_names(rows)

    def _extended_matrix(self, Y: sparse.csr_array, names: Sequence[Any] | None) -> tuple[Targets, sparse.csr_array]:
        if names is not None and self.names is not None:
            if len(names) != Y.shape[1] or len(set(names)) < len(names):
                raise BlockXMCError(f"{len(names)} label names for {Y.shape[1]} columns: give every column its own")
            used = np.unique(Y.indices)
            targets = self._with_names([names[j] for j in used])
            new = np.array([targets.ids_by_name.get(name, -1) for name in names], np.int64)
            parts = (Y.data, new[Y.indices], Y.indptr)
            return targets, as_indicator(sparse.csr_array(parts, shape=(Y.shape[0], targets.n_labels)))
        if Y.shape[1] < self.n_labels:
            raise BlockXMCError(f"Y has {Y.shape[1]} labels, the model has {self.n_labels}")
        if Y.shape[1] > self.n_labels and self.names is not None:
            raise BlockXMCError(f"Y has {Y.shape[1]} labels, the model has {self.n_labels}: name them by label_names")
        return replace(self, n_labels=Y.shape[1]), Y

    def _with_names(self, names: Iterable[Any]) -> Targets:
        """The same labels, and those of these names that are new, in order, behind them."""
        assert self.names is not None
        new = sorted(set(names) - set(self.ids_by_name))
        text = self.n_labels == 0 or isinstance(self.names[0], str)
        if any(isinstance(name, str) != text for name in new):
            raise BlockXMCError(f"the model's labels are {'text' if text else 'numbers'}, but Y has {_short(new[0])}")
        if not new:
            return Targets(self.kind, self.n_labels, self.names)
        joined = np.array([*self.names.tolist(), *new], dtype=object if text and self.kind != "classes" else None)
        return Targets(self.kind, joined.size, joined)

    @cached_property
    def ids_by_name(self) -> dict[Any, int]:
        """The id of each label name; nothing where labels have no names."""
        return {} if self.names is None else {name: j for j, name in enumerate(self.names.tolist())}

    def _from_names(self, rows: Iterable[Iterable[Any]]) -> sparse.csr_array:
        index = self.ids_by_name
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


def form_of_matrix(Y: Any) -> Kind | None:
    """The kind of a 0-1 matrix; None where Y is none.

    >>> form_of_matrix(np.eye(2)), form_of_matrix([["a"]])
    ('dense', None)
    """
    if sparse.issparse(Y):
        return "csr_matrix" if sparse.isspmatrix(Y) else "csr_array"
    return "dense" if getattr(Y, "ndim", 1) == 2 else None


def as_names(given: Iterable[Any]) -> NDArray[Any]:
    """Names of labels by id: all of them text, or all of them whole numbers.

    >>> as_names(["cat", "dog"]).tolist(), as_names(range(2)).tolist()
    (['cat', 'dog'], [0, 1])
    """
    names = list(given)
    if all(isinstance(name, str) for name in names):
        # Objects: a fixed width would give every name the room of the longest.
        return np.array([str(name) for name in names], dtype=object)
    for name in names:
        if isinstance(name, (bool, np.bool_)) or not isinstance(name, Integral) or abs(int(name)) >= 2**63:
            raise BlockXMCError(f"label names must be all text, or all whole numbers of 64 bits, found {_short(name)}")
    return np.array(names, dtype=np.int64)


def _column_names(targets: Targets, columns: Any) -> NDArray[Any] | None:
    """Names of the columns of a 0-1 matrix, if they are text; classes keep their own."""
    if targets.kind != "dense" or not all(isinstance(name, str) for name in columns):
        return targets.names
    if len(set(columns)) < len(columns):
        raise BlockXMCError("two columns of Y have the same name; rename one")
    return np.array(list(columns), dtype=object)


def _without_pandas(Y: Any) -> Any:
    """A Series, a DataFrame or the like as an array; anything else as it is."""
    return np.asarray(Y) if hasattr(Y, "__array__") else Y


def _label_lists(Y: Any) -> Rows | None:
    """The labels of each row, where Y holds a list, tuple, set or array per row; else None."""
    if isinstance(Y, np.ndarray):
        if Y.dtype != object or Y.ndim != 1:
            return None
    elif not isinstance(Y, Sequence) or isinstance(Y, (str, bytes)):
        raise BlockXMCError(f"Y must be a matrix or a list with an entry per row, got {type(Y).__name__}")
    is_list = [isinstance(row, Iterable) and not isinstance(row, (str, bytes)) for row in Y]
    if not any(is_list):
        return None
    if not all(is_list):
        at = is_list.index(False)
        raise BlockXMCError(
            f"row {at} of Y is {_short(Y[at])}, but other rows are lists; give a list per row, [] where there is no label"
        )
    return [list(row) for row in Y]


def _may_be_matrix(Y: Any, rows: Rows) -> bool:
    """Whether label lists look like a 0-1 matrix, too: equally long, with no value but 0 and 1."""
    if not rows[0] or any(len(row) != len(rows[0]) for row in rows):
        return False
    if any(isinstance(row, (set, frozenset)) for row in Y):
        return False
    return all(isinstance(value, Number | np.bool_) and value in (0, 1) for row in rows for value in row)


def _distinct_names(rows: Rows) -> list[Any]:
    """All labels in order; they are all text or all whole numbers."""
    for i, row in enumerate(rows):
        for name in row:
            if isinstance(name, (bool, np.bool_)) or not isinstance(name, (str, Integral)):
                raise BlockXMCError(f"row {i} of Y holds {_short(name)}; labels must be text or whole numbers")
    names = {name for row in rows for name in row}
    if any(isinstance(name, str) for name in names) and not all(isinstance(name, str) for name in names):
        number = next(name for name in names if not isinstance(name, str))
        raise BlockXMCError(f"Y mixes text and numbers ({number!r}); turn all labels into text or all into numbers")
    return sorted(names)


def _zeros_and_ones(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Where 0, 1, False or True stands; a table with columns of several types is an array of objects."""
    if values.dtype.kind in "biuf":
        return np.isin(values, (0, 1))
    plain = [isinstance(value, Number | np.bool_) and value in (0, 1) for value in values.ravel().tolist()]
    return np.array(plain, dtype=bool).reshape(values.shape)


def _one_per_row(Y: Any) -> NDArray[Any]:
    """Y as an array, where it holds one class per row or is a matrix already."""
    if not isinstance(Y, np.ndarray) or (Y.ndim == 1 and Y.dtype == object):
        if any(value is None for value in Y):
            raise BlockXMCError(
                f"row {[value is None for value in Y].index(True)} of Y is None; every row needs a class"
            )
        text = [isinstance(value, str) for value in Y]
        if any(text) and not all(text):
            raise BlockXMCError(
                f"Y mixes text and {_short(Y[text.index(False)])}; make all classes text or all numbers"
            )
    return np.asarray(Y)


def _short(value: Any) -> str:
    return repr(value)[:60]
