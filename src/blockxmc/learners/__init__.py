"""Base classifiers: each trains the labels of a block (or, alone, all labels)."""

from blockxmc.learners.dismec import DiSMEC
from blockxmc.learners.sklearn_adapter import OneVsRest

__all__ = ["DiSMEC", "OneVsRest"]
