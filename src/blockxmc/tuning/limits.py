"""Limits of a model: at most so many products, microseconds and megabytes, and at least so much recall."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from blockxmc.errors import BlockXMCError

UNITS = {
    "products": "products per row",
    "latency_us": "microseconds per row",
    "size_mb": "megabytes of weights",
    "recall": "candidate recall",
}


class NoSettingError(BlockXMCError):
    """No setting that was tried keeps to the limits."""


@dataclass(frozen=True)
class Limits:
    """What a model must keep to; None: no limit.

    - ``products``: at most so many vector products per row, router included;
    - ``latency_us``: at most so many microseconds for a single call, on this machine;
    - ``size_mb``: at most so many megabytes of router, weights and neighbors;
    - ``recall``: at least this share (0..1) of a row's labels among its candidates.

    >>> Limits(products=300, recall=0.9).given
    {'products': 300.0, 'recall': 0.9}
    """

    products: float | None = None
    latency_us: float | None = None
    size_mb: float | None = None
    recall: float | None = None

    def __post_init__(self) -> None:
        checked_limits(asdict(self))

    @property
    def given(self) -> dict[str, float]:
        """The limits that there are, by name."""
        return checked_limits(asdict(self))


def checked_limits(typed: dict[str, float | None]) -> dict[str, float]:
    """The limits that were given, by the names that the user typed: errors use them.

    >>> checked_limits({"--budget": 300, "--recall": None})
    {'--budget': 300.0}
    """
    limits = {name: float(value) for name, value in typed.items() if value is not None}
    for name, limit in limits.items():
        share = name.endswith("recall")
        if not 0 < limit < math.inf or (share and limit > 1):
            span = "a share between 0 and 1" if share else "a positive number"
            raise BlockXMCError(f"{name} must be {span}, got {limit:g}")
    return limits


def in_words(limits: dict[str, float]) -> str:
    """Limits as a request: recall is a lower bound, the others are upper bounds.

    >>> in_words({"products": 300, "recall": 0.9})
    'at most 300 products per row and at least 0.9 candidate recall'
    """
    return " and ".join(
        f"{'at least' if name == 'recall' else 'at most'} {limit:g} {UNITS[name]}" for name, limit in limits.items()
    )


def excess(setting: Any, name: str, limit: float) -> float:
    """How far a setting is beyond a limit, as a share of the limit; 0 or less where it keeps to it.

    >>> from types import SimpleNamespace
    >>> excess(SimpleNamespace(products=330.0), "products", 300.0)
    0.1
    """
    value = float(getattr(setting, name))
    return ((limit - value) if name == "recall" else (value - limit)) / limit
