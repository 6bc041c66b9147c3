"""PD-Sparse against independent solvers of the same problem."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import trained
from scipy import optimize, sparse
from sklearn.base import clone

from blockxmc import PDSparse, _kernels
from blockxmc._core.matrix import as_csr, as_indicator, csr_args
from blockxmc.errors import BlockXMCError

EXACT: dict[str, Any] = {"early_stopping": 0, "post_solve": False, "tol": 1e-7, "max_iter": 3000}


def problem(seed: int, n: int = 40, d: int = 8, m: int = 5, labels: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6)).astype(np.float32)
    X[~X.any(axis=1), 0] = 1  # a zero row would lose a constant, which is left out of the reported objective
    scores = X @ rng.normal(size=(d, m)) + 0.5 * rng.normal(size=(n, m))
    Y = np.zeros((n, m))
    for row, best in zip(Y, np.argsort(-scores, axis=1), strict=True):
        row[best[: rng.integers(1, labels + 1)]] = 1
    return X, Y


def objective(W: np.ndarray, X: np.ndarray, Y: np.ndarray, C: float, lam: float) -> float:
    scores = X @ W
    best_wrong = np.where(Y == 1, -np.inf, scores).max(axis=1)
    worst_right = np.where(Y == 1, scores, np.inf).min(axis=1)
    return 0.5 * (W**2).sum() + lam * abs(W).sum() + C * np.maximum(0, 1 + best_wrong - worst_right).sum()


def solve_as_qp(X: np.ndarray, Y: np.ndarray, C: float, lam: float) -> float:
    """The primal as a smooth problem with W = P - N and one slack per row, by SLSQP."""
    d, m, n = X.shape[1], Y.shape[1], X.shape[0]
    rows = []
    for i in range(n):
        for p in np.flatnonzero(Y[i]):
            for k in np.flatnonzero(Y[i] == 0):
                a = np.zeros((d, m))
                a[:, p], a[:, k] = X[i], -X[i]
                slack = np.zeros(n)
                slack[i] = 1
                rows.append(np.concatenate([a.ravel(), -a.ravel(), slack]))
    A = np.array(rows)
    size = d * m

    def f(z: np.ndarray) -> tuple[float, np.ndarray]:
        W, total = z[:size] - z[size : 2 * size], z[: 2 * size].sum()
        gradient = np.concatenate([W + lam, -W + lam, np.full(n, C)])
        return 0.5 * (W**2).sum() + lam * total + C * z[2 * size :].sum(), gradient

    start = np.concatenate([np.zeros(2 * size), np.ones(n)])
    result = optimize.minimize(
        f,
        start,
        jac=True,
        method="SLSQP",
        bounds=[(0, None)] * start.size,
        constraints={"type": "ineq", "fun": lambda z: A @ z - 1, "jac": lambda z: A},
        options={"maxiter": 500, "ftol": 1e-10},
    )
    assert result.success
    return float(result.fun)


@pytest.mark.parametrize(("labels", "lam"), [(1, 0.05), (2, 0.0), (2, 0.2)])
def test_gap_closes_and_objective_equals_a_generic_solver(labels: int, lam: float) -> None:
    X, Y = problem(labels, n=12, d=4, m=4, labels=labels)
    clf = PDSparse(C=0.7, lam=lam, **EXACT).fit(X, sparse.csr_array(Y))
    W = trained(clf, X, Y).coef.toarray()
    assert clf.objective_ == pytest.approx(objective(W, X, Y, 0.7, lam), rel=1e-5)
    assert clf.gap_ < 1e-4 * clf.objective_
    assert clf.objective_ == pytest.approx(solve_as_qp(X, Y, 0.7, lam), rel=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_gap_goes_to_zero(seed: int) -> None:
    X, Y = problem(seed, n=60, d=12, m=9, labels=3)
    clf = PDSparse(lam=0.1, **EXACT).fit(X, Y)
    assert clf.gap_trace_[0] > 0.05 * clf.objective_
    assert -1e-5 * clf.objective_ < clf.gap_ < 1e-4 * clf.objective_


def test_importance_sampling_reaches_the_same_objective() -> None:
    X, Y = problem(3, n=80, d=60, m=20, labels=2)
    exact = PDSparse(lam=0.05, **EXACT).fit(X, Y)
    sampled = PDSparse(lam=0.05, importance_sampling=True, **{**EXACT, "max_iter": 300}).fit(X, Y)
    assert sampled.objective_ == pytest.approx(exact.objective_, rel=0.02)


def test_projection_equals_slsqp() -> None:
    rng = np.random.default_rng(0)
    for _ in range(60):
        b, c = rng.normal(size=rng.integers(1, 6)) * 2, rng.normal(size=rng.integers(1, 4)) * 2
        C = float(rng.choice([0.3, 1.0, 5.0]))
        x, y = _kernels.project_bisimplex(b, c, C)
        target = np.concatenate([b, c])
        sign = np.concatenate([np.ones(b.size), -np.ones(c.size)])
        best = optimize.minimize(
            lambda z, t=target: 0.5 * ((z - t) ** 2).sum(),
            np.zeros(target.size),
            jac=lambda z, t=target: z - t,
            bounds=[(0, None)] * target.size,
            constraints=[
                {"type": "eq", "fun": lambda z, s=sign: s @ z},
                {"type": "ineq", "fun": lambda z, k=b.size, C=C: C - z[:k].sum()},
            ],
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 300},
        )
        np.testing.assert_allclose(np.concatenate([x, y]), best.x, atol=2e-5)


def test_hashed_and_direct_indexes_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = problem(5, n=200, d=30, m=70, labels=3)
    direct = trained(PDSparse(early_stopping=0.3), X, Y).coef
    monkeypatch.setattr("blockxmc.paper.pd_sparse._DIRECT_BYTES", 0)
    hashed = trained(PDSparse(early_stopping=0.3), X, Y).coef
    assert direct.nnz > 100
    np.testing.assert_array_equal(direct.toarray(), hashed.toarray())


def test_post_solve_keeps_the_support_and_lowers_the_loss() -> None:
    X, Y = problem(6, n=100, d=20, m=6)
    plain = trained(PDSparse(lam=0.5, **EXACT), X, Y).coef.toarray()
    again = trained(PDSparse(lam=0.5, **{**EXACT, "post_solve": True}), X, Y).coef.toarray()
    assert not (again[plain == 0]).any()
    assert objective(again, X, Y, 1.0, 0.0) < objective(plain, X, Y, 1.0, 0.0)


def test_early_stopping_keeps_the_best_pass_and_uses_few() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 30)).astype(np.float32)
    Y = np.eye(6)[rng.integers(0, 6, 600)]  # nothing to learn: held-out accuracy cannot keep rising
    clf = PDSparse(early_stopping=0.2, patience=2, max_iter=50).fit(X, Y)
    trace = clf.held_out_trace_
    assert trace.size < 50
    assert trace.argmax() == trace.size - 3


def test_seed_decides_and_threads_do_not() -> None:
    X, Y = problem(8, n=120, d=20, m=10)
    weights = [
        trained(PDSparse(max_iter=3, n_jobs=jobs, random_state=seed), X, Y).coef.toarray()
        for jobs, seed in ((1, 0), (4, 0), (1, 1))
    ]
    np.testing.assert_array_equal(weights[0], weights[1])
    assert (weights[0] != weights[2]).any()


def test_rows_that_say_nothing_change_nothing() -> None:
    X, Y = problem(9, n=50)
    Y[:5], Y[5:8], X[8:11] = 0, 1, 0  # rows without labels, with all labels, without features
    whole, rest = PDSparse(**EXACT).fit(X, Y), PDSparse(**EXACT).fit(X[11:], Y[11:])
    assert whole.objective_ == pytest.approx(rest.objective_, rel=1e-4)


def test_labels_that_nobody_or_everybody_has() -> None:
    X, Y = problem(10, n=50)
    Y[:, 2], Y[:, 3] = 0, 1
    X = abs(X)  # without a bias, x and -x cannot prefer the same label
    scores = PDSparse().fit(X, Y).decision_function(X)
    assert np.isfinite(scores).all()
    assert (scores[:, 3] > scores[:, 2]).mean() > 0.9


def test_one_label_is_trained_against_its_absence() -> None:
    X = np.array([[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.8]], np.float32)
    clf = PDSparse().fit(X, sparse.csr_array([[1], [1], [0], [0]]))
    assert clf.predict(X).toarray().ravel().tolist() == [1, 1, 0, 0]
    everywhere = PDSparse().fit(X, sparse.csr_array(np.ones((4, 1))))
    assert (everywhere.decision_function(X).toarray() > 0).all()


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_kernel_takes_empty_input(shape: tuple[int, int]) -> None:
    X = as_csr(np.zeros((shape[0], 2)))
    Y = as_indicator(np.zeros(shape))
    out = call(X, Y)
    assert out[0].tolist() == [0, 0, 0]


def call(X: sparse.csr_array, Y: sparse.csr_array, **change: Any) -> Any:
    arguments: dict[str, Any] = {
        "C": 1.0,
        "lam": 0.01,
        "tol": 0.0,
        "max_iter": 2,
        "patience": 3,
        "importance_sampling": False,
        "post_solve": True,
        "direct_bytes": 0,
        "seed": 0,
        "progress": np.zeros(2, np.int64),
    }
    y_indptr, y_indices, _ = csr_args(Y)
    held_out = np.zeros(X.shape[0], np.uint8)
    return _kernels.pd_sparse(
        *csr_args(X), X.shape[1], y_indptr, y_indices, Y.shape[1], held_out, **{**arguments, **change}
    )


def test_kernel_refuses_what_would_read_out_of_bounds() -> None:
    X, Y = as_csr(np.eye(3)), as_indicator(np.eye(3))
    short = as_indicator(np.eye(2))
    with pytest.raises(ValueError, match="number of rows"):
        call(X, short)
    bad = X.copy()
    bad.indices[1] = 7
    with pytest.raises(ValueError, match="out of range"):
        call(bad, Y)
    with pytest.raises(ValueError, match="C must be positive"):
        call(X, Y, C=0.0)


def test_kernel_stops_when_asked() -> None:
    X, Y = problem(1, n=100)
    progress = np.array([0, 1], np.int64)
    call(as_csr(X), as_indicator(Y), max_iter=10**9, progress=progress)
    assert progress[0] == 0


@pytest.mark.parametrize(
    "bad",
    [{"C": 0}, {"C": np.nan}, {"lam": -1}, {"max_iter": 0}, {"early_stopping": 1.0}, {"tol": -1}, {"patience": 0}],
)
def test_parameters_out_of_range_are_refused(bad: dict[str, float]) -> None:
    X, Y = problem(0)
    with pytest.raises(BlockXMCError, match=next(iter(bad))):
        PDSparse(**bad).fit(X, Y)


def test_clone_keeps_every_parameter() -> None:
    clf = PDSparse(C=2, lam=0.3, max_iter=7, tol=0.1, early_stopping=0, patience=5, post_solve=False)
    assert clone(clf).get_params() == clf.get_params()
