"""PPD-Sparse against LIBLINEAR (lam = 0) and a proximal gradient method (lam > 0)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.svm import LinearSVC

from blockxmc import PPDSparse, _kernels
from blockxmc._core.matrix import as_csr, as_indicator, csr_args
from blockxmc._core.progress import Reporter
from blockxmc.errors import BlockXMCError
from blockxmc.learners._learner import Context
from blockxmc.linear.weights import LinearWeights

TIGHT: dict[str, Any] = {"tol": 1e-6, "prune": 0.0, "max_iter": 1000}


def problem(seed: int, n: int = 300, d: int = 30, m: int = 6) -> tuple[sparse.csr_array, sparse.csr_array]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.3)
    Y = X @ rng.normal(size=(d, m)) + 0.7 * rng.normal(size=(n, m)) > 1.5
    return as_csr(X), as_indicator(Y)


def train(
    clf: PPDSparse, X: sparse.csr_array, Y: sparse.csr_array, rows: Any = None, threads: int = 2
) -> LinearWeights:
    with Reporter().phase("") as phase:
        return clf._train(X, Y, Context(threads, clf.random_state or 0, phase), rows)


def objective(w: np.ndarray, b: float, X: np.ndarray, s: np.ndarray, C: float, lam: float) -> float:
    return 0.5 * (w @ w + b * b) + lam * abs(w).sum() + C * (np.maximum(0, 1 - s * (X @ w + b)) ** 2).sum()


def proximal_gradient(X: np.ndarray, s: np.ndarray, C: float, lam: float) -> tuple[np.ndarray, float]:
    """Accelerated, with the bias as a last, unthresholded coordinate."""
    A = np.hstack([X, np.ones((X.shape[0], 1))])
    thresholds = np.r_[np.full(X.shape[1], lam), 0]
    step = 1 / (1 + 2 * C * np.linalg.norm(A, 2) ** 2)
    w = z = np.zeros(A.shape[1])
    ratio = (1 - np.sqrt(step)) / (1 + np.sqrt(step))
    for _ in range(4000):
        gradient = z - 2 * C * A.T @ (s * np.maximum(0, 1 - s * (A @ z)))
        new = z - step * gradient
        new = np.sign(new) * np.maximum(abs(new) - step * thresholds, 0)
        w, z = new, new + ratio * (new - w)
    return w[:-1], w[-1]


def test_without_l1_it_is_liblinear() -> None:
    X, Y = problem(0)
    clf = PPDSparse(C=0.5, lam=0, **TIGHT)
    ours = train(clf, X, Y)
    assert clf.certified_ == 1
    for j in range(Y.shape[1]):
        peer = LinearSVC(C=0.5, loss="squared_hinge", dual=False, tol=1e-10, max_iter=10_000)
        peer.fit(X, Y[:, [j]].toarray().ravel())
        np.testing.assert_allclose(ours.coef[:, [j]].toarray().ravel(), peer.coef_.ravel(), atol=2e-5)
        assert ours.bias[j] == pytest.approx(peer.intercept_[0], abs=2e-5)


@pytest.mark.parametrize("lam", [0.1, 3.0])
def test_with_l1_it_is_the_exact_solution(lam: float) -> None:
    X, Y = problem(1)
    ours = train(PPDSparse(lam=lam, **TIGHT), X, Y)
    dense = X.toarray().astype(float)
    for j in range(Y.shape[1]):
        s = 2 * Y[:, [j]].toarray().ravel() - 1
        w, b = proximal_gradient(dense, s, 1.0, lam)
        np.testing.assert_allclose(ours.coef[:, [j]].toarray().ravel(), w, atol=5e-5)
        assert ours.bias[j] == pytest.approx(b, abs=5e-5)
    assert 0 < ours.coef.nnz < ours.coef.shape[0] * ours.coef.shape[1]


def test_certificate_means_no_row_outside_violates() -> None:
    X, Y = problem(2, n=1500, d=60, m=2)  # far more rows than the first active set
    clf = PPDSparse(tol=0.02, prune=0)
    weights = train(clf, X, Y)
    assert clf.certified_ == 1
    dense = X.toarray().astype(float)
    for j in range(Y.shape[1]):
        s = 2 * Y[:, [j]].toarray().ravel() - 1
        w, b = proximal_gradient(dense, s, 1.0, 0.01)
        found = objective(weights.coef[:, [j]].toarray().ravel().astype(float), weights.bias[j], dense, s, 1.0, 0.01)
        assert found == pytest.approx(objective(w, b, dense, s, 1.0, 0.01), rel=2e-3)


def test_one_round_on_hard_data_is_not_certified() -> None:
    X, Y = problem(3, n=3000, d=60)
    clf = PPDSparse(tol=1e-4, max_iter=1)
    train(clf, X, Y)
    assert clf.certified_ == 0
    assert clf.n_iter_ == 1


def test_row_subsets_equal_training_on_those_rows_alone() -> None:
    X, Y = problem(4, n=400)
    rng = np.random.default_rng(0)
    pattern = as_indicator(rng.random((Y.shape[1], 400)) < 0.4)
    ours = train(PPDSparse(**TIGHT), X, Y, pattern)
    for j in range(Y.shape[1]):
        rows = pattern.indices[pattern.indptr[j] : pattern.indptr[j + 1]]
        alone = train(PPDSparse(**TIGHT), as_csr(X[rows]), as_indicator(Y[rows][:, [j]]))
        np.testing.assert_allclose(ours.coef[:, [j]].toarray(), alone.coef.toarray(), atol=2e-5)


def test_all_rows_as_subset_equals_no_subset() -> None:
    X, Y = problem(5, n=1500)
    everything = as_indicator(np.ones((Y.shape[1], X.shape[0])))
    a, b = train(PPDSparse(**TIGHT), X, Y), train(PPDSparse(**TIGHT), X, Y, everything)
    np.testing.assert_allclose(a.coef.toarray(), b.coef.toarray(), atol=2e-5)


@pytest.mark.parametrize("with_rows", [False, True])
def test_bits_do_not_depend_on_threads_or_neighbors(with_rows: bool) -> None:
    X, Y = problem(6, n=800, m=40)
    rows = as_indicator(np.random.default_rng(0).random((40, 800)) < 0.5) if with_rows else None
    one = train(PPDSparse(), X, Y, rows, threads=1)
    for threads in (2, 3, 64):
        more = train(PPDSparse(), X, Y, rows, threads=threads)
        np.testing.assert_array_equal(one.coef.toarray(), more.coef.toarray())
        np.testing.assert_array_equal(one.bias, more.bias)
    first = train(PPDSparse(), X, as_indicator(Y[:, :1]), None if rows is None else as_indicator(rows[:1]), threads=1)
    np.testing.assert_array_equal(one.coef[:, :1].toarray(), first.coef.toarray())


def test_odd_rows_and_labels() -> None:
    X, Y = problem(7)
    dense, labels = X.toarray(), Y.toarray()
    dense[:4] = 0
    labels[:, 0], labels[:, 1], labels[10:20] = 0, 1, 0
    clf = PPDSparse()
    weights = train(clf, as_csr(dense), as_indicator(labels))
    assert clf.certified_ == 1
    scores = weights.scores(as_csr(dense))
    assert (scores[:, 0] < 0).all()
    assert scores[:, 1].mean() > 0.5
    no_rows = as_indicator(np.zeros((Y.shape[1], X.shape[0])))
    empty = train(PPDSparse(), X, Y, no_rows)
    assert empty.coef.nnz == 0
    assert not empty.bias.any()


def test_rows_that_share_no_feature_with_w_are_not_forgotten() -> None:
    X = sparse.csr_array(sparse.block_diag([sparse.coo_array(np.ones((2, 1))), np.eye(600)]), dtype=np.float32)
    Y = as_indicator(np.r_[np.ones(2), np.zeros(600)][:, None])
    for bias in (0.0, 1.0):
        clf = PPDSparse(bias=bias, tol=0.01, prune=0)
        weights = train(clf, as_csr(X), Y)
        scores = weights.scores(as_csr(X)).ravel()
        dual = np.maximum(0, 1 + scores[2:])  # at the optimum every such row pushes back by 2 C (1 + score)
        assert clf.certified_ == 1
        if bias == 0:
            np.testing.assert_allclose(scores[2:], -2 / 3 + 0.01 / 3, atol=0.02)
        else:
            assert dual.max() < 0.05


def test_bias_zero_means_none() -> None:
    X, Y = problem(8)
    assert not train(PPDSparse(bias=0), X, Y).bias.any()


def test_prune_drops_small_weights_only() -> None:
    X, Y = problem(9)
    full, cut = train(PPDSparse(prune=0), X, Y).coef.toarray(), train(PPDSparse(prune=0.2), X, Y).coef.toarray()
    np.testing.assert_array_equal(cut, np.where(abs(full) < np.float32(0.2), 0, full))
    assert (full != cut).any()


def call(X: sparse.csr_array, positives: sparse.csr_array, rows: Any = None, **change: Any) -> Any:
    arguments: dict[str, Any] = {
        "C": 1.0,
        "lam": 0.01,
        "bias": 1.0,
        "tol": 0.1,
        "max_rounds": 5,
        "max_passes": 20,
        "prune": 0.0,
        "seed": 0,
        "threads": 2,
        "progress": np.zeros(2, np.int64),
    }
    r = (None, None) if rows is None else csr_args(rows)[:2]
    return _kernels.dual_cd(*csr_args(X), X.shape[1], *csr_args(positives)[:2], *r, **{**arguments, **change})


def test_kernel_takes_empty_and_read_only_input() -> None:
    X, positives = as_csr(np.zeros((0, 3))), as_indicator(np.zeros((2, 0)))
    assert call(X, positives)[0].tolist() == [0, 0, 0]
    assert call(as_csr(np.eye(3)), as_indicator(np.zeros((0, 3))))[0].tolist() == [0]
    X = as_csr(np.eye(3))
    for array in (X.data, X.indices, X.indptr):
        array.flags.writeable = False
    assert call(X, as_indicator(np.eye(3)))[5].all()


def test_kernel_refuses_what_would_read_out_of_bounds() -> None:
    X, eye = as_csr(np.eye(3)), as_indicator(np.eye(3))
    with pytest.raises(ValueError, match="positives: a column index is out of range"):
        call(X, as_indicator(np.eye(4)))
    with pytest.raises(ValueError, match="differ in labels"):
        call(X, eye, as_indicator(np.ones((2, 3))))
    unsorted = as_indicator(np.ones((3, 3)))
    unsorted.indices[:2] = [1, 0]
    with pytest.raises(ValueError, match="rows: the indices of a row must be ascending"):
        call(X, eye, unsorted)


def test_kernel_stops_when_asked() -> None:
    X, Y = problem(1)
    progress = np.array([0, 1], np.int64)
    certified = call(X, as_indicator(Y.T), max_rounds=10**9, tol=0.0, progress=progress)[5]
    assert not certified.any()


@pytest.mark.parametrize(
    "bad", [{"C": 0}, {"C": np.inf}, {"lam": -1}, {"bias": -1}, {"tol": 0}, {"prune": np.nan}, {"max_iter": 0}]
)
def test_parameters_out_of_range_are_refused(bad: dict[str, float]) -> None:
    X, Y = problem(0)
    with pytest.raises(BlockXMCError, match=next(iter(bad))):
        PPDSparse(**bad).fit(X, Y)


def test_clone_keeps_every_parameter() -> None:
    clf = PPDSparse(C=2, lam=0.3, bias=0.5, tol=0.1, max_iter=3, prune=0.2)
    assert clone(clf).get_params() == clf.get_params()
