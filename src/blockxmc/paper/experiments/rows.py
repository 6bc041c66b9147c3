"""Rows of a data set as cells see them: samples without labels that they do not have, rows of unit length."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blockxmc._core.matrix import as_csr, unit_rows

if TYPE_CHECKING:
    from blockxmc.data import Dataset


def with_seen_labels(train: Dataset, test: Dataset) -> tuple[Dataset, Dataset]:
    """Both parts without the labels that no training row of the sample has: they would count as speed-up."""
    seen = np.flatnonzero(np.bincount(train.Y.indices, minlength=train.n_labels))
    lost = test.Y.nnz
    train, test = _with_labels(train, seen), _with_labels(test, seen)
    return train, replace(test, unseen_labels=test.unseen_labels + lost - test.Y.nnz)


def _with_labels(part: Dataset, labels: Any) -> Dataset:
    names = part.label_names
    Y = as_csr(part.Y[:, labels])
    return replace(part, Y=Y, label_names=None if names is None else [names[label] for label in labels])


def scaled(part: Dataset) -> Dataset:
    """The data with rows of unit length."""
    return replace(part, X=unit_rows(part.X))


def files(folder: Path) -> list[Path]:
    """The files of a folder, or an archive itself."""
    return sorted(file for file in folder.iterdir() if file.is_file()) if folder.is_dir() else [folder]


def fingerprint(folder: Path) -> list[list[Any]]:
    """What tells that the files of a folder have changed."""
    return [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files(folder)]
