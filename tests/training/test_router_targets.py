"""Which blocks a row teaches the router: its own, and others in which its labels are at home."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers import blocky
from numpy.testing import assert_array_equal
from scipy import sparse

from blockxmc import BlockwiseClassifier, _kernels
from blockxmc._core.matrix import csr_args, pattern_args
from blockxmc.training.blocks import router_targets
from blockxmc.training.settings import SETTINGS


def by_the_definition(Y, assignment, n_blocks, settings):
    """Row by row and block by block."""
    Y = Y.toarray()
    home = np.zeros((Y.shape[1], n_blocks))
    for label, block in zip(*np.nonzero(np.eye(n_blocks)[assignment].T @ Y > 0)[::-1], strict=True):
        share = (Y[:, label] * (assignment == block)).sum() / Y[:, label].sum()
        home[label, block] = share if share >= settings.router_home else 0
    out = np.zeros((Y.shape[0], n_blocks))
    for row, own in enumerate(assignment):
        at_home = Y[row] @ home
        near = [
            b for b in range(n_blocks) if at_home[b] > 0 and at_home[b] >= settings.router_near * at_home[own] - 1e-9
        ]
        best = sorted(near, key=lambda b: (-round(at_home[b], 5), b))[: settings.router_targets]
        out[row, [own, *best]] = 1
    return out


def rows(n=300, n_labels=40, n_blocks=12, seed=0):
    rng = np.random.default_rng(seed)
    Y = rng.random((n, n_labels)) < 0.3 * rng.random(n_labels) ** 3
    Y[: n // 20] = False  # some rows have no labels
    return sparse.csr_array(Y.astype(np.float32)), rng.integers(n_blocks, size=n).astype(np.int32)


@pytest.mark.parametrize("changed", [{}, {"router_near": 0.9}, {"router_targets": 2, "router_home": 0.2}])
def test_targets_against_the_definition(changed):
    settings = replace(SETTINGS, **changed)
    Y, assignment = rows()
    found = router_targets(Y, assignment, 12, settings).toarray()
    expected = by_the_definition(Y, assignment, 12, settings)
    # Equal shares may be summed up to numbers that differ in the last bit: then either block is as good.
    assert (found != expected).any(axis=1).mean() < 0.05
    assert (found[np.arange(assignment.size), assignment] == 1).all()
    assert_array_equal(found[:15].sum(axis=1), 1)
    assert found.sum() > 1.3 * assignment.size


def test_threads_change_nothing():
    Y, assignment = rows(n=5000)
    whole = router_targets(Y, assignment, 12)
    for threads in (2, 3):
        parts = router_targets(Y, assignment, 12, threads=threads)
        assert_array_equal(parts.indptr, whole.indptr)
        assert_array_equal(parts.indices, whole.indices)


def by_products(Y, assignment, n_blocks, settings):
    """The same sums of single precision, by SciPy."""
    own = sparse.csr_array((np.ones(assignment.size, np.float32), (np.arange(assignment.size), assignment)))
    own = sparse.csr_array((own.data, own.indices, own.indptr), shape=(assignment.size, n_blocks))
    home = sparse.csr_array(Y.T @ own)
    home.data /= np.repeat(np.maximum(np.bincount(Y.indices, minlength=Y.shape[1]), 1), np.diff(home.indptr))
    home.data[home.data < settings.router_home] = 0
    home.eliminate_zeros()
    at_home, out = sparse.csr_array(Y @ home).toarray(), np.zeros((assignment.size, n_blocks))
    for row, block in enumerate(assignment):
        near = np.flatnonzero((at_home[row] > 0) & (at_home[row] >= settings.router_near * at_home[row, block]))
        best = near[np.lexsort((near, -at_home[row, near]))][: settings.router_targets]
        out[row, [block, *best]] = 1
    return out


@pytest.mark.parametrize("seed", range(4))
def test_targets_are_those_of_sums_in_single_precision(seed):
    Y, assignment = rows(n=1500, n_labels=60, n_blocks=30, seed=seed)
    for changed in ({}, {"router_near": 0.9, "router_targets": 7}, {"router_home": 0.05}):
        settings = replace(SETTINGS, **changed)
        found = router_targets(Y, assignment, 30, settings)
        assert found.has_sorted_indices
        assert_array_equal(found.toarray(), by_products(Y, assignment, 30, settings))


def test_what_is_no_share_of_a_label_or_no_block_is_refused():
    Y, assignment = rows(n=20)
    home = sparse.csr_array(np.full((40, 12), 0.5, np.float32))
    few = {"near": 0.5, "most": 3, "threads": 1}
    for changed, message in (
        ({"home": home * np.float32(0)}, "shares"),
        ({"assignment": np.full(20, -1, np.int32)}, "every row"),
        ({"assignment": np.full(20, 12, np.int32)}, "out of range"),
        ({"few": few | {"most": -1}}, "negative"),
    ):
        given = {"home": home, "assignment": assignment, "few": few} | changed
        with pytest.raises(ValueError, match=message):
            _kernels.near_home(*pattern_args(Y), *csr_args(given["home"]), given["assignment"], 12, **given["few"])


def test_one_target_is_the_block_of_the_row():
    Y, assignment = rows()
    targets = router_targets(Y, assignment, 12, replace(SETTINGS, router_targets=1))
    assert_array_equal(targets.indices, assignment)


def test_what_a_forgotten_row_taught_the_router_is_solved_again():
    X, Y = blocky(n=640, n_features=60, n_labels=32, n_blocks=4)
    clf = BlockwiseClassifier(n_blocks=8, lam=0.1, keep_rows=True, n_jobs=1).fit(X, Y)
    targets = router_targets(Y, clf.partition_.assignment_, clf.partition_.n_blocks_)
    row = int(np.flatnonzero(np.diff(targets.indptr) > 1)[0])
    before = clf.kept_.blocks.vectors
    clf.forget(rows=[row])
    taught = targets.indices[targets.indptr[row] : targets.indptr[row + 1]]
    assert clf.history_[-1]["blocks_solved"] >= taught.size
    changed = np.flatnonzero(np.diff(sparse.csr_array(clf.kept_.blocks.vectors != before).indptr))
    assert set(taught) <= set(changed)
