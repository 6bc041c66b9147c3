"""Checks of estimator parameters: one line that names the estimator, the parameter, the range and the value."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils import check_random_state as sklearn_random_state

from blockxmc.errors import BlockXMCError

MAX_SEED = 2**31 - 1


def require_whole(estimator: Any, name: str, low: int = 1, high: float = math.inf) -> None:
    """Raise unless the parameter is a whole number in low..high."""
    value = getattr(estimator, name)
    if not isinstance(value, Integral) or not low <= int(value) <= high:
        span = f"of at least {low}" if high == math.inf else f"from {low} to {high}"
        raise BlockXMCError(f"{type(estimator).__name__}: {name} must be a whole number {span}, got {value!r}")


def require_number(estimator: Any, name: str, *, zero: bool = False) -> None:
    """Raise unless the parameter is a finite positive number (or zero where allowed)."""
    value = getattr(estimator, name)
    if not isinstance(value, Real) or not (0 < float(value) < math.inf or (zero and value == 0)):
        kind = "0 or a positive number" if zero else "a positive number"
        raise BlockXMCError(f"{type(estimator).__name__}: {name} must be {kind}, got {value!r}")


def check_k(k: Any) -> None:
    """Raise unless this many labels can be answered."""
    if not isinstance(k, Integral) or k < 1:
        raise BlockXMCError(f"k must be a whole number of at least 1, got {k!r}")


def check_random_state(random_state: Any) -> None:
    """Raise unless it is None, a seed, or a random number generator of NumPy.

    >>> check_random_state(-5)
    Traceback (most recent call last):
        ...
    blockxmc.errors.BlockXMCError: random_state must be None, a whole number from 0 to 2147483647, or a NumPy RandomState
    or Generator, got -5
    """
    if isinstance(random_state, Integral) and 0 <= int(random_state) <= MAX_SEED:
        return
    if random_state is not None and not isinstance(random_state, (np.random.RandomState, np.random.Generator)):
        raise BlockXMCError(
            f"random_state must be None, a whole number from 0 to {MAX_SEED}, or a NumPy RandomState or Generator,"
            f" got {random_state!r}"
        )


def as_seed(random_state: Any) -> int:
    """The seed of one fit: a whole number as it is, else one drawn from the generator (None: NumPy's own).

    >>> as_seed(7), as_seed(np.random.RandomState(0)) == as_seed(np.random.RandomState(0))
    (7, True)
    """
    check_random_state(random_state)
    if isinstance(random_state, Integral):
        return int(random_state)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(MAX_SEED))
    return int(sklearn_random_state(random_state).randint(MAX_SEED))
