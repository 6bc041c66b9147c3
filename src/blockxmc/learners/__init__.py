"""Base classifiers: each trains the labels of a block (or, alone, all labels)."""

from blockxmc.learners.dismec import DiSMEC

__all__ = ["DiSMEC"]
