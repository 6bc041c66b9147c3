"""Batches of labels: the same bits for every cut, and shares that end about together."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from helpers import blocky, same_bits
from scipy import sparse

from blockxmc import DiSMEC
from blockxmc._core.progress import Reporter
from blockxmc.training.batches import Order
from blockxmc.training.job import opened
from blockxmc.training.labels import LabelTrainer
from blockxmc.training.settings import SETTINGS

ROWS, LABELS, BLOCKS = 300, 200, 5


def labels_of_all_kinds(rng):
    """Frequent labels, rare ones, and some that nobody has, in any order; the last block holds them all."""
    often = rng.permutation(np.concatenate([rng.uniform(0.1, 0.9, 40), rng.uniform(0, 0.05, 120), np.zeros(40)]))
    Y = sparse.csr_array((rng.random((ROWS, LABELS)) < often).astype(np.float32))
    clusters = [np.sort(rng.choice(LABELS, 50, replace=False)).astype(np.int32) for _ in range(BLOCKS)]
    return Y, [*clusters, np.arange(LABELS, dtype=np.int32)]


def visits_of(rng, visited):
    routes = np.argsort(rng.random((ROWS, BLOCKS)), axis=1)[:, :visited]
    if visited == 0:  # all rows visit the last block
        routes = np.full((ROWS, 1), BLOCKS)
    indptr = np.arange(0, routes.size + 1, routes.shape[1])
    return sparse.csr_array((np.ones(routes.size, np.float32), routes.ravel(), indptr), shape=(ROWS, BLOCKS + 1))


def trained(pairs, X, Y, clusters, visits, new):
    few = replace(SETTINGS, least_pairs=pairs, least_pairs_per_row=0, most_batches=10**6, update_negatives=30)
    trainer = LabelTrainer(DiSMEC(), X, clusters, Reporter(), threads=1, seed=0, settings=few)
    batches, train = [], DiSMEC._train

    def counted(self, X, Y, job, rows=None, **more):
        batches.append(np.diff(rows.indptr))
        return train(self, X, Y, job, rows=rows, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DiSMEC, "_train", counted)
        return trainer.train_some(Y, visits, np.arange(LABELS)[::-1], "train labels", new), batches


@pytest.mark.parametrize("some_new", [False, True])
@pytest.mark.parametrize("visited", [0, 1, 3, 5])
def test_the_same_bits_for_every_cut(visited, some_new):
    rng = np.random.default_rng(visited)
    X, _ = blocky(n=ROWS, n_labels=10, n_blocks=4)
    Y, clusters = labels_of_all_kinds(rng)
    data = X, Y, clusters, visits_of(rng, visited)
    new = np.arange(LABELS) % 2 == 0 if some_new else None
    whole, batches = trained(10**9, *data, new)
    assert len(batches) == 1
    assert visited in (0, 5) or 0 < np.count_nonzero(2 * batches[0] >= ROWS) < LABELS  # of both kinds
    for pairs in (3000, 1):
        found, batches = trained(pairs, *data, new)
        assert len(batches) > 5
        assert same_bits([found.vectors, found.bias], [whole.vectors, whole.bias])


def order_of(rng, n_groups):
    return Order(np.arange(16 * n_groups - 5), np.arange(0, 16 * n_groups, 16), rng.lognormal(3, 1, n_groups))


@pytest.mark.parametrize("helpers", [1, 2, 4, 32])
@pytest.mark.parametrize("n_groups", [1, 7, 400])
def test_shares_end_together(n_groups, helpers):
    order = order_of(np.random.default_rng(n_groups), n_groups)
    settings = replace(SETTINGS, least_share=1)
    ranges = order.shares(helpers, np.inf, settings)
    assert [begin for begin, _ in ranges] + [order.labels.size] == [0] + [end for _, end in ranges]
    assert {begin for begin, _ in ranges} <= set(order.places.tolist())
    until = np.concatenate([[0], np.cumsum(order.pairs)])
    shares = [until[-(-end // 16)] - until[begin // 16] for begin, end in ranges]
    ends = np.zeros(helpers)
    for share in shares:  # whoever is free takes the next
        ends[np.argmin(ends)] += share
    least = until[-1] / (settings.shares_of_all * helpers)
    assert ends.max() - ends.min() <= max(least, order.pairs.max()) * (1 + 1e-6)
    assert len(ranges) <= 60 * helpers


def test_most_and_least_of_a_share():
    order = order_of(np.random.default_rng(0), 400)
    total, largest = order.pairs.sum(), order.pairs.max()
    until = np.concatenate([[0], np.cumsum(order.pairs)])
    for most, least in ((total / 50, 1), (total, total / 5)):
        ranges = order.shares(2, most, replace(SETTINGS, least_share=least))
        shares = np.array([until[-(-end // 16)] - until[begin // 16] for begin, end in ranges])
        assert shares.max() <= max(most, largest)
        assert (shares[:-1] >= least - largest).all()


def test_a_cut_is_kept(tmp_path):
    """Who goes on with a job cuts it as it was begun, however many help."""
    asked = []

    def ranges(helpers):
        asked.append(helpers)
        return list(pairwise([0, 3, 10]))

    with opened(tmp_path, {"data": "a"}) as job:
        assert job.cut("labels", ranges) == [(0, 3), (3, 10)]
    with opened(tmp_path, {"data": "a"}) as job:
        assert job.cut("labels", lambda _: []) == [(0, 3), (3, 10)]
        assert job.reused == ""
    with opened(None, {}) as job:
        assert job.cut("labels", ranges) == [(0, 3), (3, 10)]
    assert asked == [0, 0]
