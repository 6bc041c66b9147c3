"""The rows that are held out of training: which they are, and which labels they are missed by.

Nothing learns from their labels until scores are fitted: neither blocks, nor router, nor weights. Blocks that knew their
labels would be made for them, and held-out rows would look better known than new rows are: of 6,000 rows of yso-finna-en,
where most labels have few rows, the held-out ones found 25 % of their labels among their candidates, and find 18 % now.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc.training.shared.settings import SETTINGS, Settings


def held_out_rows(
    Y: sparse.csr_array, seed: int, settings: Settings = SETTINGS, teaching: NDArray[np.bool_] | None = None
) -> NDArray[np.bool_]:
    """Which rows are kept from training until scores are fitted.

    Rows are put in order by how many labels they have, and one random row of each run is taken. So the few rows have as
    many labels as all: of the chance in their hits, that leaves out a seventh (elife-keywords) to nearly a half (bibtex).
    An order in which rows of the same labels are neighbors would part them, and make held-out rows look better known than
    new rows are.

    Rows that are not ``teaching`` are not held out, and none is where all labels would be.

    >>> Y = sparse.csr_array(np.repeat([[1, 1], [1, 0]], 10_000, axis=0))
    >>> rows = held_out_rows(Y, 0)
    >>> int(rows[:10_000].sum()), int(rows[10_000:].sum()), int(held_out_rows(Y[:100], 0).sum())
    (400, 400, 0)
    """
    rows = np.arange(Y.shape[0]) if teaching is None else np.flatnonzero(teaching)
    n, labels = rows.size, np.diff(Y.indptr)
    out = np.zeros(Y.shape[0], bool)
    if n >= settings.least_rows:
        rng = np.random.default_rng(seed)
        least = min(n // 5, settings.held_out_least)
        size = min(max(n // settings.held_out_one_in, least), settings.held_out_most)
        by_chance = np.empty(n, np.intp)
        by_chance[rng.permutation(n)] = rows
        counts = labels[by_chance]
        counts = counts.astype(np.uint16) if counts.max() < 2**16 else counts  # small numbers are sorted much faster
        order = by_chance[np.argsort(counts, kind="stable")]
        starts = np.arange(size + 1) * n // size
        out[order[rng.integers(starts[:-1], starts[1:])]] = True
        out &= bool(labels[~out].any())
    return out


def labels_short_of_rows(
    Y: sparse.csr_array, held_out: NDArray[np.bool_], settings: Settings = SETTINGS
) -> NDArray[np.intp]:
    """Labels of whose positives too many are held out.

    >>> Y = sparse.csr_array(np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1]]))
    >>> labels_short_of_rows(Y, np.array([True, False, False])).tolist()
    [0, 1]
    """
    in_held_out = np.repeat(held_out, np.diff(Y.indptr))
    lost = np.bincount(Y.indices[in_held_out], minlength=Y.shape[1])
    return np.flatnonzero(lost > settings.lost * np.bincount(Y.indices, minlength=Y.shape[1]))
