"""New rows into a model that keeps its rows, or rows out of it.

Blocks of the other rows stay as they are. New rows tell a label something if they are its positives, or if they are its
negatives and have a margin above a bound. Once these are more than a share of its positives, the label is solved again,
from its present weights and on all rows that concern it: at once where it has few positives, else after some updates. The
router is solved again when rows have grown by a share. Rows that go are different: every label that they have taught, and
the router for their blocks, is solved again without them. Counts, centroids, neighbors and lists of frequent labels are
made anew, and the model is packed as ``fit`` does. Score mix, reranker and calibration are kept: new rows say, before they
are learnt, how well these still serve (drift.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc import metrics
from blockxmc._core.matrix import as_csr, flat_positions, take_rows
from blockxmc._core.progress import Reporter
from blockxmc.errors import UpdateError
from blockxmc.linear.vectors import LabelVectors
from blockxmc.linear.weights import LinearWeights
from blockxmc.partition import Partitioner
from blockxmc.partition.growth import place_rows, repartitioned
from blockxmc.routing import Router, only_block
from blockxmc.serving.routed import RoutedModel
from blockxmc.training.shared.blocks import cover_all_labels, holds, make_router, router_targets, visits_of
from blockxmc.training.shared.calibration import UNCALIBRATED
from blockxmc.training.shared.candidates import log_positives_of
from blockxmc.training.shared.fit import Request, Training
from blockxmc.training.shared.kept import Kept, kept_copy, stacked, widened
from blockxmc.training.shared.mix import Fitted

I32 = NDArray[np.int32]
# Rows whose margins are looked at together.
_AT_A_TIME = 4096


@dataclass(frozen=True)
class Learned:
    """A model, its blocks, and what it keeps to learn on."""

    partition: Partitioner
    model: RoutedModel
    kept: Kept


def add_rows(
    request: Request, old: Learned, X: sparse.csr_array, Y: sparse.csr_array, reporter: Reporter
) -> tuple[Learned, dict[str, Any]]:
    """The model with new rows, which may have more features and labels than it knows, and what happened."""
    n_features, n_labels, threads = X.shape[1], Y.shape[1], request.threads
    event = {"what": "update", "rows": int(X.shape[0]), **before_learning(old.model, X, Y, threads)}
    labels, of_blocks = old.kept.labels, old.kept.blocks
    kept = replace(old.kept, labels=grown(labels, n_labels, n_features))
    of_blocks = grown(of_blocks, of_blocks.n_labels, n_features)
    start = _router(of_blocks).blocks(X, 1, threads=threads)[:, 0]
    blocks = place_rows(old.partition, Y, start, threads)
    X_old, Y_old = kept.rows(n_features, n_labels)
    X_all, Y_all = stacked([X_old, X]), stacked([Y_old, Y])
    assignment = np.concatenate([old.partition.assignment_, blocks])
    partition = repartitioned(old.partition, Y_all, assignment, of_blocks.n_labels, threads)
    stale = assignment.size - kept.router_rows > request.settings.update_router * assignment.size
    changed = np.arange(of_blocks.n_labels if stale else 0)
    of_blocks = _solved_blocks(request, (X_all, Y_all), assignment, of_blocks, changed, reporter)
    routed = _router(of_blocks).blocks(X, kept.negative_blocks.shape[1], threads=threads)
    clusters = cover_all_labels(Y_all, assignment, partition.label_clusters_)
    seen = visits_of(blocks, routed, partition.n_blocks_)
    told = np.pad(kept.told, (0, n_labels - kept.told.size)) + np.bincount(Y.indices, minlength=n_labels)
    told += taught(kept.labels, (X, Y), seen, clusters, request.settings.update_margin, threads)
    touched = np.flatnonzero(told > request.settings.update_share * np.bincount(Y_all.indices, minlength=n_labels))
    told[touched] = 0
    new = replace(
        kept,
        parts=kept.with_part(kept_copy(X), kept_copy(Y)),
        blocks=of_blocks,
        negative_blocks=np.concatenate([kept.negative_blocks, routed]),
        told=told,
        router_rows=assignment.size if stale else kept.router_rows,
    )
    event |= {
        "new_labels": n_labels - labels.n_labels,
        "new_features": n_features - old.model.n_features,
        "labels_solved": int(touched.size),
        "blocks_solved": int(changed.size),
    }
    return _packed(request, (X_all, Y_all), Learned(partition, old.model, new), touched, reporter), event


def drop_rows(
    request: Request, old: Learned, dropped: NDArray[np.bool_], reporter: Reporter
) -> tuple[Learned, dict[str, Any]]:
    """The model without some of its rows, and what happened. Labels stay, even those that have lost all their rows."""
    kept, threads = old.kept, request.threads
    X, Y = kept.rows(old.model.n_features, kept.labels.n_labels)
    left, gone = np.flatnonzero(~dropped), np.flatnonzero(dropped)
    X_left, Y_left = take_rows(X, left), take_rows(Y, left)
    if not Y_left.nnz:
        raise UpdateError("forget would leave no row with a label: train another model instead")
    assignment, negative, blocks = _living(old, X_left, Y_left, left, threads)
    partition = repartitioned(old.partition, Y_left, assignment, blocks.size, threads)
    changed = _changed_blocks(request, old.partition, Y, blocks, gone)
    learned = _solved_blocks(request, (X_left, Y_left), assignment, some_of(kept.blocks, blocks), changed, reporter)
    # By the blocks that taught: whatever a row has taught is to be solved without it. Below -1 a margin teaches nothing.
    clusters = cover_all_labels(Y, old.partition.assignment_, old.partition.label_clusters_)
    seen = visits_of(old.partition.assignment_[gone], kept.negative_blocks[gone], old.partition.n_blocks_)
    rows = take_rows(X, gone), take_rows(Y, gone)
    taught_by = np.bincount(rows[1].indices, minlength=Y.shape[1])
    touched = np.flatnonzero(taught_by + taught(kept.labels, rows, seen, clusters, -1.0, threads))
    told = kept.told.copy()
    told[touched] = 0
    new = replace(
        kept,
        parts=kept.without_rows(dropped),
        blocks=learned,
        negative_blocks=negative,
        told=told,
        router_rows=min(kept.router_rows, left.size),
    )
    event = {
        "what": "forget",
        "rows": int(gone.size),
        "labels_solved": int(touched.size),
        "blocks_solved": int(changed.size),
    }
    return _packed(request, (X_left, Y_left), Learned(partition, old.model, new), touched, reporter), event


def taught(
    weights: LabelVectors,
    rows: tuple[sparse.csr_array, sparse.csr_array],
    visits: sparse.csr_array,
    clusters: Any,
    bound: float,
    threads: int,
) -> NDArray[np.int64]:
    """For each label, how many of these rows are negatives that visit its blocks and have a margin above the bound.

    >>> weights = LabelVectors(sparse.csr_array(np.eye(2, dtype=np.float32)), np.full(2, -1, np.float32))
    >>> rows = sparse.csr_array(np.array([[0.7, 0.1]], np.float32)), sparse.csr_array(np.array([[0, 1]], np.float32))
    >>> taught(weights, rows, sparse.csr_array(np.ones((1, 1), np.float32)), [np.arange(2)], -0.5, 1).tolist()
    [1, 0]
    """
    X, Y = rows
    of_block = holds(clusters, weights.n_labels)
    found = np.zeros(weights.n_labels, np.int64)
    for first in range(0, X.shape[0], _AT_A_TIME):
        some = slice(first, first + _AT_A_TIME)
        pairs = sparse.csr_array(visits[some] @ of_block)
        margins = weights.pair_scores(sparse.csr_array(X[some]), pairs.indptr, pairs.indices, threads)
        own = np.isin(flat_positions(pairs), flat_positions(sparse.csr_array(Y[some])))
        found += np.bincount(pairs.indices[(margins > bound) & ~own], minlength=found.size)
    return found


def before_learning(model: RoutedModel, X: sparse.csr_array, Y: sparse.csr_array, threads: int) -> dict[str, float]:
    """P@1, P@3 and P@5 of a model on labelled rows that it has not learnt yet: how well it serves what comes now."""
    labelled = np.flatnonzero(np.diff(Y.indptr))
    if not labelled.size:
        return {}
    known = as_csr(take_rows(X, labelled)[:, : model.n_features])
    labels = model.topk(known, min(5, model.n_labels), threads)[0]
    labels = np.pad(labels, ((0, 0), (0, 5 - labels.shape[1])), constant_values=-1)
    rows = take_rows(Y, labelled)
    return {f"P@{k}": float(metrics.precision_at_k(rows, labels, k)) for k in (1, 3, 5)}


def grown(weights: LabelVectors, n_labels: int, n_features: int) -> LabelVectors:
    """The weights with empty ones for new labels, on more features.

    >>> grown(LabelVectors(sparse.csr_array(np.eye(2, dtype=np.float32)), np.ones(2, np.float32)), 3, 4).vectors.shape
    (3, 4)
    """
    more = n_labels - weights.n_labels
    old = widened(weights.vectors, n_features)
    if not more:
        return replace(weights, vectors=old)
    indptr = np.concatenate([old.indptr, np.repeat(old.indptr[-1:], more)])
    vectors = sparse.csr_array((old.data, old.indices, indptr), shape=(n_labels, n_features))
    bias, mass = (None if part is None else np.pad(part, (0, more)) for part in (weights.bias, weights.mass))
    assert bias is not None
    return LabelVectors(vectors, bias, mass)


def some_of(weights: LabelVectors, rows: NDArray[np.intp]) -> LabelVectors:
    """Only these vectors, in this order."""
    return LabelVectors(take_rows(weights.vectors, rows), weights.bias[rows])


def _router(blocks: LabelVectors, bits: int = 32) -> Router:
    return Router.from_weights(LinearWeights(sparse.csc_array(blocks.vectors.T), blocks.bias), bits)


def _solved_blocks(
    request: Request,
    rows: tuple[sparse.csr_array, sparse.csr_array],
    assignment: I32,
    old: LabelVectors,
    changed: NDArray[Any],
    reporter: Reporter,
) -> LabelVectors:
    """The weights of the router, those of the changed blocks solved again."""
    if old.n_labels == 1 or not changed.size:
        return old
    X, Y = rows
    router = make_router(X, request.settings)
    targets = router_targets(Y, assignment, old.n_labels, request.settings, request.threads)
    options: Any = {"threads": request.threads, "reporter": reporter}
    found = router.weights_of(X, targets, changed, old.vectors, **options)
    return old.replaced(changed, LabelVectors(sparse.csr_array(found.coef.T), found.bias))


def _living(
    old: Learned, X: sparse.csr_array, Y: sparse.csr_array, left: NDArray[np.intp], threads: int
) -> tuple[I32, I32, NDArray[np.intp]]:
    """Blocks and negative blocks of the rows that are left, numbered by the blocks that still have labels; and those."""
    assignment = old.partition.assignment_[left]
    labelled = np.diff(Y.indptr) > 0
    alive = np.bincount(assignment[labelled], minlength=old.partition.n_blocks_) > 0
    blocks = np.flatnonzero(alive)
    number = np.where(alive, np.cumsum(alive) - 1, -1).astype(np.int32)
    assignment, negative = number[assignment], number[old.kept.negative_blocks[left]]
    lost = np.flatnonzero(assignment < 0)
    if lost.size:
        router = _router(some_of(old.kept.blocks, blocks))
        assignment[lost] = router.blocks(take_rows(X, lost), 1, threads=threads)[:, 0]
    return assignment, np.where(negative < 0, assignment[:, None], negative), blocks


def _changed_blocks(
    request: Request, old: Partitioner, Y: sparse.csr_array, blocks: NDArray[np.intp], gone: NDArray[np.intp]
) -> NDArray[np.intp]:
    """The blocks that rows which are gone may have taught, as they are numbered now: their own, and their labels' homes."""
    everywhere = replace(request.settings, router_near=0.0, router_targets=old.n_blocks_)
    taught = router_targets(Y, old.assignment_, old.n_blocks_, everywhere, request.threads)
    return np.flatnonzero(np.isin(blocks, take_rows(taught, gone).indices))


