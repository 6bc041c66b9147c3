"""Checks of estimator parameters: one line that names the estimator, the parameter, the range and the value."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from blockxmc.errors import BlockXMCError


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
