"""Labels of each block ranked by how often they occur there: every label cluster, for any lambda, is a prefix of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from blockxmc import _kernels
from blockxmc._core import stored

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
ObjectiveName = Literal["quadratic", "cost"]


@dataclass(frozen=True)
class LambdaPath:
    """What each lambda would give for a fixed assignment: captured share and expected labels per row."""

    lam: F64  # ascending
    captured: F64  # share of the positives whose label lies in their block
    cost: F64  # labels of a row's block, averaged over the rows


@dataclass(frozen=True)
class Clusters:
    """Ragged label lists: those of block l at ``labels[indptr[l] : indptr[l + 1]]``."""

    indptr: I64
    labels: I32

    @property
    def sizes(self) -> I64:
        """Number of labels of each block."""
        return np.diff(self.indptr)

    def select(self, blocks: NDArray[np.bool_]) -> Clusters:
        """Only the blocks marked True."""
        kept = np.repeat(blocks, self.sizes)
        return Clusters(_pointers(self.sizes[blocks]), self.labels[kept])

    def sorted_lists(self) -> list[I64]:
        """One ascending array of label ids per block."""
        return [np.sort(part).astype(np.int64) for part in np.split(self.labels, self.indptr[1:-1])]


@dataclass(frozen=True)
class Ranking:
    """Counts of labels in blocks, highest first (equal counts: lower id first), and the sizes of the blocks."""

    indptr: I64
    labels: I32
    counts: I32
    n_rows: I64  # rows of each block
    n_labelled: I64  # of these, rows with at least one label

    @classmethod
    def of(
        cls, Y: sparse.csr_array, assignment: I32, n_blocks: int, *, min_count: int = 1, threads: int = 1
    ) -> Ranking:
        """Count and rank; labels that occur in a block less than ``min_count`` times are left out."""
        indptr = np.ascontiguousarray(Y.indptr, np.int64)
        indices = np.ascontiguousarray(Y.indices, np.int32)
        ranked = _kernels.rank_labels(indptr, indices, Y.shape[1], assignment, n_blocks, min_count, threads)
        inside = assignment >= 0
        labelled = inside & (np.diff(indptr) > 0)
        n_rows, n_labelled = (np.bincount(assignment[rows], minlength=n_blocks) for rows in (inside, labelled))
        return cls(*ranked, n_rows, n_labelled)

    @property
    def _block(self) -> I64:
        return np.repeat(np.arange(self.n_rows.size), np.diff(self.indptr))

    def critical(self, objective: ObjectiveName) -> F64:
        """The lambda from which on each ranked label is left out of its block; it falls along each block.

        Quadratic: the label of rank J pays while its count exceeds lambda * (2 J - 1), the growth of lambda * J^2.
        Cost: while its share of the block's labelled rows exceeds lambda; there the first label always stays, so that
        no labelled row is left without candidates.
        """
        if objective == "quadratic":
            rank = np.arange(self.counts.size) - np.repeat(self.indptr[:-1], np.diff(self.indptr))
            return np.asarray(self.counts / (2.0 * rank + 1.0))
        critical = self.counts / np.repeat(self.n_labelled, np.diff(self.indptr))
        critical[self.indptr[:-1][np.diff(self.indptr) > 0]] = np.inf
        return np.asarray(critical)

    def clusters(self, lam: float, objective: ObjectiveName) -> tuple[Clusters, int]:
        """The label step, and the number of positives it captures."""
        kept = self.critical(objective) > lam
        sizes = np.bincount(self._block[kept], minlength=self.n_rows.size)
        return Clusters(_pointers(sizes), self.labels[kept]), int(self.counts[kept].sum(dtype=np.int64))

    def falling(self, objective: ObjectiveName) -> tuple[F64, I64]:
        """All critical values, the highest first, and the positives that the first 0, 1, 2, ... of them capture."""
        critical = self.critical(objective)
        order = np.argsort(-critical, kind="stable")
        return critical[order], np.concatenate([[0], np.cumsum(self.counts[order], dtype=np.int64)])

    def path(self, objective: ObjectiveName, n_positives: int, lam: ArrayLike | None = None) -> LambdaPath:
        """Captured share and cost at each ``lam``, or at 0 and at every value where the clusters change."""
        critical = self.critical(objective)
        if lam is None:
            grid = np.unique(np.concatenate([[0.0], critical[np.isfinite(critical)]]))
        else:
            grid = np.atleast_1d(np.asarray(lam, dtype=np.float64))
        some = np.flatnonzero(~(critical <= grid.min(initial=np.inf)))  # others are left out at every lambda
        order = some[np.argsort(-critical[some], kind="stable")]
        falling = critical[order]
        captured = np.concatenate([[0], np.cumsum(self.counts[order], dtype=np.int64)])
        share = self.n_rows / max(int(self.n_rows.sum()), 1)
        cost = np.concatenate([[0.0], np.cumsum(share[self._block[order]])])
        kept = np.searchsorted(-falling, -grid, side="left")  # how many critical values exceed each lambda
        return LambdaPath(grid, captured[kept] / max(n_positives, 1), cost[kept])

    def state(self) -> dict[str, Any]:
        """The arrays by name."""
        return vars(self) | {"labels": stored.narrowed(self.labels), "counts": stored.narrowed(self.counts)}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Ranking:
        """Take back what ``state`` gave."""
        n_rows = stored.array(state["n_rows"], "n_rows of the partition", np.int64, (None,))
        n_labelled = stored.array(state["n_labelled"], "n_labelled of the partition", np.int64, n_rows.shape)
        labels = stored.widened(state["labels"], "labels of the partition", (None,))
        counts = stored.widened(state["counts"], "counts of the partition", labels.shape)
        indptr = stored.array(state["indptr"], "indptr of the partition", np.int64, (n_rows.size + 1,))
        stored.check_row_pointers(indptr, n_rows.size, labels.size, "labels of the partition")
        stored.require(labels.size == 0 or labels.min() >= 0, "a label of the partition is below 0")
        stored.require((counts >= 1).all(), "a label of the partition is counted less than once")
        stored.require((n_labelled >= 1).all() and (n_labelled <= n_rows).all(), "a block of the partition has no rows")
        stored.require(n_rows.size and n_rows.max() < 1 << 48, "the partition has no blocks, or too large ones")
        return cls(indptr, labels, counts, n_rows, n_labelled)


def _pointers(sizes: NDArray[Any]) -> I64:
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
