"""The systems BP is compared with: CBMLC, FastXML, label filters and LPSR."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blockxmc.baselines.cbmlc import CBMLC as CBMLC
    from blockxmc.baselines.lpsr import LPSR as LPSR

_HOME = {
    "CBMLC": "blockxmc.baselines.cbmlc",
    "LPSR": "blockxmc.baselines.lpsr",
}

__all__ = ["CBMLC", "LPSR"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'blockxmc.baselines' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
