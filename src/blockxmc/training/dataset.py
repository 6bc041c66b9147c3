"""From a Dataset to a fitted model that remembers names, text preprocessing and where it came from."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from blockxmc._core.base import XMCEstimator
    from blockxmc.data import Dataset

E = TypeVar("E", bound="XMCEstimator")


def fit_dataset(estimator: E, dataset: Dataset) -> E:
    """Fit on a Dataset; label names, the text vectoriser and the data's digest become part of the model.

    >>> from blockxmc import DiSMEC
    >>> from blockxmc.data import make_synthetic
    >>> train, _ = make_synthetic(n_train=60, n_test=10, n_features=40, n_labels=6, nnz_per_row=8)
    >>> fit_dataset(DiSMEC(), train).data_digest_ == train.digest
    True
    """
    estimator.fit(dataset.X, dataset.Y)
    if dataset.label_names is not None:
        names = np.array(list(dataset.label_names), dtype=object)
        estimator.targets_, estimator.classes_ = replace(estimator.targets_, names=names), names
    if dataset.vectorizer is not None:
        estimator.vectorizer_ = dataset.vectorizer
    estimator.data_digest_ = dataset.digest
    return estimator
