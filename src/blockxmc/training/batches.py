"""Which labels are trained together: their order, and the stretches of it that are trained, kept and handed out as one.

The solver takes sixteen labels side by side, and the last bits of a label's weights depend on which sixteen. They come in
an order in which the sixteens are the same wherever it is cut between two of them: a job may cut it as suits its workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc import _kernels
from blockxmc._core.matrix import as_pattern, pattern_args, take_rows
from blockxmc.training.blocks import home_blocks
from blockxmc.training.job import Range

# Labels that the solver takes at a time, and the share of all rows from which it takes rows as they are (newton.hpp).
SIDE_BY_SIDE, MOST_ROWS = 16, 0.5


class Order(NamedTuple):
    """Labels in the order in which they are trained, and the places where it may be cut."""

    labels: NDArray[np.intp]
    places: NDArray[np.intp]  # ascending; 0 is the first, the end is none
    pairs: NDArray[np.float64]  # (label, row) pairs, about, from each place up to the next

    def batches(self, pairs: float) -> list[Range]:
        """Stretches of about so many pairs.

        >>> Order(np.arange(40), np.array([0, 16, 32]), np.array([32.0, 32.0, 16.0])).batches(60)
        [(0, 32), (32, 40)]
        """
        stretch = ((np.cumsum(self.pairs) - self.pairs) // pairs).astype(np.int64)
        cuts = self.places[np.flatnonzero(np.diff(stretch)) + 1]
        return list(pairwise([0, *cuts.tolist(), self.labels.size]))


def in_order(
    positives: sparse.csr_array,
    visits: sparse.csr_array,
    blocks: sparse.csr_array,
    rows_of_block: sparse.csr_array,
    limited: tuple[NDArray[np.bool_], int] | None = None,
    apart: bool = True,
    threads: int = 1,
) -> Order:
    """Those that learn from most rows, the most frequent first, if they are to stand apart; then the others by home.

    The solver takes the rows of the former as they are, and copies those of the others; it solves labels without positives
    once for all, so there is no place between them. Labels that are ``limited`` will learn from so many rows only.
    """
    expected = expected_rows(rows_of_block, blocks, positives)
    order = by_home(positives, visits, expected, threads)
    counts = np.diff(positives.indptr)
    wide = np.zeros(counts.size, bool)
    if apart:
        wide = _learn_from_most(positives, blocks, rows_of_block, expected, threads)
    if limited is not None and limited[1] < MOST_ROWS * positives.shape[1]:
        wide &= ~(limited[0] & (counts <= limited[1]))
    first = order[wide[order]]
    first = first[np.argsort(-counts[first], kind="stable")]
    labels = np.concatenate([first, order[~wide[order]]])
    with_positives = int(np.count_nonzero(counts[first]))
    wides, others = np.arange(0, first.size, SIDE_BY_SIDE), np.arange(first.size, labels.size, SIDE_BY_SIDE)
    places = np.concatenate([wides[wides <= with_positives], others])
    pairs = np.add.reduceat(expected[labels], places) if places.size else np.zeros(0)
    return Order(labels, places, pairs)


def by_home(
    positives: sparse.csr_array, visits: sparse.csr_array, expected: NDArray[np.float64], threads: int = 1
) -> NDArray[np.intp]:
    """Labels in the order of the block that most of their positives visit, and then of their number of rows.

    Labels side by side then learn from about the same rows: the solver takes sixteen of them at a time.
    """
    home = np.full(positives.shape[0], visits.shape[1])
    labels, blocks = home_blocks(positives, visits, threads)
    home[labels] = blocks
    return np.lexsort((expected, home))


def expected_rows(
    rows_of_block: sparse.csr_array, blocks_of_label: sparse.csr_array, positives: sparse.csr_array
) -> NDArray[np.float64]:
    """About how many rows each label learns from: rows of several of its blocks are counted more than once."""
    rows_per_block = np.diff(rows_of_block.indptr).astype(np.float64)
    return np.asarray(blocks_of_label @ rows_per_block) + np.diff(positives.indptr)


def rows_of_labels(
    rows_of_block: sparse.csr_array, blocks_of_label: sparse.csr_array, positives: sparse.csr_array, threads: int
) -> sparse.csr_array:
    """labels x rows, a pattern: the rows each label learns from, those of its blocks and its positives."""
    blocks, own = pattern_args(blocks_of_label), pattern_args(positives)
    indptr, rows = _kernels.rows_of_labels(*pattern_args(rows_of_block), positives.shape[1], *blocks, *own, threads)
    return as_pattern(indptr, rows, positives.shape)


def _learn_from_most(
    positives: sparse.csr_array,
    blocks: sparse.csr_array,
    rows_of_block: sparse.csr_array,
    expected: NDArray[np.float64],
    threads: int,
) -> NDArray[np.bool_]:
    """Which labels learn from at least half of the rows; only those that may are counted."""
    wide = np.zeros(positives.shape[0], bool)
    maybe = np.flatnonzero(expected >= MOST_ROWS * positives.shape[1])
    for some in _few_pairs(maybe, expected):
        rows = rows_of_labels(rows_of_block, take_rows(blocks, some), take_rows(positives, some), threads)
        wide[some] = np.diff(rows.indptr) >= MOST_ROWS * positives.shape[1]
    return wide


def _few_pairs(labels: NDArray[np.intp], expected: NDArray[np.float64]) -> Iterator[NDArray[np.intp]]:
    """The labels, some at a time."""
    stretch = np.cumsum(expected[labels]) // _COUNTED_AT_A_TIME
    yield from np.split(labels, np.flatnonzero(np.diff(stretch)) + 1)


# (label, row) pairs that are written out to be counted.
_COUNTED_AT_A_TIME = 2**22
