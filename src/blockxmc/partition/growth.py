"""A partition that goes on: new rows find blocks while all others stay, and label clusters follow."""

from __future__ import annotations

from copy import copy

import numpy as np
from scipy import sparse

from blockxmc import _kernels
from blockxmc._core import stored
from blockxmc.partition.alternation import Blocks
from blockxmc.partition.choice import lam_at_floor
from blockxmc.partition.partitioner import Partitioner
from blockxmc.partition.ranking import I32, Ranking


def place_rows(partition: Partitioner, Y: sparse.csr_array, start: I32, threads: int) -> I32:
    """The instance step for new rows alone: the block that lists most of a row's labels, ``start`` where several do.

    >>> from scipy import sparse
    >>> p = Partitioner(2, 0.1).fit([[1, 0], [1, 0.1], [0, 1]], np.array([[1, 0], [1, 0], [0, 1]]))
    >>> block = p.assignment_[[2]]
    >>> bool(place_rows(p, sparse.csr_array([[0.0, 1.0]]), 1 - block, threads=1) == block)
    True
    """
    rules = partition._rules(partition.lam_)
    clusters = partition.ranking_.clusters(rules.cut, partition.objective)[0]
    listed = np.repeat(np.arange(clusters.indptr.size - 1), np.diff(clusters.indptr)) * np.int64(Y.shape[1])
    stored.require(
        np.unique(listed + clusters.labels).size == listed.size, "a block of the partition has a label twice"
    )
    labels = np.ascontiguousarray(Y.indptr, np.int64), np.ascontiguousarray(Y.indices, np.int32)
    given = np.ascontiguousarray(start, np.int32)
    lists = clusters.indptr, clusters.labels
    return _kernels.choose_blocks(*labels, Y.shape[1], *lists, given, rules.price, False, threads)[0]


# So much less of the positives may be captured before lambda gives way. With a step of lambda hundreds of labels come to
# blocks at once (246 of elife-keywords, 145 of debian-small), which ten new rows must not cause: 4 come without it.
CAPTURED_SLACK = 0.002


def repartitioned(
    partition: Partitioner, Y: sparse.csr_array, assignment: I32, n_blocks: int, threads: int, captured: float = 0.0
) -> Partitioner:
    """The partition of these rows by a given assignment, every block of which has labelled rows.

    The quadratic objective's lambda grows with the rows, so that its price per row stays what it was. Where it was left
    open, it grows less if blocks would capture less of the positives than ``captured``: it was chosen by what they capture,
    and stands where a few rows more can cut all labels with as few positives.
    """
    scale = assignment.size / partition.assignment_.size if partition.objective == "quadratic" else 1.0
    lam = partition.lam_ * scale
    ranking = Ranking.of(Y, assignment, n_blocks, threads=threads)
    if partition.lam == "auto":
        lam = min(lam, lam_at_floor(ranking, partition.objective, captured - CAPTURED_SLACK))
    clusters, hits = ranking.clusters(partition._rules(lam).cut, partition.objective)
    trace = partition.objective_trace_.tolist()
    out = copy(partition)
    out._keep(Blocks(lam, assignment, ranking, clusters, hits, trace, partition.n_iter_), int(Y.nnz))
    return out
