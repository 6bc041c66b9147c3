"""Sparse matrices merged row by row, against SciPy."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.preprocessing import normalize

from blockxmc import _kernels
from blockxmc._core.matrix import copy_rows, csr_args, csr_of, pattern_args


def random_rows(rng, shape, density):
    out = sparse.random_array(shape, density=density, rng=rng, format="csr", dtype=np.float32)
    out.data -= 0.5
    return out


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (200, 40), (65, 7)])
@pytest.mark.parametrize("threads", [1, 3])
def test_weighted_sums_are_those_of_scipy(shape, threads):
    rng = np.random.default_rng(0)
    a, b = random_rows(rng, shape, 0.2), random_rows(rng, shape, 0.3)
    arrays = _kernels.weighted_sum(*csr_args(a), *csr_args(b), 0.5, shape[1], threads)
    expected = a + np.float32(0.5) * b
    assert_allclose(csr_of(*arrays, shape).toarray(), expected.toarray(), atol=1e-6)


@pytest.mark.parametrize("threads", [1, 3])
def test_large_parts_and_known_parts_stay(threads):
    rng = np.random.default_rng(1)
    a, known = random_rows(rng, (150, 30), 0.4), random_rows(rng, (150, 30), 0.1)
    a.data[::7] = 0  # a stored zero says nothing
    arrays = _kernels.large_or_known(*csr_args(a), *pattern_args(known), 30, 0.2, threads)
    unit = normalize(a).toarray()
    expected = np.where((abs(unit) >= 0.2) | (known.toarray() != 0), unit, 0)
    found = csr_of(*arrays, (150, 30))
    assert_allclose(found.toarray(), expected, atol=1e-6)
    assert (found.data != 0).all()
    assert_array_equal(arrays[0], np.concatenate([[0], np.cumsum((expected != 0).sum(axis=1))]))


def test_matrices_that_do_not_fit_are_refused():
    a, b = csr_args(sparse.csr_array(np.eye(2, dtype=np.float32))), csr_args(sparse.csr_array((3, 2), dtype=np.float32))
    with pytest.raises(ValueError, match="as many rows"):
        _kernels.weighted_sum(*a, *b, 1.0, 2, 1)
    with pytest.raises(ValueError, match="as many rows"):
        _kernels.large_or_known(*a, *b[:2], 2, 0.1, 1)
    unsorted = np.array([0, 2], np.int64), np.array([1, 0], np.int32), np.ones(2, np.float32)
    with pytest.raises(ValueError, match="ascending"):
        _kernels.large_or_known(*unsorted, *unsorted[:2], 2, 0.1, 1)


def test_rows_are_copied_as_scipy_takes_them():
    X = random_rows(np.random.default_rng(0), (600, 4000), 0.01)
    rows = np.array([599, 0, 7, 7])
    found = copy_rows(X, rows)
    assert (found != X[rows]).nnz == 0
    assert_array_equal(found.indptr, X[rows].indptr)
    assert copy_rows(X, np.zeros(0, np.int64)).shape == (0, X.shape[1])
    many = np.arange(5000) % 600
    assert (copy_rows(X, many, 3) != X[many]).nnz == 0
    for wrong in (-1, 600):
        with pytest.raises(ValueError, match="out of range"):
            copy_rows(X, np.array([wrong]))
