"""The figures of the paper's data table."""

from __future__ import annotations

from typing import Any

import numpy as np

from blockxmc.data.dataset import Dataset

PERCENTILES = (0, 25, 50, 75, 90, 99, 100)


def describe(name: str, train: Dataset, test: Dataset | None) -> dict[str, Any]:
    """The figures of a data set, counted on the training rows unless named otherwise.

    >>> from blockxmc.data import describe, from_texts
    >>> figures = describe("fruit", from_texts(["red apple", "green leaf"], [["fruit"], ["plant"]]), None)
    >>> figures["labels"], figures["samples_per_label"], figures["labels_per_sample"]
    (2, 1.0, 1.0)
    """
    frequency = np.bincount(train.Y.indices, minlength=train.n_labels)
    points = np.percentile(frequency, PERCENTILES) if frequency.size else np.zeros(len(PERCENTILES))
    parts = [train] if test is None else [train, test]
    rows = sum(part.n_rows for part in parts)
    return {
        "data": name,
        "train_rows": train.n_rows,
        "test_rows": None if test is None else test.n_rows,
        "features": train.n_features,
        "labels": train.n_labels,
        "samples_per_label": train.Y.nnz / train.n_labels if train.n_labels else 0.0,
        "labels_per_sample": train.labels_per_row,
        "labels_per_sample_all_rows": sum(part.Y.nnz for part in parts) / rows if rows else 0.0,
        "nnz_per_row": train.features_per_row,
        "nnz_per_row_all_rows": sum(part.X.nnz for part in parts) / rows if rows else 0.0,
        "label_frequency_percentiles": {str(p): float(v) for p, v in zip(PERCENTILES, points, strict=True)},
        "labels_without_training_row": int((frequency == 0).sum()),
        "rows_without_labels": int((np.diff(train.Y.indptr) == 0).sum()),
        "test_rows_without_labels": None if test is None else int((np.diff(test.Y.indptr) == 0).sum()),
        "rows_without_features": int((np.diff(train.X.indptr) == 0).sum()),
        "unseen_labels": 0 if test is None else test.unseen_labels,
    }
