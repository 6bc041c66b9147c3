"""How long a prediction takes, in batch and one row at a time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from scipy import sparse

    from blockxmc._core.base import XMCEstimator


def prediction_times(model: XMCEstimator, X: sparse.csr_array, k: int = 5, repeats: int = 3) -> dict[str, Any]:
    """Microseconds per row: whole batch on one thread (CPU time, median), on all threads (wall), and single calls.

    >>> from blockxmc import NaiveBayes
    >>> model = NaiveBayes().fit([[1, 0], [0, 1]], [["x"], ["y"]])
    >>> import scipy.sparse
    >>> sorted(prediction_times(model, scipy.sparse.csr_array([[1.0, 0]])))
    ['batch_us', 'one_us', 'one_us_p99', 'threads_us']
    """
    rows = X.shape[0]
    if rows == 0:
        return {}
    threads = model.n_jobs

    def batch(n_jobs: int | None, clock: Any) -> float:
        model.n_jobs = n_jobs
        spent = []
        for _ in range(repeats):
            start = clock()
            model.predict_topk(X, k)
            spent.append(clock() - start)
        return float(np.median(spent)) / rows * 1e6

    try:
        result = {"batch_us": batch(1, time.process_time), "threads_us": batch(threads, time.perf_counter)}
    finally:
        model.n_jobs = threads
    if hasattr(model, "predict_one"):
        result |= _single_calls(model, X, k)
    return result


def _single_calls(model: Any, X: sparse.csr_array, k: int) -> dict[str, float]:
    picked = np.linspace(0, X.shape[0] - 1, min(X.shape[0], 500)).astype(int)
    calls = [(X.indices[X.indptr[i] : X.indptr[i + 1]], X.data[X.indptr[i] : X.indptr[i + 1]]) for i in picked]
    spent = []
    for indices, values in calls * 2:  # the first round warms caches and is not counted
        start = time.perf_counter()
        model.predict_one(indices, values, k)
        spent.append((time.perf_counter() - start) * 1e6)
    counted = spent[len(calls) :]
    return {"one_us": float(np.median(counted)), "one_us_p99": float(np.percentile(counted, 99))}
