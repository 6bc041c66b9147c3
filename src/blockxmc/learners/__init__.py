"""Base classifiers: each trains the labels of a block (or, alone, all labels)."""

from blockxmc.learners.dismec import DiSMEC
from blockxmc.learners.leml import LEML
from blockxmc.learners.naive_bayes import NaiveBayes
from blockxmc.learners.pd_sparse import PDSparse
from blockxmc.learners.ppd_sparse import PPDSparse
from blockxmc.learners.sklearn_adapter import OneVsRest

__all__ = ["LEML", "DiSMEC", "NaiveBayes", "OneVsRest", "PDSparse", "PPDSparse"]
