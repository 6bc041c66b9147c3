"""Companions: what the best labels of a row say about each other.

Margins, blocks and neighbors judge each label alone. Two labels that hardly ever come together are hardly both right, and
one that nearly always comes with another is likely where the other is sure. How often pairs of labels come together in the
training rows says so (training/companions.py counts them).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from blockxmc import _kernels
from blockxmc._core import stored
from blockxmc.errors import ModelFormatError
from blockxmc.linear import compact

F32 = NDArray[np.float32]

# The first label stays first by at least so much (companions.hpp has it too): its probability must be higher, too.
LEAD = 1e-3


@dataclass(frozen=True)
class Companions:
    """Pairs of labels and how many training rows carry both; a label gains ``weight`` times what the others say.

    companions.hpp has the formula. A pair is listed by its lower label.
    """

    indptr: NDArray[np.int64]  # of each label
    others: NDArray[np.int32]  # the higher label of each pair, rising
    log_counts: NDArray[np.uint8]  # sixteenths of log(rows that carry both + 1/2)
    log_rows: float  # so many rows carry both by chance: exp(log_positives + log_positives - log_rows)
    weight: float = 0.0

    def kernel(self, log_positives: F32) -> _kernels.Companions:
        """What the compiled reranker takes."""
        pairs = self.indptr, self.others, self.log_counts
        return _kernels.Companions(*pairs, log_positives, self.log_rows, self.weight)

    def sums(self, labels: NDArray[np.int64], log_positives: F32, threads: int = 1) -> F32:
        """What the labels of each row (rows x few, best first, -1: none) say about each other; nothing about the first."""
        out = np.empty(labels.shape, np.float32)
        self.kernel(log_positives).sums(np.ascontiguousarray(labels), out, threads)
        return out

    def told(self, labels: NDArray[np.int64], scores: F32, log_positives: F32, threads: int = 1) -> F32:
        """Scores (best first, -inf: none) after labels have heard of each other; the first stays first."""
        there = scores > -np.inf
        out = scores + np.float32(self.weight) * self.sums(np.where(there, labels, -1), log_positives, threads)
        highest = out[:, 1:].max(axis=1, initial=-np.inf)
        out[:, 0] = np.maximum(out[:, 0], highest + np.float32(LEAD))
        return np.where(there, out, -np.inf).astype(np.float32)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return self.indptr.nbytes + self.others.nbytes + self.log_counts.nbytes

    def state(self) -> dict[str, Any]:
        """Nested dict of arrays and JSON values for the model directory."""
        pairs = {"indptr": compact.short_pointers(self.indptr), "others": compact.narrowed(self.others)}
        return pairs | {"log_counts": self.log_counts, "log_rows": self.log_rows, "weight": self.weight}

    @classmethod
    def from_state(cls, state: Any, n_labels: int) -> Self:
        """Take back what ``state`` gave."""
        try:
            indptr = compact.long_pointers(state["indptr"], "indptr of companions", n_labels)
            others = stored.widened(state["others"], "others of companions", (None,))
            counts = stored.array(state["log_counts"], "log_counts of companions", np.uint8, (others.size,))
            numbers = (stored.real(state[name], f"{name} of companions") for name in ("log_rows", "weight"))
            return cls(indptr, others, counts, *numbers)
        except (KeyError, TypeError) as error:
            raise ModelFormatError(f"the model's companions are incomplete: {error}") from None
