from itertools import combinations

import numpy as np
import pytest
from helpers import blocky
from numpy.testing import assert_array_equal
from scipy import sparse

from blockxmc import BlockwiseClassifier, DiSMEC, NaiveBayes, load
from blockxmc.baselines import CBMLC, LPSR
from blockxmc.errors import BlockXMCError
from blockxmc.paper.lpsr import best_labels, rank_gains


def naive_gains(Y, ranking, power=1.0):
    """Straight from the definition: a pair (row, right label) at a time."""
    gains = np.zeros(Y.shape)
    depth = ranking.shape[1]
    for i, listed in enumerate(ranking):
        right = set(np.flatnonzero(Y[i]))
        for t in right:
            where = np.flatnonzero(listed == t)
            rank = int(where[0]) if where.size else depth
            weight = 1 / len(right) / (rank + 1) ** power
            gains[i, t] += weight
            for j in listed[:rank]:
                if j >= 0 and j not in right:
                    gains[i, j] -= weight
    return gains


def test_rank_gains_against_the_definition():
    rng = np.random.default_rng(0)
    for depth in (1, 3, 6):
        Y = (rng.random((20, 6)) < 0.3).astype(np.float32)
        Y[0] = 0
        ranking = np.argsort(rng.random((20, 6)), axis=1)[:, :depth]
        np.testing.assert_allclose(
            rank_gains(sparse.csr_array(Y), ranking).toarray(), naive_gains(Y, ranking), atol=1e-6
        )


def test_best_labels_against_all_label_sets():
    rng = np.random.default_rng(1)
    gains = rng.normal(size=(12, 5)).round(1)
    assignment = np.repeat([0, 1], 6)
    for size in (1, 2, 3):
        chosen = best_labels(sparse.csr_array(gains), assignment, 2, size)
        for block in (0, 1):
            totals = gains[assignment == block].sum(axis=0)
            best = max(totals[list(c)].sum() for r in range(size + 1) for c in combinations(range(5), r))
            assert totals[chosen[block]].sum() == pytest.approx(max(best, 0))


@pytest.mark.parametrize("make", [lambda: CBMLC(n_blocks=3), lambda: CBMLC(DiSMEC(C=0.5), 2)])
def test_cbmlc(make, tmp_path):
    X, Y = blocky()
    clf = make().fit(X, Y)
    assert clf.score(X, Y) > 0.6
    assert clf.cost_["candidates"] <= Y.shape[1]
    clf.save(tmp_path / "m")
    assert_array_equal(load(tmp_path / "m").predict_topk(X)[0], clf.predict_topk(X)[0])


@pytest.mark.parametrize("assign", ["frequency", "rank"])
@pytest.mark.parametrize("base", [None, DiSMEC()])
def test_lpsr(assign, base, tmp_path):
    X, Y = blocky()
    clf = LPSR(base, n_blocks=3, n_labels=8, assign=assign).fit(X, Y)
    assert clf.cost_["candidates"] <= 8
    assert clf.score(X, Y) > 0.4
    clf.save(tmp_path / "m")
    assert_array_equal(load(tmp_path / "m").predict_topk(X)[1], clf.predict_topk(X)[1])


@pytest.mark.parametrize("options", [{"n_blocks": 0}, {"n_labels": 0}, {"assign": "best"}, {"route": 0}])
def test_bad_parameters(options):
    X, Y = blocky(n=30)
    with pytest.raises(BlockXMCError):
        LPSR(**options).fit(X, Y)


def test_naive_bayes_keeps_its_log_odds_in_every_system():
    rng = np.random.default_rng(0)
    which = rng.integers(6, size=300)
    X = sparse.csr_array(rng.poisson(np.eye(6)[which] * 2 + 0.3).astype(np.float32))
    Y = sparse.csr_array(np.eye(6, dtype=np.float32)[which])
    alone = NaiveBayes().fit(X, Y)
    wide = BlockwiseClassifier(NaiveBayes(), weights="global", n_blocks=2, lam=0.0, route=2)
    for model in (LPSR(n_blocks=1, n_labels=6), CBMLC(NaiveBayes(), n_blocks=1), wide):
        model.fit(X, Y)
        np.testing.assert_allclose(model.predict_topk(X, 1)[1], alone.predict_topk(X, 1)[1], atol=1e-3)
        one = model.predict_one(X[[0]].indices, X[[0]].data, 1)
        assert_array_equal(one[1], model.predict_topk(X[[0]], 1)[1][0])
    with pytest.raises(BlockXMCError, match="route=1"):
        BlockwiseClassifier(NaiveBayes(), weights="per-block", n_blocks=3, lam=0.1, route=2).fit(X, Y)
