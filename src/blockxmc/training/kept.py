"""What a model keeps beside what it serves with, so that it can learn on: its rows, and its weights as they were solved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc._core import stored
from blockxmc._core.matrix import as_csr, csr_of, has_usable_values, without_rows
from blockxmc.linear.vectors import LabelVectors
from blockxmc.training.candidates import Mix

I32 = NDArray[np.int32]
# Every update adds a part; beyond so many they are joined, and written anew.
MOST_PARTS = 64


@dataclass(frozen=True)
class Part:
    """Rows that came together, and their labels; later parts may have more features and labels."""

    X: sparse.csr_array
    Y: sparse.csr_array

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])


@dataclass(frozen=True)
class Kept:
    """The training rows, the solved weights of labels and blocks, and how scores are mixed."""

    parts: tuple[Part, ...]
    labels: LabelVectors
    blocks: LabelVectors  # of the router
    negative_blocks: I32  # of each row
    mix: Mix
    asked: int  # neighbors
    told: NDArray[np.int64]  # of each label: new rows that tell it something, since it was last solved
    router_rows: int  # when the router was last solved as a whole
    unseen: I32  # rows that were held out of the fit ...
    complete: NDArray[np.bool_]  # ... and the labels that have learnt from them since
    shifted: NDArray[np.bool_]  # labels that new rows have changed since they were last solved on all rows
    left: I32  # blocks, and labels that they no longer list, but that have met their rows since they were last solved
    placed: bool = False  # whether rows held out of the fit have blocks by their labels, and blocks list these
    history: tuple[dict[str, Any], ...] = ()

    @property
    def fit_labels(self) -> int:
        """Number of labels that the fit knew: those after them came with updates."""
        known = self.history[0].get("labels") if self.history else None
        return self.labels.n_labels if known is None else min(max(int(known), 0), self.labels.n_labels)

    @property
    def fit_captured(self) -> float:
        """Share of the positives that blocks captured after the fit."""
        return float(np.clip(self.history[0]["captured"], 0, 1)) if self.history else 0.0

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(part.n_rows for part in self.parts)

    def rows(self, n_features: int, n_labels: int) -> tuple[sparse.csr_array, sparse.csr_array]:
        """All rows and their labels."""
        self.check()
        X = stacked([widened(part.X, n_features) for part in self.parts])
        return X, stacked([widened(part.Y, n_labels) for part in self.parts])

    def shown(self, Y: sparse.csr_array) -> sparse.csr_array:
        """The labels of all rows, less those that blocks know nothing of."""
        return Y if self.placed else without_rows(Y, np.isin(np.arange(Y.shape[0]), self.unseen))

    def with_labels(self, labels: LabelVectors) -> Self:
        """With these weights, which may be of more labels; the new ones have been told nothing yet."""
        more = 0, labels.n_labels - self.told.size
        told, shifted = np.pad(self.told, more), np.pad(self.shifted, more)
        complete = np.pad(self.complete, more, constant_values=True)
        return replace(self, labels=labels, told=told, complete=complete, shifted=shifted)

    def with_part(self, X: sparse.csr_array, Y: sparse.csr_array) -> tuple[Part, ...]:
        """The parts and one more."""
        if len(self.parts) < MOST_PARTS:
            return (*self.parts, Part(X, Y))
        old = self.rows(X.shape[1], Y.shape[1])
        return (Part(stacked([old[0], X]), stacked([old[1], Y])),)

    def without_rows(self, dropped: NDArray[np.bool_]) -> tuple[Part, ...]:
        """The parts less some rows; parts that lose none are the same objects."""
        out = []
        ends = np.cumsum([part.n_rows for part in self.parts])
        for part, lost in zip(self.parts, np.split(dropped, ends[:-1]), strict=True):
            if not lost.any():
                out.append(part)
            elif not lost.all():
                left = np.flatnonzero(~lost)
                out.append(Part(sparse.csr_array(part.X[left]), sparse.csr_array(part.Y[left])))
        return tuple(out)

    # ---- storing ----
    def state(self) -> dict[str, Any]:
        """Nested dict of arrays and JSON values for the model directory."""
        return {
            "parts": [{"X": _state(part.X), "Y": _state(part.Y, values=False)} for part in self.parts],
            "labels": {"vectors": _state(self.labels.vectors), "bias": self.labels.bias, "mass": self.labels.mass},
            "blocks": {"vectors": _state(self.blocks.vectors), "bias": self.blocks.bias},
            "negative_blocks": self.negative_blocks,
            "mix": {field.name: float(getattr(self.mix, field.name)) for field in fields(Mix)},
            "asked": self.asked,
            "told": self.told,
            "router_rows": self.router_rows,
            "unseen": self.unseen,
            "complete": self.complete,
            "shifted": self.shifted,
            "left": self.left,
            "placed": self.placed,
            "history": list(self.history),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Take back what ``state`` gave; large arrays are looked at by ``check``, when they are first needed."""
        labels, blocks = state["labels"], state["blocks"]
        parts = tuple(Part(_restored(part["X"]), _restored(part["Y"])) for part in state["parts"])
        vectors = _restored(labels["vectors"])
        bias = stored.array(labels["bias"], "bias of kept labels", np.float32, (vectors.shape[0],))
        mass = labels["mass"]
        if mass is not None:
            mass = stored.array(mass, "mass of kept labels", np.float32, bias.shape)
        of_blocks = _restored(blocks["vectors"])
        block_bias = stored.array(blocks["bias"], "bias of kept blocks", np.float32, (of_blocks.shape[0],))
        n_rows = sum(part.n_rows for part in parts)
        stored.require(all(part.X.shape[0] == part.Y.shape[0] for part in parts), "kept rows and labels differ")
        history = state["history"]
        stored.require(isinstance(history, list), "the history is no list")
        events = tuple(_event(event) for event in history)
        placed = state["placed"]
        stored.require(isinstance(placed, bool), "whether held-out rows have blocks is neither yes nor no")
        return cls(
            parts,
            LabelVectors(vectors, bias, mass),
            LabelVectors(of_blocks, block_bias),
            stored.array(state["negative_blocks"], "negative_blocks", np.int32, (n_rows, None)),
            Mix(**{name: stored.real(value, name) for name, value in stored.mapping(state["mix"], "mix").items()}),
            stored.whole(state["asked"], "neighbors asked"),
            stored.array(state["told"], "rows that labels were told", np.int64, bias.shape),
            stored.whole(state["router_rows"], "rows of the router", 0, n_rows),
            stored.array(state["unseen"], "rows that were held out", np.int32, (None,)),
            stored.array(state["complete"], "labels that know them", np.bool_, bias.shape),
            stored.array(state["shifted"], "labels that were shifted", np.bool_, bias.shape),
            stored.array(state["left"], "labels that left blocks", np.int32, (None, 2)),
            placed,
            events,
        )

    def check_fits(self, n_rows: int, n_labels: int, n_features: int) -> None:
        """Refuse kept rows and weights that are not those of the model."""
        stored.require(self.n_rows == n_rows, f"{self.n_rows} rows are kept, not {n_rows}")
        stored.require(self.labels.n_labels == n_labels, f"weights of {self.labels.n_labels} labels are kept")
        widths = [m.shape[1] for m in (self.labels.vectors, self.blocks.vectors, *(part.X for part in self.parts))]
        stored.require(max(widths) <= n_features, f"kept rows have more than {n_features} features")
        stored.require(max(part.Y.shape[1] for part in self.parts) <= n_labels, "kept rows have unknown labels")

    def check(self) -> None:
        """Look at every number that a kernel or SciPy relies on; a model that only serves never reads them."""
        n_blocks = self.blocks.n_labels
        for what, matrix in self._matrices():
            stored.check_csr_parts(matrix.indptr, matrix.indices, matrix.data, matrix.shape, what)
            stored.require(has_usable_values(matrix), f"{what} have values that are not usable")
            stored.require(matrix.has_canonical_format, f"{what} are not in order")
        for vectors in (self.labels, self.blocks):
            stored.finite(vectors.bias, "biases that are kept")
        stored.check_indices(self.negative_blocks.ravel(), n_blocks, "negative blocks")
        stored.check_indices(self.unseen, self.n_rows, "rows that were held out")
        for column, size in zip(self.left.T, (n_blocks, self.labels.n_labels), strict=True):
            stored.check_indices(column, size, "labels that left blocks")

    def _matrices(self) -> Sequence[tuple[str, sparse.csr_array]]:
        rows = [("kept rows", part.X) for part in self.parts]
        targets = [("labels of kept rows", part.Y) for part in self.parts]
        return [*rows, *targets, ("kept weights", self.labels.vectors), ("kept router weights", self.blocks.vectors)]


