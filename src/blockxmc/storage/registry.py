"""The classes a model directory may name. Nothing else is ever imported because a manifest says so."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from blockxmc.errors import BlockXMCError, ModelFormatError

# Name in the manifest -> "module:class".
CLASSES = {
    "BlockwiseClassifier": "blockxmc.classifier:BlockwiseClassifier",
    "CBMLC": "blockxmc.paper.cbmlc:CBMLC",
    "DiSMEC": "blockxmc.learners:DiSMEC",
    "ExtendedVectorizer": "blockxmc.data.extra:ExtendedVectorizer",
    "FastXML": "blockxmc.paper.fastxml:FastXML",
    "LEML": "blockxmc.paper.leml:LEML",
    "LPSR": "blockxmc.paper.lpsr:LPSR",
    "LabelFilters": "blockxmc.paper.label_filters:LabelFilters",
    "NaiveBayes": "blockxmc.paper.naive_bayes:NaiveBayes",
    "OneVsRest": "blockxmc.learners.sklearn_adapter:OneVsRest",
    "PDSparse": "blockxmc.paper.pd_sparse:PDSparse",
    "PPDSparse": "blockxmc.paper.ppd_sparse:PPDSparse",
    "Partitioner": "blockxmc.partition:Partitioner",
    "TextVectorizer": "blockxmc.data.tfidf:TextVectorizer",
    # scikit-learn's linear classifiers, as bases of a block: their parameters are stored, their weights are arrays.
    "LinearSVC": "sklearn.svm:LinearSVC",
    "LogisticRegression": "sklearn.linear_model:LogisticRegression",
    "LogisticRegressionCV": "sklearn.linear_model:LogisticRegressionCV",
    "Perceptron": "sklearn.linear_model:Perceptron",
    "RidgeClassifier": "sklearn.linear_model:RidgeClassifier",
    "RidgeClassifierCV": "sklearn.linear_model:RidgeClassifierCV",
    "SGDClassifier": "sklearn.linear_model:SGDClassifier",
}


def class_named(name: Any) -> type[Any]:
    """The class a manifest names, if it is one of ours."""
    if not isinstance(name, str) or name not in CLASSES:
        raise ModelFormatError(f"the model needs the class {name!r}, which this version of blockxmc does not know")
    return _resolve(name)


def name_of(value: Any) -> str:
    """The name under which an object's class is stored."""
    name = type(value).__name__
    if name not in CLASSES or _resolve(name) is not type(value):
        known = ", ".join(sorted(CLASSES))
        raise BlockXMCError(f"{name} cannot be saved: a model directory holds only {known}")
    return name


def _resolve(name: str) -> type[Any]:
    module, attribute = CLASSES[name].split(":")
    found: type[Any] = getattr(import_module(module), attribute)
    return found
