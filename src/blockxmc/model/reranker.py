"""The reranker: puts the few labels that score best in order, by the same terms, weighed together.

A score adds up what speaks for a label, each term at one weight for all labels. That finds the likely labels among
thousands, but does not order them well: a rare label's margin says less the higher it is, and neighbors say more where the
router is unsure. So the first few labels of a row are put in order by a curve of the second degree through these terms. It
is fitted on held-out rows (training/reranker.py). Then they hear of each other (companions.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from blockxmc import _kernels
from blockxmc._core import stored
from blockxmc.errors import ModelFormatError
from blockxmc.model.companions import Companions

F32 = NDArray[np.float32]

# A label's own score, the logarithm of its blocks' probability, what neighbors add, and how frequent it is.
N_TERMS = 4
PRODUCTS = np.triu_indices(N_TERMS)


@dataclass(frozen=True)
class Reranker:
    """What each of the ``first`` labels of a row gains: a polynomial of its terms (reranker.hpp has the formula).

    ``curve`` holds the lower and upper bounds of the terms, then the weights of the terms and of their products.
    """

    curve: F32
    log_positives: F32  # of each label
    first: int
    companions: Companions | None = None

    def gains(self, terms: F32) -> F32:
        """What labels with these ``terms`` (... x N_TERMS) gain; for models that are served, the kernel says it."""
        low, high, linear, squares = np.split(self.curve, np.cumsum([N_TERMS, N_TERMS, N_TERMS]))
        held = np.clip(terms, low, high)
        return np.asarray(held @ linear + (held[..., PRODUCTS[0]] * held[..., PRODUCTS[1]]) @ squares)

    @cached_property
    def kernel(self) -> _kernels.Reranker:
        """What the compiled model takes beside the router."""
        companions = None if self.companions is None else self.companions.kernel(self.log_positives)
        return _kernels.Reranker(self.curve, self.log_positives, self.first, companions)

    def __getstate__(self) -> dict[str, Any]:
        """What is copied and sent to other processes: all but the compiled view, which is made anew."""
        return {name: value for name, value in vars(self).items() if name != "kernel"}

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        of_pairs = 0 if self.companions is None else self.companions.nbytes
        return self.curve.nbytes + self.log_positives.nbytes + of_pairs

    def state(self) -> dict[str, Any]:
        """Nested dict of arrays and JSON values for the model directory."""
        companions = None if self.companions is None else self.companions.state()
        own = {"curve": self.curve, "log_positives": self.log_positives, "first": self.first}
        return own | {"companions": companions}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Take back what ``state`` gave."""
        try:
            curve = stored.array(state["curve"], "curve of the reranker", np.float32, (3 * N_TERMS + PRODUCTS[0].size,))
            log_positives = stored.array(state["log_positives"], "log_positives", np.float32, (None,))
            first, pairs = stored.whole(state["first"], "first of the reranker", 1), state["companions"]
            companions = None if pairs is None else Companions.from_state(pairs, log_positives.size)
            return cls(curve, log_positives, first, companions)
        except (KeyError, TypeError) as error:
            raise ModelFormatError(f"the model's reranker is incomplete: {error}") from None
