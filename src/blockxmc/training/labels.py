"""One vector per label, trained on what the router will really send to the label's blocks.

The paper trains a label anew in every block on the block's rows alone, which starves it as blocks get small. Here a label
learns once from the rows assigned or routed to any block that holds it, and from all its positives: one to a few per cent
of all rows, yet nearly everything that could teach it something. Blocks may then be many and small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc import _kernels
from blockxmc._core.matrix import as_pattern, csr_args, pattern_args, take_rows, without_rows
from blockxmc._core.progress import Reporter, Shifted
from blockxmc.learners._learner import Learner
from blockxmc.learners.sklearn_adapter import OpaqueWeights, constants
from blockxmc.linear.scorer import Scorer
from blockxmc.linear.scorers import pack_scorer, pack_shared_scorer
from blockxmc.linear.vectors import LabelVectors
from blockxmc.linear.weights import F32, Ids, LinearWeights
from blockxmc.training.batches import Order, in_order, rows_of_labels
from blockxmc.training.blocks import frequent_labels, holds
from blockxmc.training.forms import SOLVED, WEIGHTS
from blockxmc.training.job import Job, Range
from blockxmc.training.settings import SETTINGS, Settings

# Batches for each thread of a cluster: whoever is free takes the next; and least pairs of such a batch. So many of
# elife-keywords take about 180 ms, and each batch 20 more, half of them in Dask.
SHARES, LEAST_SHARE = 8, 2**17
SharedWeights = LabelVectors | OpaqueWeights


@dataclass(frozen=True)
class LabelTrainer:
    """Trains labels on the rows that visit their blocks and on their own positives."""

    learner: Learner
    X: sparse.csr_array
    label_clusters: Sequence[Ids]
    reporter: Reporter
    threads: int
    seed: int
    settings: Settings = SETTINGS
    job: Job = field(default_factory=Job)
    sample_weight: F32 | None = None

    def train(self, Y: sparse.csr_array, visits: sparse.csr_array, title: str) -> tuple[SharedWeights, float]:
        """Weights of all columns of Y, and the share of all (row, label) pairs that taught them."""
        return self._train(sparse.csr_array(Y.T), visits, self._blocks_of_labels(Y.shape[1]), title, self._costs(Y))

    def train_some(
        self,
        Y: sparse.csr_array,
        visits: sparse.csr_array,
        labels: NDArray[np.intp],
        title: str,
        new: NDArray[np.bool_] | None = None,
    ) -> SharedWeights:
        """Weights of some labels, in this order; ``new`` ones learn from the rows most like their positives.

        No label begins with weights that it has had. Solvers end early, and from there they end elsewhere: after twenty
        updates of elife-keywords, all labels solved once more from their weights gave P@1 of -0.49 beside a training, from
        nothing +0.36, for 1.3 times the time.
        """
        blocks = take_rows(self._blocks_of_labels(Y.shape[1]), labels)
        positives = take_rows(sparse.csr_array(Y.T), labels)
        return self._train(positives, visits, blocks, title, self._costs(Y), new)[0]

    def _costs(self, Y: sparse.csr_array) -> dict[str, F32]:
        """What rows count, for a learner that can be told."""
        power = self.settings.shared_positive
        if self.sample_weight is None and not (self.learner.takes_costs and power):
            return {}
        return {"costs": shared_costs(Y, power, self.sample_weight)}

    def _blocks_of_labels(self, n_labels: int) -> sparse.csr_array:
        return sparse.csr_array(holds(self.label_clusters, n_labels).T)

    def _train(
        self,
        positives: sparse.csr_array,
        visits: sparse.csr_array,
        blocks: sparse.csr_array,
        title: str,
        more: dict[str, Any],
        new: NDArray[np.bool_] | None = None,
    ) -> tuple[SharedWeights, float]:
        """``positives`` and ``blocks`` have a row per label: its rows, and the blocks that hold it."""
        solve = partial(self._solved, positives, visits, blocks, title, more, new)
        return self.job.stage(title.removeprefix("train "), solve, SOLVED)

    def _solved(
        self,
        positives: sparse.csr_array,
        visits: sparse.csr_array,
        blocks: sparse.csr_array,
        title: str,
        more: dict[str, Any],
        new: NDArray[np.bool_] | None,
    ) -> tuple[SharedWeights, float]:
        n_labels = positives.shape[0]
        with self.reporter.phase(title, n_labels) as phase:
            rows_of_block = sparse.csr_array(visits.T)
            limited = None if new is None else (new, self.settings.update_negatives)
            apart = self.learner.any_batch
            order = in_order(positives, visits, blocks, rows_of_block, limited, apart, self.threads)

            def batch(begin: int, end: int) -> tuple[Any, int]:
                some = order.labels[begin:end]
                own = take_rows(positives, some)
                rows = rows_of_labels(rows_of_block, take_rows(blocks, some), own, self.threads)
                if new is not None:
                    rows = nearest_rows(self.X, own, rows, new[some], self.settings.update_negatives, self.threads)
                job = self.learner._context(self.threads, Shifted(phase, begin), self.seed)
                targets = sparse.csr_array(own.T)
                return self.learner._train(self.X, targets, job, rows=rows, **more), rows.nnz  # type: ignore[call-arg]

            parts, taught, ranges = [], 0, self._ranges(order)
            found = self.job.ranges(title.removeprefix("train "), ranges, batch)
            for (_, end), (part, pairs) in zip(ranges, found, strict=True):
                if self.job.kept is not None:
                    WEIGHTS.state(part)  # what cannot be kept is refused with the first batch
                parts.append(part)
                taught += pairs
                phase.update(end)
            del part
            weights = _joined(parts, order.labels, self.threads)
        return weights, taught / max(self.X.shape[0] * n_labels, 1)

    def _ranges(self, order: Order) -> list[Range]:
        """Batches that are neither small nor too large for memory; some for each helper, if the learner minds no cut."""
        least = max(self.settings.least_pairs, self.settings.least_pairs_per_row * self.X.shape[0])
        total = float(order.pairs.sum())
        usual = min(max(total / self.settings.most_batches, least), self.settings.pairs_at_a_time)
        if self.learner.any_batch and (helpers := self.job.helpers):
            usual = min(usual, max(total / (SHARES * helpers), LEAST_SHARE))
        return order.batches(usual)


def shared_costs(Y: sparse.csr_array, power: float, sample_weight: F32 | None = None) -> F32:
    """Rows x 2: a row with m labels counts ``m ** -power`` as a positive, 1 on average over all positives; 1 as a negative.

    A row that has many labels says less about each of them. Both are multiplied by the weight of the row, if it has one: a
    row of weight 2 counts as if it were there twice.

    >>> Y = sparse.csr_array(np.array([[1, 0], [1, 1]]))
    >>> shared_costs(Y, 1.0).tolist()
    [[1.5, 1.0], [0.75, 1.0]]
    >>> shared_costs(Y, 0.0, np.array([2, 1], np.float32)).tolist()
    [[2.0, 2.0], [1.0, 1.0]]
    """
    m = np.maximum(np.diff(Y.indptr), 1).astype(np.float64)
    counts, weights = m**-power, np.ones(m.size) if sample_weight is None else sample_weight.astype(np.float64)
    # Sums, not dot products: those wake BLAS's threads, which then spin for longer than all of this takes.
    usual = (weights * m).sum() / (weights * m * counts).sum()
    return np.column_stack([weights * counts * usual, weights]).astype(np.float32)


def replaced(weights: SharedWeights, labels: NDArray[np.intp], new: SharedWeights, threads: int) -> SharedWeights:
    """The weights with those of ``labels`` replaced by ``new``, which has them in this order."""
    if isinstance(weights, LabelVectors) and isinstance(new, LabelVectors):
        return weights.replaced(labels, new, threads)
    models = list(_models(weights))
    for label, model in zip(labels, _models(new), strict=True):
        models[label] = model
    return OpaqueWeights(tuple(models))


def pack_shared(
    weights: SharedWeights,
    label_clusters: Sequence[Ids],
    *,
    n_features: int,
    bits: int,
    threads: int,
    settings: Settings = SETTINGS,
) -> Scorer:
    """Weights packed per block; those of the frequent labels stand in one last block only."""
    options: Any = {"n_features": n_features, "n_labels": weights.n_labels, "bits": bits, "threads": threads}
    if isinstance(weights, OpaqueWeights):
        return pack_scorer(list(weights.split(label_clusters)), label_clusters, **options)
    frequent = frequent_labels(label_clusters, weights.n_labels, settings)
    return pack_shared_scorer(weights, label_clusters, frequent, n_features=n_features, bits=bits, threads=threads)


def nearest_rows(
    X: sparse.csr_array,
    positives: sparse.csr_array,
    rows: sparse.csr_array,
    labels: NDArray[np.bool_],
    most: int,
    threads: int,
) -> sparse.csr_array:
    """The rows of labels, of these labels no more than so many: the positives, and those that are most like them.

    The others of a label with few positives lie beyond its margin, and would teach it nothing.

    >>> X = sparse.csr_array(np.array([[1, 0], [0.8, 0.6], [0, 1]], np.float32))
    >>> positives, rows = (sparse.csr_array(np.array([given], np.float32)) for given in ([1, 0, 0], [1, 1, 1]))
    >>> nearest_rows(X, positives, rows, np.ones(1, bool), 2, 1).indices.tolist()
    [0, 1]
    """
    cut = labels & (np.diff(rows.indptr) > most) & (np.diff(positives.indptr) <= most)
    if not cut.any():
        return rows
    sums = sparse.csr_array(without_rows(positives, ~cut) @ X)
    sums.sort_indices()
    matrices = *csr_args(X), X.shape[1], *csr_args(sums)
    lists = *pattern_args(positives), *pattern_args(rows)
    indptr, found = _kernels.nearest_rows(*matrices, *lists, cut.view(np.uint8), most, threads)
    return as_pattern(indptr, found, rows.shape)


def _joined(parts: list[Any], order: NDArray[np.intp], threads: int) -> SharedWeights:
    """The weights of all batches, which are taken from the list, as one; a batch has the next labels of ``order``."""
    if all(isinstance(part, LinearWeights) for part in parts):
        return LabelVectors.joined(parts, order, threads)
    models = [model for part in parts for model in _models(part)]
    return OpaqueWeights(tuple(models[j] for j in np.argsort(order)))


def _models(weights: Any) -> Sequence[Any]:
    """A model per label; a batch of labels that nobody or everybody has comes out linear, whatever the base."""
    return getattr(weights, "models", None) or constants(weights.bias)
