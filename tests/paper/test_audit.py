"""The paper by brute force: own code beside the library's, straight from the formulas, without a shared line."""

import itertools

import numpy as np
import pytest
from helpers import blocky

from blockxmc import NaiveBayes, Partitioner
from blockxmc.tuning import TrialOptions, plan_blocks, tune_lambda

LAMS = (0.3, 1.0, 2.0, 3.0, 6.0)


def objective(Y, blocks, clusters, lam):
    """Equation 1, entry by entry."""
    total = 0.0
    for i in range(Y.shape[0]):
        for j in range(Y.shape[1]):
            total -= 1.0 if Y[i, j] and j in clusters[blocks[i]] else 0.0
    return total + lam * sum(len(cluster) ** 2 for cluster in clusters)


def label_clusters(Y, blocks, q, lam, *, letter):
    """Algorithm 1: labels by falling count; each is added until f rises (to the letter), or until it no longer falls."""
    clusters = []
    for block in range(q):
        counts = Y[blocks == block].sum(axis=0)
        order = sorted((j for j in range(Y.shape[1]) if counts[j] > 0), key=lambda j: (-counts[j], j))
        cluster = set()
        for J, j in enumerate(order, start=1):
            change = -counts[j] + lam * (J**2 - (J - 1) ** 2)
            if change > 0 or (change == 0 and not letter):
                break
            cluster.add(j)
        clusters.append(cluster)
    return clusters


def instance_step(Y, blocks, clusters):
    """Algorithm 2; a row stays where it is as well off."""
    out = blocks.copy()
    for i in range(Y.shape[0]):
        own = set(np.flatnonzero(Y[i]))
        hits = [len(own & cluster) for cluster in clusters]
        if hits[blocks[i]] < max(hits):
            best = [block for block, count in enumerate(hits) if count == max(hits)]
            out[i] = min(best, key=lambda block: (len(clusters[block]), block))
    return out


def alternation(Y, blocks, lam, *, letter):
    """From these blocks until no row moves; None where a pair dies."""
    q, trace = blocks.max() + 1, []
    while True:
        clusters = label_clusters(Y, blocks, q, lam, letter=letter)
        trace.append(objective(Y, blocks, clusters, lam))
        moved = instance_step(Y, blocks, clusters)
        if any(not cluster for cluster in clusters) or set(moved) != set(range(q)):
            return None
        trace.append(objective(Y, moved, clusters, lam))
        if (moved == blocks).all():
            return blocks, clusters, trace
        blocks = moved


def planted(seed, n=90):
    X, Y = blocky(n=n, seed=seed)
    return X, Y, (Y.toarray() > 0).astype(int)


@pytest.mark.parametrize("letter", [False, True])
@pytest.mark.parametrize(("q", "lam"), list(itertools.product((2, 3, 5), (0.2, 1.0, 2.0, 5.0))))
def test_blocks_objective_and_rounds_are_those_of_the_formulas(q, lam, letter):
    X, Y, dense = planted(seed=q)
    start = Partitioner(q, 0.0, max_iter=0).fit(X, Y).assignment_
    expected = alternation(dense, start.astype(int), lam, letter=letter)
    part = Partitioner(init=start, lam=lam, letter=letter).fit(X, Y)
    if expected is None:
        return  # what happens to a pair that dies is ours: the paper stops there
    blocks, clusters, trace = expected
    assert part.assignment_.tolist() == blocks.tolist()
    assert [set(own.tolist()) for own in part.label_clusters_] == clusters
    np.testing.assert_allclose(part.objective_trace_, trace)
    assert part.captured_ == pytest.approx(
        sum(dense[i, list(clusters[block])].sum() for i, block in enumerate(blocks)) / dense.sum()
    )
    assert [set(own.tolist()) for own in part.label_clusters_at(lam)] == clusters


def test_a_label_at_equality_enters_to_the_letter_only():
    X, Y = np.eye(4, dtype=np.float32), np.array([[1, 1], [1, 1], [1, 1], [1, 0]])
    sizes = [len(Partitioner(1, 1.0, letter=letter).fit(X, Y).label_clusters_[0]) for letter in (False, True)]
    assert sizes == [1, 2]  # the second label has three rows: exactly what it costs
    part = Partitioner(1, 1.0, letter=True).fit(X, Y)
    assert part.path([1.0]).cost.tolist() == [2.0]
    assert Partitioner.from_state(part.state()).label_clusters_[0].tolist() == [0, 1]
    nothing_seen = Partitioner(1, 0.0, letter=True).fit(X, np.column_stack([Y, np.zeros(4)]))
    assert nothing_seen.label_clusters_[0].tolist() == [0, 1]


def searched(X, Y, dense, lam, seeds=3):
    """The paper's search at one lambda: raise q while no pair is empty; of those, the most captured."""
    first = int(np.random.RandomState(0).randint(2**31 - 1))
    best, most = 1, -1
    for q in range(2, min(dense.shape) + 1):
        for attempt in range(seeds):
            start = Partitioner(q, 0.0, max_iter=0)
            start._seed = lambda attempt=attempt: first + attempt
            found = alternation(dense, start.fit(X, Y).assignment_.astype(int), lam, letter=True)
            if found is not None:
                break
        if found is None:
            return best
        blocks, clusters, _ = found
        captured = sum(dense[i, list(clusters[block])].sum() for i, block in enumerate(blocks))
        if captured > most:
            best, most = q, captured
    return best


def test_partitioner_and_tune_agree_with_the_search_by_hand_at_every_lambda():
    X, Y, dense = planted(seed=1, n=60)
    options = TrialOptions(partitioner=Partitioner(letter=True))
    plan = plan_blocks(X, Y, n_blocks="auto", lams=LAMS, options=options)
    assert plan.paths == (plan.paper,)
    alone = [Partitioner("paper", lam, letter=True).fit(X, Y).n_blocks_ for lam in LAMS]
    assert list(plan.paper) == alone
    for lam, q in zip(LAMS, alone, strict=True):
        if q < 16:  # every number up to 16 is tried, beyond that each next one is half as large again
            assert q == searched(X, Y, dense, lam)
    result = tune_lambda(X, Y, NaiveBayes(), lams=LAMS, folds=2, options=options)
    assert list(result.blocks) == alone
    assert result.least_loss.assigned_at == (result.least_loss.lam,)


def test_the_choices_are_those_of_the_rule_by_hand():
    X, Y, _ = planted(seed=2, n=200)
    result = tune_lambda(X, Y, NaiveBayes(), n_blocks=3, lams=LAMS, folds=4, tolerance=9.0)
    kept = []
    for fold in result.folds:
        own = [lam for lam, p in zip(result.lams, fold.precision, strict=True) if max(np.subtract(fold.base, p)) <= 9.0]
        assert fold.interval == ((min(own), max(own)) if own else None)
        kept.append(set(own))
    feasible = sorted(set.intersection(*kept))
    assert [lam for lam, yes in zip(result.lams, result.feasible, strict=True) if yes] == feasible
    assert feasible
    products = dict(zip(result.lams, result.products, strict=True))
    assert result.speed_driven.products == pytest.approx(min(products[lam] for lam in feasible))
    mean = dict(zip(result.lams, result.mean_precision.mean(axis=1), strict=True))
    assert result.accuracy_driven.mean == pytest.approx(max(mean[lam] for lam in feasible))
