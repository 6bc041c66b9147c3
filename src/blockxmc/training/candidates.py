"""The few labels of each held-out row that may be its best, and what speaks for each of them.

A trial model finds them once; score mix, reranker and calibration are then fitted on these tables, and no other trial model
is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc import _kernels
from blockxmc._core.matrix import pattern_args, renumbered
from blockxmc.linear.vectors import LabelVectors
from blockxmc.linear.weights import F32
from blockxmc.model.companions import Companions
from blockxmc.model.reranker import N_TERMS, Reranker
from blockxmc.model.routed import RoutedModel
from blockxmc.training.settings import Settings


@dataclass(frozen=True)
class Mix:
    """How much counts beside a label's margin in its score.

        score = margin + name * cos(name) + centroid * cos(centroid) + slope * log(p) + neighbors * share

    Cosines are those of the row to the label's name, where names teach, and to the centroid of the label's rows; p is the
    summed probability of the visited blocks that list the label, share that of the row's neighbors which carry it.
    Name and centroid know words that too few positives could not teach the margin to tell apart. Both are linear in the row
    and vanish in the weights that are served. Neighbors know what one direction per label cannot say.
    """

    slope: float = 0.0  # of the logarithm of the probability of its blocks
    name: float = 0.0  # for being like what the label is called
    centroid: float = 0.0  # for being like the label's positives
    neighbors: float = 0.0  # for being carried by the training rows most like the row
    untrained: float = 0.0  # for having no training row, but a name: below zero


@dataclass(frozen=True)
class Terms:
    """What makes up the scores of some labels of each row (rows x few); margins are -inf where a label is no candidate."""

    margin: F32
    name: F32
    centroid: F32
    block: F32
    neighbors: F32
    log_positives: F32


@dataclass(frozen=True)
class Best:
    """The candidates that score best in each row, best first (rows x few)."""

    scores: F32
    right: NDArray[np.bool_]
    places: NDArray[np.int64]  # among the candidates: of those that a reranker sees, the first of these
    terms: F32  # what it sees of them: rows x as many x N_TERMS


@dataclass(frozen=True)
class Candidates:
    """Terms of the candidates of some rows, and which of them are labels of the row."""

    terms: Terms
    right: NDArray[np.bool_]  # rows x few
    n_true: NDArray[np.integer]  # labels of each row, candidates or not
    labels: NDArray[np.int64]  # which they are (-1: none)
    companions: Companions | None = None  # what is known of pairs of them

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.right.shape[0])

    def of_rows(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> Candidates:
        """Only these rows."""
        terms = Terms(**{name: part[rows] for name, part in vars(self.terms).items()})
        return Candidates(terms, self.right[rows], self.n_true[rows], self.labels[rows], self.companions)

    def hits_of(self, mixes: F32, threads: int) -> NDArray[np.float64]:
        """Mean of P@1, P@3 and P@5 of each row under each mix (slope, name, centroid, neighbors): mixes x rows."""
        terms, out = self.terms, np.empty((mixes.shape[0], self.n_rows))
        parts = terms.margin, terms.name, terms.centroid, terms.block, terms.neighbors, self.right.view(np.uint8)
        args: Any = *(np.ascontiguousarray(part) for part in parts), mixes, out, threads
        _kernels.mix_hits(*args)
        return out

    def best(self, mix: Mix, few: int, shown: int, threads: int) -> Best:
        """The few that score best in each row, best first; the first of them as they are shown to a reranker."""
        few, n = min(few, self.right.shape[1]), self.n_rows
        shown = min(shown, few)
        terms, right = self.terms, self.right.view(np.uint8)
        parts = terms.margin, terms.name, terms.centroid, terms.block, terms.neighbors, terms.log_positives, right
        weights = np.array([mix.slope, mix.name, mix.centroid, mix.neighbors], np.float32)
        out = Best(
            np.empty((n, few), np.float32),
            np.empty((n, few), bool),
            np.empty((n, shown), np.int64),
            np.empty((n, shown, N_TERMS), np.float32),
        )
        found = out.places, out.scores, out.right.view(np.uint8), out.terms.reshape(n, -1)
        args: Any = *(np.ascontiguousarray(part) for part in parts), weights, *found, threads
        _kernels.best_candidates(*args)
        return out

    def ranked(self, mix: Mix, reranker: Reranker | None, k: int, threads: int) -> tuple[F32, NDArray[np.bool_]]:
        """Scores of the best k of each row and whether they are right, best first."""
        shown = 0 if reranker is None else reranker.first
        best = self.best(mix, max(k, shown), shown, threads)
        scores, right = best.scores, best.right
        if reranker is not None:
            labels, front, hits = self.reranked(best, reranker, threads)
            if reranker.companions is not None:
                front = reranker.companions.told(labels, front, reranker.log_positives, threads)
            order = best_first(front, threads)
            front, hits = np.take_along_axis(front, order, axis=1), np.take_along_axis(hits, order, axis=1)
            back = scores[:, reranker.first :] + _shift(scores[:, : reranker.first], front)
            scores = np.concatenate([front, back], axis=1).astype(np.float32)
            right = np.concatenate([hits, right[:, reranker.first :]], axis=1)
        return scores[:, :k], right[:, :k] & (scores[:, :k] > -np.inf)

    def reranked(
        self, best: Best, reranker: Reranker, threads: int
    ) -> tuple[NDArray[np.int64], F32, NDArray[np.bool_]]:
        """The first of the best as the reranker's curve orders them: which labels, their scores, whether they are right."""
        first, scores = best.places, best.scores[:, : reranker.first]
        gains = reranker.gains(best.terms)
        gained = np.where(scores > -np.inf, scores + gains, -np.inf).astype(np.float32)
        order = best_first(gained, threads)
        right = np.take_along_axis(best.right[:, : reranker.first], order, axis=1)
        labels = np.take_along_axis(self.labels, np.take_along_axis(first, order, axis=1), axis=1)
        return labels, np.take_along_axis(gained, order, axis=1), right

    def hits(self, mix: Mix, reranker: Reranker | None = None, *, threads: int) -> NDArray[np.float64]:
        """P@1, P@3 and P@5 of each row."""
        right = self.ranked(mix, reranker, 5, threads)[1]
        return np.stack([right[:, :k].sum(axis=1) / k for k in (1, 3, 5)], axis=1)


