"""Partitions at growing lambdas, each started from the assignment at the lambda before: blocks survive longer that way."""

from __future__ import annotations

from collections.abc import Sequence

from scipy import sparse

from blockxmc._core.progress import Reporter, thread_count
from blockxmc.errors import BlockXMCError
from blockxmc.partition import choice
from blockxmc.partition.alternation import Blocks
from blockxmc.partition.partitioner import Partitioner
from blockxmc.partition.ranking import I32


class Walk:
    """The partitions of one start along ascending lambdas, made as far as they are asked for.

    The partition at the last of ``steps`` is that of ``Partitioner(n_blocks, steps[-1], assign_at=steps)``.

    >>> import numpy as np
    >>> X, Y = sparse.csr_array(np.eye(4, dtype=np.float32)), sparse.csr_array(np.kron(np.eye(2), np.ones((2, 2))))
    >>> walk = Walk(Partitioner(), X, Y, 2)
    >>> walk.at([0.1, 0.5]).captured, walk.at([0.1, 0.5, 9.0]) is None
    (8, True)
    """

    def __init__(
        self, partitioner: Partitioner, X: sparse.csr_array, Y: sparse.csr_array, n_blocks: int, attempt: int = 0
    ) -> None:
        self.partitioner, self.X, self.Y, self.n_blocks = partitioner, X, Y, n_blocks
        self._attempt = attempt
        self._made: list[tuple[float, Blocks | None]] = []
        self._begun: I32 | None = None

    def at(self, steps: Sequence[float]) -> Blocks | None:
        """The partition at the last of these lambdas, or None where no block has a label left."""
        for step, lam in enumerate(steps):
            if step < len(self._made) and self._made[step][0] != lam:
                del self._made[step:]  # another way from here on
            if step == len(self._made):
                self._made.append((lam, self._next(lam)))
        return self._made[len(steps) - 1][1]

    def cut(self, blocks: Blocks, lam: float) -> Blocks | None:
        """The label clusters of these rows at another lambda, or None where no block has a label left."""
        return self._alternate(blocks.assignment, lam, max_iter=0)

    def _next(self, lam: float) -> Blocks | None:
        last = self._made[-1][1] if self._made else None
        if self._made and last is None:
            return None
        return self._alternate(self._start() if last is None else last.assignment, lam)

    def _alternate(self, start: I32, lam: float, max_iter: int | None = None) -> Blocks | None:
        try:
            return self.partitioner._alternate(self.X, self.Y, start, float(lam), Reporter(), max_iter)
        except BlockXMCError:
            return None

    def _start(self) -> I32:
        if self._begun is None:
            own = self.partitioner
            seed, threads = own._seed() + self._attempt, thread_count(own.n_jobs)
            self._begun = own._start(self.X, self.Y, self.n_blocks, seed, threads, Reporter())
        return self._begun


def steps_to(lams: Sequence[float], at: int, letter: bool) -> tuple[float, ...]:
    """The lambdas by way of which rows are assigned: all up to this one, or to the letter this one alone.

    >>> steps_to((0.1, 0.2, 0.4), 1, letter=False), steps_to((0.1, 0.2, 0.4), 1, letter=True)
    ((0.1, 0.2), (0.2,))
    """
    return tuple(lams[at : at + 1] if letter else lams[: at + 1])


def paper_blocks(
    partitioner: Partitioner, X: sparse.csr_array, Y: sparse.csr_array, lams: Sequence[float], reporter: Reporter
) -> list[choice.Choice]:
    """The paper's search for the number of blocks at each of the lambdas; every start is made once for all of them.

    To the letter, each lambda starts from k-means, and the search is that of ``Partitioner("paper", lam, letter=True)``.

    >>> import numpy as np
    >>> X, Y = sparse.csr_array(np.eye(4, dtype=np.float32)), sparse.csr_array(np.kron(np.eye(2), np.ones((2, 2))))
    >>> [found.n_blocks for found in paper_blocks(Partitioner(), X, Y, [0.1, 0.5], Reporter())]
    [1, 1]
    """
    walks: dict[tuple[int, int], Walk] = {}

    def run(q: int, attempt: int) -> Blocks:
        key = (q, attempt)
        if key not in walks:
            walks[key] = Walk(partitioner, X, Y, q, attempt)
        blocks = walks[key].at(steps_to(lams, step, partitioner.letter))
        if blocks is None:
            raise BlockXMCError(f"lam={lams[step]:g} leaves every block without labels")
        return blocks

    found, limit = [], choice.most_blocks(Y, partitioner.letter)
    if not partitioner.letter:
        limit = min(limit, choice.PAPER_MOST)
    with reporter.phase("search numbers of blocks", len(lams)) as phase:
        for step in range(len(lams)):
            found.append(choice.paper_search(run, limit, Y.nnz)[1])
            phase.update(step + 1)
    return found
