"""Shared weights: one vector per label, trained on what the router will really send to the label's blocks.

The paper trains a label anew in every block on the block's rows alone, which starves it as blocks get small. Here a label
learns once from the rows assigned or routed to any block that holds it, and from all its positives: one to a few per cent
of all rows, yet nearly everything that could teach it something. Blocks may then be many and small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.preprocessing import normalize

from blockxmc import _kernels
from blockxmc._core.matrix import csr_args
from blockxmc._core.progress import Reporter, Shifted
from blockxmc.errors import BlockXMCError
from blockxmc.learners._learner import Learner
from blockxmc.learners.sklearn_adapter import OpaqueWeights, constants
from blockxmc.linear.one_vs_all import typical_length
from blockxmc.linear.weights import Ids, LinearWeights
from blockxmc.partition import Partitioner, choice
from blockxmc.partition.start import label_vectors
from blockxmc.routing import Router
from blockxmc.serving.scorer import Scorer
from blockxmc.serving.scorers import pack_scorer, pack_shared_scorer

I32 = NDArray[np.int32]

# A row visits as many blocks, and at most the one, as it takes to reach the other share of the router's probability:
# few where the router is sure, many where it is not, and fewer in all than a fixed number that finds as much.
# Held-out rows, where there are any, then say whether another share is clearly better.
MOST_BLOCKS, TOP_P = 16, 0.7
# What it visits on average, about.
USUAL_BLOCKS = 4
# Of the blocks a row would visit, those whose labels learn from it. Half of what serving visits is enough: block
# probabilities, merged into the scores, hold back labels that overrate rows they have not seen.
NEGATIVE_BLOCKS = 2
# (label, row) pairs listed at a time while labels are trained (a quarter of a gigabyte).
PAIRS_AT_A_TIME = 2**26
# Share of the positives that the label clusters of the start keep where lambda is left open.
CAPTURED_FLOOR = 0.9
# A label in more than FEW_BLOCKS is frequent; in more than MANY_BLOCKS where frequent labels would not fit into
# one chunk: with fewer copies a model is smaller, with fewer frequent labels it is faster.
FEW_BLOCKS, MANY_BLOCKS = 4, 8
# Weights of the router below this are dropped: it only has to rank blocks.
ROUTER_PRUNE = 0.1
# Parts of a label's mean row, at unit length, that are smaller than this count only where the label has a weight anyway.
MEAN_PRUNE = 0.1
# Random rows that tell a block of the router what is not its own, beside the rows of a few other blocks.
ROUTER_SAMPLE = 4096


def visiting(route: float | str, linear: bool = True) -> tuple[int, float]:
    """How many blocks a row may visit, and the share of the router's probability at which it stops.

    >>> visiting(4), visiting(0.9), visiting("auto"), visiting("auto", linear=False)
    ((4, 1.0), (16, 0.9), (16, 0.7), (4, 1.0))
    """
    if route == "auto":
        return (MOST_BLOCKS, TOP_P) if linear else (USUAL_BLOCKS, 1.0)
    if float(route) >= 1:
        return int(route), 1.0
    if not linear:
        raise BlockXMCError(
            f"route={route} is a share of probability, which needs a linear base: give a number of blocks"
        )
    return MOST_BLOCKS, float(route)


def partition_for_shared(
    X: sparse.csr_array, Y: sparse.csr_array, options: Partitioner, reporter: Reporter, *, seed: int, threads: int
) -> Partitioner:
    """Many small blocks that start from clusters of labels; lambda keeps nine tenths of the positives where it is open."""
    n_blocks, lam = options.n_blocks, options.lam
    if n_blocks in ("auto", "cost"):
        cheapest = choice.fewest_products(X, Y, None, "quadratic", seed=seed, threads=threads, visited=USUAL_BLOCKS)
        n_blocks = cheapest.n_blocks
    start = Partitioner(n_blocks, 0.0, init="labels", max_iter=0, random_state=seed, n_jobs=threads)._fit(
        X, Y, reporter
    )
    if lam == "auto":
        lam = choice.lam_at_floor(start.ranking_, "quadratic", CAPTURED_FLOOR)
    partition = Partitioner(start.n_blocks_, lam, init=start.assignment_, random_state=seed, n_jobs=threads)
    partition._fit(X, Y, reporter)
    # An array is how the start was handed over, not a choice of the user's to be remembered with the model.
    partition.set_params(n_blocks=options.n_blocks, lam=options.lam, init="labels")
    return partition


def make_router(X: sparse.csr_array) -> Router:
    """Squared hinge trains much faster than the paper's logistic loss when blocks are many; X says how long rows are."""
    length = typical_length(X)
    scaled = {"C": 1 / length**2, "bias": length, "prune": ROUTER_PRUNE / length}
    return Router(loss="squared_hinge", tol=0.1, sample=ROUTER_SAMPLE, **scaled)


