"""The one-vs-all solver on adversarial shapes: it always reaches the tolerance it was given."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from blockxmc._core.matrix import as_csr, as_indicator
from blockxmc._core.progress import Reporter
from blockxmc.linear.one_vs_all import OneVsAll, train_one_vs_all


def gradient(w, X, s, loss, C):
    margins = s * (X @ w)
    slopes = -0.5 * (1 - np.tanh(margins / 2)) if loss == "logistic" else -2 * np.maximum(0, 1 - margins)
    return w + C * (X.T @ (s * slopes))


@st.composite
def problems(draw):
    n, d, m = draw(st.integers(1, 30)), draw(st.integers(1, 12)), draw(st.integers(1, 35))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < draw(st.sampled_from([0.0, 0.2, 1.0])))
    X = X * draw(st.sampled_from([0.1, 1.0, 5.0]))
    X[rng.random(n) < 0.2] = 0
    X[rng.random(n) < 0.2] = X[0]
    Y = rng.random((n, m)) < draw(st.sampled_from([0.0, 0.1, 0.9, 1.0]))
    members = (rng.random((m, n)) < draw(st.sampled_from([0.05, 0.6, 1.0]))) | Y.T
    return X.astype(np.float32), Y.astype(np.float32), members, draw(st.booleans())


@given(
    problems(),
    st.sampled_from(["squared_hinge", "logistic"]),
    st.sampled_from([0.1, 1.0, 20.0]),
    st.sampled_from([None, 1.0, 3.0]),
)
@settings(max_examples=150)
def test_gradient_is_small_where_training_stops(problem, loss, C, bias):
    X, Y, members, restricted = problem
    rows = sparse.csr_array(members.astype(np.float32)) if restricted else None
    with Reporter().phase("") as phase:
        solve = OneVsAll(loss, C, tol=1e-3, bias=bias, prune=0)
        weights = train_one_vs_all(solve, as_csr(X), as_indicator(Y), threads=1, phase=phase, rows=rows)
    dense = X.astype(np.float64)
    w = weights.coef.toarray().astype(np.float64)
    if bias:
        dense, w = np.hstack([dense, np.full((X.shape[0], 1), bias)]), np.vstack([w, weights.bias[None] / bias])
    for j in range(Y.shape[1]):
        kept = members[j] if restricted else np.ones(X.shape[0], bool)
        s = 2.0 * Y[kept, j] - 1
        if not s.size:
            assert not w[:, j].any()
            continue
        at_zero = np.linalg.norm(gradient(np.zeros(w.shape[0]), dense[kept], s, loss, C))
        positives = Y[kept, j].sum()
        target = 1e-3 * max(min(positives, s.size - positives), 1) / s.size
        # Rounding of the products alone moves the gradient of a loss of weight C by about 1e-6 of the data's scale.
        noise = 3e-6 * C * np.abs(dense[kept]).sum() * max(1.0, np.abs(dense[kept] @ w[:, j]).max())
        assert np.linalg.norm(gradient(w[:, j], dense[kept], s, loss, C)) <= target * at_zero * 1.01 + noise
