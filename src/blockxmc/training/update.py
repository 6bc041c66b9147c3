"""New rows into a model that keeps its rows, or rows out of it.

Blocks of the other rows stay as they are. New rows tell a label something if they are its positives, or if they are its
negatives and have a margin above a bound. Once these are more than a share of its positives, the label learns. In a small
update it is solved again, from its present weights and on all rows that concern it. In a large one it is changed by the new
rows, and by those that were held out of the fit, while some of its old rows hold (lessons.py), in less than half of the
time; new labels, and those with many times more new positives than old ones, are solved even then. The router is solved
again when rows have grown by a share. Rows that go are different: every label that they have taught, and the router for
their blocks, is solved again without them. Counts, centroids, neighbors and lists of frequent labels are made anew, and
the model is packed as ``fit`` does. Score mix, reranker and calibration are kept: new rows say, before they are learnt, how
well these still serve (drift.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc import metrics
from blockxmc._core.matrix import as_csr, take_rows, without_rows
from blockxmc._core.progress import Reporter
from blockxmc.errors import UpdateError
from blockxmc.learners.dismec import DiSMEC
from blockxmc.linear.one_vs_all import Lessons
from blockxmc.linear.vectors import LabelVectors
from blockxmc.linear.weights import LinearWeights
from blockxmc.partition import Partitioner
from blockxmc.partition.growth import place_rows, repartitioned
from blockxmc.routing import Router
from blockxmc.serving.routed import RoutedModel
from blockxmc.training.lessons import KnownRows, Told, newly_met, rows_of
from blockxmc.training.shared.blocks import cover_all_labels, make_router, router_targets, visits_of
from blockxmc.training.shared.calibration import UNCALIBRATED
from blockxmc.training.shared.candidates import log_positives_of
from blockxmc.training.shared.fit import Request, Training
from blockxmc.training.shared.kept import Kept, kept_copy, stacked, widened
from blockxmc.training.shared.mix import Fitted

I32 = NDArray[np.int32]
# Rows that go whose labels are looked for together.
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
    X_old, Y_old = old.kept.rows(n_features, n_labels)  # which looks at all that is kept
    labels, of_blocks = old.kept.labels, old.kept.blocks
    kept = old.kept.with_labels(grown(labels, n_labels, n_features))
    of_blocks = grown(of_blocks, of_blocks.n_labels, n_features)
    start = _router(of_blocks).blocks(X, 1, threads=threads)[:, 0]
    blocks = place_rows(old.partition, Y, start, threads)
    X_all, Y_all = stacked([X_old, X]), stacked([Y_old, Y])
    assignment = np.concatenate([old.partition.assignment_, blocks])
    large = X.shape[0] > request.settings.update_shift * assignment.size
    kept = _placed(old.partition, kept, Y_all, assignment, threads) if large else kept
    taught = kept.shown(Y_all), assignment, of_blocks.n_labels
    partition = repartitioned(old.partition, *taught, threads, kept.fit_captured)
    stale = assignment.size - kept.router_rows > request.settings.update_router * assignment.size
    changed = np.arange(of_blocks.n_labels if stale else 0)
    of_blocks = _solved_blocks(request, (X_all, Y_all), assignment, of_blocks, changed, reporter)
    routed = _router(of_blocks).blocks(X, kept.negative_blocks.shape[1], threads=threads)
    negative = np.concatenate([kept.negative_blocks, routed])
    clusters = lists(partition, Y_all, negative, kept, request.settings.update_lists)
    visits = visits_of(assignment, negative, partition.n_blocks_)
    n_old, lesson = Y_old.shape[0], request.settings.update_lesson
    news = Told.by(kept.labels, (X, Y), visits[n_old:], clusters, lesson, threads)
    news = news.numbered(np.arange(n_old, assignment.size))
    news += _newly_met(request, old, (X_old, Y_old), visits[:n_old], clusters)
    told = kept.told + news.counts(n_labels, request.settings.update_margin)
    touched = np.flatnonzero(told > request.settings.update_share * np.bincount(Y_all.indices, minlength=n_labels))
    shifted = _shifting(request, (Y_old, Y), kept, touched if large else touched[:0], visits, clusters)
    is_touched, is_shifted = (np.isin(np.arange(n_labels), some) for some in (touched, shifted))
    told[touched] = 0
    new = replace(
        kept,
        parts=kept.with_part(kept_copy(X), kept_copy(Y)),
        blocks=of_blocks,
        negative_blocks=negative,
        told=told,
        router_rows=assignment.size if stale else kept.router_rows,
        complete=kept.complete | is_touched,
        shifted=(kept.shifted & ~is_touched) | is_shifted,
    )
    event |= {
        "new_labels": n_labels - labels.n_labels,
        "new_features": n_features - old.model.n_features,
        "labels_solved": int(touched.size - shifted.size),
        "labels_shifted": int(shifted.size),
        "blocks_solved": int(changed.size),
    }
    if shifted.size:
        rest = kept.unseen, ~kept.complete
        news += _unlearnt(kept.labels, (X_all, Y_all), visits, clusters, rest, lesson, threads)
        known = np.arange(assignment.size) < n_old
        known[kept.unseen] = kept.complete.all()
        lessons = KnownRows(Y_all, visits, clusters, known, request.settings).lessons(news, shifted, threads)
        new = replace(new, labels=_shifted(request, X_all, kept.labels, shifted, lessons, reporter))
    whole = np.setdiff1d(touched, shifted)
    return _packed(request, (X_all, Y_all), Learned(partition, old.model, new), clusters, whole, reporter), event


def _placed(partition: Partitioner, kept: Kept, Y: sparse.csr_array, assignment: I32, threads: int) -> Kept:
    """Rows that were held out of the fit get blocks by their labels, as new rows do: changes ``assignment``.

    A small update leaves them, and lists of labels that know nothing of them, as they are. It solves few labels, and one
    that is listed in more blocks without having met their rows comes up there: P@1/3/5 of debian-small lost 0.3.
    """
    if kept.placed:
        return kept
    rows = kept.unseen.astype(np.intp)
    assignment[rows] = place_rows(partition, take_rows(Y, rows), assignment[rows], threads)
    return replace(kept, placed=True)


def _newly_met(
    request: Request,
    old: Learned,
    rows: tuple[sparse.csr_array, sparse.csr_array],
    visits: sparse.csr_array,
    clusters: list[NDArray[np.int64]],
) -> Told:
    """What known rows tell labels that come to the blocks they visit; those that the fit held out speak elsewhere."""
    settings, kept = request.settings, old.kept
    visits = without_rows(visits, np.isin(np.arange(visits.shape[0]), kept.unseen))
    before = lists(old.partition, rows[1], kept.negative_blocks, kept, settings.update_lists)
    labels = grown(kept.labels, kept.labels.n_labels, rows[0].shape[1])
    return newly_met(labels, rows, visits, (before, clusters), settings.update_margin, request.threads)


def _shifting(
    request: Request,
    targets: tuple[sparse.csr_array, sparse.csr_array],
    kept: Kept,
    touched: NDArray[np.intp],
    visits: sparse.csr_array,
    clusters: list[NDArray[np.int64]],
) -> NDArray[np.intp]:
    """Those of the touched labels that need not meet all rows again: old ones that were told nothing before.

    A change is small beside weights that solve the old rows: where it came upon another, the two would add up their errors.
    """
    if not isinstance(request.learner, DiSMEC):
        return touched[:0]
    settings, n_rows = request.settings, rows_of(visits, clusters, targets[0].shape[1])
    old, new = (np.bincount(part.indices, minlength=n_rows.size) for part in targets)
    times = np.where(n_rows > settings.update_few_rows, settings.update_times, settings.update_times_few)
    able: NDArray[np.bool_] = (new <= times * old) & (kept.told == 0) & ~kept.shifted
    return np.asarray(touched[able[touched]])


def _unlearnt(
    weights: LabelVectors,
    rows: tuple[sparse.csr_array, sparse.csr_array],
    visits: sparse.csr_array,
    clusters: Any,
    unseen: tuple[I32, NDArray[np.bool_]],
    bound: float,
    threads: int,
) -> Told:
    """What rows that were held out of the fit tell the labels that have not learnt from them yet."""
    held, labels = unseen
    X, Y, seen = (take_rows(part, held.astype(np.intp)) for part in (*rows, visits))
    return Told.by(weights, (X, Y), seen, clusters, bound, threads).numbered(held, labels)


def _shifted(
    request: Request,
    X: sparse.csr_array,
    weights: LabelVectors,
    labels: NDArray[np.intp],
    lessons: Lessons,
    reporter: Reporter,
) -> LabelVectors:
    """The weights with those of these labels changed by their lessons."""
    learner = request.learner
    assert isinstance(learner, DiSMEC)
    old = some_of(weights, labels)
    with reporter.phase("shift labels", labels.size) as phase:
        job = learner._job(request.threads, phase, request.seed)
        given = LinearWeights(sparse.csc_array(old.vectors.T), old.bias)
        found = learner._shift(X, given, lessons, job, request.settings.update_tol)
        return weights.replaced(labels, LabelVectors(sparse.csr_array(found.coef.T), found.bias))


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
    shown = take_rows(kept.shown(Y), left)
    if not shown.nnz:
        kept, shown = replace(kept, placed=True), Y_left
    assignment, negative, blocks = _living(old, X_left, shown, left, threads)
    partition = repartitioned(old.partition, shown, assignment, blocks.size, threads, kept.fit_captured)
    changed = _changed_blocks(request, old.partition, Y, blocks, gone)
    learned = _solved_blocks(request, (X_left, Y_left), assignment, some_of(kept.blocks, blocks), changed, reporter)
    # By all blocks that may have taught: whatever a row has taught is to be solved without it. Below -1 a margin teaches
    # a label that was solved nothing; but any row may have held one that was shifted.
    clusters = lists(old.partition, Y, kept.negative_blocks, kept, old.partition.n_blocks_)
    bounds = np.where(kept.shifted, -np.inf, -1.0)
    seen = visits_of(old.partition.assignment_[gone], kept.negative_blocks[gone], old.partition.n_blocks_)
    is_touched = np.zeros(Y.shape[1], bool)
    for first in range(0, gone.size, _AT_A_TIME):  # of all pairs, only the labels are wanted
        some = slice(first, first + _AT_A_TIME)
        rows = take_rows(X, gone[some]), take_rows(Y, gone[some])
        is_touched[Told.by(kept.labels, rows, seen[some], clusters, bounds, threads).labels] = True
    touched = np.flatnonzero(is_touched)
    new = replace(
        kept,
        parts=kept.without_rows(dropped),
        blocks=learned,
        negative_blocks=negative,
        told=np.where(is_touched, 0, kept.told),
        router_rows=min(kept.router_rows, left.size),
        unseen=np.flatnonzero(np.isin(left, kept.unseen)).astype(np.int32),
        complete=kept.complete | is_touched,
        shifted=kept.shifted & ~is_touched,
    )
    event = {
        "what": "forget",
        "rows": int(gone.size),
        "labels_solved": int(touched.size),
        "blocks_solved": int(changed.size),
    }
    clusters = lists(partition, Y_left, negative, new, request.settings.update_lists)
    return _packed(request, (X_left, Y_left), Learned(partition, old.model, new), clusters, touched, reporter), event


def lists(
    partition: Partitioner, Y: sparse.csr_array, negative_blocks: I32, kept: Kept, most: int
) -> list[NDArray[np.int64]]:
    """The labels that each block lists: its cluster, and labels that came after the fit, in the blocks their rows visit.

    Such a label has few rows, and no row of it has taught the router: it is listed by no more than ``most`` blocks.
    """
    clusters = cover_all_labels(Y, partition.assignment_, partition.label_clusters_)
    came = np.flatnonzero(Y.indices >= kept.fit_labels)
    if not came.size:
        return clusters
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))[came]
    blocks = np.column_stack([partition.assignment_[rows], negative_blocks[rows]]).astype(np.int64)
    # The blocks that most of its rows visit; of those that as many do, the lower ones.
    pairs, counts = np.unique(blocks + len(clusters) * Y.indices[came][:, None].astype(np.int64), return_counts=True)
    of, labels = pairs % len(clusters), pairs // len(clusters)
    best = np.lexsort((of, -counts, labels))
    first = np.searchsorted(labels, labels)  # where the blocks of the label begin
    chosen = best[np.arange(best.size) - first < most]
    chosen = chosen[np.lexsort((labels[chosen], of[chosen]))]
    of, labels = of[chosen], labels[chosen]
    ends = np.cumsum(np.bincount(of, minlength=len(clusters)))
    more = np.split(labels, ends[:-1])
    return [np.union1d(ids, some) for ids, some in zip(clusters, more, strict=True)]


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
    taught = old.assignment_[gone]
    if request.settings.router_targets > 1:
        own = visits_of(old.assignment_, np.empty((Y.shape[0], 0), np.int32), old.n_blocks_)
        labels = np.unique(take_rows(Y, gone).indices)
        taught = np.union1d(taught, sparse.csr_array(Y[:, labels].T @ own).indices)
    return np.flatnonzero(np.isin(blocks, taught))


def _packed(
    request: Request,
    rows: tuple[sparse.csr_array, sparse.csr_array],
    new: Learned,
    clusters: list[NDArray[np.int64]],
    touched: NDArray[np.intp],
    reporter: Reporter,
) -> Learned:
    """The model of these rows, whose blocks list these labels, the touched ones solved again."""
    X, Y = rows
    kept, old = new.kept, new.model
    training = Training(request, X, Y, new.partition, reporter)
    training.negative_blocks, training.asked = kept.negative_blocks, kept.asked
    training.clusters = clusters
    weights = kept.labels
    if touched.size:
        again = training.solve_again(weights, touched, take_rows(weights.vectors, touched))
        assert isinstance(again, LabelVectors)  # a learner of vectors stays one
        weights = again
    router = _router(kept.blocks, max(request.bits, request.settings.router_bits))
    reranker = old.reranker
    if reranker is not None:
        reranker = replace(reranker, log_positives=log_positives_of(training.positives, request.settings))
    calibration = old.calibration or UNCALIBRATED
    fitted = Fitted(kept.mix, reranker, old.top_p, calibration)
    model = training.pack(router, training.mixed(weights, kept.mix), fitted)
    model = replace(model, route=min(old.route, kept.blocks.n_labels))
    return Learned(new.partition, model, replace(kept, labels=weights))
