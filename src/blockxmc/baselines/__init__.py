"""The systems BP is compared with."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blockxmc.baselines.fastxml import FastXML as FastXML
    from blockxmc.baselines.label_filters import LabelFilters as LabelFilters

# Public name -> where it lives, resolved on first use.
_HOME = {
    "FastXML": "blockxmc.baselines.fastxml",
    "LabelFilters": "blockxmc.baselines.label_filters",
}

__all__ = ["FastXML", "LabelFilters"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'blockxmc.baselines' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
