"""The blocks of shared training: many and small, every label in at least one, and which blocks a row visits."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc import _kernels
from blockxmc._core.matrix import csr_of
from blockxmc._core.progress import Reporter
from blockxmc.errors import BlockXMCError
from blockxmc.linear.one_vs_all import typical_length
from blockxmc.linear.weights import Ids
from blockxmc.partition import Partitioner, choice
from blockxmc.routing import Router
from blockxmc.training.forms import PARTITION
from blockxmc.training.job import Job
from blockxmc.training.settings import SETTINGS, Settings

I32 = NDArray[np.int32]
# Labels whose positives a thread counts in all blocks at a time.
_LABELS_AT_A_TIME = 2**10


def visiting(route: float | str, linear: bool = True, settings: Settings = SETTINGS) -> tuple[int, float]:
    """How many blocks a row may visit, and the share of the router's probability at which it stops.

    >>> visiting(4), visiting(0.9), visiting("auto"), visiting("auto", linear=False)
    ((4, 1.0), (16, 0.9), (16, 0.7), (4, 1.0))
    """
    if route == "auto":
        return (settings.most_blocks, settings.top_p) if linear else (settings.usual_blocks, 1.0)
    if float(route) >= 1:
        return int(route), 1.0
    if not linear:
        raise BlockXMCError(
            f"route={route} is a share of probability, which needs a linear base: give a number of blocks"
        )
    return settings.most_blocks, float(route)


def neighbors_asked(
    n_neighbors: int | str, linear: bool, partition: Partitioner, n_labels: int, settings: Settings = SETTINGS
) -> int:
    """How many training rows like it a row asks: where that is open, none if they cost more products than they may."""
    if n_neighbors == "auto":
        affordable = expected_products(partition, settings, neighbors=True) <= settings.most_products * n_labels
        return settings.n_neighbors if linear and partition.n_blocks_ > 1 and affordable else 0
    if n_neighbors and not linear:
        raise BlockXMCError(f"n_neighbors={n_neighbors} needs a linear base: use 0")
    return int(n_neighbors)


def partition_for_shared(
    X: sparse.csr_array,
    Y: sparse.csr_array,
    options: Partitioner,
    reporter: Reporter,
    *,
    seed: int,
    threads: int,
    settings: Settings = SETTINGS,
    job: Job | None = None,
) -> Partitioner:
    """Many small blocks that start from clusters of labels; lambda keeps the captured share where it is open."""
    n_blocks, lam, job = options.n_blocks, options.lam, job or Job()
    if n_blocks in ("auto", "cost"):
        with reporter.phase("number of blocks"):
            how: Any = {"seed": seed, "threads": threads, "visited": settings.usual_blocks}
            n_blocks = job.stage(
                "number of blocks", lambda: choice.fewest_products(X, Y, None, "quadratic", **how).n_blocks
            )
    start = Partitioner(n_blocks, 0.0, init="labels", max_iter=0, random_state=seed, n_jobs=threads)
    start = job.stage("start of the partition", lambda: start._fit(X, Y, reporter), PARTITION)
    if lam == "auto":
        lam = choice.lam_at_floor(start.ranking_, "quadratic", settings.captured)
    how = {"max_iter": settings.rounds, "random_state": seed, "n_jobs": threads}
    partition = Partitioner(start.n_blocks_, lam, init=start.assignment_, **how)._fit(X, Y, reporter)
    rule = "the fewest vector products for a row" if isinstance(options.n_blocks, str) else "set by n_blocks"
    if options.n_blocks == "auto" and partition.n_blocks_ > 1:
        expected, full = expected_products(partition, settings), np.count_nonzero(np.bincount(Y.indices))
        if expected > settings.most_products * full:
            reporter.say(f"Blocks do not pay here: a row would take {expected:,.0f} products, all labels take {full:,}")
            partition = Partitioner(1, 0.0, random_state=seed, n_jobs=threads)._fit(X, Y, reporter)
            rule = f"more would take {expected:,.0f} vector products for a row"
    # An array is how the start was handed over, not a choice of the user's to be remembered with the model.
    partition.set_params(n_blocks=options.n_blocks, lam=options.lam, init="labels")
    of_lam = f"the largest that keeps {settings.captured:.0%} of the positives in the blocks of the start"
    chosen = choice.Choice(start.n_blocks_, rule, [])
    partition.choice_ = partition._explain(chosen, of_lam if options.lam == "auto" else None)
    return partition


def expected_products(partition: Partitioner, settings: Settings = SETTINGS, *, neighbors: bool = False) -> float:
    """Vector products that a row is expected to take: router, candidates and, where asked, training rows.

    A row visits the usual number of blocks, as large as its own; labels that these share are counted more than once.
    """
    rows = np.bincount(partition.assignment_, minlength=partition.n_blocks_)
    labels = np.array([len(ids) for ids in partition.label_clusters_])
    of_block = labels + rows if neighbors else labels
    visited = min(settings.usual_blocks, partition.n_blocks_)
    return float(partition.n_blocks_ + visited * (rows @ of_block) / max(rows.sum(), 1))


def make_router(X: sparse.csr_array, settings: Settings = SETTINGS, bits: int = 16) -> Router:
    """Squared hinge trains much faster than the paper's logistic loss when blocks are many; X says how long rows are."""
    length = typical_length(X)
    scaled: Any = {"C": 1 / length**2, "bias": length, "prune": settings.router_prune / length}
    scaled |= {"tol": settings.router_tol, "sample": settings.router_sample, "bits": max(bits, settings.router_bits)}
    return Router(loss="squared_hinge", **scaled)


