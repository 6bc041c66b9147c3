"""From a partition to a served model with shared weights, in one straight line.

Some rows are held out while router and labels learn. One trial model shows what the held-out rows say about scores; then
the labels that missed them most are trained again, and everything is packed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits

from blockxmc._core.matrix import copy_rows, take_rows, without_rows
from blockxmc._core.progress import Beside, Reporter
from blockxmc.errors import BlockXMCError
from blockxmc.learners._learner import Learner
from blockxmc.linear.vectors import LabelVectors
from blockxmc.linear.weights import LinearWeights
from blockxmc.model.neighbors import Neighbors
from blockxmc.model.reranker import Reranker
from blockxmc.model.routed import RoutedModel
from blockxmc.partition import Partitioner
from blockxmc.routing import Router, assess_routing, only_block
from blockxmc.training.blocks import (
    best_block_first,
    cover_all_labels,
    holds,
    make_router,
    router_targets,
    visiting,
    visits_of,
)
from blockxmc.training.calibration import UNCALIBRATED
from blockxmc.training.candidates import Candidates, HeldOut, Mix
from blockxmc.training.centroids import KnownSums, Remembered, label_centroids
from blockxmc.training.companions import companions_of
from blockxmc.training.forms import router_form
from blockxmc.training.held_out import held_out_rows, labels_short_of_rows, like_new_rows
from blockxmc.training.hints import NO_HINTS, Hints
from blockxmc.training.job import Job
from blockxmc.training.kept import Kept, Part, kept_copy
from blockxmc.training.labels import LabelTrainer, SharedWeights, outside_violations, pack_shared, replaced
from blockxmc.training.mix import (
    FITTED,
    Fitted,
    Promise,
    fit_held_out,
    lost_to_rounding,
    only_calibrated,
    recall_of,
)
from blockxmc.training.names import Names, listing_names
from blockxmc.training.settings import SETTINGS, Settings
from blockxmc.training.untrained import Untrained
from blockxmc.training.within import affordable_top_ps, neighbors_within, within_products

# Labels whose centroids are made and added at a time: all at once would take as much memory as the weights.
MIXED_AT_A_TIME = 2**18


@dataclass(frozen=True)
class Request:
    """What is asked of a shared training.

    ``route`` is a number of blocks to visit, a share of the router's probability to reach, or ``"auto"``; ``n_neighbors``
    how many training rows like it a row asks, unless held-out rows say that they mislead.
    """

    learner: Learner
    route: float | str = "auto"
    n_neighbors: int | str = "auto"
    bits: int = 16
    seed: int = 0
    threads: int = 1
    settings: Settings = SETTINGS
    hints: Hints = NO_HINTS
    job: Job = field(default_factory=Job)
    keep_rows: bool = False


def fit_shared(
    request: Request, X: sparse.csr_array, Y: sparse.csr_array, partition: Partitioner, reporter: Reporter
) -> tuple[RoutedModel, dict[str, float], Kept | None]:
    """Router and labels of one partition, what its training and the held-out rows say about it, and what is kept."""
    training = Training(request, X, Y, partition, reporter)
    router = training.train_router()
    if request.job.seeks("labels again"):  # these need no weights of others
        training.solved_again(training.short_of_rows)
    with request.job.beside(request.threads, request.learner.any_batch) as beside:
        weights, check = training.train_labels(beside)
        if not training.held_out.any():
            model, mix = training.uncalibrated(router, weights)
            known = check() | training.assess_routing(model.route) | training.of_names(mix)
            return model, known, training.kept(router, weights, mix)
        again = training.begin_again(beside)
        # Each step's large things are gone when the next begins: no name holds the trial model, nor weights that served.
        fitted, promised = training.fit_held_out(training.trial(router, weights), weights, beside)
        cost = check()
        weights = training.train_again(weights, again)
        del check, again
        kept = training.kept(router, weights, fitted.mix)
        weights = training.mixed(weights, fitted.mix)
        return training.pack(router, weights, fitted), cost | promised() | training.of_names(fitted.mix), kept


class Training:
    """The steps of a shared training; each is called once, in the order they stand here."""

    def __init__(
        self,
        request: Request,
        X: sparse.csr_array,
        Y: sparse.csr_array,
        partition: Partitioner,
        reporter: Reporter,
    ) -> None:
        self.request, self.settings, self.threads, self.job = request, request.settings, request.threads, request.job
        self.X, self.Y, self.partition, self.reporter = X, Y, partition, reporter
        with reporter.phase("blocks of all labels"):
            self.clusters = cover_all_labels(Y, partition.assignment_, partition.label_clusters_, self.threads)
        self.teaching = request.hints.teaching
        self.held_out = held_out_rows(Y, request.seed, request.settings, self.teaching)
        self.positives = np.bincount(Y.indices, minlength=Y.shape[1])
        self.sums = KnownSums.of(partition._taken(), Y.shape[1])  # of rows that are not held out
        self.asked = 0
        self.most_visited = len(self.clusters)
        self.affordable: float | None = None  # products of a row, at most, where nobody has said what it visits
        if request.route == "auto" and partition.n_blocks == "auto" and len(self.clusters) > 1:
            self.affordable = self.settings.most_products * np.count_nonzero(self.positives)
        self.names = Names.of_hints(request.hints, X, Y, self.held_out, request.settings)
        self.settings = replace(self.settings, least_name=self.settings.least_name * request.hints.always)

    @cached_property
    def shown(self) -> sparse.csr_array:
        """The labels of the rows that are not held out."""
        return without_rows(self.Y, self.held_out)

    @cached_property
    def short_of_rows(self) -> NDArray[np.intp]:
        """The labels of whose positives too many are held out: they learn once more, from all rows."""
        return labels_short_of_rows(self.Y, self.held_out, self.settings)

    def train_router(self) -> Router:
        """On the rows that are not held out; then all rows are routed, to find their negative blocks."""
        router = make_router(self.X, self.settings, self.request.bits)
        self.router = router = self.job.stage("router", partial(self._trained, router), router_form(router))
        routed = self.job.stage("routes", partial(self._routes, router))
        self.best_blocks = routed[:, 0]
        self.negative_blocks = routed[:, : self.settings.negative_blocks]
        return router

    def _trained(self, router: Router) -> Router:
        blocks = self.partition.assignment_, len(self.clusters)
        with self.reporter.phase("blocks to learn"):
            targets = router_targets(self.shown, *blocks, self.settings, self.threads)
        X, mask = self.X, self._teaching(~self.held_out)
        if self.names is not None:
            X, targets = self.names.taught(X, targets, self.shown, self.partition.assignment_)
            mask = np.pad(mask, (0, X.shape[0] - mask.size), constant_values=True)
        return router.fit(X, targets, mask=mask, threads=self.threads, reporter=self.reporter)

    def _routes(self, router: Router) -> NDArray[np.int32]:
        with self.reporter.phase("route rows"):
            return router.blocks(self.X, max(self.settings.negative_blocks, 1), threads=self.threads)

    def train_labels(self, beside: Beside) -> tuple[SharedWeights, Callable[[], dict[str, float]]]:
        """On the rows that are not held out; and what gives the numbers of this training."""
        if self.held_out.any():
            self.new_blocks = beside.begin(self._blocks_for_new_rows)
        visits = self._visits(~self.held_out)
        weights, pairs = self._trainer(self.threads).train(self.shown, visits, "train labels")
        return weights, beside.begin(partial(self._check, weights, visits, pairs, beside.threads))

    def _check(self, weights: SharedWeights, visits: Any, pairs: float, threads: int) -> dict[str, float]:
        with self.reporter.phase("check negatives"):
            outside = outside_violations(weights, self.X, self.shown, visits, self.clusters, threads)
        return {"trained_pairs": pairs, "outside_violations": outside}

    def uncalibrated(self, router: Router, weights: SharedWeights) -> tuple[RoutedModel, Mix]:
        """The model where rows are too few to hold any out, and what counts in it beside margins."""
        self.clusters = listing_names(self.names, self.clusters, router, self.threads)
        mix = Mix(name=0.0 if self.names is None else self.settings.middle_name)
        weights = weights if self.names is None else self.names.added(weights, mix.name, self.threads)
        return replace(self._routed(router, weights), calibration=UNCALIBRATED), mix

    def of_names(self, mix: Mix) -> dict[str, float]:
        """How much names count, where there are any."""
        return {} if self.request.hints.label_features is None else {"names_weight": mix.name}

    def assess_routing(self, route: int) -> dict[str, float]:
        """What to expect where no row was held out: a router of its own is fitted to tell."""
        if self.X.shape[0] < 2:
            return {"candidate_recall": 1.0, "router_accuracy": 1.0}
        router = make_router(self.X, self.settings, self.request.bits)
        data = self.X, self.Y, self.partition.assignment_, self.clusters
        found = assess_routing(*data, route, router=router, threads=self.threads)
        return {key: found[key] for key in ("candidate_recall", "router_accuracy")}

    def trial(self, router: Router, weights: SharedWeights) -> RoutedModel:
        """A model that does not know the held-out rows."""
        if self.names is not None:
            weights = self.names.known_to(self.shown).added(weights, self.settings.middle_name, self.threads)
        model = self._routed(router, weights)
        linear = isinstance(weights, LabelVectors)
        known = self.partition, int(np.count_nonzero(self.positives)), self.settings, self.reporter
        self.asked = neighbors_within(self.request.n_neighbors, linear, *known)
        shown = self._teaching(~self.held_out)
        model = replace(model, neighbors=self._neighbors(model, shown)) if self.asked else model
        if self.affordable is None or not linear:
            return model
        rows = copy_rows(self.X, np.flatnonzero(self.held_out), self.threads)
        how: Any = {"least_blocks": self.settings.usual_blocks, "drop_neighbors": self.request.n_neighbors == "auto"}
        model = within_products(model, rows, self.affordable, self.threads, self.reporter, **how)
        self.asked, self.most_visited = (0 if model.neighbors is None else self.asked), model.route
        return model

    def _blocks_for_new_rows(self) -> tuple[list[NDArray[np.int64]], float]:
        """Label clusters that do not know the held-out rows, and how often the first block of such a row is its best."""
        rows = np.flatnonzero(self.held_out)
        # With the labels that held-out rows alone brought in, they would find more than new rows do.
        with self.reporter.phase("blocks without held-out rows"):
            known = self.partition.assignment_, self.partition.label_clusters_
            clusters = cover_all_labels(self.shown, *known, self.threads)
            accuracy = best_block_first(take_rows(self.Y, rows), clusters, self.best_blocks[rows])
            return clusters, accuracy

    def fit_held_out(self, trial: RoutedModel, weights: SharedWeights, beside: Beside) -> tuple[Fitted, Promise]:
        """What the held-out rows say about scores, and what gives that which new rows can expect."""
        return self.job.stage("held-out rows", partial(self._fitted, trial, weights, beside), FITTED)

    def _fitted(self, trial: RoutedModel, weights: SharedWeights, beside: Beside) -> tuple[Fitted, Promise]:
        rows = np.flatnonzero(self.held_out)
        X = like_new_rows(copy_rows(self.X, rows, self.threads), self.X, self.request.hints.label_features)
        Y = take_rows(self.Y, rows)
        clusters, accuracy = self.new_blocks()
        with self.reporter.phase("fit on held-out rows"):
            if isinstance(weights, LabelVectors):
                fitted, expected = self._fit_mix(trial, weights, clusters, (X, Y), beside)
                known = Untrained(self.names, self.shown, self.router, self.settings, self.threads)
                fitted = known.set_back(fitted, trial, weights, clusters, (X, Y))
            else:
                with threadpool_limits(1, user_api="blas"):  # its sums must not depend on the number of threads
                    fitted, expected = only_calibrated(trial, X, Y, self.settings, self.threads)
        recall = recall_of(replace(trial, top_p=fitted.top_p), X, Y, clusters, self.threads)
        return fitted, lambda: {"router_accuracy": accuracy} | expected() | {"candidate_recall": recall}

    def begin_again(self, beside: Beside) -> Callable[[], SharedWeights]:
        """Have the labels that are short of rows learn from all of them, which no other label's weights tell anything."""
        step = partial(self.solved_again, self.short_of_rows, threads=beside.threads)
        return beside.begin(step) if self.short_of_rows.size else step

    def train_again(self, weights: SharedWeights, again: Callable[[], SharedWeights]) -> SharedWeights:
        """The weights with those of the labels that were short of rows."""
        return self._replaced(weights, self.short_of_rows, again()) if self.short_of_rows.size else weights

    def solve_again(
        self, weights: SharedWeights, labels: NDArray[np.intp], new: NDArray[np.bool_] | None = None
    ) -> SharedWeights:
        """The weights with those of some labels learnt from all rows, of the ``new`` ones from those that matter."""
        return self._replaced(weights, labels, self.solved_again(labels, new))

    def _replaced(self, weights: SharedWeights, labels: NDArray[np.intp], again: SharedWeights) -> SharedWeights:
        with self.reporter.phase("put weights together"):
            return replaced(weights, labels, again, self.threads)

    def solved_again(
        self, labels: NDArray[np.intp], new: NDArray[np.bool_] | None = None, threads: int | None = None
    ) -> SharedWeights:
        """The weights of some labels, in this order, learnt from all rows."""
        threads = threads or self.threads
        return self._trainer(threads).train_some(self.Y, self._visits(None), labels, "train labels again", new)

    def mixed(self, weights: SharedWeights, mix: Mix) -> SharedWeights:
        """The weights that are served: with centroids and names."""
        if not isinstance(weights, LabelVectors):
            return weights
        parts, known = [], self.sums.without(self.Y[self.held_out].indices)
        for begin in range(0, max(weights.n_labels, 1), MIXED_AT_A_TIME):
            some = np.arange(begin, min(begin + MIXED_AT_A_TIME, weights.n_labels))
            own = weights if some.size == weights.n_labels else weights.some(some)
            centroids = self._centroids(self.Y, own.vectors, some, known)
            with self.reporter.phase("put weights together"):
                parts.append(own.adjusted(np.ones(some.size, np.float32), centroids, mix.centroid, self.threads))
                if self.names is not None and mix.name:
                    parts[-1] = self.names.served(parts[-1], some, mix, self.threads)
        with self.reporter.phase("put weights together"):
            return LabelVectors.stacked(parts, self.threads)

    def pack(self, router: Router, weights: SharedWeights, fitted: Fitted) -> RoutedModel:
        """The model that is served, of weights that are ``mixed``."""
        mix = fitted.mix
        self.clusters = listing_names(self.names, self.clusters, router, self.threads)
        model = replace(
            self._routed(router, weights),
            slope=mix.slope,
            top_p=fitted.top_p,
            calibration=fitted.calibration,
            reranker=self._knowing_all(fitted.reranker),
        )
        if not (self.asked and mix.neighbors):
            return model
        return replace(model, neighbors=replace(self._neighbors(model, self.teaching), weight=mix.neighbors))

    def _knowing_all(self, reranker: Reranker | None) -> Reranker | None:
        """The reranker with the pairs of labels of all rows, the held-out ones included."""
        if reranker is None or reranker.companions is None:
            return reranker
        with self.reporter.phase("pairs of labels"):
            companions = companions_of(self.Y, self.settings, threads=self.threads)
        return replace(reranker, companions=replace(companions, weight=reranker.companions.weight))

    def _teaching(self, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Those of the rows that count."""
        return rows if self.teaching is None else rows & self.teaching

    def _trainer(self, threads: int) -> LabelTrainer:
        request = self.request
        how = threads, request.seed, self.settings, self.job, request.hints.sample_weight
        return LabelTrainer(request.learner, self.X, self.clusters, self.reporter, *how)

    def kept(self, router: Router, weights: SharedWeights, mix: Mix) -> Kept | None:
        """What a model needs to learn on, where that is wanted."""
        if not self.request.keep_rows:
            return None
        if not isinstance(weights, LabelVectors):
            raise BlockXMCError("keep_rows needs a linear base, whose weights are vectors")
        nothing = LinearWeights(sparse.csr_array(np.zeros((self.X.shape[1], 1), np.float32)), np.zeros(1, np.float32))
        blocks = LabelVectors.joined([router.learned or nothing], np.arange(len(self.clusters)))
        part = Part(kept_copy(self.X), kept_copy(self.Y))
        told = np.zeros(weights.n_labels, np.int64)
        unseen = np.flatnonzero(self.held_out).astype(np.int32)
        complete = np.zeros(weights.n_labels, bool)
        complete[self.short_of_rows] = True
        since = np.zeros(weights.n_labels, bool), np.zeros((0, 2), np.int32)  # labels that were shifted, or left blocks
        rest = self.asked, told, self.X.shape[0], unseen, complete, *since
        return Kept((part,), weights, blocks, self.negative_blocks, mix, *rest)

    def _visits(self, rows: NDArray[np.bool_] | None) -> sparse.csr_array:
        return visits_of(self.partition.assignment_, self.negative_blocks, len(self.clusters), rows)

    def _routed(self, router: Router, weights: SharedWeights) -> RoutedModel:
        most, top_p = visiting(self.request.route, isinstance(weights, LabelVectors), self.settings)
        scorer = router.scorer
        if scorer is None and isinstance(weights, LabelVectors):
            scorer = only_block(self.X.shape[1])
        return RoutedModel(scorer, self._pack(weights), min(most, self.most_visited), top_p=top_p)

    def _pack(self, weights: SharedWeights) -> Any:
        with self.reporter.phase("pack"):
            options: Any = {"bits": self.request.bits, "threads": self.threads, "settings": self.settings}
            return pack_shared(weights, self.clusters, n_features=self.X.shape[1], **options)

    def _neighbors(self, model: RoutedModel, among: NDArray[np.bool_] | None) -> Neighbors:
        options: Any = {
            "count": self.asked,
            "bits": min(self.request.bits, self.settings.neighbor_bits),
            "threads": self.threads,
        }
        n_blocks = model.scorer.n_blocks
        with self.reporter.phase("pack neighbors"):
            return Neighbors.pack(self.X, self.Y, self.partition.assignment_, n_blocks, among=among, **options)

    def _centroids(
        self, Y: sparse.csr_array, learned: sparse.csr_array, labels: NDArray[np.intp], known: KnownSums
    ) -> sparse.csr_array:
        """Of these labels, which ``learned`` has a row for each of."""
        options: Any = {"prune": self.settings.centroid_prune, "threads": self.threads, "reporter": self.reporter}
        return label_centroids(self.X, Y, labels, learned, known, **options)

    def _fit_mix(
        self, trial: RoutedModel, weights: LabelVectors, clusters: list[Any], held_out: Any, beside: Beside
    ) -> tuple[Fitted, Promise]:
        """Mix, reranker, top_p and calibration from the candidates of the held-out rows.

        All products of matrices here are of a few numbers each: BLAS shares none of them among threads.

        Calibration looks at the candidates that rows have by the ``clusters`` which do not know them.
        """
        X, Y = held_out
        routed, auto = trial.router is not None, self.request.route == "auto"
        vectors = weights.vectors
        centroids = Remembered(
            lambda labels: self._centroids(self.shown, take_rows(vectors, labels), labels, self.sums)
        )
        names = None if self.names is None else self.names.known_to(self.shown).vectors
        labelled = int(np.count_nonzero(np.diff(self.Y.indptr)))
        companions = companions_of(self.shown, self.settings, labelled, self.threads)
        rows, as_new = (
            HeldOut(trial, holds(known, self.Y.shape[1]), centroids, self.positives, self.settings, companions, names)
            for known in (self.clusters, clusters)
        )
        top_ps = sorted({*self.settings.top_ps, trial.top_p}) if routed and auto else [trial.top_p]
        seen = rows.candidates(X, Y, top_ps, self.threads)
        if self.affordable is not None:
            seen = {p: seen[p] for p in affordable_top_ps(trial, top_ps, X, self.affordable, self.threads)}
        usual = beside.begin(partial(as_new.found, X, Y, trial.top_p, self.settings.calibrated, beside.threads))

        def many(top_p: float) -> Iterator[Candidates]:
            found = usual() if beside.at_once or top_p == trial.top_p else None  # two at a time would share centroids
            if found is None or top_p != trial.top_p:
                found = as_new.found(X, Y, top_p, self.settings.calibrated, self.threads)
            return as_new.many(X, Y, top_p, self.threads, found)

        options: Any = {"top_p": trial.top_p, "routed": routed, "threads": self.threads, "job": self.job}
        fitted, expect = fit_held_out(seen, many, rows.log_positives, self.settings, **options)
        expected = beside.begin(expect)
        known = {}
        if self.request.bits < 32:
            exact = weights.few_scores(X, rows.labels, self.threads)
            known["lost_to_rounding"] = lost_to_rounding(seen[fitted.top_p], exact, fitted, self.threads)
        if beside.at_once:
            return fitted, lambda: expected() | known
        at_last = expected() | known  # and the candidates are gone
        return fitted, lambda: at_last
