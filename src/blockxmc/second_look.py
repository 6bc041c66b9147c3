"""A second look at the few labels that score best: the same terms, weighed together.

A score adds up what speaks for a label, each term at one weight for all labels. That finds the likely labels among
thousands, but does not order them well: a rare label's margin says less the higher it is, and neighbours say more where the
router is unsure. So the first few labels of a row are put in order by a curve of the second degree through these terms,
fitted on held-out rows so that right labels come before wrong ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from blockxmc import _kernels
from blockxmc.errors import ModelFormatError

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

# Labels of a row that are looked at: what does not score among the first eight is hardly ever among the best five.
FIRST = 8
# With fewer held-out rows there is no second look: it would learn their whims.
LEAST_ROWS = 500
# Pull of the curve towards none, and of the old score's weight towards what it usually is.
SHRINKAGE, USUAL_WEIGHT = 0.01, 4.0
# Labels with fewer positives are held to have as many: to hold out a row changes such a label too much to tell.
FEW_POSITIVES = 4
# Terms are held within all but the outermost of those seen, where the curve would be guessing.
OUTERMOST = 0.002
# A label's own score, the logarithm of its blocks' probability, what its neighbours say, and how common it is.
N_TERMS = 4
PRODUCTS = np.triu_indices(N_TERMS)


def commonness_of(Y: sparse.csr_array) -> F32:
    """The logarithm of the number of positives of each label.

    >>> np.exp(commonness_of(sparse.csr_array(np.ones((5, 1))))).round().tolist()
    [5.0]
    """
    return np.log(np.maximum(np.bincount(Y.indices, minlength=Y.shape[1]), FEW_POSITIVES)).astype(np.float32)


@dataclass(frozen=True)
class SecondLook:
    """What each of the ``first`` labels of a row gains: a polynomial of its terms (reranker.hpp has the formula).

    ``curve`` holds the lower and upper bounds of the terms, then the weights of the terms and of their products.
    """

    curve: F32
    commonness: F32  # of each label
    first: int

    @classmethod
    def fit(cls, terms: F32, scores: F32, right: NDArray[np.bool_], commonness: F32) -> Self | None:
        """What puts the labels of these rows in the best order; None where there are too few rows to tell.

        ``terms`` (rows x candidates x N_TERMS) make up the ``scores`` (rows x candidates, -inf where there is none), and
        ``right`` says which candidates are labels of the row.
        """
        best = np.argsort(-scores, axis=1, kind="stable")[:, :FIRST]
        scores, right = np.take_along_axis(scores, best, 1), np.take_along_axis(right, best, 1)
        seen = np.take_along_axis(terms, best[..., None], 1).astype(np.float64)
        there = scores > -np.inf
        telling = (right & there).any(axis=1) & (~right & there).any(axis=1)
        if telling.sum() < LEAST_ROWS:
            return None
        seen, scores, right, there = seen[telling], scores[telling], right[telling], there[telling]
        low, high = np.quantile(seen[there], [OUTERMOST, 1 - OUTERMOST], axis=0)
        seen = np.clip(seen, low, high)
        centre, spread = seen[there].mean(axis=0), _spread(seen[there])
        unit = (seen - centre) / spread
        products = unit[..., PRODUCTS[0]] * unit[..., PRODUCTS[1]]
        of_products = _spread(products[there])
        features = np.concatenate([unit, products / of_products, scores[..., None]], axis=-1)
        weights = _order(np.where(there[..., None], features, 0.0), right, there)
        linear, squares = np.split(weights[:-1] / weights[-1], [N_TERMS])
        # In the terms as they come, not centred and scaled.
        linear, squares = linear / spread, squares / of_products / (spread[PRODUCTS[0]] * spread[PRODUCTS[1]])
        np.subtract.at(linear, PRODUCTS[0], squares * centre[PRODUCTS[1]])
        np.subtract.at(linear, PRODUCTS[1], squares * centre[PRODUCTS[0]])
        return cls(np.concatenate([low, high, linear, squares]).astype(np.float32), commonness, FIRST)

    def gains(self, terms: F32) -> F32:
        """What labels with these ``terms`` (... x N_TERMS) gain; for models that are served, the kernel says it."""
        low, high, linear, squares = np.split(self.curve, np.cumsum([N_TERMS, N_TERMS, N_TERMS]))
        held = np.clip(terms, low, high)
        return np.asarray(held @ linear + (held[..., PRODUCTS[0]] * held[..., PRODUCTS[1]]) @ squares)

    @cached_property
    def kernel(self) -> _kernels.Reranker:
        """What the compiled model takes beside the router."""
        return _kernels.Reranker(self.curve, self.commonness, self.first)

    def __getstate__(self) -> dict[str, Any]:
        """What is copied and sent to other processes: all but the compiled view, which is made anew."""
        return {name: value for name, value in vars(self).items() if name != "kernel"}

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return self.curve.nbytes + self.commonness.nbytes

    def state(self) -> dict[str, Any]:
        """Nested dict of arrays and JSON values for the model directory."""
        return {"curve": self.curve, "commonness": self.commonness, "first": self.first}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Take back what ``state`` gave."""
        try:
            look = cls(state["curve"], state["commonness"], int(state["first"]))
            intact = look.curve.dtype == look.commonness.dtype == np.float32
        except (AttributeError, KeyError, TypeError) as error:
            raise ModelFormatError(f"the model's second look is incomplete or has wrong types: {error}") from None
        if not intact:
            raise ModelFormatError("the model's second look has wrong types")
        return look


def _spread(values: F64) -> F64:
    """Standard deviation of each column, 1 for one that does not vary."""
    spread = values.std(axis=0)
    return np.where(spread > 0, spread, 1.0)


def _order(features: F64, right: NDArray[np.bool_], there: NDArray[np.bool_]) -> F64:
    """Weights of the features, of which the last is the old score, that put right candidates before wrong ones.

    Each right candidate of a row competes with all its wrong ones: ``log(1 + sum of exp(wrong - right))``, and a row with
    n right ones counts by the root of n.
    """
    n_rows, n_candidates, n_features = features.shape
    right, wrong = right & there, ~right & there
    share = right / np.sqrt(right.sum(axis=1, keepdims=True)) / n_rows
    flat = features.reshape(-1, n_features)
    usual = np.zeros(n_features)
    usual[-1] = USUAL_WEIGHT

    def loss(weights: F64) -> tuple[float, F64]:
        scores = (flat @ weights).reshape(n_rows, n_candidates)
        against = np.logaddexp.reduce(np.where(wrong, scores, -np.inf), axis=1, keepdims=True)
        behind = np.where(right, against - scores, -np.inf)
        pull = share / (1 + np.exp(-np.maximum(behind, -500)))
        push = pull.sum(axis=1, keepdims=True) * np.exp(np.where(wrong, scores, -np.inf) - against)
        away = weights - usual
        value = (share * np.logaddexp(0, behind)).sum() + SHRINKAGE * (away @ away)
        return float(value), flat.T @ (push - pull).ravel() + 2 * SHRINKAGE * away

    bounds = [(None, None)] * (n_features - 1) + [(1.0, None)]
    with threadpool_limits(1):  # the same sums for any number of threads
        return np.asarray(minimize(loss, usual, jac=True, method="L-BFGS-B", bounds=bounds).x)
