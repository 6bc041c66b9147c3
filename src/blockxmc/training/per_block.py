"""The paper's training: the labels of each block on the rows of the block; and global weights, trained on all rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits

from blockxmc._core.progress import Phase, Reporter, run_in_threads
from blockxmc.learners._learner import Context, Learner
from blockxmc.linear.weights import Ids, LinearWeights, Weights
from blockxmc.training import job
from blockxmc.training.forms import WEIGHTS, WEIGHTS_OF_BLOCKS


def train_blocks(
    learner: Learner,
    X: sparse.csr_array,
    Y: sparse.csr_array,
    assignment: NDArray[np.integer],
    label_clusters: Sequence[Ids],
    work: job.Job,
    *,
    threads: int,
    seed: int,
) -> list[Weights]:
    """Per-block weights: the labels of each block trained on the rows of the block only (the paper's way)."""
    train = partial(_trained_blocks, learner, X, Y, assignment, label_clusters, work, threads=threads, seed=seed)
    return work.stage("blocks", train, WEIGHTS_OF_BLOCKS)


def _trained_blocks(
    learner: Learner,
    X: sparse.csr_array,
    Y: sparse.csr_array,
    assignment: NDArray[np.integer],
    label_clusters: Sequence[Ids],
    work: job.Job,
    *,
    threads: int,
    seed: int,
) -> list[Weights]:
    rows_of = _group_rows(assignment, len(label_clusters))
    row_sizes = np.diff(X.indptr)
    costs = [int(row_sizes[rows].sum()) * len(labels) for rows, labels in zip(rows_of, label_clusters, strict=True)]
    order = np.argsort(costs)[::-1]  # largest first, so that no worker is left with a giant at the end
    results: list[Weights | None] = [None] * len(label_clusters)
    # Many blocks: one thread per block. Few blocks: all threads inside each.
    inner = 1 if len(label_clusters) >= 2 * threads else threads

    def train(block: int, phase: Phase) -> Weights:
        how = learner._context(inner, phase, seed + block)
        weights = train_block(learner, X, Y, rows_of[block], label_clusters[block], how)
        if work.kept is not None:
            WEIGHTS.state(weights)  # what cannot be kept is refused with the first block
        return weights

    def kept(block: int, phase: Phase) -> None:
        results[block] = train(block, phase)

    if work.elsewhere:
        with Reporter().phase("blocks") as silent, work.reporter.phase("train blocks", len(order)) as phase:
            found = work.ranges(
                "blocks", [(block, block + 1) for block in order.tolist()], lambda b, _: train(b, silent)
            )
            for done, (block, weights) in enumerate(zip(order, found, strict=True)):
                results[block] = weights
                phase.update(done + 1)
    elif inner > 1 or threads == 1:
        for done, block in enumerate(order):
            title = f"train block {done + 1}/{len(order)}"
            with work.reporter.phase(title, len(label_clusters[block])) as phase:
                kept(int(block), phase)
    else:
        with work.reporter.phase("train blocks", len(order)) as phase, threadpool_limits(1):
            run_in_threads(kept, [int(block) for block in order], threads, phase)
    return [weights for weights in results if weights is not None]


def train_block(
    learner: Learner,
    X: sparse.csr_array,
    Y: sparse.csr_array,
    rows: NDArray[np.integer],
    labels: Ids,
    how: Context,
) -> Weights:
    """Weights of ``labels`` from ``rows``; the learner sees only the features that occur in these rows."""
    if len(labels) == 0:
        nothing = sparse.csr_array(np.zeros((0, 0), np.float32))
        return LinearWeights(nothing, np.zeros(0, np.float32), features=np.zeros(0, np.int32))
    own = X[rows]
    features, columns = np.unique(own.indices, return_inverse=True)
    if features.size == 0:  # no row has a feature: learners want to see at least one
        features = np.zeros(1, features.dtype)
    own = sparse.csr_array((own.data, columns.astype(np.int32), own.indptr), shape=(rows.size, features.size))
    trained = learner._train(own, sparse.csr_array(Y[rows][:, labels]), how)
    return trained.on_features(features.astype(np.int32))


def train_global(
    learner: Learner, X: sparse.csr_array, Y: sparse.csr_array, work: job.Job, *, threads: int, seed: int
) -> Any:
    """Global weights: every label trained on all rows; split over blocks, which then only choose candidates."""
    with work.reporter.phase("train all labels", Y.shape[1]) as phase:
        how = learner._context(threads, phase, seed)
        return work.stage("all labels", lambda: learner._train(X, Y, how), WEIGHTS)


def _group_rows(assignment: NDArray[np.integer], n_blocks: int) -> list[NDArray[np.intp]]:
    """Rows of each block, ascending."""
    order = np.argsort(assignment, kind="stable")
    return np.split(order, np.cumsum(np.bincount(assignment, minlength=n_blocks))[:-1])


def offset_terms(weights: Sequence[Weights], n_features: int) -> sparse.csr_array | None:
    """The terms that blocks (or one scorer of all labels) add to all their labels alike, features x blocks."""
    columns = []
    for w in weights:
        values = getattr(w, "offset", None)
        if values is None:
            return None
        rows = np.arange(n_features) if w.features is None else w.features  # type: ignore[attr-defined]
        columns.append(sparse.csc_array((values, (rows, np.zeros(rows.size, int))), shape=(n_features, 1)))
    return sparse.csr_array(sparse.hstack(columns, format="csr", dtype=np.float32)) if columns else None