def _event(given: Any) -> dict[str, Any]:
    """An entry of the history: what was done, with how many rows, and other numbers."""
    event: dict[str, Any] = stored.mapping(given, "an event of the history")
    stored.require(event.get("what") in ("fit", "update", "forget"), "the history has an event of an unknown kind")
    for name, value in event.items():
        if name != "what":
            stored.real(value, f"{name} in the history")
    for name in ("rows", "captured", "largest_block"):
        stored.require(name in event, f"an event of the history has no {name}")
    stored.whole(event["rows"], "rows in the history", 0, 1 << 62)
    stored.whole(event.get("judged", 1), "rows judged in the history", 1, 1 << 62)
    return event


def widened(matrix: sparse.csr_array, n_columns: int) -> sparse.csr_array:
    """The matrix with more columns, all of them empty.

    >>> widened(sparse.csr_array(np.eye(2)), 3).shape
    (2, 3)
    """
    if matrix.shape[1] == n_columns:
        return matrix
    return sparse.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=(matrix.shape[0], n_columns))


def stacked(parts: Sequence[sparse.csr_array]) -> sparse.csr_array:
    """The rows of all parts."""
    return parts[0] if len(parts) == 1 else as_csr(sparse.vstack(parts, format="csr"))


def _state(matrix: sparse.csr_array, *, values: bool = True) -> dict[str, Any]:
    """The arrays of a matrix, without its values where all of them are one."""
    columns = {"indptr": matrix.indptr, "indices": matrix.indices, "n_columns": int(matrix.shape[1])}
    return columns | ({"data": matrix.data} if values else {})


def _restored(state: dict[str, Any]) -> sparse.csr_array:
    indptr, indices = state["indptr"], state["indices"]
    for name, array in (("indptr", indptr), ("indices", indices)):
        stored.require(isinstance(array, np.ndarray) and array.ndim == 1, f"{name} of kept rows is no array")
    data = state.get("data")
    if data is None:
        data = np.broadcast_to(np.ones(1, np.float32), indices.shape)
    data = stored.array(data, "values of kept rows", np.float32, indices.shape)
    stored.check_row_pointers(indptr, indptr.size - 1, indices.size, "kept rows")
    shape = (indptr.size - 1, stored.whole(state["n_columns"], "columns of kept rows"))
    matrix = sparse.csr_array(shape, dtype=np.float32)
    # Set one by one: the usual constructor looks through all indices.
    matrix.indptr, matrix.indices, matrix.data = indptr, indices, data
    return matrix


def kept_copy(matrix: sparse.csr_array) -> sparse.csr_array:
    """A matrix that its owner cannot change any more."""
    return csr_of(matrix.indptr.copy(), matrix.indices.copy(), matrix.data.copy(), matrix.shape)
