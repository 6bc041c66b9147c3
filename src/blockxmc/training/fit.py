"""From a partition to a served model with shared weights, from top to bottom.

Some rows are held out while router and labels learn. A trial model shows what the held-out rows say about scores; then the
labels that missed these rows are trained again with them, and everything is packed once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits

from blockxmc._core.matrix import copy_rows, take_rows, without_rows
from blockxmc._core.progress import Reporter
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
    neighbors_asked,
    own_blocks,
    visiting,
    visits_of,
)
from blockxmc.training.calibration import UNCALIBRATED
from blockxmc.training.candidates import HeldOut, Mix, log_positives_of
from blockxmc.training.centroids import label_centroids
from blockxmc.training.companions import companions_of
from blockxmc.training.forms import router_form
from blockxmc.training.held_out import held_out_rows, labels_short_of_rows, like_new_rows
from blockxmc.training.hints import NO_HINTS, Hints
from blockxmc.training.job import Job
from blockxmc.training.kept import Kept, Part, kept_copy
from blockxmc.training.labels import LabelTrainer, SharedWeights, pack_shared, replaced
from blockxmc.training.mix import FITTED, Fitted, Promise, fit_held_out, only_calibrated, recall_of
from blockxmc.training.names import Names, listing_names
from blockxmc.training.settings import SETTINGS, Settings
from blockxmc.training.untrained import Trial, set_back

Clusters = list[NDArray[np.int64]]
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
    held_out = held_out_rows(Y, request.seed, request.settings, request.hints.teaching)
    shown = without_rows(Y, held_out)  # the labels of the rows that teach
    with reporter.phase("blocks of all labels"):
        clusters = cover_all_labels(Y, partition.assignment_, partition.label_clusters_, request.threads)
    names = Names.of_hints(request.hints, X, Y, held_out, request.settings)
    router = train_router(request, X, shown, partition, ~held_out, names, reporter)
    routed = route_rows(request, X, router, reporter)
    negative_blocks = routed[:, : request.settings.negative_blocks]
    training = Training(request, X, Y, partition, clusters, negative_blocks, reporter, names)
    short = labels_short_of_rows(Y, held_out, request.settings)
    if request.job.seeks("labels again"):  # these need no weights of others
        training.solved(Y, short, None, "train labels again")
    weights, pairs = training.train_labels(shown, ~held_out)
    linear = isinstance(weights, LabelVectors)
    asked = neighbors_asked(
        request.n_neighbors, linear, partition, int(np.count_nonzero(training.positives)), request.settings
    )
    training, cost = replace(training, asked=asked), {"trained_pairs": pairs}
    if not held_out.any():
        mix = Mix(name=request.settings.middle_name if names else 0.0)
        model = training.listing(router).routed(router, training.mixed(weights, mix))
        model = replace(model, calibration=UNCALIBRATED)
        cost |= training.assess_routing(model.route) | training.of_names(mix)
        return model, cost, training.kept(router, weights, mix, held_out, short)
    fitted, promised = request.job.stage(
        "held-out rows",
        partial(training.fit_held_out, router, weights, held_out, shown, routed[:, 0]),
        FITTED,
    )
    if short.size:
        weights = training.solve_again(weights, short)
    kept = training.kept(router, weights, fitted.mix, held_out, short)
    return (
        training.pack(router, training.mixed(weights, fitted.mix), fitted),
        cost | promised | training.of_names(fitted.mix),
        kept,
    )


def train_router(
    request: Request,
    X: sparse.csr_array,
    Y: sparse.csr_array,
    partition: Partitioner,
    rows: NDArray[np.bool_],
    names: Names | None,
    reporter: Reporter,
) -> Router:
    """A router that learns from these rows, and from names of labels, where they teach."""
    router = make_router(X, request.settings, request.bits)

    def fit() -> Router:
        features, targets = X, own_blocks(partition.assignment_, partition.n_blocks_)
        teaching = request.hints.teaching
        mask = rows if teaching is None else rows & teaching
        if names is not None:
            features, targets = names.taught(X, targets, Y, partition.assignment_)
            mask = np.pad(mask, (0, features.shape[0] - mask.size), constant_values=True)
        return router.fit(features, targets, mask=mask, threads=request.threads, reporter=reporter)

    return request.job.stage("router", fit, router_form(router))


def route_rows(request: Request, X: sparse.csr_array, router: Router, reporter: Reporter) -> NDArray[np.int32]:
    """The best blocks of each row, by the router: the rows teach the labels of these what they are not."""
    with reporter.phase("route rows"):
        count = max(request.settings.negative_blocks, 1)
        return request.job.stage("routes", lambda: router.blocks(X, count, threads=request.threads))


@dataclass(frozen=True)
class Training:
    """The rows of a shared training, the blocks they belong to, and what is made of them."""

    request: Request
    X: sparse.csr_array
    Y: sparse.csr_array
    partition: Partitioner
    clusters: Clusters
    negative_blocks: NDArray[np.int32]
    reporter: Reporter
    names: Names | None = None  # what labels are called, where that teaches
    asked: int = 0  # training rows that a row asks for their labels

    @property
    def settings(self) -> Settings:
        """The numbers of this training."""
        return self.request.settings

    @property
    def threads(self) -> int:
        """How many threads it may use."""
        return self.request.threads

    @cached_property
    def positives(self) -> NDArray[np.intp]:
        """The number of rows of each label."""
        return np.bincount(self.Y.indices, minlength=self.Y.shape[1])

    # ---- weights ----
    def train_labels(self, Y: sparse.csr_array, rows: NDArray[np.bool_]) -> tuple[SharedWeights, float]:
        """The weights of all labels, learnt from these rows, and the share of all (row, label) pairs that taught them."""
        return self._trainer().train(Y, self._visits(rows), "train labels")

    def solved(
        self, Y: sparse.csr_array, labels: NDArray[np.intp], new: NDArray[np.bool_] | None, title: str
    ) -> SharedWeights:
        """The weights of some labels, in this order, learnt from all rows; of ``new`` ones from those that matter."""
        return self._trainer().train_some(Y, self._visits(None), labels, title, new)

    def solve_again(
        self, weights: SharedWeights, labels: NDArray[np.intp], new: NDArray[np.bool_] | None = None
    ) -> SharedWeights:
        """The weights with those of some labels learnt from all rows."""
        again = self.solved(self.Y, labels, new, "train labels again")
        with self.reporter.phase("put weights together"):
            return replaced(weights, labels, again, self.threads)

    def mixed(self, weights: SharedWeights, mix: Mix) -> SharedWeights:
        """The weights that are served: with centroids and names."""
        if self.names is not None and mix.name:
            weights = self.names.served(weights, mix, self.threads)
        if not (isinstance(weights, LabelVectors) and mix.centroid):
            return weights
        parts = []
        for begin in range(0, max(weights.n_labels, 1), MIXED_AT_A_TIME):
            some = np.arange(begin, min(begin + MIXED_AT_A_TIME, weights.n_labels))
            own = weights if some.size == weights.n_labels else weights.some(some)
            centroids = self._centroids(self.Y, own.vectors, some)
            parts.append(own.plus(centroids, mix.centroid, self.threads))
        with self.reporter.phase("put weights together"):
            return LabelVectors.stacked(parts, self.threads)

    # ---- what held-out rows say ----
    def fit_held_out(
        self,
        router: Router,
        weights: SharedWeights,
        held_out: NDArray[np.bool_],
        shown: sparse.csr_array,
        first_blocks: NDArray[np.int32],
    ) -> tuple[Fitted, Promise]:
        """What a trial model, which does not know the held-out rows, says of them; and what new rows can expect."""
        rows = np.flatnonzero(held_out)
        names = self.request.hints.label_features
        X = like_new_rows(copy_rows(self.X, rows, self.threads), self.X, names)
        Y = take_rows(self.Y, rows)
        # With the labels that held-out rows alone brought in, they would find more than new rows do.
        with self.reporter.phase("blocks without held-out rows"):
            known = self.partition.assignment_, self.partition.label_clusters_
            clusters = cover_all_labels(shown, *known, self.threads)
            accuracy = best_block_first(Y, clusters, first_blocks[rows])
        known_names = None if self.names is None else self.names.known_to(shown)
        if known_names is None:
            trial = self.routed(router, weights)
        else:
            trial = self.routed(router, known_names.added(weights, self.settings.middle_name, self.threads))
        # One thread for BLAS: sums must not depend on their number.
        with self.reporter.phase("fit on held-out rows"), threadpool_limits(1, user_api="blas"):
            if isinstance(weights, LabelVectors):
                trial = replace(trial, neighbors=self._neighbors(trial, ~held_out) if self.asked else None)
                blocks_of = sparse.csr_array(holds(clusters, self.Y.shape[1]).T)
                seen = HeldOut(trial, X, Y, blocks_of, self.settings, self.threads)
                fitted, promised = self._fit_scores(seen, weights, shown, known_names)
                if self.names is not None and fitted.mix.name and not self.positives.all():
                    told = Trial(trial, router, weights, self.names, clusters, shown)
                    fitted = set_back(told, fitted, (X, Y), self.request.bits, self.threads)
            else:
                fitted, promised = only_calibrated(trial, X, Y, self.settings, self.threads)
        recall = recall_of(trial, X, Y, clusters, self.threads)
        return fitted, {"router_accuracy": accuracy, "candidate_recall": recall} | promised

    def _fit_scores(
        self, seen: HeldOut, weights: LabelVectors, shown: sparse.csr_array, names: Names | None
    ) -> tuple[Fitted, Promise]:
        labels, scores = seen.found()
        asked = np.unique(labels[labels >= 0])
        centroids = self._centroids(shown, take_rows(weights.vectors, asked), asked)
        labelled = int(np.count_nonzero(np.diff(self.Y.indptr)))
        companions = companions_of(shown, self.settings, labelled, self.threads)
        log_positives = log_positives_of(self.positives, self.settings)
        nothing = np.zeros(labels.shape, np.float32)
        name = nothing if names is None else seen.cosines(labels, names.vectors(asked))
        cosines = seen.cosines(labels, centroids)
        candidates = seen.candidates(labels, scores, name, cosines, log_positives, companions)
        routed = seen.trial.router is not None
        wanted = self.settings.least_name if self.request.hints.always else 0.0
        settings = replace(self.settings, least_name=wanted)
        return fit_held_out(candidates, log_positives, settings, routed=routed, threads=self.threads)

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

    # ---- the model ----
    def routed(self, router: Router, weights: SharedWeights) -> RoutedModel:
        """Router and labels, packed."""
        most, top_p = visiting(self.request.route, isinstance(weights, LabelVectors), self.settings)
        scorer = router.scorer
        if scorer is None and isinstance(weights, LabelVectors):
            scorer = only_block(self.X.shape[1])
        options: Any = {"bits": self.request.bits, "threads": self.threads, "settings": self.settings}
        with self.reporter.phase("pack"):
            packed = pack_shared(weights, self.clusters, n_features=self.X.shape[1], **options)
        return RoutedModel(scorer, packed, min(most, len(self.clusters)), top_p=top_p)

    def listing(self, router: Router) -> Training:
        """The same with the label clusters that are served."""
        return replace(self, clusters=listing_names(self.names, self.clusters, router, self.threads))

    def pack(self, router: Router, weights: SharedWeights, fitted: Fitted) -> RoutedModel:
        """The model that is served, of weights that are ``mixed``."""
        model = replace(
            self.listing(router).routed(router, weights),
            slope=fitted.mix.slope,
            calibration=fitted.calibration,
            reranker=self._knowing_all(fitted.reranker),
        )
        if not (self.asked and fitted.mix.neighbors):
            return model
        return replace(model, neighbors=replace(self._neighbors(model, None), weight=fitted.mix.neighbors))

    def _knowing_all(self, reranker: Reranker | None) -> Reranker | None:
        """The reranker with the pairs of labels of all rows, the held-out ones included."""
        if reranker is None or reranker.companions is None:
            return reranker
        with self.reporter.phase("pairs of labels"):
            companions = companions_of(self.Y, self.settings, threads=self.threads)
        return replace(reranker, companions=replace(companions, weight=reranker.companions.weight))

    def _neighbors(self, model: RoutedModel, among: NDArray[np.bool_] | None) -> Neighbors:
        """The training rows that rows may ask: those ``among`` some (None: all)."""
        bits = min(self.request.bits, self.settings.neighbor_bits)
        with self.reporter.phase("pack neighbors"):
            return Neighbors.pack(
                self.X,
                self.Y,
                self.partition.assignment_,
                model.scorer.n_blocks,
                count=self.asked,
                bits=bits,
                among=self.request.hints.among(among),
                threads=self.threads,
            )

    # ---- updates ----
    def kept(
        self,
        router: Router,
        weights: SharedWeights,
        mix: Mix,
        held_out: NDArray[np.bool_],
        short: NDArray[np.intp],
    ) -> Kept | None:
        """What a model needs to learn on, where that is wanted."""
        if not self.request.keep_rows:
            return None
        if not isinstance(weights, LabelVectors):
            raise BlockXMCError("keep_rows needs a linear base, whose weights are vectors")
        nothing = LinearWeights(sparse.csr_array(np.zeros((self.X.shape[1], 1), np.float32)), np.zeros(1, np.float32))
        blocks = LabelVectors.joined([router.learned or nothing], np.arange(len(self.clusters)))
        part = Part(kept_copy(self.X), kept_copy(self.Y))
        told = np.zeros(weights.n_labels, np.int64)
        unseen = np.flatnonzero(held_out).astype(np.int32)
        complete = np.zeros(weights.n_labels, bool)
        complete[short] = True
        since = np.zeros(weights.n_labels, bool), np.zeros((0, 2), np.int32)  # labels that were shifted, or left blocks
        rest = self.asked, told, self.X.shape[0], unseen, complete, *since
        return Kept((part,), weights, blocks, self.negative_blocks, mix, *rest)

    # ---- helpers ----
    def _trainer(self) -> LabelTrainer:
        request = self.request
        how = request.threads, request.seed, request.settings, request.job, request.hints.sample_weight
        return LabelTrainer(request.learner, self.X, self.clusters, self.reporter, *how)

    def _visits(self, rows: NDArray[np.bool_] | None) -> sparse.csr_array:
        return visits_of(self.partition.assignment_, self.negative_blocks, len(self.clusters), rows)

    def _centroids(self, Y: sparse.csr_array, learned: sparse.csr_array, labels: NDArray[np.intp]) -> sparse.csr_array:
        """Of these labels, which ``learned`` has a row for each of."""
        options: Any = {"prune": self.settings.centroid_prune, "threads": self.threads, "reporter": self.reporter}
        return label_centroids(self.X, Y, labels, learned, **options)
