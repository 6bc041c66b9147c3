"""Checks of estimator parameters: one line that names the estimator, the parameter, the range and the value."""

from __future__ import annotations

import math
import os
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import check_random_state as sklearn_random_state

from blockxmc._core.memory import free_memory, gigabytes
from blockxmc.errors import BlockXMCError

MAX_SEED = 2**31 - 1
# Answers, of labels and scores, that every machine has room for.
MANY_ANSWERS = 1 << 24
_BYTES_PER_ANSWER = 12


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


def check_k(k: Any, n_rows: int = 1) -> None:
    """Raise unless this many labels can be answered, for so many rows."""
    if not isinstance(k, Integral) or k < 1:
        raise BlockXMCError(f"k must be a whole number of at least 1, got {k!r}")
    if int(k) * n_rows > MANY_ANSWERS:
        size, free = _BYTES_PER_ANSWER * int(k) * n_rows, free_memory()
        if free is not None and size > free:
            raise BlockXMCError(f"k={k} labels of {n_rows} rows take {gigabytes(size)}, and {gigabytes(free)} are free")


def as_path(path: Any) -> Path:
    """The path of a file or a folder, if it can be one.

    >>> as_path(3)
    Traceback (most recent call last):
        ...
    blockxmc.errors.BlockXMCError: a path must be text or a pathlib.Path, got 3
    """
    if not isinstance(path, (str, os.PathLike)) or path == "":
        raise BlockXMCError(f"a path must be text or a pathlib.Path, got {path!r:.60}")
    return Path(path)


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