@dataclass(frozen=True)
class HeldOut:
    """Held-out rows seen through a trial model whose router, labels and neighbors do not know them."""

    trial: RoutedModel
    X: sparse.csr_array
    Y: sparse.csr_array
    blocks_of: sparse.csr_array  # labels x blocks: which list the label, as far as other rows say
    settings: Settings
    threads: int

    def found(self) -> tuple[NDArray[np.int64], F32]:
        """The few candidates of each row that score best before anything is fitted, and these scores."""
        model = replace(self.trial, neighbors=None, slope=self.settings.middle_slope)
        return model.topk(self.X, min(self.settings.candidates, self.Y.shape[1]), self.threads)

    def cosines(self, labels: NDArray[np.int64], vectors: sparse.csr_array) -> F32:
        """Products of the rows with the vectors of their labels; ``vectors`` has a row for each that any of them has."""
        places = np.full(labels.shape, -1, np.int32)
        places[labels >= 0] = renumbered(labels[labels >= 0], self.Y.shape[1])[1]
        nothing = np.zeros(vectors.shape[0], np.float32)
        return LabelVectors(vectors, nothing).few_scores(self.X, places, self.threads)

    def candidates(
        self,
        labels: NDArray[np.int64],
        scores: F32,
        name: F32,
        centroid: F32,
        log_positives: F32,
        companions: Companions | None,
    ) -> Candidates:
        """What speaks for the labels that were found."""
        block, visited = self._block_terms(labels)
        listed = (labels >= 0) & (block > -np.inf)
        with np.errstate(invalid="ignore"):
            margin = np.where(listed, scores - np.float32(self.settings.middle_slope) * block, -np.inf)
        margin -= np.float32(self.settings.middle_name) * name
        terms = Terms(
            margin=margin.astype(np.float32),
            name=name,
            centroid=centroid,
            block=np.where(listed, block, 0).astype(np.float32),
            neighbors=self._neighbor_terms(labels, visited),
            log_positives=log_positives[np.maximum(labels, 0)],
        )
        right = np.empty(labels.shape, bool)
        _kernels.right_labels(*pattern_args(self.Y), self.Y.shape[1], labels, right.view(np.uint8), self.threads)
        return Candidates(terms, right, np.diff(self.Y.indptr), labels, companions)

    def _block_terms(self, labels: NDArray[np.int64]) -> tuple[F32, NDArray[np.int32] | None]:
        """Log probability of the visited blocks that list each label (-inf: none does), and the visited blocks."""
        model = replace(self.trial, neighbors=None, slope=1.0)
        if model.router is None:
            return np.zeros(labels.shape, np.float32), None
        visited, weights = model.visits(self.X, self.threads)
        # The block of the frequent labels comes first where there is one: all rows visit it, and it lists nothing.
        own, p = visited[:, -model.route :], weights[:, -model.route :]
        total = np.empty(labels.shape, np.float32)
        lists = *pattern_args(self.blocks_of), self.blocks_of.shape[1]
        visits = np.ascontiguousarray(own), np.ascontiguousarray(p)
        _kernels.block_weights(*lists, *visits, labels, total, self.threads)
        with np.errstate(divide="ignore"):
            return np.log(total), visited

    def _neighbor_terms(self, labels: NDArray[np.int64], visited: NDArray[np.int32] | None) -> F32:
        """What each label gains from the row's neighbors in the visited blocks."""
        if self.trial.neighbors is None or visited is None:
            return np.zeros(labels.shape, np.float32)
        return self.trial.neighbors.few_gains(self.X, visited, labels, self.threads)


def best_first(scores: F32, threads: int) -> NDArray[np.int64]:
    """The places of the scores of each row, the highest first; equal scores stay in their order.

    >>> best_first(np.array([[1.0, 3.0, -np.inf, 3.0]], np.float32), 1).tolist()
    [[1, 3, 0, 2]]
    """
    out = np.empty(scores.shape, np.int64)
    _kernels.best_first(np.ascontiguousarray(scores), out, threads)
    return out


def _shift(before: F32, after: F32) -> F32:
    """How far the last of the first labels of each row has moved: all others move along with it."""
    last, least = (np.where(scores > -np.inf, scores, np.inf).min(axis=1, keepdims=True) for scores in (before, after))
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(last), least - last, 0).astype(np.float32)


def log_positives_of(positives: NDArray[np.integer], settings: Settings) -> F32:
    """The logarithm of the number of positives of each label, as the reranker sees it.

    >>> from blockxmc.training.settings import SETTINGS
    >>> np.exp(log_positives_of(np.array([5]), SETTINGS)).round().tolist()
    [5.0]
    """
    return np.asarray(np.log(np.maximum(positives, settings.reranker_few_positives)), np.float32)
