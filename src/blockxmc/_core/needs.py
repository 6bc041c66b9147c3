"""How much memory the default training takes beside its data: what its arrays hold at the moments when they hold most.

Each term below is the size of arrays that live at the same time; bench/estimate.py compares the sum with trainings.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import sparse

# Labels are solved so many at a time (training/batches.py), weights below this are dropped (classifier.py), and rows
# that show it are looked at.
SIDE_BY_SIDE, PRUNE, SHOWN_ROWS = 16, 0.1, 4096
# Up to how many features a row is short, and what is left of the pruning level where rows are long (``prune_level``).
SHORT_ROW, LEAST_LEVEL = 100, 0.7
# A label with c positives has about c to the power of this times as many weights as a row has large values: its rows share
# words. Measured on ten sets, of 10 to 200 positives per label: right within a factor of 1.8 where weights are many.
SHARED_WORDS = 0.8
# All along, per positive, row, feature and label: labels by row and by column, blocks that rows visit, the router, and what
# the C library keeps of the tables that made the blocks. Fitted to six sets.
STANDING = (60, 60, 2000, 100)
# Sums of the rows of labels (partition/start.py), kept until centroids are made of them, per label and at most: 40 to 240
# values each on six sets.
LABEL_SUMS, MOST_SUMS = 8 * 150, 2**26
# Two solvers of a thread (labels of most rows together, labels of the same rows on a copy of these), at their rows:
# 56 bytes per value (7 copies of a row number or a column, and a value), 13 vectors of sixteen numbers per row and 3 per
# feature (4 more where a step is sought by conjugate gradients, which few problems come to), each twice.
PER_VALUE, PER_ROW, PER_FEATURE = 56, 2 * 13 * 64, 2 * 3 * 64
# ... where rows are of very different length (lane_descent.hpp), one vector and two numbers per row more, twice; one row in
# a hundred is then so many times as long as the median row.
PER_UNEVEN_ROW, UNEVEN = 2 * 72, 8
# ... and what a thread has for all rows and features anyway.
THREAD_ROW, THREAD_FEATURE = 40, 16
# Rows of labels that are solved in one batch (settings.py: least_pairs, least_pairs_per_row, pairs_at_a_time), in two
# copies while they are put together; and about how many there are, per positive and root of the number of labels.
LEAST_PAIRS, LEAST_PAIRS_PER_ROW, MOST_PAIRS, PAIRS = 2**25, 128, 2**26, 0.4
# Blocks hardly pay for so few labels: all may learn from all rows, taken as they are: 6 vectors of sixteen numbers
# per row in each thread, and half a copy of the pairs (fitted to trainings with 1 and 8 threads).
FEW_LABELS, ALL_ROWS = 1000, 6 * 64
# Held-out rows (settings.py) and candidates of each that show what scores mean, with all that is known of one.
HELD_OUT_ONE_IN, HELD_OUT_LEAST, HELD_OUT_MOST, CANDIDATES, PER_CANDIDATE = 40, 800, 2048, 64, 85
# Per weight: while labels are solved; in the trial model; while centroids are added and the model is packed.
WEIGHT_SOLVED, WEIGHT_TRIED, WEIGHT_PACKED = 8, 25, 46
# Centroids of blocks in a table (kmeans.hpp) of at most so many bytes, and blocks per root of the number of rows.
MOST_TABLE, BLOCKS = 2**29, 2.5
# What the C library keeps of freed arrays: half of what is too small to be given back at once.
KEPT_OF_FREED, MOST_KEPT = 0.5, 2**27


class Sizes(NamedTuple):
    """What memory depends on. ``taught``: rows that the labels in work at a time learn from, as a share of all rows."""

    rows: int
    features: int
    labels: int
    values: int
    positives: int
    weights: float
    taught: float
    threads: int = 1
    uneven: bool = False  # rows are of very different length


def prune_level(features: float) -> float:
    """What is left of the level at which weights are dropped, where rows have so many features on average.

    A score is a sum over the features of its row: the more they are, the smaller the weights. What is dropped at 0.1 is
    noise with 40 features in a row, and tells something with 200. So beyond ``SHORT_ROW`` features the level falls by the
    root of their number, down to ``LEAST_LEVEL`` of it: models grow as it falls.

    Mean of P@1/3/5 (test rows, two or three seeds) at 0.07 or 0.065 instead of 0.1, and the model's bytes: +0.40 and 1.9
    times for citations of RFCs (930 features in a row), +0.24 and 1.6 times for references of manual pages (180), +0.19
    and 1.7 times for modules of Perl documentation (186), +0.07 and 1.7 times for elife-keywords (141). Short rows gain
    nothing: debian-small (41) loses 0.02 at 0.05.

    >>> prune_level(40), round(prune_level(144), 3), prune_level(1000)
    (1.0, 0.833, 0.7)
    """
    return min(max(math.sqrt(SHORT_ROW / max(features, 1.0)), LEAST_LEVEL), 1.0)


def sizes_of(X: sparse.csr_array, Y: sparse.csr_array, threads: int = 1) -> Sizes:
    """The sizes of training data.

    >>> ones = sparse.csr_array(np.eye(3, dtype=np.float32))
    >>> sizes_of(ones, ones)
    Sizes(rows=3, features=3, labels=3, values=3, positives=3, weights=3.0, taught=1.0, threads=1, uneven=False)
    """
    n_rows, n_features = X.shape
    positives = np.bincount(Y.indices, minlength=Y.shape[1])
    shown = np.unique(np.linspace(0, max(n_rows - 1, 0), min(n_rows, SHOWN_ROWS)).astype(int))
    # One row after the other: a copy of long rows could be larger than the limit that is looked at here.
    values = [X.data[X.indptr[row] : X.indptr[row + 1]] for row in shown] if n_rows else []
    squares = np.array([np.square(each).sum() for each in values])
    lengths = np.sqrt(squares[squares > 0])
    length = float(np.median(lengths)) if lengths.size else 1.0
    uneven = bool(lengths.size and np.quantile(lengths, 0.99) > UNEVEN * length)
    features = sum(np.count_nonzero(each) for each in values) / max(lengths.size, 1)
    level = PRUNE * length * prune_level(features)
    large = sum(np.count_nonzero(np.abs(each) >= level) for each in values) / max(len(values), 1)
    weights = float(np.minimum(large * positives**SHARED_WORDS, n_features).sum())
    # Sixteen labels learn from their own rows, and from about as many others; each thread has sixteen.
    frequent = -np.sort(-positives)[: SIDE_BY_SIDE * threads]
    groups = np.add.reduceat(frequent, np.arange(0, frequent.size, SIDE_BY_SIDE)) if frequent.size else frequent
    taught = float(np.minimum(2 * groups / max(n_rows, 1), 1).sum())
    if Y.shape[1] <= FEW_LABELS:
        taught = float(groups.size)
    return Sizes(n_rows, n_features, Y.shape[1], X.nnz, Y.nnz, weights, taught, threads, uneven)


def expected_bytes(sizes: Sizes) -> int:
    """About how much memory the default training takes beside its data."""
    all_along = sum(
        each * number
        for each, number in zip(STANDING, (sizes.positives, sizes.rows, sizes.features, sizes.labels), strict=True)
    )
    all_along += min(LABEL_SUMS * sizes.labels, MOST_SUMS)
    solving = _solving(sizes)
    kept = min(KEPT_OF_FREED * solving, MOST_KEPT)
    blocks = min(BLOCKS * math.sqrt(sizes.rows), sizes.labels)
    moments = (
        min(4 * blocks * sizes.features, MOST_TABLE),
        solving,
        kept + WEIGHT_TRIED * sizes.weights + PER_CANDIDATE * _held_out(sizes),
        WEIGHT_PACKED * sizes.weights,
    )
    return int(all_along + max(moments))


def _solving(sizes: Sizes) -> float:
    """While labels are trained: the rows of a batch of labels, the solvers, and the weights so far."""
    batch = min(max(LEAST_PAIRS, LEAST_PAIRS_PER_ROW * sizes.rows), MOST_PAIRS)
    expected = float(sizes.rows * sizes.labels)
    if sizes.labels > FEW_LABELS:
        expected = min(PAIRS * sizes.positives * math.sqrt(sizes.labels), expected)
    pairs = 4.0 * min(batch, expected)
    of_rows = PER_VALUE * sizes.values + PER_ROW * sizes.rows + PER_FEATURE * sizes.features
    again = pairs
    if sizes.labels <= FEW_LABELS:
        of_rows, again = ALL_ROWS * sizes.rows + PER_FEATURE * sizes.features, pairs / 2
    of_rows += PER_UNEVEN_ROW * sizes.rows if sizes.uneven else 0
    solvers = sizes.taught * of_rows + _of_threads(sizes)
    return pairs + max(again, solvers) + WEIGHT_SOLVED * sizes.weights


def _of_threads(sizes: Sizes) -> int:
    """What threads have each for itself."""
    return sizes.threads * (THREAD_ROW * sizes.rows + THREAD_FEATURE * sizes.features)


def _held_out(sizes: Sizes) -> int:
    """Number of candidates of held-out rows."""
    least = min(sizes.rows // 5, HELD_OUT_LEAST)
    rows = min(max(sizes.rows // HELD_OUT_ONE_IN, least), HELD_OUT_MOST)
    return rows * min(CANDIDATES, sizes.labels)
