"""Base classifiers: each trains the labels of a block (or, alone, all labels)."""

from blockxmc.learners.pd_sparse import PDSparse
from blockxmc.learners.ppd_sparse import PPDSparse

__all__ = ["PDSparse", "PPDSparse"]
