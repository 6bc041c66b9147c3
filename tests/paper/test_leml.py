import numpy as np
import pytest
from scipy import sparse
from sklearn.utils.estimator_checks import check_estimator

from blockxmc import LEML
from blockxmc._core.progress import _SilentPhase
from blockxmc.errors import BlockXMCError
from blockxmc.learners._learner import Context
from blockxmc.linear.weights import LinearWeights, LowRankWeights
from blockxmc.paper._bilinear import Bilinear, SparseDesign, TurnedDesign, balance, decouple, design_for
from blockxmc.paper._tall import gram, one_blas_thread, transpose


def problem(n=60, d=25, m=12, seed=0):
    rng = np.random.default_rng(seed)
    X = sparse.random_array((n, d), density=0.3, dtype=np.float32, format="csr", rng=rng)
    Y = sparse.csr_array((rng.random((n, m)) < 0.2).astype(np.float32))
    return X, Y


def dense_objective(X, Y, W, H, lam):
    X, Y, W, H = (np.asarray(M.toarray() if sparse.issparse(M) else M, np.float64) for M in (X, Y, W, H))
    return 0.5 * ((Y - X @ W @ H.T) ** 2).sum() + 0.5 * lam * ((W**2).sum() + (H**2).sum())


def factors(seed, *shapes):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape, np.float32) for shape in shapes]


def job(threads=1):
    return Context(threads, 0, _SilentPhase())


def bilinear(X, Y, lam=0.3, design=SparseDesign):
    return Bilinear(design(X, 1), Y, transpose(Y), lam, 1)


def test_objective_equals_the_dense_one():
    X, Y = problem()
    W, H = factors(1, (25, 4), (12, 4))
    one = bilinear(X, Y)
    value = one.objective(W, H, gram(H, 1), one.seen_through(W))
    assert value == pytest.approx(dense_objective(X, Y, W, H, 0.3), rel=1e-6)


def test_h_step_is_exact():
    X, Y = problem()
    (W,) = factors(2, (25, 4))
    one = bilinear(X, Y)
    A = (X @ W).astype(np.float64)
    expected = np.linalg.solve(A.T @ A + 0.3 * np.eye(4), A.T @ Y.toarray()).T
    np.testing.assert_allclose(one.h_step(one.seen_through(W)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(20, 8), (8, 20)])
