"""Looking into a model: its blocks, its labels, and the map of both (the paper's figure 1)."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc._core.spelling import near_names
from blockxmc.plots import block_matrix
from blockxmc.service.models import ServedModel
from blockxmc.service.problems import Problem

TYPICAL = 8  # labels that stand for a block
CO_LABELS = 20
MOST_LISTED = 1000
# What a page can draw at once, and a browser fetch in a moment.
MOST_DOTS, ROWS_OF_MAP = 30_000, 2500
_maps: WeakKeyDictionary[ServedModel, dict[str, Any]] = WeakKeyDictionary()


def blocks(model: ServedModel) -> list[dict[str, Any]]:
    """Every block: how many training rows and labels it has, and the labels that tell it from others."""
    partition, counts = _partition(model), model.classifier.label_counts_
    sizes = np.bincount(partition.assignment_, minlength=partition.n_blocks_)
    # Labels that most blocks hold say nothing of a block, however frequent they are.
    holders = np.zeros(model.n_labels, np.int64)
    for ids in partition.label_clusters_:
        holders[ids] += 1
    weight = counts / np.maximum(holders, 1) ** 2
    found = []
    for block, ids in enumerate(partition.label_clusters_):
        first = [model.name_of(int(j)) for j in _by_weight(ids, weight)[:TYPICAL]]
        found.append({"block": block, "rows": int(sizes[block]), "labels": len(ids), "typical": first})
    return found


def block(model: ServedModel, number: int) -> dict[str, Any]:
    """One block with its labels, the most frequent first."""
    partition = _partition(model)
    if not 0 <= number < partition.n_blocks_:
        raise Problem(404, f"there is no block {number}: blocks are numbered from 0 to {partition.n_blocks_ - 1}")
    ids = _by_weight(partition.label_clusters_[number], model.classifier.label_counts_)
    rows = int(np.count_nonzero(partition.assignment_ == number))
    return {"block": number, "rows": rows, "n_labels": len(ids), "labels": _listed(model, ids[:MOST_LISTED])}


def search(model: ServedModel, words: str, limit: int) -> list[dict[str, Any]]:
    """Labels whose name has these words: names that begin with them first, then by training rows; else near names."""
    wanted, counts = words.casefold().strip(), model.classifier.label_counts_
    folded, parts = model.folded_names, wanted.split()
    found = [j for j, name in enumerate(folded) if all(part in name for part in parts)]
    if not found:
        near = set(near_names(wanted, folded, limit))
        found = [j for j, name in enumerate(folded) if name in near]
    found.sort(key=lambda j: (folded[j] != wanted, not folded[j].startswith(wanted), -counts[j], j))
    return _listed(model, np.array(found[:limit], np.int64))


def label(model: ServedModel, number: int) -> dict[str, Any]:
    """One label: its training rows, the blocks that hold it, and the labels it comes with (where rows are kept)."""
    if not 0 <= number < model.n_labels:
        raise Problem(404, f"there is no label {number}: labels are numbered from 0 to {model.n_labels - 1}")
    partition = getattr(model.classifier, "partition_", None)
    clusters = [] if partition is None else partition.label_clusters_
    holding = [i for i, ids in enumerate(clusters) if _holds(ids, number)]
    return {**_listed(model, np.array([number]))[0], "blocks": holding, "co_labels": _co_labels(model, number)}


def _co_labels(model: ServedModel, number: int) -> list[dict[str, Any]] | None:
    rows = model.row_labels
    if rows is None:
        return None
    has = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))[rows.indices == number]
    together = np.bincount(rows[has].indices, minlength=model.n_labels)
    together[number] = 0
    best = np.argsort(-together, kind="stable")[:CO_LABELS]
    named = _listed(model, best[together[best] > 0])
    return [{**entry, "together": int(together[entry["id"]])} for entry in named]


def block_map(model: ServedModel) -> dict[str, Any]:
    """The map of a model, drawn once."""
    if model not in _maps:
        _maps[model] = _drawn_map(model)
    return _maps[model]


def _drawn_map(model: ServedModel) -> dict[str, Any]:
    """Training rows by block over labels by block: where each block is, and a dot for each label of a row.

    Blocks and labels are those of the model; a sample of the rows, an equal number of each block at most, is drawn. A
    model that keeps no rows has no dots.
    """
    partition, rows = _partition(model), model.row_labels
    shown = max(1, ROWS_OF_MAP // partition.n_blocks_)
    kept = sparse.csr_array((partition.assignment_.size, model.n_labels), dtype=np.float32) if rows is None else rows
    matrix, offsets, columns = block_matrix(kept, partition.assignment_, partition.label_clusters_, shown)
    place = np.full(model.n_labels, -1)
    place[columns] = np.arange(columns.size)
    spans = [_runs(np.sort(place[ids])) for ids in partition.label_clusters_]
    dots = sparse.coo_array(matrix)
    step = max(1, -(-dots.nnz // MOST_DOTS))
    return {
        "rows": int(offsets[-1]),
        "columns": columns.tolist(),
        "offsets": offsets.tolist(),
        "label_clusters": spans,  # of each block: first and last column of every run of its labels
        "dots": [dots.col[::step].tolist(), dots.row[::step].tolist()],
        "share_of_dots": 1.0 / step,
    }


def _runs(places: NDArray[np.integer]) -> list[list[int]]:
    """First and last of each run of neighboring numbers.

    >>> _runs(np.array([1, 2, 3, 7]))
    [[1, 3], [7, 7]]
    """
    if not places.size:
        return []
    ends = np.flatnonzero(np.diff(places) > 1)
    firsts, lasts = places[np.append(0, ends + 1)], places[np.append(ends, places.size - 1)]
    return [[int(a), int(b)] for a, b in zip(firsts, lasts, strict=True)]


def _partition(model: ServedModel) -> Any:
    partition = getattr(model.classifier, "partition_", None)
    if partition is None:
        raise Problem(404, f"{model.name} has no blocks")
    return partition


def _holds(ids: NDArray[np.integer], number: int) -> bool:
    at = np.searchsorted(ids, number)
    return bool(at < len(ids) and ids[at] == number)


def _by_weight(ids: NDArray[np.integer], weight: NDArray[Any]) -> NDArray[np.integer]:
    return np.asarray(ids)[np.argsort(-weight[ids], kind="stable")]


def _listed(model: ServedModel, ids: NDArray[np.integer]) -> list[dict[str, Any]]:
    counts = model.classifier.label_counts_
    return [{"id": int(j), "label": model.name_of(int(j)), "training_rows": int(counts[j])} for j in ids]
