"""Blocks: instance clusters, their label clusters, and how many of them (the paper's sections 3.2 and 3.3)."""

from blockxmc.partition.partitioner import Partitioner
from blockxmc.partition.ranking import LambdaPath

__all__ = ["LambdaPath", "Partitioner"]
