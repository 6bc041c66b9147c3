"""Scorers from trained weights, and from the arrays of a model directory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blockxmc._core.matrix import csr_args
from blockxmc._core.stored import mapping, short
from blockxmc.errors import BlockXMCError, ModelFormatError
from blockxmc.linear.dense import DenseScorer
from blockxmc.linear.packed import PackedScorer
from blockxmc.linear.packing import by_label, joined, pack_linear
from blockxmc.linear.scorer import I32, Scorer
from blockxmc.linear.vectors import LabelVectors
from blockxmc.linear.weights import LinearWeights, Weights


def pack_scorer(
    weights: Sequence[Weights],
    label_ids: Sequence[NDArray[Any]],
    *,
    n_features: int,
    n_labels: int,
    bits: int = 32,
    threads: int = 1,
) -> Scorer:
    """Pack the weights of each block; ``label_ids[l]`` are the global ids of block l's labels, ascending.

    Linear weights are kept as floats (32 ``bits``), as the upper halves of floats, rounded (16), or as integers with
    one scale per label, its largest weight over 127 (8).
    """
    clusters = _checked_ids(label_ids, n_labels)
    if len(clusters) != len(weights):
        raise BlockXMCError(f"{len(weights)} blocks of weights, but {len(clusters)} sets of label ids")
    for block, (w, ids) in enumerate(zip(weights, clusters, strict=True)):
        if ids.shape != (w.n_labels,):
            raise BlockXMCError(f"block {block} has weights of {w.n_labels} labels, but {ids.size} label ids")
    linear = [w for w in weights if isinstance(w, LinearWeights)]
    if len(linear) < len(weights):
        return DenseScorer(list(weights), clusters, n_features, n_labels)
    arrays = pack_linear(by_label(linear, n_features), None, clusters, n_features, bits, threads)
    arrays["bias"] = joined([w.bias for w in linear], np.float32)
    if any(w.mass is not None for w in linear):
        zeros = np.zeros(max(w.n_labels for w in linear), np.float32)
        arrays["mass"] = joined([zeros[: w.n_labels] if w.mass is None else w.mass for w in linear], np.float32)
    return PackedScorer(arrays, n_features, n_labels, bits)


def pack_shared_scorer(
    weights: LabelVectors,
    label_ids: Sequence[NDArray[Any]],
    frequent: NDArray[Any],
    *,
    n_features: int,
    bits: int = 32,
    threads: int = 1,
) -> PackedScorer:
    """Pack one vector per label, which all its blocks share.

    Where there are ``frequent`` labels, theirs stand in one more block, the last; in its other blocks a frequent label
    is an empty name: no weights, and a score that never counts.
    """
    if weights.vectors.shape[1] != n_features:
        raise BlockXMCError(f"weights on {weights.vectors.shape[1]} features, but there are {n_features}")
    n_labels = weights.n_labels
    blocks = _checked_ids([*label_ids, *([frequent] if frequent.size else [])], n_labels)
    rows = joined(blocks, np.int32)
    name_only = np.zeros(rows.size, bool)
    name_only[: rows.size - frequent.size] = np.isin(rows[: rows.size - frequent.size], frequent)
    vectors = np.where(name_only, np.int32(-1), rows)
    arrays = pack_linear(csr_args(weights.vectors), vectors, blocks, n_features, bits, threads)
    arrays["bias"] = np.where(name_only, -np.inf, weights.bias[rows]).astype(np.float32)
    if weights.mass is not None:
        arrays["mass"] = weights.mass[rows].astype(np.float32)
    return PackedScorer(arrays, n_features, n_labels, bits)


def restore_scorer(state: dict[str, Any]) -> Scorer:
    """Take back what ``state`` gave; arrays may be read-only memory maps, which are read when first needed."""
    kinds: dict[str, type[PackedScorer] | type[DenseScorer]] = {"packed": PackedScorer, "dense": DenseScorer}
    found = mapping(state, "the set of weights").get("kind")
    if not isinstance(found, str) or found not in kinds:
        raise ModelFormatError(f"the model has blocks of an unknown kind: {short(found)}")
    try:
        return kinds[found].restored(state)
    except (AttributeError, KeyError, TypeError) as error:
        raise ModelFormatError(f"the model's blocks are incomplete or have wrong types: {short(error)}") from None


def _checked_ids(label_ids: Sequence[NDArray[Any]], n_labels: int) -> list[I32]:
    clusters = [np.ascontiguousarray(ids, dtype=np.int32) for ids in label_ids]
    sizes = np.array([ids.size for ids in clusters], np.int64)
    labels, block = joined(clusters, np.int32), np.repeat(np.arange(sizes.size), sizes)
    wrong = (labels < 0) | (labels >= n_labels)
    wrong[1:] |= (labels[1:] <= labels[:-1]) & (block[1:] == block[:-1])
    if wrong.any():
        raise BlockXMCError(f"label ids of block {block[wrong.argmax()]} must ascend within 0..{n_labels - 1}")
    return clusters
