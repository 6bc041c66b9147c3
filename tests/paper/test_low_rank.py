import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from blockxmc._core.progress import _SilentPhase
from blockxmc.learners._learner import Context
from blockxmc.paper._tall import spmm, transpose
from blockxmc.paper.leml import LEML

sizes = st.integers(0, 12)


def draw(n, d, density, seed):
    X = sparse.random_array((n, d), density=density, dtype=np.float32, format="csr", rng=seed)
    X.data = X.data - np.float32(0.5)
    return X


@given(sizes, sizes, st.integers(0, 40), st.floats(0, 1), st.integers(0, 99), st.integers(1, 4))
@settings(max_examples=60)
def test_products_equal_the_dense_ones(n, d, columns, density, seed, threads):
    X = draw(n, d, density, seed)
    rng = np.random.default_rng(seed)
    B, T = rng.standard_normal((d, columns), np.float32), rng.standard_normal((n, columns), np.float32)
    np.testing.assert_allclose(spmm(X, B, threads), X.toarray() @ B, atol=1e-5)
    np.testing.assert_allclose(spmm(transpose(X), T, threads), X.toarray().T @ T, atol=1e-5)


@given(sizes, sizes, sizes, st.integers(1, 15), st.sampled_from(["svd", "random"]), st.booleans(), st.integers(0, 99))
@settings(max_examples=60)
def test_training_descends_and_stays_finite_on_any_shape(n, d, m, rank, init, bias, seed):
    X = draw(n, d, 0.5, seed)
    Y = sparse.csr_array((np.random.default_rng(seed).random((n, m)) < 0.3).astype(np.float32))
    learner = LEML(rank=rank, n_iter=3, bias=float(bias), init=init)
    outcome = learner._factorise(X, Y, Context(1, seed, _SilentPhase()))
    assert outcome.H.shape == (m, min(rank, n, m))
    assert (np.diff(outcome.objective_trace) <= 1e-5 * (1 + Y.nnz)).all()
    assert np.isfinite(outcome.folded(1).scores(X)).all()
    np.testing.assert_allclose(outcome.folded(1).scores(X), outcome.unfolded().scores(X), atol=1e-4)
