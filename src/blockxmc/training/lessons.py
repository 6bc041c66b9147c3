"""What new rows tell labels and blocks, and how much the rows that they know already hold them back.

Weights that solve the old rows need not meet all of them again to learn from some new ones (kernels/shift.hpp). A label is
taught by new rows that are its positives, or negatives with a margin that is not close to -1; its old positives and one in
so many of its old negatives, each for all of them, hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc._core.matrix import as_pattern, csr_of, flat_positions, take_rows, without_rows
from blockxmc.linear.one_vs_all import Lessons
from blockxmc.linear.vectors import LabelVectors
from blockxmc.linear.weights import F32
from blockxmc.training.batches import rows_of_labels
from blockxmc.training.blocks import holds
from blockxmc.training.labels import shared_costs
from blockxmc.training.settings import Settings

# Rows whose margins are looked at together.
_AT_A_TIME = 4096
_OWN = 2.0**20


@dataclass(frozen=True)
class Told:
    """Pairs of a new row and a label that it tells something; a label's come by the numbers of the rows."""

    rows: NDArray[np.int32]
    labels: NDArray[np.int32]
    positive: NDArray[np.bool_]
    margins: F32

    @classmethod
    def by(
        cls,
        weights: LabelVectors,
        rows: tuple[sparse.csr_array, sparse.csr_array],
        visits: sparse.csr_array,
        clusters: Any,
        bound: float | NDArray[Any],
        threads: int,
    ) -> Told:
        """Positives, and the negatives that visit blocks of the label and have a margin above the (or its) bound.

        >>> weights = LabelVectors(sparse.csr_array(np.eye(2, dtype=np.float32)), np.full(2, -1, np.float32))
        >>> rows = sparse.csr_array(np.array([[0.7, 0.1]], np.float32)), sparse.csr_array(np.array([[0, 1]], np.float32))
        >>> told = Told.by(weights, rows, sparse.csr_array(np.ones((1, 1), np.float32)), [np.arange(2)], -0.5, 1)
        >>> told.labels.tolist(), told.positive.tolist()
        ([0, 1], [False, True])
        """
        X, Y = rows
        of_block = holds(clusters, weights.n_labels)
        bounds = np.broadcast_to(np.asarray(bound, np.float32), weights.n_labels)
        found = []
        for first in range(0, X.shape[0], _AT_A_TIME):
            some = slice(first, first + _AT_A_TIME)
            own = sparse.csr_array(Y[some])
            # Far above what blocks add up to, to tell a row's own labels.
            pairs = sparse.csr_array(visits[some] @ of_block + own * np.float32(_OWN))
            margins = weights.pair_scores(sparse.csr_array(X[some]), pairs.indptr, pairs.indices, threads)
            positive = pairs.data >= _OWN
            told = np.flatnonzero(positive | (margins > bounds[pairs.indices]))
            number = np.repeat(np.arange(first, first + pairs.shape[0], dtype=np.int32), np.diff(pairs.indptr))
            found.append((number[told], pairs.indices[told].astype(np.int32), positive[told], margins[told]))
        if not found:
            return cls(*(np.empty(0, kind) for kind in (np.int32, np.int32, bool, np.float32)))
        return cls(*(np.concatenate(part) for part in zip(*found, strict=True)))

    def counts(self, n_labels: int, bound: float) -> NDArray[np.int64]:
        """For each label, its positives and the negatives with a margin above the bound."""
        counted = self.positive | (self.margins > bound)
        return np.bincount(self.labels[counted], minlength=n_labels).astype(np.int64)

    def numbered(self, rows: NDArray[Any], labels: NDArray[np.bool_] | None = None) -> Told:
        """The same with other numbers of the rows; only pairs of these labels."""
        some = slice(None) if labels is None else labels[self.labels]
        return Told(rows[self.rows[some]].astype(np.int32), self.labels[some], self.positive[some], self.margins[some])

    def __add__(self, other: Told) -> Told:
        return Told(*(np.concatenate([getattr(told, f.name) for told in (self, other)]) for f in fields(Told)))


