"""From trained weights to the flat arrays that are served."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc import _kernels
from blockxmc._core.matrix import CsrArgs, csr_args, csr_of
from blockxmc.errors import BlockXMCError
from blockxmc.linear.weights import LinearWeights

I32 = NDArray[np.int32]

# Bits that a weight may have: a float, its upper half, or an integer times the scale of its label.
BITS = (32, 16, 8)


def pack_linear(
    vectors: CsrArgs, rows: I32 | None, blocks: Sequence[I32], n_features: int, bits: int, threads: int
) -> dict[str, NDArray[Any]]:
    """The flat arrays of a packed scorer but its biases: blocks are cut into chunks of labels, those packed by features.

    ``rows`` says which of the ``vectors`` each label of each block has (-1: none); None: each its own, in order.
    """
    if bits not in BITS:
        raise BlockXMCError(f"a weight has 32, 16 or 8 bits, not {bits!r}")
    if bits == 8 and not np.isfinite(vectors[2]).all():
        raise BlockXMCError("weights of 8 bits must be finite numbers: use 16 or 32 bits")
    most = _kernels.MAX_CHUNK_LABELS
    widths = np.array([min(most, ids.size - at) for ids in blocks for at in range(0, ids.size, most)], np.int64)
    labels = joined(blocks, np.int32)
    rows = np.arange(labels.size, dtype=np.int32) if rows is None else rows
    sizes, *packed, scale = _kernels.pack_chunks(*vectors, rows, np.cumsum(widths), n_features, bits, threads)
    table = np.column_stack([widths, sizes.reshape(-1, 4)])
    arrays: dict[str, NDArray[Any]] = {
        "block_ptr": np.cumsum([0, *(-(-ids.size // most) for ids in blocks)], dtype=np.int64),
        "offsets": np.concatenate([np.zeros((1, 5), np.int64), np.cumsum(table, axis=0)]),
        "labels": labels,
        **dict(zip(("keys", "buckets", "rows", "arena"), packed, strict=True)),
    }
    return arrays | ({"scale": scale} if bits == 8 else {})


def by_label(weights: Sequence[LinearWeights], n_features: int) -> CsrArgs:
    """The vectors of all labels of all blocks on all features, one after the other."""
    counts, features, values = [], [], []
    for block, w in enumerate(weights):
        rows = n_features if w.features is None else w.features.size
        if w.coef.shape[0] != rows:
            raise BlockXMCError(f"block {block} has weights on {w.coef.shape[0]} features, not {rows}")
        indptr, indices, data = csr_args(_transposed(w.coef))
        counts.append(np.diff(indptr))
        features.append(indices if w.features is None else w.features[indices])
        values.append(data)
    if len(weights) == 1:  # nothing to join: large weights are not copied
        return indptr, features[0], data
    ends = np.cumsum(joined(counts, np.int64))
    return np.concatenate([np.zeros(1, np.int64), ends]), joined(features, np.int32), joined(values, np.float32)


def _transposed(coef: sparse.csr_array | sparse.csc_array) -> sparse.csr_array:
    """Narrowed first: a sum of matrices comes with wide numbers, and half the bytes are transposed twice as fast."""
    if isinstance(coef, sparse.csc_array):
        return coef.T
    return sparse.csr_array(csr_of(*csr_args(coef), coef.shape).T)


def joined(parts: Sequence[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    """All parts as one new array."""
    return np.concatenate([np.zeros(0, dtype), *parts]).astype(dtype, copy=False)
