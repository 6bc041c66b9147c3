"""New rows into a model that keeps its rows, or rows out of it.

Blocks of the other rows stay as they are. New rows tell a label something if they are its positives, or if they are its
negatives and have a margin above a bound. Once these are more than a share of its positives, the label learns. In a small
update it is solved again, from its present weights and on all rows that concern it. In a large one it is changed by the new
rows, and by those that were held out of the fit, while some of its old rows hold (lessons.py), in less than half of the
time; new labels, and those with many times more new positives than old ones, are solved even then. The router is solved
again when rows have grown by a share. Rows that go are different: every label that they have taught, and the router for
their blocks, is solved again without them. Counts, centroids, neighbors, pairs of labels and lists of frequent labels are
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
from blockxmc.training.listings import left_since, lists
from blockxmc.training.shared.blocks import make_router, router_targets, visits_of
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
    kept = old.kept.with_labels(grown(old.kept.labels, n_labels, n_features))
    of_blocks = grown(old.kept.blocks, old.partition.n_blocks_, n_features)
    start = _router(of_blocks).blocks(X, 1, threads=threads)[:, 0]
    blocks = place_rows(old.partition, Y, start, threads)
    X_all, Y_all = stacked([X_old, X]), stacked([Y_old, Y])
    assignment = np.concatenate([old.partition.assignment_, blocks])
    large = X.shape[0] > request.settings.update_shift * assignment.size
    kept = _placed(old.partition, kept, Y_all, assignment, threads) if large else kept
    n_blocks, shown = of_blocks.n_labels, kept.shown(Y_all)
    partition = repartitioned(old.partition, shown, assignment, n_blocks, threads, kept.fit_captured)
    stale = assignment.size - kept.router_rows > request.settings.update_router * assignment.size
    changed = np.arange(n_blocks if stale else 0)
    of_blocks = _solved_blocks(request, (X_all, Y_all), assignment, of_blocks, changed, reporter)
    routed = _router(of_blocks).blocks(X, kept.negative_blocks.shape[1], threads=threads)
    negative = np.concatenate([kept.negative_blocks, routed])
    clusters = lists(partition, Y_all, negative, kept, request.settings.update_lists)
    visits = visits_of(assignment, negative, partition.n_blocks_)
    n_old, lesson = Y_old.shape[0], request.settings.update_lesson
    before = lists(old.partition, Y_old, old.kept.negative_blocks, kept, request.settings.update_lists)
    news = Told.by(kept.labels, (X, Y), visits[n_old:], clusters, lesson, threads)
    news = news.numbered(np.arange(n_old, assignment.size))
    news += _newly_met(request, kept, (X_old, Y_old), visits[:n_old], (before, clusters))
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
        left=left_since(kept.left, before, clusters, is_touched & ~is_shifted),
    )
    event |= {
        "new_labels": n_labels - old.kept.labels.n_labels,
        "new_features": n_features - old.model.n_features,
        "labels_solved": int(touched.size - shifted.size),
        "labels_shifted": int(shifted.size),
        "blocks_solved": int(changed.size),
    }
    if shifted.size:
        news += _unlearnt(kept, (X_all, Y_all), visits, clusters, lesson, threads)
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
    former, negative = assignment[rows], kept.negative_blocks.copy()
    placed = place_rows(partition, take_rows(Y, rows), former, threads)
    # What a row has taught in its former block must be found when it is forgotten: it goes on to visit that block, in the
    # place of its new one, or else stays.
    own, visited = negative[rows], (negative[rows] == former[:, None]).any(axis=1)
    free = own == placed[:, None]
    swapped = np.flatnonzero(~visited & free.any(axis=1))
    own[swapped, free[swapped].argmax(axis=1)] = former[swapped]
    negative[rows] = own
    visited[swapped] = True
    assignment[rows] = np.where(visited, placed, former)
    return replace(kept, placed=True, negative_blocks=negative)


def _newly_met(
    request: Request,
    kept: Kept,
    rows: tuple[sparse.csr_array, sparse.csr_array],
    visits: sparse.csr_array,
    clusters: tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]],
) -> Told:
    """What known rows tell labels that come to the blocks they visit (which list these, then those).

    Rows that the fit held out are left out: they tell shifted labels that have not learnt from them (``_unlearnt``).
    """
    visits = without_rows(visits, np.isin(np.arange(visits.shape[0]), kept.unseen))
    return newly_met(kept.labels, rows, visits, clusters, request.settings.update_margin, request.threads)


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
    kept: Kept,
    rows: tuple[sparse.csr_array, sparse.csr_array],
    visits: sparse.csr_array,
    clusters: Any,
    bound: float,
    threads: int,
) -> Told:
    """What rows that were held out of the fit tell the labels that have not learnt from them yet."""
    X, Y, seen = (take_rows(part, kept.unseen.astype(np.intp)) for part in (*rows, visits))
    return Told.by(kept.labels, (X, Y), seen, clusters, bound, threads).numbered(kept.unseen, ~kept.complete)


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
        return weights.replaced(labels, LabelVectors(sparse.csr_array(found.coef.T), found.bias), request.threads)


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
    changed = _changed_blocks(request, old, Y, blocks, gone)
    learned = _solved_blocks(request, (X_left, Y_left), assignment, some_of(kept.blocks, blocks), changed, reporter)
    # By all blocks that may have taught: whatever a row has taught is to be solved without it. Below -1 a margin teaches
    # a label that was solved nothing; but any row may have held one that was shifted.
    clusters = lists(old.partition, Y, kept.negative_blocks, kept, old.partition.n_blocks_)
    listed = [np.union1d(ids, kept.left[kept.left[:, 0] == block, 1]) for block, ids in enumerate(clusters)]
    bounds = np.where(kept.shifted, -np.inf, -1.0)
    seen = visits_of(old.partition.assignment_[gone], kept.negative_blocks[gone], old.partition.n_blocks_)
    is_touched = np.zeros(Y.shape[1], bool)
    for first in range(0, gone.size, _AT_A_TIME):  # of all pairs, only the labels are wanted
        some = slice(first, first + _AT_A_TIME)
        rows = take_rows(X, gone[some]), take_rows(Y, gone[some])
        is_touched[Told.by(kept.labels, rows, seen[some], listed, bounds, threads).labels] = True
    for block in np.setdiff1d(
        np.arange(len(listed)), blocks
    ):  # no row remembers that it has visited a block that is gone
        is_touched[listed[block]] = True
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
    now = lists(partition, Y_left, negative, new, request.settings.update_lists)
    new = replace(new, left=left_since(kept.left[:0], [listed[block] for block in blocks], now, is_touched))
    event = {
        "what": "forget",
        "rows": int(gone.size),
        "labels_solved": int(touched.size),
        "blocks_solved": int(changed.size),
    }
    return _packed(request, (X_left, Y_left), Learned(partition, old.model, new), now, touched, reporter), event


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
    return old.replaced(changed, LabelVectors(sparse.csr_array(found.coef.T), found.bias), request.threads)


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
    request: Request, old: Learned, Y: sparse.csr_array, blocks: NDArray[np.intp], gone: NDArray[np.intp]
) -> NDArray[np.intp]:
    """The blocks that rows which are gone may have taught, as they are numbered now: their own, and their labels' homes.

    A row that was held out of the fit may have had another block, which it still visits.
    """
    assignment = old.partition.assignment_
    moved = np.intersect1d(gone, old.kept.unseen)
    taught = np.union1d(assignment[gone], old.kept.negative_blocks[moved])
    if request.settings.router_targets > 1:
        own = visits_of(assignment, np.empty((Y.shape[0], 0), np.int32), old.partition.n_blocks_)
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
