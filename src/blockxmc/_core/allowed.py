"""Which labels an answer may hold: what users say (ids, names or a mask) as one mask."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc._core.spelling import near_names
from blockxmc._core.targets import Targets
from blockxmc.errors import BlockXMCError

Mask = NDArray[np.bool_]

# Labels of a row among which those that are allowed are looked for first.
FEW_LABELS = 64


def allowed_labels(targets: Targets, allow: Any, deny: Any) -> Mask | None:
    """True where a label may be answered: among ``allow`` (None: all) and not among ``deny``; None: all labels.

    Either is a mask with True or False for each label, or lists labels: by name, or by id where labels have no names or the
    names are text.

    >>> targets = Targets("names", 3, np.array(["blue", "green", "red"], dtype=object))
    >>> allowed_labels(targets, ["red", "blue"], deny=[0]).tolist()
    [False, False, True]
    """
    if allow is None and deny is None:
        return None
    mask = np.ones(targets.n_labels, bool) if allow is None else _mask_of(targets, allow, "allow")
    return mask if deny is None else mask & ~_mask_of(targets, deny, "deny")


def _mask_of(targets: Targets, labels: Any, what: str) -> Mask:
    if isinstance(labels, np.ndarray) and labels.dtype == bool:
        if labels.shape != (targets.n_labels,):
            raise BlockXMCError(f"{what} is a mask of shape {labels.shape}, but there are {targets.n_labels} labels")
        return np.ascontiguousarray(labels)
    listed = _as_list(labels)
    if listed and all(isinstance(label, (bool, np.bool_)) for label in listed):
        return _mask_of(targets, np.array(listed, bool), what)
    mask = np.zeros(targets.n_labels, bool)
    mask[label_ids(targets, listed, what)] = True
    return mask


def label_ids(targets: Targets, labels: Any, what: str) -> NDArray[np.int64]:
    """Ids of labels that are given by name or id; one label works wherever a list does."""
    listed = _as_list(labels)
    return np.fromiter((_id_of(targets, label, what) for label in listed), np.int64, len(listed))


def _as_list(labels: Any) -> list[Any]:
    return [labels] if isinstance(labels, (str, bytes)) or not isinstance(labels, Iterable) else list(labels)


def _id_of(targets: Targets, label: Any, what: str) -> int:
    found = targets.ids_by_name.get(label) if isinstance(label, Hashable) else None
    if found is not None:
        return found
    # Where names are numbers, a number is a name and never an id.
    numbered = targets.names is None or targets.names.dtype.kind in "OUS"
    is_number = isinstance(label, (int, np.integer)) and not isinstance(label, bool)
    if is_number and numbered and 0 <= label < targets.n_labels:
        return int(label)
    hint = f"ids lie in 0..{targets.n_labels - 1}" if is_number and numbered else "labels are spelled as in training"
    names = [] if targets.names is None or not isinstance(label, str) else targets.names.tolist()
    if near := near_names(str(label), [str(name) for name in names]):
        hint = f"did you mean {' or '.join(map(repr, near))}?"
    raise BlockXMCError(f"{what} names the label {str(label)[:60]!r}, which the model does not know; {hint}")


def enough_for(k: int, n_labels: int) -> int:
    """How many labels of a row are looked at, best first, to find k that are allowed."""
    return min(max(FEW_LABELS, 2 * k), n_labels)


def first_allowed(
    found: tuple[NDArray[np.int64], NDArray[np.float32]], k: int, allowed: Mask
) -> tuple[tuple[NDArray[np.int64], NDArray[np.float32]], Mask]:
    """The first k allowed of the best labels of rows, and which rows may have more of them further back.

    >>> found = np.array([[2, 1, 0]]), np.array([[0.9, 0.8, 0.7]], np.float32)
    >>> (labels, _), short = first_allowed(found, 1, np.array([True, True, False]))
    >>> labels.tolist(), short.tolist()
    ([[1]], [False])
    """
    labels, scores = found
    there = (labels >= 0) & allowed[np.maximum(labels, 0)]
    order = np.argsort(~there, axis=1, kind="stable")[:, :k]
    kept = np.take_along_axis(there, order, 1)
    best = (
        np.where(kept, np.take_along_axis(labels, order, 1), -1),
        np.where(kept, np.take_along_axis(scores, order, 1), np.float32(-np.inf)),
    )
    more = (labels[:, -1] >= 0) & (labels.shape[1] < allowed.size)
    return best, ~kept.all(axis=1) & more


def best_allowed(scores: sparse.csr_array, k: int, allowed: Mask) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The best k allowed labels of each row of scores: best first, ties to the lower id, padded with -1 / -inf.

    >>> best_allowed(sparse.csr_array([[0.5, 2.0, 0.9]]), 2, np.array([True, False, True]))[0].tolist()
    [[2, 0]]
    """
    kept = allowed[scores.indices]
    rows = np.repeat(np.arange(scores.shape[0]), np.diff(scores.indptr))[kept]
    ids, values = scores.indices[kept], scores.data[kept]
    order = np.lexsort((ids, -values, rows))
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=scores.shape[0]))])
    rank = np.arange(rows.size) - starts[rows]
    first = rank < k
    labels = np.full((scores.shape[0], k), -1, np.int64)
    best = np.full((scores.shape[0], k), -np.inf, np.float32)
    labels[rows[first], rank[first]] = ids[order][first]
    best[rows[first], rank[first]] = values[order][first]
    return labels, best
