"""What every scorer can do: score the labels of the blocks that a row visits, and pick the best.

Linear weights are packed feature-major and scored by compiled loops (``packed.py``); anything else scores itself, tile by
tile, and only the selection is ours (``dense.py``). A label in several visited blocks gets the highest of its scores.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from blockxmc._core.allowed import Mask
from blockxmc._core.base import TopK
from blockxmc.errors import BlockXMCError

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]


class Scorer:
    """q blocks of labels with their weights; ``scorers.py`` makes them from weights and from stored arrays."""

    n_features: int
    n_labels: int
    n_blocks: int

    def topk(
        self, X: sparse.csr_array, blocks: I32 | None, k: int, *, threads: int = 1, allowed: Mask | None = None
    ) -> TopK:
        """Best k candidates of each row: best first, ties to the lower label id, padded with -1 / -inf.

        ``blocks`` (rows x b, -1 pads) are the visited blocks; None: all. ``allowed`` says which labels may be answered.
        """
        raise NotImplementedError

    def scores(self, X: sparse.csr_array, blocks: I32 | None, *, threads: int = 1) -> sparse.csr_array:
        """Scores of all candidates of each row, by ascending label; explicit zeros are kept."""
        raise NotImplementedError

    def one(
        self, indices: ArrayLike, values: ArrayLike, blocks: ArrayLike | None, k: int, allowed: Mask | None = None
    ) -> TopK:
        """``topk`` of one sparse row, without validation or threads; 1-d ``blocks`` and results."""
        raise NotImplementedError

    def n_candidates(self, blocks: I32 | None, *, threads: int = 1) -> I64:
        """Number of distinct labels in the visited blocks of each row; for None one number that holds for all rows."""
        raise NotImplementedError

    def touched(self, X: sparse.csr_array, blocks: I32 | None, *, threads: int = 1) -> float:
        """Mean number of stored weights that scoring a row reads."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Nested dict of arrays and JSON values for the model directory."""
        raise NotImplementedError

    @property
    def label_clusters(self) -> list[I32]:
        """Label ids of each block, ascending."""
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        raise NotImplementedError


def empty_topk(n_rows: int, k: int) -> TopK:
    """Result arrays for a kernel to fill."""
    if k < 1:
        raise BlockXMCError(f"k must be at least 1, got {k}")
    return np.empty((n_rows, k), np.int64), np.empty((n_rows, k), np.float32)


def as_ids(ids: ArrayLike) -> I32:
    """Feature or block numbers as a kernel takes them."""
    return np.ascontiguousarray(ids, dtype=np.int32)


def as_blocks(blocks: ArrayLike | None) -> I32 | None:
    """Visited blocks as a kernel takes them."""
    return None if blocks is None else as_ids(blocks)


def as_row(indices: ArrayLike, values: ArrayLike) -> tuple[I32, NDArray[np.float32]]:
    """One sparse row as a kernel takes it."""
    return as_ids(indices), np.ascontiguousarray(values, dtype=np.float32)
