"""Solutions that start from vectors near them: the same solutions, for any start, way of solving and thread count."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import blocky
from scipy import sparse

from blockxmc._core.matrix import as_csr, as_indicator
from blockxmc._core.progress import Reporter
from blockxmc.errors import BlockXMCError
from blockxmc.linear.one_vs_all import OneVsAll, train_one_vs_all


def _problem(seed: int = 0) -> tuple[sparse.csr_array, sparse.csr_array, sparse.csr_array]:
    """Rows, labels, and the rows each label learns from: some all, some few that are shared, some few of their own."""
    rng = np.random.default_rng(seed)
    X, Y = blocky(120, 40, 30, seed=seed)
    members = rng.random((30, 120)) < np.repeat([1.0, 0.3, 0.1], 10)[:, None]
    members[10:20] = members[10]
    rows = as_indicator((members | (Y.T.toarray() > 0)).astype(np.float32))
    return as_csr(X), as_indicator(Y), rows


def _solve(
    X: sparse.csr_array, Y: sparse.csr_array, rows: sparse.csr_array, start: sparse.csr_array | None, threads: int = 1
) -> np.ndarray:
    problem = OneVsAll("squared_hinge", C=1.0, tol=1e-4, bias=1.0, prune=0.0)
    with Reporter().phase("") as phase:
        found = train_one_vs_all(problem, X, Y, threads=threads, phase=phase, rows=rows, start=start)
    return np.vstack([found.coef.toarray(), found.bias])


@pytest.mark.parametrize("kind", ["solution", "elsewhere", "some"])
def test_any_start_leads_to_the_same_solution(kind: str) -> None:
    X, Y, rows = _problem()
    cold = _solve(X, Y, rows, None)
    start = cold[:-1].T.copy()
    if kind == "elsewhere":
        start = np.random.default_rng(1).normal(size=start.shape).astype(np.float32)
    if kind == "some":
        start[::2] = 0
    warm = _solve(X, Y, rows, as_csr(start))
    np.testing.assert_allclose(warm, cold, atol=2e-3)
    assert (warm != cold).any()  # it did start elsewhere


def test_a_start_gives_the_same_bits_for_any_thread_count() -> None:
    X, Y, rows = _problem(2)
    start = as_csr(_solve(X, Y, rows, None)[:-1].T)
    np.testing.assert_array_equal(_solve(X, Y, rows, start), _solve(X, Y, rows, start, threads=3))


def test_starts_for_other_labels_are_refused() -> None:
    X, Y, rows = _problem()
    with pytest.raises((BlockXMCError, ValueError), match="one start per label"):
        _solve(X, Y, rows, sparse.csr_array((29, 40), dtype=np.float32))
