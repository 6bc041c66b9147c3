"""Base classifiers: each trains the labels of a block (or, alone, all labels)."""

from blockxmc.learners.leml import LEML
from blockxmc.learners.naive_bayes import NaiveBayes

__all__ = ["LEML", "NaiveBayes"]
