"""blockxmc: extreme multi-label classification by block-wise partitioning."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from blockxmc._core import saving
from blockxmc._version import __version__

if TYPE_CHECKING:
    from blockxmc import metrics as metrics
    from blockxmc.classifier import BlockwiseClassifier as BlockwiseClassifier
    from blockxmc.encoder.options import Encoder as Encoder
    from blockxmc.learners.dismec import DiSMEC as DiSMEC
    from blockxmc.paper.leml import LEML as LEML
    from blockxmc.paper.naive_bayes import NaiveBayes as NaiveBayes
    from blockxmc.paper.pd_sparse import PDSparse as PDSparse
    from blockxmc.paper.ppd_sparse import PPDSparse as PPDSparse
    from blockxmc.partition import Partitioner as Partitioner
    from blockxmc.storage import load as load
    from blockxmc.text import TextClassifier as TextClassifier

# Public name -> where it lives. Resolved on first use, so that `import blockxmc` and `blockxmc --help` stay instant.
_HOME = {
    "BlockwiseClassifier": "blockxmc.classifier",
    "DiSMEC": "blockxmc.learners.dismec",
    "Encoder": "blockxmc.encoder.options",
    "LEML": "blockxmc.paper.leml",
    "NaiveBayes": "blockxmc.paper.naive_bayes",
    "PDSparse": "blockxmc.paper.pd_sparse",
    "PPDSparse": "blockxmc.paper.ppd_sparse",
    "Partitioner": "blockxmc.partition",
    "TextClassifier": "blockxmc.text",
    "load": "blockxmc.storage",
    "metrics": "blockxmc.metrics",
}

__all__ = [
    "BlockwiseClassifier",
    "DiSMEC",
    "Encoder",
    "LEML",
    "NaiveBayes",
    "PDSparse",
    "PPDSparse",
    "Partitioner",
    "TextClassifier",
    "__version__",
    "load",
    "metrics",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'blockxmc' has no attribute {name!r}")
    module = importlib.import_module(_HOME[name])
    return module if _HOME[name].endswith("." + name) and not hasattr(module, name) else getattr(module, name)


def _save_model(estimator: Any, path: Any) -> None:
    importlib.import_module("blockxmc.storage").save_model(estimator, path)


saving.register(_save_model)


def __dir__() -> list[str]:
    return __all__