def cover_all_labels(Y: sparse.csr_array, assignment: I32, label_clusters: Sequence[Ids]) -> list[NDArray[np.int64]]:
    """Give every label that lambda has cut from all blocks back to the block that holds most of its positives.

    >>> Y = sparse.csr_array(np.array([[1, 1], [1, 0]], np.float32))
    >>> [ids.tolist() for ids in cover_all_labels(Y, np.array([0, 1], np.int32), [np.array([0]), np.array([0])])]
    [[0, 1], [0]]
    """
    covered = np.zeros(Y.shape[1], bool)
    covered[np.concatenate([np.asarray(ids) for ids in label_clusters])] = True
    nowhere_else = np.empty((assignment.size, 0), np.int32)
    labels, homes = home_blocks(Y, visits_of(assignment, nowhere_else, len(label_clusters)))
    lost = ~covered[labels]
    extra = [labels[lost & (homes == block)] for block in range(len(label_clusters))] if lost.any() else None
    if extra is None:
        return [np.asarray(ids, np.int64) for ids in label_clusters]
    return [np.sort(np.concatenate([ids, more])) for ids, more in zip(label_clusters, extra, strict=True)]


def home_blocks(Y: sparse.csr_array, visits: sparse.csr_array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Labels with positives that visit a block, and the block most of them visit (ties to the lower block)."""
    counts = sparse.csr_array(Y.T @ visits)
    labels = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    order = np.lexsort((counts.indices, -counts.data, labels))
    first = np.ones(labels.size, bool)
    first[1:] = labels[1:] != labels[:-1]
    return labels[first], counts.indices[order][first].astype(np.int64)


def frequent_labels(label_clusters: Sequence[Ids], n_labels: int) -> NDArray[np.int64]:
    """Labels that live in so many blocks that their weights are better kept once, in a block that every row visits.

    Scoring a label for every row is cheap beside storing it a dozen times. The blocks still list it: where none of the
    visited ones does, it is scored, but stands far below all others.

    >>> frequent_labels([np.array([0, i]) for i in range(1, 7)], 7).tolist()
    [0]
    """
    counts = np.bincount(np.concatenate([np.asarray(ids, np.int64) for ids in label_clusters]), minlength=n_labels)
    room = _kernels.MAX_CHUNK_LABELS
    needed = np.partition(counts, -room - 1)[-room - 1] if n_labels > room else 0
    return np.flatnonzero(counts > np.clip(needed, FEW_BLOCKS, MANY_BLOCKS))


def pack_shared(
    weights: LinearWeights | OpaqueWeights,
    label_clusters: Sequence[Ids],
    *,
    n_features: int,
    n_labels: int,
    bits: int = 16,
    threads: int = 1,
) -> Scorer:
    """Weights packed per block; those of the frequent labels stand in one last block only."""
    options: Any = {"n_features": n_features, "n_labels": n_labels, "bits": bits, "threads": threads}
    if isinstance(weights, OpaqueWeights):
        return pack_scorer(list(weights.split(label_clusters)), label_clusters, **options)
    return pack_shared_scorer(weights, label_clusters, frequent_labels(label_clusters, n_labels), **options)


@dataclass(frozen=True)
class SharedWeights:
    """One vector per label, and which pairs of (row, label) taught them."""

    weights: LinearWeights | OpaqueWeights
    share_of_pairs: float


def visits_of(assignment: I32, routed: I32, n_blocks: int, rows: NDArray[np.bool_] | None = None) -> sparse.csr_array:
    """Rows x blocks: the block a row is assigned to and those it is routed to; nothing where ``rows`` is false."""
    n, t = routed.shape
    columns = np.column_stack([assignment, routed])
    sizes = np.full(n, t + 1) if rows is None else np.where(rows, t + 1, 0)
    blocks = columns.ravel() if rows is None else columns[rows].ravel()
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    out = sparse.csr_array((np.ones(blocks.size, np.float32), blocks, indptr), shape=(n, n_blocks))
    out.sum_duplicates()
    return out


def train_shared(
    learner: Learner,
    X: sparse.csr_array,
    Y: sparse.csr_array,
    visits: sparse.csr_array,
    label_clusters: Sequence[Ids],
    reporter: Reporter,
    *,
    threads: int,
    seed: int,
    labels: NDArray[np.intp] | None = None,
) -> SharedWeights:
    """Train ``labels`` (None: all) once on the rows that visit their blocks and their own positives."""
    labels = np.arange(Y.shape[1]) if labels is None else labels
    holds = sparse.csr_array(_holds(label_clusters, Y.shape[1])[:, labels])
    own = sparse.csr_array(Y[:, labels])
    expected = _expected_rows(visits, holds, own)
    order = _neighbors(own, visits, expected)
    parts: list[Any] = []
    pairs = 0
    with reporter.phase("train labels", labels.size) as phase:
        for some in _batches(expected, order):
            targets = sparse.csr_array(own[:, some])
            rows = _rows_of_labels(visits, sparse.csr_array(holds[:, some]), targets, threads)
            pairs += rows.nnz
            job = learner._job(threads, Shifted(phase, sum(part.n_labels for part in parts)), seed)
            parts.append(learner._train(X, targets, job, rows=rows))  # type: ignore[call-arg]
    return SharedWeights(_joined(parts, np.argsort(order)), pairs / max(X.shape[0] * labels.size, 1))


def mean_weights(
    X: sparse.csr_array, Y: sparse.csr_array, weights: LinearWeights, reporter: Reporter, *, threads: int
) -> LinearWeights:
    """The mean row of each label's positives as weights beside those learned: a score is the cosine of a row to it.

    Small parts of it are left out where ``weights`` has none: they would cost memory and time that they are not worth.
    """
    with reporter.phase("label means", Y.shape[1]) as phase:
        means = normalize(label_vectors(X, Y, np.arange(Y.shape[1], dtype=np.int32), threads=threads, phase=phase))
    means = sparse.csr_array(means.T)
    large = means.copy()
    large.data[abs(large.data) < MEAN_PRUNE] = 0
    small = sparse.csr_array(means - large)
    for part in (large, small):
        part.eliminate_zeros()
    learned = sparse.csr_array(weights.coef.astype(bool))
    kept = sparse.csr_array(large + small * learned)
    return LinearWeights(kept / np.float32(typical_length(X)), np.zeros(Y.shape[1], np.float32))


def with_labels(
    weights: LinearWeights | OpaqueWeights, labels: NDArray[np.intp], new: LinearWeights | OpaqueWeights
) -> LinearWeights | OpaqueWeights:
    """The weights with those of ``labels`` replaced by ``new``, which has them in this order."""
    position = np.arange(weights.n_labels)
    position[labels] = weights.n_labels + np.arange(labels.size)
    return _joined([weights, new], position)


def _joined(parts: list[Any], back: NDArray[np.intp]) -> LinearWeights | OpaqueWeights:
    """The weights of all batches as one, in the order of the label ids."""
    if not all(isinstance(part, LinearWeights) for part in parts):
        # A batch of labels that nobody or everybody has comes out linear, whatever the base.
        models = [model for part in parts for model in getattr(part, "models", None) or constants(part.bias)]
        return OpaqueWeights(tuple(models[j] for j in back))
    coef = sparse.csc_array(sparse.hstack([part.coef for part in parts], format="csc"))
    bias = np.concatenate([part.bias for part in parts])[back]
    mass = None if parts[0].mass is None else np.concatenate([part.mass for part in parts])[back]
    return LinearWeights(sparse.csr_array(coef[:, back]), bias, mass)


def outside_violations(
    shared: SharedWeights,
    X: sparse.csr_array,
    Y: sparse.csr_array,
    visits: sparse.csr_array,
    label_clusters: Sequence[Ids],
) -> float:
    """Share of (row, label) pairs outside the training rows whose margin would have taught the label much.

    A row outside a label's rows changes the label's solution only if its score lies above -1, and much only if it lies
    well above: -0.5 here. Measured on a sample of the rows that teach any label; near zero means that training on the
    union lost nothing.
    """
    teaching = np.flatnonzero(np.diff(visits.indptr))
    rows = teaching[np.linspace(0, teaching.size - 1, min(teaching.size, 256)).astype(int)]
    inside = sparse.csr_array(visits[rows] @ _holds(label_clusters, Y.shape[1]) + Y[rows]).toarray() > 0
    scores = shared.weights.scores(sparse.csr_array(X[rows]))
    outside = ~inside
    return float((scores[outside] > -0.5).mean()) if outside.any() else 0.0


def _holds(label_clusters: Sequence[Ids], n_labels: int) -> sparse.csr_array:
    indptr = np.concatenate([[0], np.cumsum([len(ids) for ids in label_clusters])])
    ids = np.concatenate([np.asarray(cluster, np.int32) for cluster in label_clusters])
    return sparse.csr_array((np.ones(ids.size, np.float32), ids, indptr), shape=(len(label_clusters), n_labels))


def _expected_rows(visits: sparse.csr_array, holds: sparse.csr_array, Y: sparse.csr_array) -> NDArray[np.float64]:
    """About how many rows each label learns from: rows of several of its blocks are counted more than once."""
    rows_per_block = np.bincount(visits.indices, minlength=holds.shape[0]).astype(np.float64)
    return np.asarray(rows_per_block @ holds) + np.bincount(Y.indices, minlength=Y.shape[1])


def _neighbors(Y: sparse.csr_array, visits: sparse.csr_array, expected: NDArray[np.float64]) -> NDArray[np.intp]:
    """Labels in the order of the block that most of their positives visit, and then of their number of rows.

    Neighbors then learn from about the same rows: the solver takes labels that do sixteen at a time.
    """
    home = np.full(Y.shape[1], visits.shape[1])
    labels, blocks = home_blocks(Y, visits)
    home[labels] = blocks
    return np.lexsort((expected, home))


def _batches(expected: NDArray[np.float64], order: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    """Stretches of labels whose training rows fit into memory together."""
    stretch = (np.cumsum(expected[order]) // PAIRS_AT_A_TIME).astype(np.int64)
    yield from np.split(order, np.flatnonzero(np.diff(stretch)) + 1)


def _rows_of_labels(
    visits: sparse.csr_array, holds: sparse.csr_array, Y: sparse.csr_array, threads: int
) -> sparse.csr_array:
    """labels x rows, a pattern: the rows each label learns from."""
    rows_of_block, blocks_of_label, own = (csr_args(sparse.csr_array(m.T))[:2] for m in (visits, holds, Y))
    indptr, rows = _kernels.rows_of_labels(*rows_of_block, Y.shape[0], *blocks_of_label, *own, threads)
    return sparse.csr_array((np.ones(rows.size, np.float32), rows, indptr), shape=(Y.shape[1], Y.shape[0]))
