"""One split of the rows, partitioned anew at each lambda: the paper's procedure.

The walk goes from the smallest lambda to the largest, and each partition starts from the assignment at the lambda before.
Where the base trains labels independently, a block whose rows did not change keeps the weights of its labels, and trains
those that are new; a block whose rows changed begins from the vectors it had, where the solver takes a start. Where the
base trains labels together, a block keeps its weights where neither rows nor labels changed, and begins from the factors it
had where it can begin from factors.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc._core.progress import Phase, run_in_threads
from blockxmc.linear.scorers import pack_scorer
from blockxmc.linear.weights import LowRankWeights, Weights
from blockxmc.model.routed import RoutedModel
from blockxmc.partition.walk import Walk
from blockxmc.routing import Router
from blockxmc.training.per_block import train_block
from blockxmc.training.trials.reuse import has_vectors, places, together, vectors
from blockxmc.training.trials.split import KINDS, Layout, Split, measure_model, prefixes

NOTHING, NOWHERE = np.zeros(0, np.int64), np.zeros(0, np.intp)
# A block begins from its factors where it had this share of its labels. Not measured: a label that is new starts from zero,
# and a single round teaches it less.
ENOUGH_KNOWN = 0.9


@dataclass(frozen=True)
class Trained:
    """Weights of the blocks at one lambda, by the rows of each block."""

    blocks: dict[bytes, tuple[NDArray[np.int64], Weights]]  # rows as bytes -> labels and weights
    by_number: list[tuple[NDArray[np.int64], Weights]]


class MovingBlocks:
    """The blocks of one split along ascending lambdas (in the scale of the split)."""

    def __init__(self, split: Split, n_blocks: int) -> None:
        self.split, self.n_blocks = split, n_blocks
        self.setup_seconds = 0.0
        self._routed: tuple[NDArray[np.int32], Router] | None = None
        self._trained: Trained | None = None

    @cached_property
    def _walk(self) -> Walk:
        split = self.split
        partitioner = split.task.unfitted(self.n_blocks, "auto")
        if not isinstance(partitioner.init, str):
            partitioner.set_params(init=np.asarray(partitioner.init)[split.train_rows], n_blocks="auto")
        partitioner._check_params(split.X.shape[0])
        return Walk(partitioner, split.X, split.Y, self.n_blocks)

    def layout(self, steps: Sequence[float]) -> Layout | None:
        """The blocks at the last of these lambdas, or None where no block has a label left."""
        start = time.perf_counter()
        blocks = self._walk.at(steps)
        layout = None
        if blocks is not None:
            clusters = blocks.clusters.sorted_lists()
            layout = Layout(blocks.assignment, clusters, self._router(blocks.assignment, len(clusters)), True)
        self.setup_seconds += time.perf_counter() - start
        return layout

    def _router(self, assignment: NDArray[np.int32], n_blocks: int) -> Router:
        """A router of this assignment; the last one where no row has moved since."""
        if self._routed is None or not np.array_equal(self._routed[0], assignment):
            task = self.split.task
            options: Any = {"threads": task.threads, "reporter": task.reporter}
            self._routed = assignment, Router().fit(self.split.X, assignment, n_blocks=n_blocks, **options)
        return self._routed[1]

    def measure(self, steps: Sequence[float], kind: str = "per-block", route: int = 1) -> dict[str, Any]:
        """Precision (points) and work per row at the last lambda on the held-out rows, and what finding out took."""
        split = self.split
        before = split.trainings, split.warm_trainings, split.seconds
        layout = self.layout(steps)
        model, pairs, reused = None, 0, 0
        if layout is not None:
            weights, reused = self._weights(layout, kind)
            pairs = sum(len(labels) for labels in layout.clusters)
            sizes: Any = {"n_features": split.X.shape[1], "n_labels": split.Y.shape[1]}
            scorer = pack_scorer(weights, layout.clusters, **sizes)
            model = RoutedModel(layout.router.scorer, scorer, min(route, len(layout.clusters)))
        return measure_model(split, model) | {
            "trainings": split.trainings - before[0],
            "warm_trainings": split.warm_trainings - before[1],
            "seconds": split.seconds - before[2],
            "pairs": pairs,
            "reused_pairs": reused,
        }

    def _weights(self, layout: Layout, kind: str) -> tuple[list[Weights], int]:
        """Weights of each block, and how many (block, label) pairs were not trained for them."""
        if kind != "per-block":
            before = self.split.trainings
            weights = KINDS[kind].train(self.split, layout)
            return weights, sum(map(len, layout.clusters)) * (before == self.split.trainings)
        rows_of = rows_by_block(layout)
        known = self._trained
        if known is not None and self.split.task.learner.one_vs_all:
            weights, reused = self._reusing(layout, rows_of, known)
        elif known is not None and self.split.task.learner.takes_warm_start:
            weights, reused = self._warm(layout, rows_of, known), 0
        elif known is not None and len(known.by_number) == len(rows_of):
            weights, reused = self._unchanged(layout, rows_of, known)
        else:
            weights, reused = KINDS[kind].train(self.split, layout), 0
        by_number = list(zip(layout.clusters, weights, strict=True))
        self._trained = Trained(
            {rows.tobytes(): have for rows, have in zip(rows_of, by_number, strict=True)}, by_number
        )
        return weights, reused

    def _reusing(self, layout: Layout, rows_of: list[Any], known: Trained) -> tuple[list[Weights], int]:
        """Train the labels of blocks whose rows changed, and labels that a block did not have."""
        task, split = self.split.task, self.split
        numbered = len(known.by_number) == len(layout.clusters)
        weights: list[Any] = [None] * len(rows_of)
        todo: dict[int, tuple[NDArray[np.int64], NDArray[np.intp], Weights | None]] = {}
        for block, (rows, want) in enumerate(zip(rows_of, layout.clusters, strict=True)):
            have = known.blocks.get(rows.tobytes())
            at = NOWHERE if have is None else places(have[0], want)
            if have is not None and (at >= 0).all():
                weights[block] = prefixes([have[1]], [have[0]], [want])[0]
            elif have is not None and has_vectors(have[1]) and (at >= 0).any():
                todo[block] = want[at < 0], at, have[1]
            else:
                todo[block] = want, NOWHERE, None
        reused = sum(map(len, layout.clusters)) - sum(len(labels) for labels, _, _ in todo.values())
        if not todo:
            return weights, reused
        starts = numbered and task.learner.takes_start
        inner = 1 if len(todo) >= 2 * task.threads else task.threads

        def train(block: int, phase: Phase) -> None:
            labels, at, have = todo[block]
            start = self._start(known.by_number[block], labels) if starts and have is None else None
            job = task.learner._context(inner, phase, task.seed + block)
            fresh = train_block(task.learner, split.X, split.Y, rows_of[block], labels, job, start)
            weights[block] = fresh if have is None else together(have, at, fresh, split.X.shape[1])

        with split.training(warm=starts), task.reporter.phase("train blocks", len(todo)) as phase:
            run_in_threads(train, list(todo), task.threads if inner == 1 else 1, phase)
        return weights, reused

    def _start(self, had: tuple[NDArray[np.int64], Weights], want: NDArray[np.int64]) -> sparse.csr_array | None:
        """The vectors that a block had for these labels."""
        if not has_vectors(had[1]) or not had[0].size:
            return None
        return vectors(had[1], self.split.X.shape[1], places(had[0], want))

    def _unchanged(self, layout: Layout, rows_of: list[Any], known: Trained) -> tuple[list[Weights], int]:
        """Train the blocks whose rows or labels changed: a block of the same number, rows and labels is the same."""
        task, split = self.split.task, self.split
        weights: list[Any] = [None] * len(rows_of)
        for block, (rows, want) in enumerate(zip(rows_of, layout.clusters, strict=True)):
            have = known.blocks.get(rows.tobytes())
            if have is not None and have is known.by_number[block] and np.array_equal(have[0], want):
                weights[block] = have[1]
        todo = [block for block, have in enumerate(weights) if have is None]

        def train(block: int, phase: Phase) -> None:
            job = task.learner._context(1, phase, task.seed + block)
            rows, labels = rows_of[block], layout.clusters[block]
            weights[block] = train_block(task.learner, split.X, split.Y, rows, labels, job)

        if todo:
            with split.training(), task.reporter.phase("train blocks", len(todo)) as phase:
                run_in_threads(train, todo, task.threads, phase)
        return weights, sum(map(len, layout.clusters)) - sum(len(layout.clusters[block]) for block in todo)

    def _warm(self, layout: Layout, rows_of: list[Any], known: Trained) -> list[Weights]:
        """Each block begins from the factors of the block with the same number, where that had most of its labels."""
        task, split, trained = self.split.task, self.split, []
        numbered = len(known.by_number) == len(layout.clusters)
        with split.training(warm=True), task.reporter.phase("train blocks, warm", len(rows_of)) as phase:
            for block, (rows, want) in enumerate(zip(rows_of, layout.clusters, strict=True)):
                learner: Any = task.learner
                have, previous = known.by_number[block] if numbered else (NOTHING, None)
                at = places(have, want)
                if previous is not None and (at >= 0).mean() >= ENOUGH_KNOWN:
                    moved = _on_rows(previous, split.X, rows)
                    learner = task.learner._warmed(moved, at, task.threads)
                job = task.learner._context(task.threads, phase, task.seed + block)
                trained.append(train_block(learner, split.X, split.Y, rows, want, job))
        return trained


def rows_by_block(layout: Layout) -> list[NDArray[np.int32]]:
    """Rows of each block, ascending."""
    order = np.argsort(layout.assignment, kind="stable").astype(np.int32)
    sizes = np.bincount(layout.assignment, minlength=len(layout.clusters))
    return np.split(order, np.cumsum(sizes)[:-1])


def _on_rows(weights: Weights, X: sparse.csr_array, rows: NDArray[np.int32]) -> Weights:
    """Factors of a block on the features of the rows it has now; new features start from zero."""
    if not isinstance(weights, LowRankWeights) or weights.features is None:
        return weights
    features = np.unique(X[rows].indices)
    _, new, old = np.intersect1d(features, weights.features, assume_unique=True, return_indices=True)
    W = np.zeros((max(features.size, 1), weights.W.shape[1]), np.float32)
    W[new] = weights.W[old]
    return LowRankWeights(W, weights.H)