def newly_met(
    weights: LabelVectors,
    rows: tuple[sparse.csr_array, sparse.csr_array],
    visits: sparse.csr_array,
    clusters: tuple[Any, Any],
    bound: float,
    threads: int,
) -> Told:
    """What known rows tell labels that the blocks they visit did not list before: negatives which these have never met.

    ``clusters`` are the lists before and now. Served in a block none of whose rows it knows, a label would come up there.

    >>> weights = LabelVectors(sparse.csr_array(np.eye(2, dtype=np.float32)), np.zeros(2, np.float32))
    >>> rows = sparse.csr_array(np.eye(2, dtype=np.float32)), sparse.csr_array(np.eye(2, dtype=np.float32)[:, [1, 0]])
    >>> visits = sparse.csr_array(np.eye(2, dtype=np.float32))
    >>> told = newly_met(weights, rows, visits, ([np.array([0]), np.array([0])], [np.arange(2)] * 2), -0.5, 1)
    >>> told.rows.tolist(), told.labels.tolist()
    ([1], [1])
    """
    X, Y = rows
    before, now = (holds(lists, Y.shape[1]) for lists in clusters)
    added = sparse.csr_array(now - before.multiply(now))
    known = np.zeros(Y.shape[1], bool)  # the others are new
    known[: weights.n_labels] = (np.diff(weights.vectors.indptr) > 0) | (weights.bias != 0)
    added.data[~known[added.indices]] = 0
    added.eliminate_zeros()
    labels = np.unique(added.indices)
    # Far above what blocks add up to, to tell the pairs that are known: the row's own labels, and those met before.
    blocks = sparse.csr_array(added[:, labels] + before[:, labels] * np.float32(_OWN))
    meets = (np.diff(added.indptr) > 0)[visits.indices]
    concerned = np.unique(np.repeat(np.arange(visits.shape[0]), np.diff(visits.indptr))[meets])
    found = [tuple(np.empty(0, kind) for kind in (np.int32, np.int32, bool, np.float32))]
    for first in range(0, concerned.size, _AT_A_TIME):
        some = concerned[first : first + _AT_A_TIME]
        pairs = sparse.csr_array(visits[some] @ blocks + Y[some][:, labels] * np.float32(_OWN))
        pairs.data[pairs.data >= _OWN] = 0
        pairs.eliminate_zeros()
        pairs.sort_indices()
        columns = labels[pairs.indices].astype(np.int32)
        margins = weights.pair_scores(take_rows(X, some), pairs.indptr, columns, threads)
        told = np.flatnonzero(margins > bound)
        number = np.repeat(some.astype(np.int32), np.diff(pairs.indptr))
        found.append((number[told], columns[told], np.zeros(told.size, bool), margins[told]))
    return Told(*(np.concatenate(part) for part in zip(*found, strict=True)))


def rows_of(visits: sparse.csr_array, clusters: Sequence[Any], n_labels: int) -> NDArray[np.int64]:
    """How many rows visit the blocks of each label; a row that visits several of them counts for each.

    >>> rows_of(sparse.csr_array(np.array([[1, 0], [1, 1]], np.float32)), [np.array([0]), np.arange(2)], 2).tolist()
    [3, 1]
    """
    of_block = np.bincount(visits.indices, minlength=len(clusters)).astype(np.float64)
    return np.asarray(holds(clusters, n_labels).T @ of_block).astype(np.int64)


@dataclass(frozen=True)
class KnownRows:
    """Rows, of which labels know some: their labels and visits, what blocks list, and what rows count."""

    Y: sparse.csr_array
    visits: sparse.csr_array
    clusters: Sequence[Any]
    known: NDArray[np.bool_]
    settings: Settings

    def lessons(self, told: Told, labels: NDArray[np.intp], threads: int) -> Lessons:
        """What these labels, in this order, learn from rows that tell them something, while known rows hold."""
        place = np.full(self.Y.shape[1], -1, np.int64)
        place[labels] = np.arange(labels.size)
        told = told.numbered(np.arange(self.Y.shape[0]), place >= 0)
        costs = shared_costs(self.Y, self.settings.shared_positive)
        hold = self.settings.update_hold * self.settings.update_hold_weight
        own = self._positives(labels)
        others = self._negatives(labels, own, place[told.labels] * self.Y.shape[0] + told.rows, threads)
        of = [place[told.labels], *(np.repeat(np.arange(labels.size), np.diff(held.indptr)) for held in (own, others))]
        held = np.zeros(own.nnz + others.nnz, np.float32)
        counted = np.where(told.positive, *costs[told.rows].T), costs[own.indices, 0], costs[others.indices, 1] * hold
        order = np.argsort(np.concatenate(of), kind="stable")
        rows, signs, products, counts = (
            np.concatenate(parts)[order]
            for parts in (
                (told.rows, own.indices, others.indices),
                (np.where(told.positive, 1, -1), held),
                (told.margins, held),
                counted,
            )
        )
        sizes = np.bincount(np.concatenate(of), minlength=labels.size)
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        matrix = csr_of(indptr, rows.astype(np.int32), signs.astype(np.float32), (labels.size, self.Y.shape[0]))
        return Lessons(matrix, products.astype(np.float32), counts.astype(np.float32))

    def _positives(self, labels: NDArray[np.intp]) -> sparse.csr_array:
        """Labels x rows: the positives that are known."""
        return take_rows(sparse.csr_array(without_rows(self.Y, ~self.known).T), labels)

    def _negatives(
        self, labels: NDArray[np.intp], own: sparse.csr_array, told: NDArray[np.int64], threads: int
    ) -> sparse.csr_array:
        """Labels x rows: some known rows that visit the label's blocks, not its positives, nor those that tell it anything.

        ``told`` says where these stand among all, as ``flat_positions`` does.
        """
        some = np.zeros(self.known.size, bool)
        rows = np.flatnonzero(self.known)
        # The same rows hold in every update.
        some[np.random.default_rng(0).permutation(rows)[:: self.settings.update_hold]] = True
        visits = sparse.csr_array(without_rows(self.visits, ~some).T)
        blocks = take_rows(sparse.csr_array(holds(self.clusters, self.Y.shape[1]).T), labels)
        found = rows_of_labels(visits, blocks, own, threads)  # with its positives
        places, kept = flat_positions(found), np.ones(found.nnz, bool)
        for others in (flat_positions(own), told):
            at = np.searchsorted(places, others)
            there = at < places.size
            there[there] = places[at[there]] == others[there]
            kept[at[there]] = False
        indptr = np.concatenate([[0], np.cumsum(kept)])[found.indptr]
        return as_pattern(indptr, found.indices[kept], found.shape)
