"""What a training will take, before it begins: from the sizes of the data, and from how fast this machine is."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable

import numpy as np
from scipy import sparse

from blockxmc._core.memory import used_memory
from blockxmc._core.needs import BLOCKS, expected_bytes, sizes_of
from blockxmc.learners.dismec import DiSMEC

# The formulas below are fitted to trainings of the default, whose CPU time was measured on the machine that
# CALIBRATION_SECONDS come from; bench/estimate.py compares them with trainings.
# Seconds per stored value; per row and root of the number of rows; per label and label of a row. Fitted to seven sets and
# to five that nothing else was fitted to (short texts among them): expected is 0.72 to 1.44 of what was found.
SECONDS_PER_VALUE, SECONDS_PER_ROW, SECONDS_PER_LABEL = 4.45e-6, 3.28e-7, 2.17e-5
# Where there is one block: seconds per stored value and label.
SECONDS_PER_PRODUCT = 1.65e-8
# Per label of a row and square root of the number of labels: where that is more than so many of the labels, blocks give way
# to one block; and candidates beside frequent labels, which are candidates of all rows.
SPREAD, MOST_SPREAD, CANDIDATES = 1.4, 2 / 9, 0.4
# A frequent label comes beside more than FEW_HOMES * size ** SIZE_POWER others, where only the most frequent label of a row
# counts that has no more than HOME * size rows. Fitted to the frequent labels of seven sets: right within a factor of 1.5.
HOME, FEW_HOMES, SIZE_POWER = 2, 5.0, 0.2
# Bytes of a model per weight, with router and labels, and per row that is kept as a neighbor; per weight of one block.
MODEL_BYTES_PER_WEIGHT, MODEL_BYTES_PER_ROW, MODEL_BYTES_PER_WEIGHT_OF_ONE = 10, 100, 3
# What `calibration` is taken to last on one thread of the machine on which the formulas were fitted: 0.034 with nothing
# beside it, when trainings take less than expected, 0.042 beside a load of seven.
CALIBRATION_SECONDS = 0.048
CALIBRATION_ROWS = 3000
CALIBRATION_PATIENCE = 1.5


def estimate(X: sparse.csr_array, Y: sparse.csr_array, *, threads: int) -> dict[str, float]:
    """Expected seconds, memory of the process, size of the model and candidates of a default training."""
    n_rows, n_labels, sizes = X.shape[0], Y.shape[1], sizes_of(X, Y, threads)
    per_row = Y.nnz / max(1, n_rows)
    spread = per_row * math.sqrt(n_labels)
    if SPREAD * spread > MOST_SPREAD * n_labels:
        candidates, seconds = float(n_labels), SECONDS_PER_PRODUCT * X.nnz * n_labels
        size = MODEL_BYTES_PER_WEIGHT_OF_ONE * sizes.weights
    else:
        candidates = min(CANDIDATES * spread + frequent_labels(Y), n_labels)
        seconds = SECONDS_PER_VALUE * X.nnz + SECONDS_PER_ROW * n_rows**1.5 + SECONDS_PER_LABEL * per_row * n_labels
        size = MODEL_BYTES_PER_WEIGHT * sizes.weights + MODEL_BYTES_PER_ROW * n_rows
    needed = expected_bytes(sizes)
    return {
        "train_seconds": seconds * calibration(threads) / CALIBRATION_SECONDS,
        "peak_memory_gb": (used_memory() + needed) / 1e9,
        "model_mb": size / 1e6,
        "candidates": candidates,
    }


def frequent_labels(Y: sparse.csr_array) -> int:
    """About how many labels will lie in so many blocks that they are scored for every row.

    Rows lie in blocks by their labels: those of a label that comes beside many others are spread over many blocks.

    >>> alone, beside_it = np.eye(40, dtype=np.float32), np.ones((40, 1), np.float32)
    >>> frequent_labels(sparse.csr_array(alone)), frequent_labels(sparse.csr_array(np.hstack([alone, beside_it])))
    (0, 1)
    """
    n_rows, n_labels = Y.shape
    labelled = np.flatnonzero(np.diff(Y.indptr))
    size = math.sqrt(n_rows) / BLOCKS  # rows of a block
    positives = np.bincount(Y.indices, minlength=n_labels)
    rank = np.where(positives <= HOME * size, positives, 0) * n_labels + np.arange(n_labels)
    home = np.maximum.reduceat(rank[Y.indices], Y.indptr[labelled]) % n_labels if labelled.size else labelled
    beside = Y.indices.astype(np.int64) * n_labels + np.repeat(home, np.diff(Y.indptr)[labelled])
    homes = np.bincount(np.unique(beside) // n_labels, minlength=n_labels)
    return int(np.count_nonzero(homes > FEW_HOMES * size**SIZE_POWER))


@functools.cache
def calibration(threads: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of a small training of labels with so many threads: the median of those that 1.5 seconds have room for."""
    rng = np.random.default_rng(0)
    X, Y = _random_rows(rng, 4000, 60), _random_rows(rng, 100, 3)
    Y.data[:] = 1
    learner = DiSMEC(C=0.5, prune=0.1, tol=0.05, unit_rows=True, n_jobs=threads)
    began, taken = time.perf_counter(), []
    while time.perf_counter() - began < CALIBRATION_PATIENCE:
        start = clock()
        learner.fit(X, Y)
        taken.append(clock() - start)
    return float(np.median(taken))


def _random_rows(rng: np.random.Generator, n_columns: int, per_row: int) -> sparse.csr_array:
    indptr = np.arange(CALIBRATION_ROWS + 1) * per_row
    columns = rng.integers(0, n_columns, indptr[-1])
    values = rng.random(columns.size, dtype=np.float32)
    rows = sparse.csr_array((values, columns, indptr), shape=(CALIBRATION_ROWS, n_columns))
    rows.sum_duplicates()
    return rows
