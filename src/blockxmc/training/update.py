"""New rows into a model that keeps its rows, or rows out of it.

Blocks of the other rows stay as they are. New rows tell a label something if they are its positives, or if they are its
negatives and have a margin above a bound. Once these are more than a share of its positives, the label learns. In a small
update it is solved again, from nothing, on all rows that concern it. In a large one it is changed by the new
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

from blockxmc._core.matrix import take_rows, without_rows
from blockxmc._core.progress import Reporter
from blockxmc.errors import UpdateError
from blockxmc.learners.dismec import DiSMEC
from blockxmc.linear.one_vs_all import Lessons
from blockxmc.linear.vectors import LabelVectors
from blockxmc.linear.weights import LinearWeights
from blockxmc.model.routed import RoutedModel
from blockxmc.partition import Partitioner
from blockxmc.partition.growth import place_rows, repartitioned
from blockxmc.routing import Router
from blockxmc.training.blocks import make_router, own_blocks, visits_of
from blockxmc.training.calibration import UNCALIBRATED
from blockxmc.training.candidates import log_positives_of
from blockxmc.training.drift import before_learning
from blockxmc.training.fit import Request, Training
from blockxmc.training.kept import Kept, kept_copy, stacked, widened
from blockxmc.training.lessons import KnownRows, Told, newly_met, rows_of
from blockxmc.training.listings import left_since, lists
from blockxmc.training.mix import Fitted
from blockxmc.training.names import Names

I32 = NDArray[np.int32]
# Rows that go whose labels are looked for together.
_AT_A_TIME = 4096


@dataclass(frozen=True)
class Learned:
    """A model, its blocks, and what it keeps to learn on."""

    partition: Partitioner
    model: RoutedModel
    kept: Kept


@dataclass(frozen=True)
class _Grown:
    """Blocks after new rows have come: who visits them, what they have listed before and what they list now."""

    partition: Partitioner
    kept: Kept  # with the router, and the negative blocks of all rows
    before: list[NDArray[np.int64]]
    clusters: list[NDArray[np.int64]]
    visits: sparse.csr_array
    large: bool  # whether the update is
    blocks_solved: int


def add_rows(
    request: Request, old: Learned, X: sparse.csr_array, Y: sparse.csr_array, reporter: Reporter
) -> tuple[Learned, dict[str, Any]]:
    """The model with new rows, which may have more features and labels than it knows, and what happened."""
    n_features, n_labels = X.shape[1], Y.shape[1]
    event = {"what": "update", "rows": int(X.shape[0]), **before_learning(old.model, X, Y, request.threads)}
    X_old, Y_old = old.kept.rows(n_features, n_labels)  # which looks at all that is kept
    rows = stacked([X_old, X]), stacked([Y_old, Y])
    blocks = _grown_blocks(request, old, (X, Y), rows, reporter)
    kept = blocks.kept
    news = _news(request, blocks, (X, Y), (X_old, Y_old))
    told = kept.told + news.counts(n_labels, request.settings.update_margin)
    touched = np.flatnonzero(told > request.settings.update_share * np.bincount(rows[1].indices, minlength=n_labels))
    shifted = _shifting(request, (Y_old, Y), blocks, touched) if blocks.large else touched[:0]
    is_touched, is_shifted = (np.isin(np.arange(n_labels), some) for some in (touched, shifted))
    told[touched] = 0
    new = replace(
        kept,
        parts=kept.with_part(kept_copy(X), kept_copy(Y)),
        told=told,
        complete=kept.complete | is_touched,
        shifted=(kept.shifted & ~is_touched) | is_shifted,
        left=left_since(kept.left, blocks.before, blocks.clusters, is_touched & ~is_shifted),
    )
    if shifted.size:
        lessons = _lessons(request, blocks, rows, Y_old.shape[0], news, shifted)
        new = replace(new, labels=_shifted(request, rows[0], kept.labels, shifted, lessons, reporter))
    event |= {
        "new_labels": n_labels - old.kept.labels.n_labels,
        "new_features": n_features - old.model.n_features,
        "labels_solved": int(touched.size - shifted.size),
        "labels_shifted": int(shifted.size),
        "blocks_solved": blocks.blocks_solved,
    }
    learned = Learned(blocks.partition, old.model, new)
    return _packed(request, rows, learned, blocks.clusters, np.setdiff1d(touched, shifted), reporter), event


def _grown_blocks(
    request: Request,
    old: Learned,
    new: tuple[sparse.csr_array, sparse.csr_array],
    rows: tuple[sparse.csr_array, sparse.csr_array],
    reporter: Reporter,
) -> _Grown:
    """New rows find blocks, lists follow, and the router learns again where enough rows are new to it."""
    (X, Y), Y_all, threads, settings = new, rows[1], request.threads, request.settings
    kept = old.kept.with_labels(grown(old.kept.labels, Y.shape[1], X.shape[1]))
    n_blocks, of_blocks = old.partition.n_blocks_, grown(old.kept.blocks, old.partition.n_blocks_, X.shape[1])
    start = _router(of_blocks).blocks(X, 1, threads=threads)[:, 0]
    assignment = np.concatenate([old.partition.assignment_, place_rows(old.partition, Y, start, threads)])
    large = X.shape[0] > settings.update_shift * assignment.size
    kept = _placed(old.partition, kept, Y_all, assignment, threads) if large else kept
    partition = repartitioned(old.partition, kept.shown(Y_all), assignment, n_blocks, threads, kept.fit_captured)
    most = settings.update_router if large else settings.update_router_small
    stale = assignment.size - kept.router_rows > most * assignment.size
    changed = np.arange(n_blocks if stale else 0)
    of_blocks = _solved_blocks(request, rows, assignment, of_blocks, changed, reporter)
    width = kept.negative_blocks.shape[1]
    routed = _router(of_blocks).blocks(X, width, threads=threads)
    routed = np.pad(routed, ((0, 0), (0, width - routed.shape[1])), mode="edge")  # where fewer blocks are left
    negative = np.concatenate([kept.negative_blocks, routed])
    n_old = Y_all.shape[0] - Y.shape[0]
    before = lists(old.partition, Y_all[:n_old], old.kept.negative_blocks, kept, settings.update_lists)
    clusters = lists(partition, Y_all, negative, kept, settings.update_lists)
    router_rows = assignment.size if stale else kept.router_rows
    kept = replace(kept, blocks=of_blocks, negative_blocks=negative, router_rows=router_rows)
    visits = visits_of(assignment, negative, n_blocks)
    return _Grown(partition, kept, before, clusters, visits, large, int(changed.size))


def _news(
    request: Request,
    grown: _Grown,
    new: tuple[sparse.csr_array, sparse.csr_array],
    old: tuple[sparse.csr_array, sparse.csr_array],
) -> Told:
    """What new rows tell labels, and known rows those that come to the blocks they visit.

    Of known rows, those that the fit held out are left out: they tell shifted labels that have not learnt from them.
    """
    n_old, kept, settings = old[0].shape[0], grown.kept, request.settings
    told = Told.by(kept.labels, new, grown.visits[n_old:], grown.clusters, settings.update_lesson, request.threads)
    told = told.numbered(np.arange(n_old, n_old + new[0].shape[0]))
    seen = without_rows(grown.visits[:n_old], np.isin(np.arange(n_old), kept.unseen))
    return told + newly_met(
        kept.labels, old, seen, (grown.before, grown.clusters), settings.update_margin, request.threads
    )


def _lessons(
    request: Request,
    grown: _Grown,
    rows: tuple[sparse.csr_array, sparse.csr_array],
    n_old: int,
    news: Told,
    labels: NDArray[np.intp],
) -> Lessons:
    """What these labels learn from the news and from rows that were held out of the fit, while other known rows hold."""
    kept, settings, threads = grown.kept, request.settings, request.threads
    X, Y, seen = (take_rows(part, kept.unseen.astype(np.intp)) for part in (*rows, grown.visits))
    unlearnt = Told.by(kept.labels, (X, Y), seen, grown.clusters, settings.update_lesson, threads)
    news += unlearnt.numbered(kept.unseen, ~kept.complete)
    known = np.arange(rows[1].shape[0]) < n_old
    known[kept.unseen] = kept.complete.all()
    return KnownRows(rows[1], grown.visits, grown.clusters, known, settings).lessons(news, labels, threads)


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


def _shifting(
    request: Request,
    targets: tuple[sparse.csr_array, sparse.csr_array],
    grown: _Grown,
    touched: NDArray[np.intp],
) -> NDArray[np.intp]:
    """Those of the touched labels that need not meet all rows again: old ones that were told nothing before.

    A change is small beside weights that solve the old rows: where it came upon another, the two would add up their errors.
    """
    if not isinstance(request.learner, DiSMEC):
        return touched[:0]
    settings, kept = request.settings, grown.kept
    n_rows = rows_of(grown.visits, grown.clusters, targets[0].shape[1])
    old, new = (np.bincount(part.indices, minlength=n_rows.size) for part in targets)
    times = np.where(n_rows > settings.update_few_rows, settings.update_times, settings.update_times_few)
    able: NDArray[np.bool_] = (new <= times * old) & (kept.told == 0) & ~kept.shifted
    return np.asarray(touched[able[touched]])


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
        job = learner._context(request.threads, phase, request.seed)
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
    changed = _changed_blocks(old, blocks, gone)
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
    targets = own_blocks(assignment, old.n_labels)
    if request.hints.label_features is not None:
        names = Names.of(request.hints.label_features, X, Y, request.settings)
        X, targets = names.taught(X, targets, Y, assignment)
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


def _changed_blocks(old: Learned, blocks: NDArray[np.intp], gone: NDArray[np.intp]) -> NDArray[np.intp]:
    """The blocks that rows which are gone may have taught, as they are numbered now.

    A row that was held out of the fit may have had another block, which it still visits.
    """
    moved = np.intersect1d(gone, old.kept.unseen)
    taught = np.union1d(old.partition.assignment_[gone], old.kept.negative_blocks[moved])
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
    router, names = _router(kept.blocks, max(request.bits, request.settings.router_bits)), None
    if request.hints.label_features is not None:
        names = Names.of(request.hints.label_features, X, Y, request.settings)
    how = new.partition, clusters, kept.negative_blocks, reporter, names, kept.asked
    training = Training(request, X, Y, *how)
    weights = kept.labels
    if touched.size:
        few = training.positives[touched] <= request.settings.update_new
        again = training.solve_again(weights, touched, few & (touched >= kept.fit_labels))
        assert isinstance(again, LabelVectors)  # a learner of vectors stays one
        weights = again
    reranker = old.reranker
    if reranker is not None:
        reranker = replace(reranker, log_positives=log_positives_of(training.positives, request.settings))
    calibration = old.calibration or UNCALIBRATED
    model = training.pack(router, training.mixed(weights, kept.mix), Fitted(kept.mix, reranker, calibration))
    model = replace(model, route=min(old.route, kept.blocks.n_labels), top_p=old.top_p)
    return Learned(new.partition, model, replace(kept, labels=weights))
