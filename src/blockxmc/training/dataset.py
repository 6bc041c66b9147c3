"""From a Dataset to a fitted model that remembers names and where it came from."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from sklearn.utils.validation import has_fit_parameter

from blockxmc._core.targets import as_names
from blockxmc.errors import BlockXMCError

if TYPE_CHECKING:
    from blockxmc._core.base import XMCEstimator
    from blockxmc.data import Dataset

E = TypeVar("E", bound="XMCEstimator")


def fit_dataset(estimator: E, dataset: Dataset, **fit_options: Any) -> E:
    """Fit on a Dataset; label names and the data's digest become part of the model.

    Labels of texts go out as names; other predictions keep the form of Y, and names are there to be looked up.

    >>> from blockxmc import DiSMEC
    >>> from blockxmc.data import make_synthetic
    >>> train, _ = make_synthetic(n_train=60, n_test=10, n_features=40, n_labels=6, nnz_per_row=8)
    >>> fit_dataset(DiSMEC(), train).data_digest_ == train.digest
    True
    """
    names = None if dataset.label_names is None else as_names(dataset.label_names)
    estimator.fit(dataset.X, dataset.Y, **fit_options)
    if names is not None:
        kind = estimator.targets_.kind if dataset.vectorizer is None else "names"
        estimator.targets_, estimator.classes_ = replace(estimator.targets_, kind=kind, names=names), names
    estimator.data_digest_ = dataset.digest
    return estimator


def require_option(classifier: XMCEstimator, name: str, better: type, said: str | None = None) -> None:
    """Refuse what ``fit`` of a classifier cannot be told, but perhaps that of a ``better`` one; ``said``: to the user."""
    if not has_fit_parameter(classifier, name):
        known = has_fit_parameter(better, name)
        remedy = f": use {better.__name__}" if known else "; parameters of the classifier go to its constructor"
        raise BlockXMCError(f"fit of {type(classifier).__name__} takes no {said or name}{remedy}")
