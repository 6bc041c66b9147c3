"""What must hold for every partition, whatever the data: descent, optimality of both half-steps, equivariance."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from partition_twins import best_blocks, objective, random_problem, ranked
from scipy import sparse

from blockxmc import Partitioner
from blockxmc.errors import BlockXMCError

problems = st.builds(
    random_problem,
    seed=st.integers(0, 10**6),
    n=st.integers(4, 80),
    m=st.integers(1, 25),
    label_rate=st.sampled_from([0.03, 0.15, 0.5]),
)


def label_step(Y, assignment, n_blocks, lam):
    """Full argmin over the prefixes of the ranking; the smallest of equals."""
    out = []
    for labels, counts in ranked(Y, assignment, n_blocks):
        value = -np.concatenate([[0], np.cumsum(counts)]) + lam * np.arange(labels.size + 1) ** 2.0
        out.append(np.sort(labels[: int(value.argmin())]))
    return out


def fit_or_none(X, Y, **params):
    """None where lambda rightly leaves no block."""
    try:
        return Partitioner(**params).fit(X, Y)
    except BlockXMCError as error:
        if "without labels" not in str(error) or params["objective"] == "cost":
            raise
        return None


@settings(max_examples=150)
@given(
    problem=problems,
    q=st.integers(1, 9),
    lam=st.sampled_from([0.0, 0.01, 0.2, 1 / 3, 0.5, 1.0, 2.0, 5.0]),
    kind=st.sampled_from(["quadratic", "cost"]),
    tie=st.sampled_from(["stay", "small"]),
    init=st.sampled_from(["kmeans", "balanced", "labels", "random"]),
    max_iter=st.sampled_from([0, 1, 2, 100]),
)
def test_f_never_rises_and_is_what_it_says(problem, q, lam, kind, tie, init, max_iter):
    X, Y = problem
    q = min(q, Y.shape[0])
    start = np.random.default_rng(q).integers(0, q, Y.shape[0]) if init == "random" else init
    p = fit_or_none(X, Y, n_blocks=q, lam=lam, objective=kind, tie=tie, init=start, max_iter=max_iter, n_jobs=1)
    if p is None:
        return
    assert (np.diff(p.objective_trace_) <= 0).all()
    assert p.objective_trace_[-1] == pytest.approx(objective(Y, p.assignment_, p.label_clusters_, lam, kind))
    assert set(p.assignment_.tolist()) == set(range(p.n_blocks_))
    assert min(len(labels) for labels in p.label_clusters_) >= 1
    captured = sum(int(Y[[i]][:, p.label_clusters_[z]].sum()) for i, z in enumerate(p.assignment_))
    assert p.captured_ == pytest.approx(captured / Y.nnz)
    for labels, prefix in zip(p.label_clusters_, p.label_clusters_at(lam), strict=True):
        np.testing.assert_array_equal(labels, prefix)


@settings(max_examples=60)
@example(problem=random_problem(seed=17, n=17, m=3, label_rate=0.15), q=3, lam=1.7)  # a block dies at the start
@given(problem=problems, q=st.integers(1, 6), lam=st.sampled_from([0.07, 0.3, 0.9, 1.7]))
def test_the_end_is_a_fixed_point_of_both_half_steps(problem, q, lam):
    X, Y = problem
    p = fit_or_none(X, Y, n_blocks=min(q, Y.shape[0]), lam=lam, objective="quadratic", n_jobs=1)
    if p is None:
        return
    for found, best in zip(p.label_clusters_, label_step(Y, p.assignment_, p.n_blocks_, lam), strict=True):
        np.testing.assert_array_equal(found, best)
    again, _ = best_blocks(Y, p.label_clusters_, p.assignment_)
    np.testing.assert_array_equal(again, p.assignment_)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["quadratic", "cost"])
def test_no_partition_found_beats_the_best_of_all(seed, kind):
    rng = np.random.default_rng(seed)
    X = rng.random((6, 4))
    dense = rng.random((6, 5)) < 0.5
    dense[0, 0] = True
    Y = sparse.csr_array(dense.astype(np.float32))
    lam = 0.4 if kind == "quadratic" else 0.3
    subsets = [np.flatnonzero([(code >> j) & 1 for j in range(5)]) for code in range(32)]
    best = np.inf
    for assignment in itertools.product([0, 1], repeat=6):
        z = np.array(assignment)
        # Given the rows, f is a sum over blocks, so the best label set of each is found on its own.
        value = 0.0
        for block in (0, 1):
            rows = np.flatnonzero(z == block)
            zeros = np.zeros(rows.size, dtype=int)
            value += min(objective(Y[rows], zeros, [subset], lam, kind) for subset in subsets)
        best = min(best, value)
    found = [
        Partitioner(n_blocks=2, lam=lam, objective=kind, init=np.array(start), n_jobs=1).fit(X, Y)
        for start in itertools.product([0, 1], repeat=6)
    ]
    values = [p.objective_trace_[-1] for p in found]
    assert min(values) >= best - 1e-9
    if kind == "quadratic":
        # From some start the optimum itself is reached: it is a fixed point.
        assert min(values) == pytest.approx(best)


@pytest.mark.parametrize("copies", [2, 5])
def test_lambda_scales_with_the_rows(copies):
    X, Y = random_problem(11, n=60)
    start = np.random.default_rng(0).integers(0, 4, 60)
    one = Partitioner(lam=0.5, init=start).fit(X, Y)
    many = Partitioner(lam=0.5 * copies, init=np.tile(start, copies)).fit(
        sparse.vstack([X] * copies, format="csr"), sparse.vstack([Y] * copies, format="csr")
    )
    np.testing.assert_array_equal(many.assignment_, np.tile(one.assignment_, copies))
    for a, b in zip(one.label_clusters_, many.label_clusters_, strict=True):
        np.testing.assert_array_equal(a, b)
    assert many.lam_rel_ == pytest.approx(one.lam_rel_)
    np.testing.assert_allclose(many.objective_trace_, copies * one.objective_trace_)


@pytest.mark.parametrize("seed", range(5))
def test_renaming_rows_and_labels_renames_the_result(seed):
    # Label rates far apart on many rows: no block ever sees two labels equally often (id would decide between them).
    rng = np.random.default_rng(seed)
    n, m, q, lam = 3000, 12, 3, 60.0
    start = rng.integers(0, q, n)
    rates = rng.permuted(np.tile(np.linspace(0.02, 0.9, m), (q, 1)), axis=1)
    Y = sparse.csr_array((rng.random((n, m)) < rates[start]).astype(np.float32))
    X = sparse.csr_array(rng.random((n, 5)).astype(np.float32))
    before = Partitioner(lam=lam, init=start).fit(X, Y)
    assert 1 < min(map(len, before.label_clusters_)) < m
    assert (before.assignment_ != start).any()
    rows, labels = rng.permutation(n), rng.permutation(m)
    after = Partitioner(lam=lam, init=start[rows]).fit(X[rows], Y[rows][:, labels])
    np.testing.assert_array_equal(after.assignment_, before.assignment_[rows])
    for old, new in zip(before.label_clusters_, after.label_clusters_, strict=True):
        np.testing.assert_array_equal(np.sort(labels[new]), old)


@settings(max_examples=40)
@given(problem=problems, q=st.integers(1, 5), kind=st.sampled_from(["quadratic", "cost"]))
def test_the_path_is_the_label_step_at_every_lambda(problem, q, kind):
    X, Y = problem
    p = Partitioner(n_blocks=min(q, Y.shape[0]), lam=0.0, objective=kind, n_jobs=1).fit(X, Y)
    path = p.path()
    assert path.lam[0] == 0
    assert (np.diff(path.lam) > 0).all()
    assert (np.diff(path.captured) < 0).all()
    share = np.bincount(p.assignment_) / Y.shape[0]
    previous = None
    for lam, captured, cost in zip(path.lam, path.captured, path.cost, strict=True):
        clusters = p.label_clusters_at(lam)
        sizes = np.array([len(c) for c in clusters])
        hits = sum(int(Y[p.assignment_ == block][:, c].sum()) for block, c in enumerate(clusters))
        assert captured == pytest.approx(hits / Y.nnz)
        assert cost == pytest.approx(float(share @ sizes))
        if previous is not None:
            assert all(set(new) <= set(old) for new, old in zip(clusters, previous, strict=True))
        previous = clusters
    between = (path.lam[:-1] + path.lam[1:]) / 2
    np.testing.assert_array_equal(p.path(between).captured, path.captured[:-1])
    for lam in between if kind == "quadratic" else []:
        for found, best in zip(p.label_clusters_at(lam), label_step(Y, p.assignment_, p.n_blocks_, lam), strict=True):
            np.testing.assert_array_equal(found, best)