def test_w_step_equals_a_dense_solve(shape):
    n, d = shape
    X, Y = problem(n=n, d=d, m=6)
    W, H = factors(3, (d, 3), (6, 3))
    turned_W, turned_H, s = decouple(W, H, 1)
    np.testing.assert_allclose(turned_W @ turned_H.T, W @ H.T, atol=1e-5)
    np.testing.assert_allclose(turned_H.T @ turned_H, np.diag(s), atol=1e-5)
    # The stationary point of all entries of W at once: (H'H kron X'X + lam I) vec(W) = vec(X'YH).
    G, S = (X.T @ X).toarray().astype(np.float64), H.T.astype(np.float64) @ H
    rhs = (X.T @ (Y @ H)).astype(np.float64)
    exact = np.linalg.solve(np.kron(S, G) + 0.3 * np.eye(3 * d), rhs.ravel(order="F")).reshape((d, 3), order="F") @ H.T
    T = np.asarray(Y @ turned_H, np.float32)
    searched = SparseDesign(X, 1).ridge(s, 0.3, T, turned_W.copy(), _SilentPhase(), tol=1e-8, max_steps=200)
    np.testing.assert_allclose(searched @ turned_H.T, exact, rtol=1e-3, atol=1e-4)
    design = TurnedDesign(X, 1)
    W = bilinear(X, Y, design=TurnedDesign).w_step(np.zeros((design.width, 3), np.float32), turned_H, s, _SilentPhase())
    np.testing.assert_allclose(design.on_features(W) @ turned_H.T, exact, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("shape", [(40, 15), (15, 40), (30, 30)])
def test_turning_leaves_products_and_norms(shape):
    X, _ = problem(*shape)
    X = sparse.csr_array(sparse.diags_array((np.arange(shape[0]) % 4 > 0).astype(np.float32)) @ X)
    design = TurnedDesign(X, 1)
    (W,) = factors(5, (design.width, 3))
    back = design.on_features(W)
    np.testing.assert_allclose(X @ back, design.product(W), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(back.T @ back, W.T @ W, rtol=1e-3, atol=1e-3)


def test_turns_small_problems_only():
    small, large = problem(n=30)[0], sparse.csr_array((5000, 5000), dtype=np.float32)
    assert isinstance(design_for(small, 10, 5, 1), TurnedDesign)
    assert isinstance(design_for(large, 10, 5, 1), SparseDesign)


def test_either_design_goes_down_as_far(monkeypatch):
    X, Y = problem(n=200, d=60, m=40)
    learner = LEML(rank=5, lam=1.0, n_iter=30)
    turned = learner._factorise(X, Y, job()).objective_trace
    monkeypatch.setattr("blockxmc.paper.leml.design_for", lambda X, rank, n_iter, threads: SparseDesign(X, threads))
    assert turned[-1] == pytest.approx(learner._factorise(X, Y, job()).objective_trace[-1], rel=0.01)


@pytest.mark.parametrize("shape", [(30, 10, 5), (3, 10, 5), (30, 2, 5)])
def test_balancing_keeps_the_product_with_the_smallest_norm(shape):
    rows, labels, rank = shape
    W, H = factors(4, (rows, rank), (labels, rank))
    H[:, 1:] *= 30
    with one_blas_thread():
        W2, H2, s = balance(W, H, gram(H, 1), 1)
    np.testing.assert_allclose(W2 @ H2.T, W @ H.T, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(H2.T @ H2, np.diag(s), atol=1e-4 * s.max())
    values = np.linalg.svd(W @ H.T, compute_uv=False)
    np.testing.assert_allclose(np.sort(s)[::-1][: values.size], values[:rank], atol=1e-3 * s.max())
    assert ((W2**2).sum() + (H2**2).sum()) / 2 == pytest.approx(values.sum(), rel=1e-4)


@pytest.mark.parametrize("init", ["svd", "random"])
@pytest.mark.parametrize("rank", [3, 12])
def test_objective_falls_at_each_half_step(init, rank):
    X, Y = problem(n=300, d=80, m=40)
    model = LEML(rank=rank, lam=0.5, n_iter=6, bias=0, init=init, n_jobs=1).fit(X, Y)
    trace = model.objective_trace_
    assert trace.size == 12
    assert (np.diff(trace) <= 1e-6 * trace[0]).all()
    assert trace[-1] < 0.5 * Y.nnz  # better than predicting nothing
    weights = model._factorise(X, Y, job())
    full = np.zeros((80, rank), np.float32)
    full[weights.features] = weights.W
    assert trace[-1] == pytest.approx(dense_objective(X, Y, full, weights.H, 0.5), rel=1e-5)


def test_reaches_the_nuclear_norm_optimum():
    X, Y = problem(n=80, d=15, m=8)
    end = LEML(rank=8, lam=1.0, n_iter=60, bias=0, init="random", n_jobs=1).fit(X, Y).objective_trace_[-1]
    # At full rank the problem is convex in Z = W H'; proximal gradient on Z gives the same minimum.
    A, B = X.toarray().astype(np.float64), Y.toarray()
    step, Z = 1 / np.linalg.norm(A, 2) ** 2, np.zeros((15, 8))
    for _ in range(20_000):
        U, values, V = np.linalg.svd(Z - step * A.T @ (A @ Z - B), full_matrices=False)
        Z = U * np.maximum(values - step, 0) @ V
    optimum = 0.5 * ((B - A @ Z) ** 2).sum() + np.linalg.svd(Z, compute_uv=False).sum()
    assert optimum * (1 - 1e-6) < end < optimum * (1 + 1e-3)


@pytest.mark.parametrize("n", [200, 9])
def test_without_a_bottleneck_it_is_ridge_regression(n):
    X, Y = problem(n=n, d=30, m=10)
    model = LEML(lam=0.5, bias=0, n_jobs=1).fit(X, Y)
    G = (X.T @ X).toarray().astype(np.float64) + 0.5 * np.eye(30)
    np.testing.assert_allclose(model._scores(X).toarray(), X @ np.linalg.solve(G, (X.T @ Y).toarray()), atol=1e-4)
    assert model.objective_trace_.size == 1


def test_full_rank_and_little_regularisation_give_least_squares():
    X, Y = problem(n=200, d=10, m=10)
    scores = LEML(rank=10, lam=1e-4, n_iter=20, bias=0, n_jobs=1).fit(X, Y)._scores(X).toarray()
    exact = X @ np.linalg.lstsq(X.toarray(), Y.toarray(), rcond=None)[0]
    np.testing.assert_allclose(scores, exact, atol=0.01)


def test_svd_start_spans_the_leading_singular_vectors():
    _, Y = problem(n=400, m=50)
    Y = sparse.csr_array(Y @ sparse.diags_array((np.arange(50) < 5).astype(np.float32)))
    with one_blas_thread():
        H = bilinear(Y, Y).start(5, "svd", np.random.default_rng(0))
    np.testing.assert_allclose(H[5:], 0, atol=1e-5)
    np.testing.assert_allclose(H.T @ H, np.eye(5), atol=1e-4)


def test_same_bits_for_any_number_of_threads():
    X, Y = problem(n=9000, d=60, m=50)
    models = [LEML(rank=20, n_iter=2, n_jobs=threads).fit(X, Y) for threads in (1, 2, 5)]
    for model in models[1:]:
        np.testing.assert_array_equal(model.objective_trace_, models[0].objective_trace_)
        np.testing.assert_array_equal(model.predict_topk(X[:50])[1], models[0].predict_topk(X[:50])[1])


def test_rank_is_cut_to_what_the_data_hold():
    X, Y = problem(n=60, m=12)
    assert LEML(n_jobs=1).fit(X, Y).rank_ == 12
    assert LEML(n_jobs=1).fit(X[:5], Y[:5]).rank_ == 5
    assert LEML(rank=3, n_jobs=1).fit(X, Y).rank_ == 3


def test_folding_keeps_the_scores():
    X, Y = problem()
    outcome = LEML(rank=4, n_jobs=1)._factorise(X, Y, job())
    np.testing.assert_allclose(outcome.folded(1).scores(X), outcome.unfolded().scores(X), atol=1e-5)


def test_folds_where_it_pays():
    X, Y = problem(n=400, d=200, m=150)
    assert isinstance(LEML(rank=150)._train(X, Y, job()), LinearWeights)
    assert isinstance(LEML(rank=5)._train(X, Y, job()), LowRankWeights)


@pytest.mark.parametrize("rank", [2, 500])
def test_features_that_never_occur_have_no_weight(rank):
    X, Y = problem()
    wide = sparse.csr_array((X.data, X.indices * 3, X.indptr), shape=(60, 100))
    narrow_scores = LEML(rank=rank)._train(X, Y, job()).scores(X)
    weights = LEML(rank=rank)._train(wide, Y, job())
    np.testing.assert_array_equal(weights.scores(wide), narrow_scores)
    stray = sparse.csr_array(([5.0], [1], [0, 1]), shape=(1, 100), dtype=np.float32)
    nothing = sparse.csr_array((1, 100), dtype=np.float32)
    np.testing.assert_array_equal(weights.scores(stray), weights.scores(nothing))


@pytest.mark.parametrize("rank", [2, 500])
def test_bias_is_a_constant_feature(rank):
    X, Y = problem()
    constant = sparse.csr_array(sparse.hstack([X, np.full((60, 1), 0.5, np.float32)]), dtype=np.float32)
    scores = LEML(rank=rank, bias=0.5)._train(X, Y, job()).scores(X)
    np.testing.assert_allclose(scores, LEML(rank=rank, bias=0)._train(constant, Y, job()).scores(constant), atol=1e-5)


def test_empty_rows_unused_labels_one_label_no_label():
    X, Y = problem()
    X = sparse.csr_array(sparse.diags_array((np.arange(60) % 3 > 0).astype(np.float32)) @ X)
    Y = sparse.csr_array(Y @ sparse.diags_array((np.arange(12) % 4 > 0).astype(np.float32)))
    Y.eliminate_zeros()
    for init in ("svd", "random"):
        scores = LEML(rank=5, bias=0, init=init, n_jobs=1).fit(X, Y)._scores(X).toarray()
        assert np.isfinite(scores).all()
        np.testing.assert_allclose(scores[:, ::4], 0, atol=1e-6)
        assert not scores[::3].any()
    one = LEML(n_jobs=1).fit(X, Y[:, [1]])
    assert one.rank_ == 1
    assert one.predict_topk(X, 2)[0][:, 1].max() == -1
    nothing = LEML(n_jobs=1).fit(X, sparse.csr_array((60, 3), dtype=np.float32))
    assert not nothing._scores(X).toarray().any()
    assert LEML()._train(X, Y[:, :0], job()).scores(X).shape == (60, 0)
    assert not LEML()._train(X[:0], Y[:0], job()).scores(X).any()


@pytest.mark.parametrize(
    "params",
    [{"rank": 0}, {"lam": 0.0}, {"lam": -1.0}, {"lam": np.nan}, {"n_iter": 0}, {"init": "zeros"}, {"bias": np.inf}],
)
def test_bad_parameters_are_refused_by_name(params):
    with pytest.raises(BlockXMCError, match=next(iter(params))):
        LEML(**params).fit(*problem())


def test_predicts_what_scores_above_one_half():
    X, Y = problem()
    for given in (Y, Y.toarray()):
        model = LEML(n_jobs=1).fit(X, given)
        predicted, scores = model.predict(X), model.decision_function(X)
        if sparse.issparse(predicted):  # scores as they are; a dense answer is positive where the label is predicted
            predicted, scores = predicted.toarray(), scores.toarray() - 0.5
        np.testing.assert_array_equal(predicted, model._scores(X).toarray() > 0.5)
        np.testing.assert_array_equal(predicted, scores > 0)


def test_state_survives_a_round_trip():
    X, Y = problem()
    model, other = LEML(rank=3, n_jobs=1).fit(X, Y), LEML()
    other.targets_, other.n_features_in_ = model.targets_, model.n_features_in_
    other._restore(model._state())
    assert other.rank_ == 3
    np.testing.assert_array_equal(other.objective_trace_, model.objective_trace_)


# scikit-learn itself casts an infinite y to integers before it refuses it.
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_is_a_scikit_learn_estimator():
    check_estimator(LEML(n_jobs=1), on_skip=None)
