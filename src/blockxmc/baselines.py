"""The systems BP is compared with: CBMLC, FastXML, label filters and LPSR."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blockxmc.paper.cbmlc import CBMLC as CBMLC
    from blockxmc.paper.fastxml import FastXML as FastXML
    from blockxmc.paper.label_filters import LabelFilters as LabelFilters
    from blockxmc.paper.lpsr import LPSR as LPSR

__all__ = ["CBMLC", "LPSR", "FastXML", "LabelFilters"]

_MODULES = {"CBMLC": "cbmlc", "FastXML": "fastxml", "LPSR": "lpsr", "LabelFilters": "label_filters"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'blockxmc.baselines' has no attribute {name!r}")
    return getattr(importlib.import_module(f"blockxmc.paper.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
