"""One split of the rows: blocks are made once on the training rows, then judged on the held-out rows at any lambda.

Rows are assigned to blocks at one lambda, and stay there. At a larger lambda every label cluster is a prefix of the
ranking of its block. Weights that do not depend on the other labels of a block are therefore trained once, at the
smallest lambda, and serve the whole grid. A lambda that leaves a block without labels is the exception: the block is
dropped as ``Partitioner(init=assignment, max_iter=0)`` drops it, and everything is trained again.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone

from blockxmc import metrics
from blockxmc._core.progress import Reporter
from blockxmc.learners._learner import Learner
from blockxmc.linear.scorers import pack_scorer
from blockxmc.linear.weights import Ids, Weights
from blockxmc.metrics.timing import _single_calls
from blockxmc.model.routed import RoutedModel
from blockxmc.partition import Partitioner
from blockxmc.routing import Router
from blockxmc.training.job import Job
from blockxmc.training.per_block import train_block, train_blocks

Clusters = list[NDArray[np.int64]]
# Precision is measured at these ranks unless the user asks for others, as in the paper.
KS = (1, 3, 5)


@dataclass(frozen=True)
class Task:
    """What does not change from split to split."""

    learner: Learner
    partitioner: Partitioner  # its options; n_blocks and lam are set per split
    ks: tuple[int, ...]
    seed: int
    threads: int
    reporter: Reporter

    def unfitted(self, n_blocks: int | str, lam: float | str) -> Partitioner:
        """A partitioner of the task, with its seed and threads."""
        common: dict[str, Any] = {"random_state": self.seed, "n_jobs": self.threads, "verbose": 0}
        partitioner: Partitioner = clone(self.partitioner).set_params(n_blocks=n_blocks, lam=lam, **common)
        return partitioner


@dataclass(frozen=True)
class Kind:
    """A way to train the labels of blocks, by its name in ``BlockwiseClassifier(weights=...)``.

    ``nested(learner)`` says whether the weights at a larger lambda are those at a smaller lambda, less some labels.
    """

    train: Callable[[Split, Layout], list[Weights]]
    nested: Callable[[Learner], bool]


@dataclass(frozen=True)
class Layout:
    """Blocks as they are at one lambda."""

    assignment: NDArray[np.int32]
    clusters: Clusters
    router: Router
    intact: bool  # no block of the fixed assignment is dropped


class Split:
    """Training rows, and held-out rows that reach their blocks only through the router."""

    def __init__(self, task: Task, X: sparse.csr_array, Y: sparse.csr_array, train: Ids, held_out: Ids) -> None:
        self.task = task
        self.X, self.Y = sparse.csr_array(X[train]), sparse.csr_array(Y[train])
        self.X_held_out, self.Y_held_out = sparse.csr_array(X[held_out]), sparse.csr_array(Y[held_out])
        self.train_rows = train
        self.trainings, self.warm_trainings, self.seconds = 0, 0, 0.0

    def twin(self) -> Split:
        """The same rows with counts of its own, for trials side by side."""
        other = copy.copy(self)
        other.trainings, other.warm_trainings, other.seconds = 0, 0, 0.0
        return other

    @contextmanager
    def training(self, *, warm: bool = False) -> Iterator[None]:
        """Count and time a training of the base."""
        start = time.perf_counter()
        yield
        self.trainings += 1
        self.warm_trainings += int(warm)
        self.seconds += time.perf_counter() - start

    @cached_property
    def full(self) -> Weights:
        """The base on all rows and labels."""
        task = self.task
        title = f"train {type(task.learner).__name__}, all labels"
        with self.training(), task.reporter.phase(title, self.Y.shape[1]) as phase:
            return task.learner._train(self.X, self.Y, task.learner._context(task.threads, phase, task.seed))

    def full_precision(self) -> list[float]:
        """P@k of the base without blocks."""
        n_labels = self.Y.shape[1]
        scorer = pack_scorer([self.full], [np.arange(n_labels)], n_features=self.X.shape[1], n_labels=n_labels)
        labels, _ = scorer.topk(self.X_held_out, None, min(max(self.task.ks), n_labels), threads=self.task.threads)
        return self.precision(labels)

    def precision(self, labels: NDArray[np.int64]) -> list[float]:
        """P@k of ranked labels of the held-out rows, in points."""
        return [100 * metrics.precision_at_k(self.Y_held_out, labels, k) for k in self.task.ks]


class FixedBlocks:
    """The blocks of one split: rows are assigned at ``lam`` and judged at any lambda (in the scale of the split)."""

    def __init__(self, split: Split, n_blocks: int, lam: float | str) -> None:
        self.split, self.n_blocks, self.lam = split, n_blocks, lam
        self._trained: dict[str, tuple[float, Layout, list[Weights]]] = {}
        self.setup_seconds = 0.0

    @cached_property
    def partition(self) -> Partitioner:
        """The partition whose assignment is kept."""
        task, split = self.split.task, self.split
        partitioner = task.unfitted(self.n_blocks, self.lam)
        if not isinstance(partitioner.init, str):
            partitioner.set_params(init=np.asarray(partitioner.init)[split.train_rows], n_blocks="auto")
        with self._setting_up(), task.reporter.phase("partition"):
            return partitioner.fit(split.X, split.Y)

    @cached_property
    def router(self) -> Router:
        """The router of the fixed assignment."""
        return self._route(self.partition.assignment_, self.partition.n_blocks_)

    @cached_property
    def _critical(self) -> NDArray[np.float64]:
        """For each block, the lambda that empties it."""
        ranking = self.partition.ranking_
        critical = ranking.critical(self.partition.objective)
        return np.asarray(critical[ranking.indptr[:-1]])  # it falls along a block, and every block has labels at 0

    @cached_property
    def _start(self) -> tuple[Layout, list[Weights]]:
        """Blocks and weights at the lambda of the assignment, where warm trainings for all larger lambdas begin.

        Each begins there, so that what is found for a lambda does not depend on the other lambdas tried.
        """
        layout = self.layout(self.partition.lam_)
        assert layout is not None  # the partition drops blocks that its lambda empties
        return layout, train_per_block(self.split, layout)

    def layout(self, lam: float) -> Layout | None:
        """The blocks at ``lam``, or None where no block has a label left."""
        partition = self.partition
        if lam < self._critical.min():
            return Layout(partition.assignment_, partition.label_clusters_at(lam), self.router, True)
        if lam >= self._critical.max():
            return None
        fixed = clone(partition).set_params(init=partition.assignment_, max_iter=0, lam=lam, n_blocks="auto")
        fixed.fit(self.split.X, self.split.Y)
        router = self._route(fixed.assignment_, fixed.n_blocks_)
        return Layout(fixed.assignment_, fixed.label_clusters_, router, False)

    def weights(self, lam: float, layout: Layout, kind: str) -> list[Weights]:
        """Weights of the blocks at ``lam``: a prefix of those at a smaller lambda where training would give the same."""
        how, learner = KINDS[kind], self.split.task.learner
        if kind in self._trained:
            at, known, weights = self._trained[kind]
            if how.nested(learner) and layout.intact and known.intact and at <= lam:
                return prefixes(weights, known.clusters, layout.clusters)
        if kind == "per-block" and learner.takes_warm_start and layout.intact and lam >= self.partition.lam_:
            known, weights = self._start
            return weights if lam == self.partition.lam_ else train_warm(self.split, layout, known, weights)
        return self._keep(kind, lam, layout, how.train(self.split, layout))

    def serve(self, lam: float, kind: str, route: int) -> RoutedModel | None:
        """The model at ``lam``, or None where no label is left."""
        layout = self.layout(lam)
        if layout is None:
            return None
        split = self.split
        weights = self.weights(lam, layout, kind)
        scorer = pack_scorer(weights, layout.clusters, n_features=split.X.shape[1], n_labels=split.Y.shape[1])
        return RoutedModel(layout.router.scorer, scorer, min(route, len(layout.clusters)))

    def measure(self, lam: float, kind: str = "per-block", route: int = 1) -> dict[str, Any]:
        """Precision (points) and work per row at ``lam`` on the held-out rows, and what finding out took."""
        split = self.split
        before = split.trainings, split.warm_trainings, split.seconds
        model = self.serve(lam, kind, route)
        return measure_model(split, model) | {
            "trainings": split.trainings - before[0],
            "warm_trainings": split.warm_trainings - before[1],
            "seconds": split.seconds - before[2],
            "pairs": 0 if model is None else sum(map(len, model.scorer.label_clusters)),
            "reused_pairs": 0,
            "work": self._work(lam),
        }

    def _keep(self, kind: str, lam: float, layout: Layout, weights: list[Weights]) -> list[Weights]:
        # With a block dropped, weights serve this lambda only.
        if layout.intact:
            self._trained[kind] = lam, layout, weights
        return weights

    def _route(self, assignment: NDArray[np.int32], n_blocks: int) -> Router:
        task = self.split.task
        with self._setting_up():
            options: Any = {"threads": task.threads, "reporter": task.reporter}
            return Router().fit(self.split.X, assignment, n_blocks=n_blocks, **options)

    def _work(self, lam: float) -> float:
        """What training the blocks at ``lam`` costs, in stored values of X times labels."""
        sizes = [len(labels) for labels in self.partition.label_clusters_at(lam)]
        stored = np.diff(self.split.X.indptr)
        return float(np.bincount(self.partition.assignment_, weights=stored, minlength=len(sizes)) @ np.array(sizes))

    @contextmanager
    def _setting_up(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.setup_seconds += time.perf_counter() - start


def measure_model(split: Split, model: RoutedModel | None) -> dict[str, Any]:
    """Precision, candidates, products and candidate recall on the held-out rows; all 0 without a model."""
    if model is None:
        return {"precision": [0.0] * len(split.task.ks), "candidates": 0.0, "products": 0.0, "recall": 0.0}
    X, threads = split.X_held_out, split.task.threads
    labels, _ = model.topk(X, min(max(split.task.ks), split.Y.shape[1]), threads)
    visited = model.visited(X, threads)
    if visited is None:  # one block: every row visits it
        visited = np.zeros((X.shape[0], 1), np.int32)
    candidates, products = model.work(visited)
    return {
        "precision": split.precision(labels),
        "candidates": candidates,
        "products": products,
        "recall": metrics.candidate_recall(split.Y_held_out, (visited, model.scorer.label_clusters)),
    }


def single_call_us(split: Split, model: RoutedModel) -> float:
    """Median microseconds of a single call on held-out rows."""
    calls = SimpleNamespace(predict_one=model.one)
    return _single_calls(calls, split.X_held_out, max(split.task.ks))["one_us"]


def prefixes(weights: list[Weights], known: Clusters, wanted: Clusters) -> list[Weights]:
    """Each block's weights for the wanted labels, all of which it has."""
    parts: list[Weights] = []
    for block, have, want in zip(weights, known, wanted, strict=True):
        if have.size == want.size:
            parts.append(block)
        else:
            splittable: Any = block
            parts.extend(splittable.split([np.searchsorted(have, want)]))
    return parts


