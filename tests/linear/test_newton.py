"""The one-vs-all solver against LIBLINEAR, SciPy and itself."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, sparse
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from blockxmc import _kernels
from blockxmc._core.matrix import as_csr, as_indicator, csr_args
from blockxmc._core.progress import Reporter
from blockxmc.errors import BlockXMCError
from blockxmc.linear.one_vs_all import OneVsAll, train_one_vs_all


def make_text(n, d, q, seed, density=0.05):
    """Rows like normalised text, labels that depend on them; the last labels are rare."""
    rng = np.random.default_rng(seed)
    X = sparse.random_array((n, d), density=density, rng=rng, format="csr", dtype=np.float32)
    X.data += 0.1
    norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    X = as_csr(sparse.diags_array(1 / np.maximum(norms, 1e-9)) @ X)
    scores = X @ rng.normal(size=(d, q)) + 0.3 * rng.normal(size=(n, q))
    share = np.geomspace(0.3, 1.5 / n, q)
    Y = as_indicator((scores > np.quantile(scores, 1 - share, axis=0).diagonal()).astype(np.float32))
    return X, Y


def stretched(X, sigma=2.0, seed=0):
    """The rows in lengths that nobody has made alike."""
    times = np.exp(sigma * np.random.default_rng(seed).normal(size=X.shape[0])).astype(np.float32)
    return as_csr(sparse.diags_array(times) @ X)


def train(X, Y, loss="squared_hinge", C=1.0, tol=1e-6, bias=1.0, prune=0.0, threads=1, **of_rows):
    with Reporter().phase("test") as phase:
        return train_one_vs_all(OneVsAll(loss, C, tol, bias, prune), X, Y, threads=threads, phase=phase, **of_rows)


def objective(w, X, s, loss, C):
    margins = s * (X @ w)
    if loss == "logistic":
        miss = -1 / (1 + np.exp(margins))
        value = np.logaddexp(0, -margins).sum()
    else:
        short = np.maximum(0, 1 - margins)
        value, miss = (short**2).sum(), -2 * short
    return 0.5 * w @ w + C * value, w + C * (X.T @ (s * miss))


def with_bias(X, bias):
    dense = X.toarray().astype(np.float64)
    return dense if not bias else np.hstack([dense, np.full((X.shape[0], 1), bias)])


def full_weights(weights, bias):
    coef = weights.coef.toarray().astype(np.float64)
    return coef if not bias else np.vstack([coef, weights.bias[None] / bias])


@pytest.mark.parametrize(("bias", "C"), [(1.0, 1.0), (None, 1.0), (0.5, 10.0), (2.0, 0.1)])
@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_reaches_the_minimum_that_scipy_finds(loss, bias, C):
    X, Y = make_text(40, 15, 20, seed=1, density=0.3)
    found = full_weights(train(X, Y, loss, C=C, bias=bias), bias)
    dense, labels = with_bias(X, bias), Y.toarray()
    for j in (0, 5, 10, 19):
        s = 2.0 * labels[:, j] - 1
        best = optimize.minimize(
            objective, np.zeros(dense.shape[1]), (dense, s, loss, C), jac=True, method="L-BFGS-B", tol=1e-14
        )
        np.testing.assert_allclose(found[:, j], best.x, atol=2e-3)
        assert objective(found[:, j], dense, s, loss, C)[0] <= best.fun * (1 + 1e-5)


# With more features than rows inside margins, labels end one by one, and the others go on together or alone.
@pytest.mark.parametrize(("n_features", "seed"), [(300, 0), (300, 1), (1500, 2)])
def test_equals_liblinear_squared_hinge(n_features, seed):
    X, Y = make_text(600, n_features, 40, seed)
    weights = train(X, Y)
    X64 = X.astype(np.float64)
    for j in range(0, Y.shape[1], 3):
        y = Y[:, [j]].toarray().ravel()
        svc = LinearSVC(dual=False, tol=1e-8, max_iter=10_000).fit(sparse.csr_matrix(X64), y)
        np.testing.assert_allclose(weights.coef[:, [j]].toarray().ravel(), svc.coef_.ravel(), atol=1e-3)
        np.testing.assert_allclose(weights.bias[j], svc.intercept_[0], atol=1e-3)


def test_equals_liblinear_logistic():
    X, Y = make_text(400, 200, 20, seed=3)
    scores = train(X, Y, "logistic", bias=None).scores(X)
    for j in range(Y.shape[1]):
        y = Y[:, [j]].toarray().ravel()
        model = LogisticRegression(solver="liblinear", fit_intercept=False, tol=1e-8, max_iter=10_000)
        model.fit(sparse.csr_matrix(X.astype(np.float64)), y)
        np.testing.assert_allclose(scores[:, j], model.decision_function(X.toarray()), atol=1e-3)


@pytest.mark.parametrize("bias", [1.0, None])
@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_stops_by_liblinears_rule(loss, bias):
    X, Y = make_text(1000, 300, 48, seed=5)
    tol = 0.01
    found = full_weights(train(X, Y, loss, tol=tol, bias=bias), bias)
    dense, labels = with_bias(X, bias), Y.toarray()
    for j in range(0, Y.shape[1], 4):
        s = 2.0 * labels[:, j] - 1
        positives = labels[:, j].sum()
        rarer = max(min(positives, s.size - positives), 1)
        at_zero = np.linalg.norm(objective(np.zeros(dense.shape[1]), dense, s, loss, 1.0)[1])
        reached = np.linalg.norm(objective(found[:, j], dense, s, loss, 1.0)[1])
        assert reached <= tol * rarer / s.size * at_zero * 1.02 + 1e-5


def some_rows(Y, in_common):
    """A third of the rows for each label, and its positives."""
    rng = np.random.default_rng(0)
    drawn = rng.random((1 if in_common else Y.shape[1], Y.shape[0]))
    return sparse.csr_array(((drawn < 0.3) | (Y.T.toarray() > 0)).astype(np.float32))


# Newton's method by itself ends at its most steps here, far from the solution, and long after.
@pytest.mark.parametrize("bias", [1.0, None])
@pytest.mark.parametrize("way", ["all rows", "rows in common", "rows of their own"])
@pytest.mark.parametrize("sigma", [2.0, 3.0])
def test_stops_by_liblinears_rule_where_lengths_differ(way, bias, sigma):
    X, Y = make_text(1500, 4000, 48, seed=0, density=0.01)
    X, tol, C = stretched(X, sigma), 0.002, 0.5
    rows = None if way == "all rows" else some_rows(Y, way == "rows in common")
    found = full_weights(train(X, Y, C=C, tol=tol, bias=bias, rows=rows), bias)
    dense, labels = with_bias(X, bias), Y.toarray()
    longest = (dense**2).sum(axis=1).max()
    for j in range(0, Y.shape[1], 4):
        own = np.arange(Y.shape[0]) if rows is None else rows[[j]].indices
        s = 2.0 * labels[own, j] - 1
        rarer = max(min((s > 0).sum(), (s < 0).sum()), 1)
        at_zero = np.linalg.norm(objective(np.zeros(dense.shape[1]), dense[own], s, "squared_hinge", C)[1])
        reached = np.linalg.norm(objective(found[:, j], dense[own], s, "squared_hinge", C)[1])
        # Weights are floats: to round them moves the gradient by this much along the longest row.
        rounding = np.finfo(np.float32).eps * 2 * C * longest * np.linalg.norm(found[:, j])
        assert reached <= max(tol * rarer / s.size, 1e-7) * at_zero * 1.02 + rounding


@pytest.mark.parametrize("n_features", [300, 1500])
def test_is_as_low_as_liblinear_where_lengths_differ(n_features):
    X, Y = make_text(600, n_features, 40, seed=1)
    X, C = stretched(X), 0.5
    found, dense, labels = full_weights(train(X, Y, C=C, tol=0.01), 1.0), with_bias(X, 1.0), Y.toarray()
    for j in range(0, Y.shape[1], 4):
        svc = LinearSVC(C=C, dual=True, tol=1e-6, max_iter=100_000).fit(dense[:, :-1], labels[:, j])
        best = np.append(svc.coef_[0], svc.intercept_)
        ours, theirs = (objective(w, dense, 2.0 * labels[:, j] - 1, "squared_hinge", C)[0] for w in (found[:, j], best))
        assert ours <= theirs * (1 + 1e-3)


def test_lengths_differ_by_the_longest_hundredth_not_by_one_row():
    """Seen from outside: where lengths differ, a start is not looked at."""
    X, Y = make_text(500, 200, 20, seed=7)
    start = sparse.csr_array(train(X, Y).coef.T)
    X.data[X.indptr[3] : X.indptr[4]] *= 100
    from_start, from_none = train(X, Y, tol=0.05, start=start), train(X, Y, tol=0.05)
    assert not np.array_equal(from_start.coef.toarray(), from_none.coef.toarray())
    X, start = stretched(X), sparse.csr_array(from_none.coef.T)
    assert np.array_equal(train(X, Y, start=start).coef.toarray(), train(X, Y).coef.toarray())


@pytest.mark.parametrize("restricted", [False, True])
def test_same_bits_for_any_number_of_threads_where_lengths_differ(restricted):
    X, Y = make_text(500, 200, 70, seed=7)
    X, rows = stretched(X), some_rows(Y, in_common=False) if restricted else None
    one, two, five = (train(X, Y, tol=0.01, prune=0.01, threads=t, rows=rows) for t in (1, 2, 5))
    for other in (two, five):
        assert np.array_equal(one.coef.toarray(), other.coef.toarray())
        assert np.array_equal(one.bias, other.bias)


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_same_bits_for_any_number_of_threads(loss):
    X, Y = make_text(500, 200, 70, seed=7)
    one, two, five = (train(X, Y, loss, tol=0.01, prune=0.01, threads=t) for t in (1, 2, 5))
    for other in (two, five):
        assert np.array_equal(one.coef.data, other.coef.data)
        assert np.array_equal(one.coef.indices, other.coef.indices)
        assert np.array_equal(one.bias, other.bias)


@pytest.mark.parametrize(("share", "in_common"), [(0.05, False), (0.5, False), (0.05, True)])
@pytest.mark.parametrize("bias", [1.0, None])
def test_training_on_some_rows_equals_training_on_a_slice(share, in_common, bias):
    X, Y = make_text(800, 150, 19, seed=9)
    rng = np.random.default_rng(0)
    drawn = rng.random((1, X.shape[0])).repeat(Y.shape[1], 0) if in_common else rng.random((Y.shape[1], X.shape[0]))
    member = (drawn < share) | (Y.T.toarray() > 0) & (rng.random(X.shape[0]) < 2 * share)
    Y = as_indicator(Y.toarray() * member.T)
    weights = train(X, Y, rows=sparse.csr_array(member.astype(np.float32)), bias=bias)
    for j in range(Y.shape[1]):
        rows = np.flatnonzero(member[j])
        alone = train(as_csr(X[rows]), as_indicator(Y[rows][:, [j]]), bias=bias)
        np.testing.assert_allclose(weights.coef[:, [j]].toarray(), alone.coef.toarray(), atol=1e-3)
        np.testing.assert_allclose(weights.bias[j], alone.bias[0], atol=1e-3)


def test_labels_that_end_early_leave_their_rows_to_nobody():
    """Eight labels without positives end first; the other eight go on with the rows that are theirs."""
    X, Y = make_text(1500, 3000, 16, seed=3)
    labels, rows = np.arange(16)[:, None], np.arange(1500)
    member = np.where(labels < 8, rows < 300, (rows >= 300) & (rows < 700))
    noise = np.random.default_rng(0).random((1500, 8)) < 0.3
    positive = np.hstack([np.zeros((1500, 8)), (Y.toarray()[:, :8] > 0) | noise]) * member.T
    weights = train(X, as_indicator(positive), rows=sparse.csr_array(member.astype(np.float32)))
    for own, some in ((slice(300), slice(8)), (slice(300, 700), slice(8, 16))):
        apart = train(as_csr(X[own]), as_indicator(positive[own, some]))
        np.testing.assert_allclose(weights.coef[:, some].toarray(), apart.coef.toarray(), atol=1e-3)
        np.testing.assert_allclose(weights.bias[some], apart.bias, atol=1e-3)


def test_row_lists_of_all_rows_change_nothing_but_rounding():
    X, Y = make_text(300, 100, 20, seed=11)
    everything = sparse.csr_array(np.ones((Y.shape[1], X.shape[0]), np.float32))
    a, b = train(X, Y), train(X, Y, rows=everything)
    np.testing.assert_allclose(a.coef.toarray(), b.coef.toarray(), atol=1e-3)


def test_rows_without_a_label_set_everything_negative_and_all_positive():
    X, _ = make_text(50, 20, 2, seed=0)
    Y = np.zeros((50, 40), np.float32)
    Y[:, 7] = 1
    weights = train(X, as_indicator(Y))
    scores = weights.scores(X)
    assert (scores[:, 7] > 0.5).all()
    assert (np.delete(scores, 7, axis=1) < -0.5).all()
    np.testing.assert_array_equal(scores[:, 0], scores[:, 39])  # solved once, shared
    np.testing.assert_allclose(scores[:, 7], -scores[:, 0], atol=1e-3)


def test_prunes_weights_and_biases():
    X, Y = make_text(400, 200, 10, seed=2)
    full, pruned = train(X, Y, tol=0.01), train(X, Y, tol=0.01, prune=0.2)
    expected = full.coef.toarray() * (abs(full.coef.toarray()) >= 0.2)
    np.testing.assert_array_equal(pruned.coef.toarray(), expected)
    assert pruned.coef.has_sorted_indices
    assert (np.abs(pruned.coef.data) >= 0.2).all()
    assert set(train(X, Y, tol=0.01, prune=50.0).bias) == {0.0}


@pytest.mark.parametrize("shape", [(0, 5, 3), (5, 0, 3), (5, 4, 0), (1, 1, 1)])
@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_degenerate_shapes(shape, loss):
    n, d, m = shape
    X, Y = as_csr(sparse.csr_array((n, d), dtype=np.float32)), as_indicator(sparse.csr_array((n, m), dtype=np.float32))
    weights = train(X, Y, loss)
    assert weights.coef.shape == (d, m)
    assert weights.coef.nnz == 0
    assert np.isfinite(weights.bias).all()


def test_takes_read_only_arrays_and_refuses_broken_ones():
    X, Y = make_text(40, 20, 3, seed=4)
    indptr, indices, data = csr_args(X)
    positives = sparse.csc_array(Y)
    lists = [positives.indptr.astype(np.int64), positives.indices.astype(np.int32)]
    for array in (indptr, indices, data, *lists):
        array.setflags(write=False)

    def call(x=(indptr, indices, data), n_features=20, y=tuple(lists), members=(None, None), **changed):
        options = {"loss": "squared_hinge", "C": 1.0, "tol": 0.01, "bias": 1.0, "prune": 0.0, "threads": 1}
        return _kernels.train_one_vs_all(
            *x, n_features, *y, *members, **(options | changed), progress=np.zeros(2, np.int64)
        )

    assert call()[0].size == 4
    with pytest.raises(ValueError, match="out of range"):
        call(n_features=3)
    with pytest.raises(ValueError, match="number of entries"):
        call(x=(indptr, indices[:-1].copy(), data[:-1].copy()))
    with pytest.raises(ValueError, match="same length"):
        call(x=(indptr, indices, data[:-1].copy()))
    with pytest.raises(ValueError, match="ascending"):
        call(y=(np.array([0, 2], np.int64), np.array([3, 1], np.int32)))
    with pytest.raises(ValueError, match="out of range"):
        call(y=(np.array([0, 1], np.int64), np.array([40], np.int32)))
    with pytest.raises(ValueError, match="among its rows"):
        call(
            y=(np.array([0, 1], np.int64), np.array([3], np.int32)),
            members=(np.array([0, 1], np.int64), np.array([4], np.int32)),
        )
    one = np.array([0, 1], np.int64), np.array([3], np.int32)
    for wrong, members, rows in (
        ("one list of rows", [0, 1, 1], [3]),
        ("number of entries", [0, 2], [3]),
        ("out of range", [0, 2], [3, 40]),
        ("out of range", [0, 2], [-1, 3]),
        ("ascending", [0, 3], [3, 5, 5]),
    ):
        with pytest.raises(ValueError, match=wrong):
            call(y=one, members=(np.array(members, np.int64), np.array(rows, np.int32)))
    with pytest.raises(ValueError, match="loss"):
        call(loss="hinge")
    with pytest.raises(TypeError):
        call(x=(indptr, indices, data.astype(np.float64)))
    with pytest.raises(BlockXMCError, match="labels x rows"):
        train(X, Y, rows=sparse.csr_array((2, 40), dtype=np.float32))


def test_progress_counts_labels_and_the_stop_flag_stops():
    X, Y = make_text(200, 100, 50, seed=6)
    positives = sparse.csc_array(Y)
    for stop in (0, 1):
        progress = np.array([0, stop], np.int64)
        _kernels.train_one_vs_all(
            *csr_args(X),
            100,
            positives.indptr.astype(np.int64),
            positives.indices.astype(np.int32),
            None,
            None,
            loss="squared_hinge",
            C=1.0,
            tol=0.01,
            bias=1.0,
            prune=0.01,
            threads=1,
            progress=progress,
        )
        assert progress[0] == (0 if stop else 50)


@pytest.mark.parametrize("restricted", [False, True])
@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_rows_count_as_much_as_they_cost(loss, restricted):
    # LIBLINEAR takes one weight per row and class: what a row costs as a positive, or as a negative.
    rng = np.random.default_rng(4)
    X = as_csr(rng.random((80, 12)) * (rng.random((80, 12)) < 0.5))
    Y = as_indicator((rng.random((80, 20)) < 0.2).astype(np.float32))
    costs = (0.1 + 3 * rng.random((80, 2))).astype(np.float32)
    rows = None
    if restricted:  # few rows of each label: solved alone or on their union
        kept = (Y.toarray().T > 0) | (rng.random((20, 80)) < 0.2)
        rows = sparse.csr_array(kept.astype(np.float32))
    found = train(X, Y, loss, rows=rows, costs=costs)
    for label in range(20):
        own = np.arange(80) if rows is None else rows[[label]].indices
        y = Y.toarray()[own, label] > 0
        if y.all() or not y.any():
            continue
        weight = np.where(y, costs[own, 0], costs[own, 1]).astype(np.float64)
        if loss == "logistic":
            theirs = LogisticRegression(C=1.0, tol=1e-8, solver="liblinear", intercept_scaling=1.0, max_iter=1000)
        else:
            theirs = LinearSVC(C=1.0, tol=1e-8, dual=False, intercept_scaling=1.0, max_iter=10000)
        theirs.fit(X[own].astype(np.float64), y, sample_weight=weight)
        np.testing.assert_allclose(found.coef.toarray()[:, label], theirs.coef_[0], atol=2e-3)
        np.testing.assert_allclose(found.bias[label], theirs.intercept_[0], atol=2e-3)


def test_broken_costs_are_refused():
    X, Y = as_csr(np.eye(3)), as_indicator(np.eye(3))
    for costs in (np.ones((2, 2)), np.ones((3, 1)), np.full((3, 2), -1.0), np.full((3, 2), np.nan)):
        with pytest.raises(ValueError, match="costs must be"):
            train(X, Y, costs=np.float32(costs))
