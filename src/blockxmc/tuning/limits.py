"""Limits that a model shall keep to: ceilings of products, time and size, and a floor of recall."""

from __future__ import annotations

import math

from blockxmc.errors import BlockXMCError

UNITS = {
    "products": "products per row",
    "latency_us": "microseconds per row",
    "size_mb": "megabytes of weights",
    "recall": "candidate recall",
}


class NoSettingError(BlockXMCError):
    """Nothing that was tried keeps to the limits."""


def checked_limits(given: dict[str, float | None]) -> dict[str, float]:
    """What was given, by the same names; they appear in the error where a value makes no sense.

    >>> checked_limits({"--budget": 300, "--recall": None})
    {'--budget': 300.0}
    """
    limits = {name: float(value) for name, value in given.items() if value is not None}
    for name, limit in limits.items():
        share = name.endswith("recall")
        if not 0 < limit < math.inf or (share and limit > 1):
            span = "a share between 0 and 1" if share else "a positive number"
            raise BlockXMCError(f"{name} must be {span}, got {limit:g}")
    return limits


def bound(name: str) -> str:
    """How a limit is said: recall is a floor, the others are ceilings.

    >>> bound("products"), bound("recall")
    ('at most', 'at least')
    """
    return "at least" if name == "recall" else "at most"
