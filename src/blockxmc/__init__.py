"""blockxmc: extreme multi-label classification by block-wise partitioning."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from blockxmc._version import __version__

if TYPE_CHECKING:
    from blockxmc import metrics as metrics
    from blockxmc.learners import DiSMEC as DiSMEC

# Public name -> where it lives. Resolved on first use, so that `import blockxmc` and `blockxmc --help` stay instant.
_HOME = {
    "DiSMEC": "blockxmc.learners",
    "metrics": "blockxmc.metrics",
}

__all__ = ["DiSMEC", "__version__", "metrics"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'blockxmc' has no attribute {name!r}")
    module = importlib.import_module(_HOME[name])
    return module if _HOME[name].endswith("." + name) and not hasattr(module, name) else getattr(module, name)


def __dir__() -> list[str]:
    return __all__
