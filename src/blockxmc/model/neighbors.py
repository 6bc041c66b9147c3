"""Training rows near a row, whose labels gain a little: what blocks and weights cannot say, its neighbors may.

A label's weights are one direction for all rows that carry it. Where these fall into several groups, or are too few to
teach much, the labels of the few training rows most like the row at hand say more. They are looked for in the blocks that
the row visits anyway, as if training rows were labels whose weights are their own features.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc import _kernels
from blockxmc._core import stored
from blockxmc._core.matrix import csr_args, csr_of
from blockxmc.errors import ModelFormatError
from blockxmc.linear import compact
from blockxmc.linear.packed import PackedScorer
from blockxmc.linear.packing import pack_linear
from blockxmc.linear.scorers import restore_scorer

# Neighbors that are asked where nothing else is said: fewer are a matter of chance, more are less alike.
DEFAULT_NEIGHBORS = 10
# Features of a row that are compared, the largest: the others would cost memory and time that they are not worth.
MOST_FEATURES = 24


@dataclass(frozen=True)
class Neighbors:
    """Training rows in the blocks they are assigned to: a label gains ``weight`` times its share among the nearest.

    Of the ``count`` nearest rows, those with the label have that share of the sum of all cosines, two strangers with a
    cosine of 1 and without labels counted in: neighbors that are hardly like the row have little to say.

    >>> X = sparse.csr_array(np.array([[1, 0], [0.6, 0.8], [0, 1]], np.float32))
    >>> Y = sparse.csr_array(np.array([[1, 0], [0, 1], [0, 1]], np.float32))
    >>> neighbors = Neighbors.pack(X, Y, np.zeros(3, np.int32), 1, count=2)
    >>> neighbors.few_gains(X[:1], np.zeros((1, 1), np.int32), np.array([[0, 1]]), 1).round(3)
    array([[0.278, 0.167]], dtype=float32)
    """

    rows: PackedScorer
    indptr: NDArray[np.int64]  # labels of each training row
    labels: NDArray[np.int32]
    n_labels: int
    count: int
    features: int  # of a row, the largest, that are compared
    weight: float = 1.0

    @classmethod
    def pack(
        cls,
        X: sparse.csr_array,
        Y: sparse.csr_array,
        assignment: NDArray[np.integer],
        n_blocks: int,
        *,
        count: int = DEFAULT_NEIGHBORS,
        among: NDArray[np.bool_] | None = None,
        bits: int = 16,
        threads: int = 1,
    ) -> Self:
        """Keep the rows ``among`` X (None: all), each in its block; the scorer beside them has ``n_blocks``."""
        # The largest features of each row at unit length. X may be mapped, and is not copied.
        vectors = _kernels.largest_values(*csr_args(X), MOST_FEATURES, threads, unit=True)
        some = np.arange(X.shape[0]) if among is None else np.flatnonzero(among)
        order = some[np.argsort(assignment[some], kind="stable")].astype(np.int32)
        blocks = np.split(order, np.searchsorted(assignment[order], np.arange(1, n_blocks)))
        arrays = pack_linear(vectors, order, blocks, X.shape[1], bits, threads)
        rows = PackedScorer(arrays | {"bias": np.zeros(order.size, np.float32)}, X.shape[1], X.shape[0], bits)
        indptr, labels, _ = csr_args(Y)
        return cls(rows, indptr, labels, Y.shape[1], min(count, max(X.shape[0], 1)), MOST_FEATURES)

    @cached_property
    def kernel(self) -> _kernels.Neighbors:
        """What the compiled model takes beside the router."""
        numbers = self.n_labels, self.count, self.features, self.weight
        return _kernels.Neighbors(self.rows._model, self.indptr, self.labels, *numbers)

    def __getstate__(self) -> dict[str, Any]:
        """What is copied and sent to other processes: all but the compiled view, which is made anew."""
        return {name: value for name, value in vars(self).items() if name != "kernel"}

    def few_gains(
        self, X: sparse.csr_array, visited: NDArray[np.int32], labels: NDArray[np.int64], threads: int
    ) -> NDArray[np.float32]:
        """What some labels of each row gain (rows x few; -1: none), given the blocks it visits."""
        nearest = self.rows.topk(self.compared(X, threads), visited, self.count, threads=threads)
        out = np.empty(labels.shape, np.float32)
        self.kernel.few_gains(*csr_args(X), *nearest, labels, out, threads)
        return out

    def compared(self, X: sparse.csr_array, threads: int) -> sparse.csr_array:
        """What of the rows of X is compared with training rows: their largest features."""
        indptr, indices, data = _kernels.largest_values(*csr_args(X), self.features, threads)
        return csr_of(indptr, indices, data, X.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return self.rows.nbytes + self.indptr.nbytes + self.labels.nbytes

    def state(self) -> dict[str, Any]:
        """Nested dict of arrays and JSON values for the model directory; without biases, which rows do not have."""
        facts = {name: getattr(self, name) for name in ("n_labels", "count", "features", "weight")}
        rows = {name: value for name, value in self.rows.state().items() if name != "bias"}
        pointed = {"indptr": compact.short_pointers(self.indptr), "labels": compact.narrowed(self.labels)}
        return {"rows": rows, **pointed, **facts}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Take back what ``state`` gave."""
        try:
            rows = restore_scorer(_with_bias(state["rows"]))
            indptr = compact.long_pointers(state["indptr"], "indptr of neighbors", rows.n_labels)
            labels = stored.widened(state["labels"], "labels of neighbors", (None,))
            n_labels = stored.whole(state["n_labels"], "n_labels of neighbors")
            count = stored.whole(state["count"], "count of neighbors", 1, max(rows.n_labels, 1))
            features = stored.whole(state["features"], "features of neighbors", 1)
            weight = stored.real(state["weight"], "weight of neighbors")
        except (KeyError, TypeError) as error:
            raise ModelFormatError(f"the model's neighbors are incomplete: {error}") from None
        if not isinstance(rows, PackedScorer) or weight < 0:
            raise ModelFormatError("the model's neighbors are of the wrong kind")
        return cls(rows, indptr, labels, n_labels, count, features, weight=weight)


def _with_bias(state: Any) -> Any:
    """The state of packed rows with their biases, 0, which the model directory leaves out."""
    labels = state.get("labels") if isinstance(state, dict) else None
    if not isinstance(labels, np.ndarray):
        return state
    return state | {"bias": np.zeros(labels.size, np.float32)}
