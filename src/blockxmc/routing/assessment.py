"""What a partition can reach through a router, measured on held-out rows before any base is trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from blockxmc._core.matrix import as_csr, as_indicator, take_rows
from blockxmc.errors import BlockXMCError
from blockxmc.routing.router import I32, Router, block_indicator


def assess_routing(
    X: Any,
    Y: Any,
    assignment: ArrayLike,
    label_clusters: Sequence[NDArray[Any]],
    b: int = 1,
    *,
    router: Router | None = None,
    targets: sparse.csr_array | None = None,
    mask: ArrayLike | None = None,
    held_out: float = 0.2,
    max_rows: int = 20_000,
    seed: int = 0,
    threads: int = 1,
) -> dict[str, float]:
    """What a partition can reach through a router, measured on rows held out of the router's fit.

    A router with the parameters of ``router`` is fitted on the other rows (to ``targets``, a 0-1 matrix of rows x
    blocks, or else to ``assignment``). Fractions in 0..1:

    - ``candidate_recall``: mean share of a row's labels among its candidates (rows without labels left out);
    - ``router_accuracy``: share of rows whose best block is the assigned one (rows of ``mask`` and assignment >= 0);
    - ``candidates``: mean number of labels scored; ``products``: that plus one per block;
    - ``precision_ceiling@1``, ``@3``, ``@5``: P@k if the candidates were ranked perfectly;
    - ``rows``: number of rows measured.

    >>> import numpy as np
    >>> X, Y = np.eye(2, dtype=np.float32)[[0, 1] * 20], np.eye(2)[[0, 1] * 20]
    >>> found = assess_routing(X, Y, [0, 1] * 20, [np.array([0]), np.array([1])])
    >>> found["candidate_recall"], found["candidates"], found["products"]
    (1.0, 1.0, 3.0)
    """
    X, Y = as_csr(X), as_indicator(Y)
    blocks = np.asarray(assignment)
    n, q = X.shape[0], len(label_clusters)
    if n < 2 or not 0 < held_out < 1:
        raise BlockXMCError("assessing a router needs at least two rows and 0 < held_out < 1")
    order = np.random.default_rng(seed).permutation(n)
    size = min(max(1, round(held_out * n)), max_rows, n - 1)
    test, fit = np.sort(order[:size]), np.sort(order[size:])
    wanted = block_indicator(blocks, q) if targets is None else targets
    usable = (np.ones(n, bool) if mask is None else np.asarray(mask, bool)) & (blocks >= 0)

    fresh = (router or Router()).unfitted()
    fresh.fit(take_rows(X, fit), take_rows(wanted, fit), mask=usable[fit], threads=threads)
    visited = fresh.blocks(take_rows(X, test), b, threads=threads)

    candidates = _candidates(visited, label_clusters, Y.shape[1])
    truth = take_rows(Y, test)
    hits = np.asarray(candidates.multiply(truth).sum(axis=1)).ravel()
    counts = np.diff(truth.indptr)
    judged = usable[test]
    labels_scored = float(np.diff(candidates.indptr).mean())
    return {
        "candidate_recall": _mean(hits[counts > 0] / counts[counts > 0]),
        "router_accuracy": _mean(visited[judged, 0] == blocks[test][judged]),
        "candidates": labels_scored,
        "products": labels_scored + (q if q > 1 else 0),
        **{f"precision_ceiling@{k}": _mean(np.minimum(hits, k) / k) for k in (1, 3, 5)},
        "rows": float(size),
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