def train_per_block(split: Split, layout: Layout) -> list[Weights]:
    """The paper's way: each block on its own rows."""
    task = split.task
    with split.training():
        return train_blocks(
            task.learner,
            split.X,
            split.Y,
            layout.assignment,
            layout.clusters,
            Job(reporter=task.reporter),
            threads=task.threads,
            seed=task.seed,
        )


def train_warm(split: Split, layout: Layout, known: Layout, weights: list[Weights]) -> list[Weights]:
    """As ``train_per_block``, with each block started from its weights at a smaller lambda."""
    task, trained = split.task, []
    with (
        split.training(warm=True),
        task.reporter.phase("train blocks, warm", len(weights)) as phase,
        Reporter().phase("") as silent,
    ):
        for block, (previous, have, want) in enumerate(zip(weights, known.clusters, layout.clusters, strict=True)):
            learner: Any = task.learner._warmed(previous, np.searchsorted(have, want), task.threads)
            rows = np.flatnonzero(layout.assignment == block)
            job = task.learner._context(task.threads, silent, task.seed + block)
            trained.append(train_block(learner, split.X, split.Y, rows, want, job))
            phase.update(block + 1)
    return trained


def train_whole(split: Split, layout: Layout) -> list[Weights]:
    """Every label on all rows, once per split; blocks only choose candidates."""
    full: Any = split.full
    return list(full.split(layout.clusters))


# To tune another way of training weights, add a line here.
KINDS: dict[str, Kind] = {
    "per-block": Kind(train_per_block, lambda learner: learner.one_vs_all),
    "global": Kind(train_whole, lambda learner: True),
}
