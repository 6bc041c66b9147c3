"""The alternation: label step and instance step in turn, each the exact minimiser of f given the other.

Quadratic (the paper, equation 1):  f = -captured + lam * sum_l |L_l|^2
Cost:                               f = -captured + lam * sum_l n_l |L_l|,  n_l the labelled rows of block l

Both problems are discrete; a half-step is solved exactly by a prefix rule (labels) or by an argmax (rows), so f never
rises. A block that loses its rows or its labels is dropped; neither can raise f.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from blockxmc import _kernels
from blockxmc._core.progress import Phase
from blockxmc.errors import BlockXMCError
from blockxmc.partition.ranking import I32, I64, Clusters, ObjectiveName, Ranking
from blockxmc.partition.start import nearest_blocks


@dataclass(frozen=True)
class Rules:
    """What is minimised, and how ties are broken."""

    lam: float
    objective: ObjectiveName = "quadratic"
    small: bool = False  # ties go to the smallest label cluster, not to the present block
    letter: bool = False  # a label that changes f by nothing enters its cluster, as the paper's scan has it

    def penalty(self, sizes: I64, n_labelled: I64) -> float:
        """The part of f that label clusters cost."""
        return self.lam * float((sizes * (sizes if self.objective == "quadratic" else n_labelled)).sum())

    @property
    def price(self) -> float:
        """What a row pays for each label of its block."""
        return self.lam if self.objective == "cost" else 0.0

    @property
    def cut(self) -> float:
        """Labels whose critical lambda is above this enter their clusters."""
        return float(np.nextafter(self.lam, 0.0)) if self.letter else self.lam

    @property
    def min_count(self) -> int:
        """A label that occurs less often in a block cannot enter its cluster."""
        return int(min(self.cut, 2**31)) + 1 if self.objective == "quadratic" else 1


@dataclass(frozen=True)
class Blocks:
    """The outcome: every block has rows and labels, and the label clusters are optimal for the assignment."""

    lam: float
    assignment: I32
    ranking: Ranking  # of all labels seen in each block
    clusters: Clusters
    captured: int
    trace: list[float]  # f after every half-step
    n_iter: int


class Alternation:
    """One run from a start (a block per row, -1: none yet) at fixed lambda."""

    def __init__(self, X: sparse.csr_array, Y: sparse.csr_array, start: I32, rules: Rules, threads: int) -> None:
        self.X, self.Y, self.rules, self.threads = X, Y, rules, threads
        self._labels = np.ascontiguousarray(Y.indptr, np.int64), np.ascontiguousarray(Y.indices, np.int32)
        self._labelled = np.diff(Y.indptr) > 0
        self.assignment = start
        self._renumber(np.bincount(start[start >= 0], minlength=1) > 0)
        self.trace: list[float] = []
        self._label_step()

    def run(self, max_iter: int, tol: float, phase: Phase) -> Blocks:
        """Alternate until no row moves, f falls by less than ``tol``, or ``max_iter`` rounds are done."""
        n_iter = 0
        for n_iter in range(1, max_iter + 1):
            before, f, had_orphans = self.assignment, self.trace[-1], self._has_orphans
            self._instance_step()
            phase.update(n_iter)
            if self.assignment is before:
                break
            self._label_step()
            # Rows that found a block only now may change its labels at the same f, and others then move to it.
            if f - self.trace[-1] < tol and not (had_orphans or self._has_orphans):
                break
        if self._has_orphans:
            self._house_orphans()
            self._label_step()
        ranking = Ranking.of(self.Y, self.assignment, self.n_blocks, threads=self.threads)
        return Blocks(self.rules.lam, self.assignment, ranking, self.clusters, self.captured, self.trace, n_iter)

    @property
    def n_blocks(self) -> int:
        """Blocks still alive."""
        return self.clusters.sizes.size

    @property
    def _has_orphans(self) -> bool:
        return bool((self.assignment < 0).any())

    def _label_step(self) -> None:
        n_blocks = int(self.assignment.max()) + 1
        ranking = Ranking.of(self.Y, self.assignment, n_blocks, min_count=self.rules.min_count, threads=self.threads)
        self.clusters, self.captured = ranking.clusters(self.rules.cut, self.rules.objective)
        alive = self.clusters.sizes > 0
        if not alive.any():
            limit = Ranking.of(self.Y, self.assignment, n_blocks, threads=self.threads).counts.max(initial=0)
            raise BlockXMCError(f"lam={self.rules.lam:g} leaves every block without labels: use a lam below {limit}")
        # A block without labels captures nothing and costs nothing: its rows look for another one.
        self.clusters = self.clusters.select(alive)
        self._renumber(alive)
        self._record()

    def _instance_step(self) -> None:
        chosen, captured = self._choose(self._labels, self.assignment)
        if np.array_equal(chosen, self.assignment) and not self._has_orphans:
            self._record()
            return
        self.assignment, self.captured = self._placed(chosen), captured
        self._drop_empty()

    def _house_orphans(self) -> None:
        """The instance step for rows without a block only."""
        rows = np.flatnonzero(self.assignment < 0)
        part = self.Y[rows]
        labels = np.ascontiguousarray(part.indptr, np.int64), np.ascontiguousarray(part.indices, np.int32)
        chosen, captured = self._choose(labels, self.assignment[rows])
        assignment = self.assignment.copy()
        assignment[rows] = chosen
        self.assignment, self.captured = self._placed(assignment), self.captured + captured
        self._drop_empty()

    def _choose(self, labels: tuple[I64, I32], assignment: I32) -> tuple[I32, int]:
        return _kernels.choose_blocks(
            *labels,
            self.Y.shape[1],
            self.clusters.indptr,
            self.clusters.labels,
            assignment,
            self.rules.price,
            self.rules.small,
            self.threads,
        )

    def _placed(self, assignment: I32) -> I32:
        """Rows that no label ties to any block go where their features point."""
        return nearest_blocks(self.X, assignment, self.n_blocks, self.threads)

    def _drop_empty(self) -> None:
        alive = np.bincount(self.assignment, minlength=self.n_blocks) > 0
        self.clusters = self.clusters.select(alive)
        self._renumber(alive)
        self._record()

    def _renumber(self, alive: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
        if alive.all():
            return
        new = np.where(alive, np.cumsum(alive) - 1, -1).astype(np.int32)
        self.assignment = np.where(self.assignment >= 0, new[self.assignment], np.int32(-1))

    def _record(self) -> None:
        charged = self.assignment[self._labelled & (self.assignment >= 0)]
        n_labelled = np.bincount(charged, minlength=self.n_blocks)
        penalty = self.rules.penalty(self.clusters.sizes, n_labelled)
        f = penalty - self.captured
        # Where a half-step changes nothing of substance, the last bit of the two sums may still differ.
        if self.trace and 0 < f - self.trace[-1] <= 1e-12 * (penalty + self.captured):
            f = self.trace[-1]
        self.trace.append(f)
