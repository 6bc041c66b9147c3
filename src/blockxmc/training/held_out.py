"""The rows that are held out of training: which they are, and which labels they are missed by.

Nothing learns from their labels until scores are fitted: neither blocks, nor router, nor weights. Blocks that knew their
labels would be made for them, and held-out rows would look better known than new rows are: of 6,000 rows of yso-finna-en,
where most labels have few rows, the held-out ones found 25 % of their labels among their candidates, and find 18 % now.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.extmath import row_norms

from blockxmc._core.matrix import csr_of
from blockxmc.training.settings import SETTINGS, Settings

# Features that are counted at a time.
_AT_A_TIME = 2**20
# Words are cut where at least this part of the columns has as few rows as any, and these are no more than so many.
_CUT, _RARE = 0.05, 10
# Rows whose lengths differ by no more than this part were scaled to one length.
_SAME_LENGTH = 1e-3


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


def like_new_rows(
    held_out: sparse.csr_array, X: sparse.csr_array, names: sparse.csr_array | None = None
) -> sparse.csr_array:
    """Rows held out of X as new rows would come: without words that are features by these rows alone, at the same length.

    Words are features where at least so many training texts have them, mostly two. Had a held-out text been new, a word
    that it has beside one other text would be none: new texts lose such words before they are scaled to length 1, and
    their other words weigh more (docs/explanation/calibration.md). Nothing changes where no cut is to be seen, or X has
    columns without any row: new rows may then have features that are new. Words of ``names`` of labels are features anyway.

    >>> X = sparse.csr_array(np.array([[0.6, 0.8, 0], [0, 1, 0], [0, 0.6, 0.8]], np.float32))
    >>> like_new_rows(X[[0]], X).toarray().tolist()
    [[0.0, 1.0, 0.0]]
    """
    rows_with = np.zeros(X.shape[1], np.int64)
    for begin in range(0, X.indices.size, _AT_A_TIME):
        rows_with += np.bincount(X.indices[begin : begin + _AT_A_TIME], minlength=X.shape[1])
    named = np.zeros(X.shape[1], bool) if names is None else np.bincount(names.indices, minlength=X.shape[1]) > 0
    counted = rows_with[~named]
    least = counted.min() if counted.size else 0
    known = (named | (rows_with > least))[held_out.indices]
    if not 0 < least <= _RARE or np.mean(counted == least) < _CUT or known.all():
        return held_out
    before = row_norms(held_out)
    sizes = np.diff(np.concatenate([[0], np.cumsum(known)])[held_out.indptr])
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    out = csr_of(indptr, held_out.indices[known], held_out.data[known], held_out.shape)
    if np.ptp(before[before > 0]) <= _SAME_LENGTH * before.max():
        left = row_norms(out)
        scale = np.divide(before, left, out=np.ones_like(before), where=left > 0)
        out.data *= np.repeat(scale, sizes).astype(np.float32)
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
    lost, positives = (np.bincount(labels, minlength=Y.shape[1]) for labels in (Y.indices[in_held_out], Y.indices))
    return np.flatnonzero(lost > settings.lost * positives)
