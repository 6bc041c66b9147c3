"""Batches of labels: the same bits for every cut, and shares that end about together."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import blocky, same_bits
from scipy import sparse

from blockxmc import DiSMEC
from blockxmc._core.progress import Reporter
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
