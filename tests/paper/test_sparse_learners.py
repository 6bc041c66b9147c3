"""PD-Sparse and PPD-Sparse on whatever shapes come: finite, repeatable, and what the theory promises."""

from __future__ import annotations

import numpy as np
from helpers import trained
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from blockxmc import PDSparse, PPDSparse, _kernels

VALUES = st.sampled_from([0.0, 0.0, 0.0, 1.0, -1.0, 0.5, 3.0])


@st.composite
def problems(draw: st.DrawFn) -> tuple[sparse.csr_array, sparse.csr_array]:
    n, d, m = draw(st.integers(1, 12)), draw(st.integers(1, 6)), draw(st.integers(1, 5))
    X = draw(hnp.arrays(np.float32, (n, d), elements=VALUES))
    Y = draw(hnp.arrays(np.int8, (n, m), elements=st.integers(0, 1)))
    return sparse.csr_array(X), sparse.csr_array(Y)


@settings(max_examples=60)
@given(problems(), st.sampled_from([0.1, 1.0, 10.0]), st.sampled_from([0.0, 0.1, 1.0]), st.booleans())
def test_pd_sparse_closes_its_gap(
    data: tuple[sparse.csr_array, sparse.csr_array], C: float, lam: float, sampling: bool
) -> None:
    X, Y = data
    clf = PDSparse(C=C, lam=lam, tol=1e-5, max_iter=5000, importance_sampling=sampling, post_solve=False).fit(X, Y)
    assert clf.gap_ <= 0.02 * clf.objective_ + 1e-4 * C
    assert clf.gap_ >= -1e-3 * (1 + clf.objective_)
    labels, scores = clf.predict_topk(X, k=2)
    assert np.isfinite(scores[labels >= 0]).all()


@settings(max_examples=60)
@given(problems(), st.sampled_from([0.1, 1.0, 10.0]), st.sampled_from([0.0, 0.1, 1.0]), st.sampled_from([0.0, 1.0]))
def test_ppd_sparse_certifies_and_satisfies_optimality(
    data: tuple[sparse.csr_array, sparse.csr_array], C: float, lam: float, bias: float
) -> None:
    X, Y = data
    clf = PPDSparse(C=C, lam=lam, bias=bias, tol=1e-4, prune=0, max_iter=500).fit(X, Y)
    assert clf.certified_ == 1
    weights = trained(clf, X, Y)
    w, signs = weights.coef.toarray().astype(float), 2 * Y.toarray() - 1.0
    slack = np.maximum(0, 1 - signs * (X.toarray() @ w + weights.bias))
    v = X.toarray().T @ (2 * C * signs * slack)  # at the optimum alpha = 2 C slack and w = S_lam(v)
    expected = np.sign(v) * np.maximum(abs(v) - lam, 0)
    np.testing.assert_allclose(w, expected, atol=2e-3 * (1 + C) * X.shape[0])


@settings(max_examples=200)
@given(
    hnp.arrays(np.float64, st.integers(0, 6), elements=st.floats(-5, 5)),
    hnp.arrays(np.float64, st.integers(0, 6), elements=st.floats(-5, 5)),
    st.floats(0.01, 20),
)
def test_projection_is_feasible_and_no_feasible_point_is_nearer(b: np.ndarray, c: np.ndarray, C: float) -> None:
    x, y = _kernels.project_bisimplex(b, c, C)
    assert (x >= 0).all()
    assert (y >= 0).all()
    assert abs(x.sum() - y.sum()) < 1e-9
    assert x.sum() <= C + 1e-9
    # Variational inequality against the extreme points of the feasible set: 0 and C (e_k, e_p).
    towards_zero = (b - x) @ -x + (c - y) @ -y
    assert towards_zero <= 1e-8
    for k in range(b.size):
        for p in range(c.size):
            assert C * (b - x)[k] + C * (c - y)[p] + towards_zero <= 1e-7
