"""One split of the rows: the base without blocks, and models of blocks at any pair of a number of blocks and a lambda.

Rows are assigned to blocks anew at each lambda, from the assignment at the lambda before (to the letter: from k-means).
Every training starts from nothing, so what is found for a pair depends on the pair alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone

from blockxmc import metrics
from blockxmc._core.progress import Reporter
from blockxmc.learners._learner import Learner
from blockxmc.linear.scorers import pack_scorer
from blockxmc.linear.weights import Ids, Weights
from blockxmc.metrics.ranking import Ranking
from blockxmc.metrics.timing import _single_calls
from blockxmc.model.routed import RoutedModel
from blockxmc.partition import Partitioner
from blockxmc.partition.alternation import Blocks
from blockxmc.partition.walk import Walk
from blockxmc.routing import Router
from blockxmc.training.job import Job
from blockxmc.training.per_block import train_blocks

F64 = NDArray[np.float64]
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


class Pair(NamedTuple):
    """A number of blocks, and the lambdas by way of which rows are assigned: the last is the pair's own.

    >>> Pair(4, (0.1, 0.2)).lam, Pair(4, (0.1,), cut=0.3).lam
    (0.2, 0.3)
    """

    n_blocks: int
    steps: tuple[float, ...]
    cut: float | None = None  # label clusters are cut at this lambda, where it is another one

    @property
    def lam(self) -> float:
        """The lambda at which label clusters are cut."""
        return self.steps[-1] if self.cut is None else self.cut


class Split:
    """Training rows, and held-out rows that reach their blocks only through the router."""

    def __init__(self, task: Task, X: sparse.csr_array, Y: sparse.csr_array, train: Ids, held_out: Ids) -> None:
        self.task = task
        self.X, self.Y = sparse.csr_array(X[train]), sparse.csr_array(Y[train])
        self.X_held_out, self.Y_held_out = sparse.csr_array(X[held_out]), sparse.csr_array(Y[held_out])
        self.train_rows = train
        self.trainings, self.seconds = 0, 0.0
        self._walks: dict[int, Walk] = {}

    @contextmanager
    def _training(self) -> Iterator[None]:
        """Count and time a training of the base."""
        start = time.perf_counter()
        yield
        self.trainings += 1
        self.seconds += time.perf_counter() - start

    @cached_property
    def full(self) -> Weights:
        """The base on all rows and labels."""
        task = self.task
        title = f"train {type(task.learner).__name__}, all labels"
        with self._training(), task.reporter.phase(title, self.Y.shape[1]) as phase:
            return task.learner._train(self.X, self.Y, task.learner._context(task.threads, phase, task.seed))

    def base_model(self) -> RoutedModel:
        """The base without blocks, as a model that answers."""
        return RoutedModel(None, self._packed([self.full], [np.arange(self.Y.shape[1])]), 1)

    def _packed(self, weights: Sequence[Weights], clusters: Sequence[Ids]) -> Any:
        sizes: Any = {"n_features": self.X.shape[1], "n_labels": self.Y.shape[1], "threads": self.task.threads}
        return pack_scorer(list(weights), list(clusters), **sizes)

    def precision(self, model: RoutedModel | None) -> F64:
        """P@k of each held-out row (rows x ks), in points; all 0 without a model."""
        ks, labels = self.task.ks, None
        if model is not None:
            labels, _ = model.topk(self.X_held_out, min(max(ks), self.Y.shape[1]), self.task.threads)
        if labels is None:
            return np.zeros((self.X_held_out.shape[0], len(ks)))
        hits = Ranking.of(self.Y_held_out, labels, max(ks)).hits
        return 100.0 * np.column_stack([hits[:, :k].sum(axis=1) / k for k in ks])

    def blocks(self, pair: Pair) -> Blocks | None:
        """The blocks of the training rows, or None where no block has a label left. Lambdas are those of this split."""
        if pair.n_blocks not in self._walks:
            partitioner = self.task.unfitted(pair.n_blocks, "auto")
            if not isinstance(partitioner.init, str):
                partitioner.set_params(init=np.asarray(partitioner.init)[self.train_rows], n_blocks="auto")
            partitioner._check_params(self.X.shape[0])
            self._walks[pair.n_blocks] = Walk(partitioner, self.X, self.Y, pair.n_blocks)
        walk = self._walks[pair.n_blocks]
        blocks = walk.at(pair.steps)
        return blocks if blocks is None or pair.lam == pair.steps[-1] else walk.cut(blocks, pair.lam)

    def expected_products(self, pair: Pair) -> float:
        """Products of a training row in its own block, router included, before anything is trained."""
        blocks = self.blocks(pair)
        if blocks is None:
            return np.inf
        sizes = blocks.clusters.sizes
        return float(sizes.size + (sizes * blocks.ranking.n_rows).sum() / self.X.shape[0])

    def router(self, blocks: Blocks) -> Router:
        """A router to these blocks."""
        options: Any = {"threads": self.task.threads, "reporter": self.task.reporter}
        return Router().fit(self.X, blocks.assignment, n_blocks=blocks.clusters.sizes.size, **options)

    def served(self, pair: Pair, kind: str = "per-block", route: int = 1) -> RoutedModel | None:
        """The model of a pair, or None where no label is left."""
        blocks, task = self.blocks(pair), self.task
        if blocks is None:
            return None
        clusters, router = blocks.clusters.sorted_lists(), self.router(blocks)
        if kind == "global":
            whole: Any = self.full
            weights: list[Weights] = list(whole.split(clusters))
        else:
            with self._training():
                how: Any = {"threads": task.threads, "seed": task.seed}
                job = Job(reporter=task.reporter)
                weights = train_blocks(task.learner, self.X, self.Y, blocks.assignment, clusters, job, **how)
        return RoutedModel(router.scorer, self._packed(weights, clusters), min(route, len(clusters)))

    def measured(self, model: RoutedModel | None) -> dict[str, Any]:
        """Precision (points), candidates, products and candidate recall on the held-out rows; all 0 without a model."""
        precision = self.precision(model).mean(axis=0).tolist()
        if model is None:
            return {"precision": precision, "candidates": 0.0, "products": 0.0, "recall": 0.0}
        visited = model.visited(self.X_held_out, self.task.threads)
        if visited is None:  # one block: every row visits it
            visited = np.zeros((self.X_held_out.shape[0], 1), np.int32)
        candidates, products = model.work(visited)
        recall = metrics.candidate_recall(self.Y_held_out, (visited, model.scorer.label_clusters))
        return {"precision": precision, "candidates": candidates, "products": products, "recall": recall}

    def single_call_us(self, model: RoutedModel) -> float:
        """Median microseconds of a single call on held-out rows."""
        calls = SimpleNamespace(predict_one=model.one)
        return _single_calls(calls, self.X_held_out, max(self.task.ks))["one_us"]
