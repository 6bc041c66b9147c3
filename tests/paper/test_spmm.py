import numpy as np
import pytest
from scipy import sparse

from blockxmc import _kernels
from blockxmc._core.matrix import csr_args
from blockxmc.paper._tall import gram, inner, one_blas_thread, orthonormal, solve_rows, spmm, times, transpose


def random_csr(shape, density=0.2, seed=0):
    return sparse.random_array(shape, density=density, dtype=np.float32, format="csr", rng=seed)


def dense(shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@pytest.mark.parametrize("columns", [0, 1, 15, 16, 17, 100])
@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (1, 1), (300, 70), (70, 300)])
def test_product_equals_scipy(shape, columns):
    X, B, T = random_csr(shape), dense((shape[1], columns)), dense((shape[0], columns))
    np.testing.assert_allclose(spmm(X, B, 2), X @ B, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(spmm(transpose(X), T, 2), X.T @ T, rtol=1e-5, atol=1e-5)


def test_long_rows_lose_no_more_than_short_ones():
    X = sparse.csr_array(np.full((1, 100_000), 0.1, np.float32))
    assert spmm(X, np.ones((100_000, 1), np.float32), 1)[0, 0] == pytest.approx(10_000, rel=1e-5)


def test_bits_do_not_depend_on_threads_or_on_the_other_columns():
    X, B = random_csr((500, 400)), dense((400, 90))
    X.data[:] = dense(X.nnz)
    one = spmm(X, B, 1)
    for threads in (2, 3, 8):
        np.testing.assert_array_equal(spmm(X, B, threads), one)
    np.testing.assert_array_equal(spmm(X, np.ascontiguousarray(B[:, 7:9]), 1), one[:, 7:9])


def test_read_only_and_unsorted_input():
    X, B = random_csr((20, 30)), dense((30, 5))
    expected = X @ B
    X.indices[: X.indptr[1]] = X.indices[: X.indptr[1]][::-1]
    X.data[: X.indptr[1]] = X.data[: X.indptr[1]][::-1]
    args = csr_args(X)
    for array in (*args, B):
        array.flags.writeable = False
    out = np.empty((20, 5), np.float32)
    _kernels.spmm(*args, B, out, 1)
    np.testing.assert_allclose(out, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("indptr", "indices", "values", "rows"),
    [
        ([0, 1], [3], [1.0], 1),  # column out of range
        ([0, 1], [-1], [1.0], 1),
        ([0, 2], [0], [1.0], 1),  # pointers past the end
        ([0, 2, 1], [0], [1.0], 2),  # falling pointers
        ([1, 1], [0], [1.0], 1),
        ([0, 1], [0], [], 1),
        ([], [], [], 0),
        ([0, 1], [0], [1.0], 2),  # out of the wrong shape
    ],
)
def test_malformed_input_is_refused(indptr, indices, values, rows):
    arrays = np.array(indptr, np.int64), np.array(indices, np.int32), np.array(values, np.float32)
    with pytest.raises(ValueError):
        _kernels.spmm(*arrays, np.ones((3, 2), np.float32), np.empty((rows, 2), np.float32), 1)


def solve_ridge(X, s, lam, T, W, *, tol=1e-7, max_steps=200, threads=1):
    W, steps = W.copy(), np.zeros(s.size, np.int32)
    progress = np.zeros(2, np.int64)
    matrices = *csr_args(X), *csr_args(transpose(X))
    _kernels.ridge_cg(*matrices, s, lam, T, W, steps, tol, max_steps, threads, progress)
    assert progress[0] == s.size
    return W, steps


@pytest.mark.parametrize("columns", [1, 16, 21])
@pytest.mark.parametrize("shape", [(40, 12), (12, 40)])
def test_ridge_equals_a_dense_solve(shape, columns):
    X, T, start = random_csr(shape), dense((shape[0], columns)), dense((shape[1], columns), 2)
    s = np.linspace(0, 3, columns, dtype=np.float32)
    W, _ = solve_ridge(X, s, 0.5, T, start)
    G, R = (X.T @ X).toarray().astype(np.float64), (X.T @ T).astype(np.float64)
    for c in range(columns):
        expected = np.linalg.solve(s[c] * G + 0.5 * np.eye(shape[1]), R[:, c])
        np.testing.assert_allclose(W[:, c], expected, rtol=1e-4, atol=1e-5)


def test_ridge_columns_are_independent_and_stop_when_done():
    X, T = random_csr((60, 30)), dense((60, 40))
    s = np.geomspace(1e-3, 100, 40).astype(np.float32)
    zero = np.zeros((30, 40), np.float32)
    W, steps = solve_ridge(X, s, 0.1, T, zero, tol=1e-2)
    assert steps.min() < steps.max()  # easy columns stop early
    np.testing.assert_array_equal(solve_ridge(X, s, 0.1, T, zero, tol=1e-2, threads=3)[0], W)
    alone = np.ascontiguousarray(T[:, 30:31])
    np.testing.assert_array_equal(solve_ridge(X, s[30:31], 0.1, alone, zero[:, :1], tol=1e-2)[0], W[:, 30:31])
    again, steps = solve_ridge(X, s, 0.1, T, W, tol=1e-1)
    np.testing.assert_array_equal(again, W)  # a start good enough is left alone
    assert steps.max() == 0


def test_ridge_stops_on_request():
    X, T, W = random_csr((30, 20)), dense((30, 4)), np.zeros((20, 4), np.float32)
    steps, progress = np.zeros(4, np.int32), np.array([0, 1])
    _kernels.ridge_cg(
        *csr_args(X), *csr_args(transpose(X)), np.ones(4, np.float32), 1.0, T, W, steps, 0.0, 50, 1, progress
    )
    assert not W.any()
    assert not steps.any()


@pytest.mark.parametrize("wrong", ["T", "W", "steps", "lam", "progress", "transpose"])
def test_ridge_refuses_what_does_not_fit(wrong):
    X = random_csr((6, 4))
    shapes = {"T": (6, 3), "W": (4, 3), "steps": 3, "lam": 1.0, "progress": 2, "transpose": 0}
    shapes |= {wrong: {"T": (6, 2), "W": (4, 2), "steps": 2, "lam": 0.0, "progress": 1, "transpose": 1}[wrong]}
    arrays = np.zeros(shapes["T"], np.float32), np.zeros(shapes["W"], np.float32), np.zeros(shapes["steps"], np.int32)
    other = X if shapes["transpose"] else transpose(X)
    with pytest.raises(ValueError):
        _kernels.ridge_cg(
            *csr_args(X),
            *csr_args(other),
            np.ones(3, np.float32),
            shapes["lam"],
            *arrays,
            0.1,
            5,
            1,
            np.zeros(shapes["progress"], np.int64),
        )


def test_tall_products_equal_numpy_for_any_number_of_threads():
    A, M = dense((9000, 30)), dense((30, 20), 2)
    with one_blas_thread():
        products = [(times(A, M, t), gram(A, t), solve_rows(A, gram(A, t), t)) for t in (1, 2, 5)]
    for product, squares, solved in products[1:]:
        np.testing.assert_array_equal(product, products[0][0])
        np.testing.assert_array_equal(squares, products[0][1])
        np.testing.assert_array_equal(solved, products[0][2])
    product, squares, solved = products[0]
    exact = A.astype(np.float64)
    np.testing.assert_allclose(product, exact @ M, atol=1e-4)
    np.testing.assert_allclose(squares, exact.T @ exact, atol=1e-9)
    np.testing.assert_allclose(solved, exact @ np.linalg.inv(exact.T @ exact), atol=1e-9)
    assert inner(A, A) == pytest.approx((exact**2).sum(), rel=1e-12)


def test_orthonormal_columns_of_a_deficient_matrix():
    A = dense((50, 3)) @ dense((3, 5), 2)
    Q = orthonormal(A, 1)
    kept = np.abs(Q).sum(axis=0) > 0
    assert kept.sum() == 3
    np.testing.assert_allclose(Q[:, kept].T @ Q[:, kept], np.eye(3), atol=1e-4)
    np.testing.assert_allclose(Q @ (Q.T @ A), A, atol=1e-4)


def test_blas_threads_are_given_back_by_the_last_one_out():
    from threadpoolctl import threadpool_info, threadpool_limits

    def blas_threads():
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        with one_blas_thread():
            with one_blas_thread():
                assert blas_threads() == {1}
            assert blas_threads() == {1}
        assert blas_threads() == before