def _packed(
    request: Request,
    rows: tuple[sparse.csr_array, sparse.csr_array],
    new: Learned,
    touched: NDArray[np.intp],
    reporter: Reporter,
) -> Learned:
    """The model of these rows, the touched labels solved again."""
    X, Y = rows
    kept, old = new.kept, new.model
    training = Training(request, X, Y, new.partition, reporter)
    training.negative_blocks, training.asked = kept.negative_blocks, kept.asked
    weights = kept.labels
    if touched.size:
        again = training.solve_again(weights, touched, take_rows(weights.vectors, touched))
        assert isinstance(again, LabelVectors)  # a learner of vectors stays one
        weights = again
    blocks = _router(kept.blocks, max(request.bits, request.settings.router_bits))
    router = only_block(X.shape[1]) if blocks.scorer is None else blocks.scorer
    trial = replace(old, router=router, route=min(old.route, kept.blocks.n_labels), neighbors=None)
    reranker = old.reranker
    if reranker is not None:
        reranker = replace(reranker, log_positives=log_positives_of(training.positives, request.settings))
    calibration = old.calibration or UNCALIBRATED
    model = training.pack(trial, weights, Fitted(kept.mix, reranker, old.top_p, calibration))
    return Learned(new.partition, model, replace(kept, labels=weights))