def own_blocks(assignment: I32, n_blocks: int) -> sparse.csr_array:
    """Rows x blocks: the block of each row."""
    return visits_of(assignment, np.empty((assignment.size, 0), np.int32), n_blocks)


def cover_all_labels(
    Y: sparse.csr_array, assignment: I32, label_clusters: Sequence[Ids], threads: int = 1
) -> list[NDArray[np.int64]]:
    """Give every label that lambda has cut from all blocks back to the block that holds most of its positives.

    >>> Y = sparse.csr_array(np.array([[1, 1], [1, 0]], np.float32))
    >>> [ids.tolist() for ids in cover_all_labels(Y, np.array([0, 1], np.int32), [np.array([0]), np.array([0])])]
    [[0, 1], [0]]
    """
    covered = np.zeros(Y.shape[1], bool)
    covered[np.concatenate([np.asarray(ids) for ids in label_clusters])] = True
    labels, homes = home_blocks(sparse.csr_array(Y.T), own_blocks(assignment, len(label_clusters)), threads)
    lost = ~covered[labels]
    if not lost.any():
        return [np.asarray(ids, np.int64) for ids in label_clusters]
    order = np.argsort(homes[lost], kind="stable")
    ends = np.cumsum(np.bincount(homes[lost], minlength=len(label_clusters)))
    extra = np.split(labels[lost][order], ends[:-1])
    return [np.sort(np.concatenate([ids, more])) for ids, more in zip(label_clusters, extra, strict=True)]


def best_block_first(Y: sparse.csr_array, label_clusters: Sequence[Ids], first: I32) -> float:
    """Share of the rows whose ``first`` block lists as many of their labels as any block does.

    >>> Y = sparse.csr_array(np.array([[1, 1], [0, 1]], np.float32))
    >>> best_block_first(Y, [np.array([0]), np.array([0, 1])], np.array([0, 1], np.int32))
    0.5
    """
    listed = sparse.csr_array(Y @ holds(label_clusters, Y.shape[1]).T)
    own = np.asarray(listed[np.arange(Y.shape[0]), first]).ravel()
    return float((own == listed.max(axis=1).toarray().ravel()).mean())


def home_blocks(
    positives: sparse.csr_array, visits: sparse.csr_array, threads: int = 1
) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Labels with positives that visit a block, and the block most of them visit (ties to the lower block).

    >>> positives = sparse.csr_array(np.array([[1, 1], [0, 0]], np.float32))  # a row per label
    >>> [found.tolist() for found in home_blocks(positives, sparse.csr_array(np.eye(2, dtype=np.float32)))]
    [[0], [0]]
    """
    starts = range(0, max(positives.shape[0], 1), _LABELS_AT_A_TIME)
    with ThreadPoolExecutor(threads) as pool:
        found = list(pool.map(lambda begin: _home_blocks(positives[begin : begin + _LABELS_AT_A_TIME], visits), starts))
    labels = [begin + own for begin, (own, _) in zip(starts, found, strict=True)]
    return np.concatenate(labels), np.concatenate([blocks for _, blocks in found])


def _home_blocks(positives: sparse.csr_array, visits: sparse.csr_array) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    counts = sparse.csr_array(positives @ visits)
    labels = np.flatnonzero(np.diff(counts.indptr))
    # One number for both, since counts are whole numbers: the larger count first, then the lower block.
    value = counts.data.astype(np.int64) * counts.shape[1] - counts.indices
    best = np.maximum.reduceat(value, counts.indptr[labels]) if labels.size else value
    return labels, -best % counts.shape[1]


def visits_of(assignment: I32, routed: I32, n_blocks: int, rows: NDArray[np.bool_] | None = None) -> sparse.csr_array:
    """Rows x blocks: the block a row is assigned to and those it is routed to; nothing where ``rows`` is false."""
    n, t = routed.shape
    columns = np.column_stack([assignment, routed])
    sizes = np.full(n, t + 1) if rows is None else np.where(rows, t + 1, 0)
    blocks = columns.ravel() if rows is None else columns[rows].ravel()
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    out = csr_of(indptr, blocks, np.ones(blocks.size, np.float32), (n, n_blocks))
    out.sum_duplicates()
    return out


def holds(label_clusters: Sequence[Ids], n_labels: int) -> sparse.csr_array:
    """Blocks x labels: which labels each block holds."""
    indptr = np.concatenate([[0], np.cumsum([len(ids) for ids in label_clusters])])
    ids = np.concatenate([np.asarray(cluster, np.int32) for cluster in label_clusters])
    return csr_of(indptr, ids, np.ones(ids.size, np.float32), (len(label_clusters), n_labels))


def frequent_labels(label_clusters: Sequence[Ids], n_labels: int, settings: Settings = SETTINGS) -> NDArray[np.int64]:
    """Labels that live in so many blocks that their weights are better kept once, in a block that every row visits.

    Scoring a label for every row is cheap beside storing it a dozen times. The blocks still list it: where none of the
    visited blocks does, it is scored, but stands far below all others.

    >>> frequent_labels([np.array([0, i]) for i in range(1, 7)], 7).tolist()
    [0]
    """
    counts = np.bincount(np.concatenate([np.asarray(ids, np.int64) for ids in label_clusters]), minlength=n_labels)
    room = _kernels.MAX_CHUNK_LABELS
    needed = np.partition(counts, -room - 1)[-room - 1] if n_labels > room else 0
    return np.flatnonzero(counts > np.clip(needed, settings.few_blocks, settings.many_blocks))
