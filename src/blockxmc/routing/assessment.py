"""What a partition can reach through a router, measured on held-out rows before any base is trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from blockxmc._core.matrix import as_csr, as_indicator, take_rows
from blockxmc.errors import BlockXMCError
from blockxmc.routing.router import I32, Router

# The router is fitted without this share of the rows, at most so many, and judged on them. Not measured: a fifth is the
# usual split, and 20,000 rows make the standard error of a share less than half a point.
HELD_OUT, MAX_ROWS = 0.2, 20_000
# Ranks at which the ceiling of precision is told, as in the paper's tables.
KS = (1, 3, 5)


def assess_routing(
    X: Any,
    Y: Any,
    assignment: ArrayLike,
    label_clusters: Sequence[NDArray[Any]],
    b: int = 1,
    *,
    router: Router | None = None,
    seed: int = 0,
    threads: int = 1,
) -> dict[str, float]:
    """What a partition can reach through a router, measured on a fifth of the rows (at most 20,000).

    A router with the parameters of ``router`` is fitted to the assignment of the other rows. Rows whose assignment is
    negative have no block: the router does not learn from them. Fractions in 0..1:

    - ``candidate_recall``: mean share of a row's labels among its candidates (rows without labels left out);
    - ``router_accuracy``: share of rows whose best block is the assigned one (rows without a block left out);
    - ``candidates``: mean number of labels scored; ``products``: that plus one per block;
    - ``precision_ceiling@1``, ``@3``, ``@5``: P@k if the candidates were ranked perfectly;
    - ``rows``: number of rows measured.

    >>> import numpy as np
    >>> X, Y = np.eye(2, dtype=np.float32)[[0, 1] * 20], np.eye(2)[[0, 1] * 20]
    >>> found = assess_routing(X, Y, [0, 1] * 20, [np.array([0]), np.array([1])])
    >>> found["candidate_recall"], found["candidates"], found["products"]
    (1.0, 1.0, 3.0)
    """
    X, Y, blocks = as_csr(X), as_indicator(Y), np.asarray(assignment)
    if X.shape[0] < 2:
        raise BlockXMCError("assessing a router needs at least two rows")
    order = np.random.default_rng(seed).permutation(X.shape[0])
    size = min(max(1, round(HELD_OUT * order.size)), MAX_ROWS, order.size - 1)
    test, fit = np.sort(order[:size]), np.sort(order[size:])
    fresh = (router or Router()).unfitted()
    fresh.fit(take_rows(X, fit), blocks[fit], n_blocks=len(label_clusters), threads=threads)
    visited, assigned = fresh.blocks(take_rows(X, test), b, threads=threads), blocks[test]
    accuracy = _mean(visited[assigned >= 0, 0] == assigned[assigned >= 0])
    return {**_reached(visited, label_clusters, take_rows(Y, test)), "router_accuracy": accuracy, "rows": float(size)}


def _reached(visited: I32, label_clusters: Sequence[NDArray[Any]], Y: sparse.csr_array) -> dict[str, float]:
    """Recall, cost and ceiling of precision of rows that visit these blocks."""
    candidates = _candidates(visited, label_clusters, Y.shape[1])
    hits = np.asarray(candidates.multiply(Y).sum(axis=1)).ravel()
    counts = np.diff(Y.indptr)
    scored, q = float(np.diff(candidates.indptr).mean()), len(label_clusters)
    return {
        "candidate_recall": _mean(hits[counts > 0] / counts[counts > 0]),
        "candidates": scored,
        "products": scored + (q if q > 1 else 0),
        **{f"precision_ceiling@{k}": _mean(np.minimum(hits, k) / k) for k in KS},
    }


def _mean(values: NDArray[Any]) -> float:
    return float(values.mean()) if values.size else 0.0


def _candidates(visited: I32, label_clusters: Sequence[NDArray[Any]], n_labels: int) -> sparse.csr_array:
    """Rows x labels: the union of the label clusters of the visited blocks."""
    n, b = visited.shape
    chosen = sparse.csr_array(
        (np.ones(n * b, np.float32), visited.ravel(), np.arange(0, n * b + 1, b)), shape=(n, len(label_clusters))
    )
    starts = np.concatenate([[0], np.cumsum([len(cluster) for cluster in label_clusters])])
    flat = np.concatenate([np.asarray(cluster, np.int64) for cluster in label_clusters])
    held = sparse.csr_array((np.ones(flat.size, np.float32), flat, starts), shape=(len(label_clusters), n_labels))
    union = sparse.csr_array(chosen @ held)
    union.data[:] = 1
    return union
