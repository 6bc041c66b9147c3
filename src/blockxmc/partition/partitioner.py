"""Partitioner: block-wise partitioning as an estimator, usable alone as a pretreatment for any classifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils import check_random_state as sklearn_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from blockxmc._core import stored
from blockxmc._core.matrix import as_csr, check_values, renumbered
from blockxmc._core.memory import check_training_memory
from blockxmc._core.params import check_random_state
from blockxmc._core.progress import Reporter, reporter_for, thread_count
from blockxmc._core.targets import Targets
from blockxmc.errors import BlockXMCError
from blockxmc.partition import choice
from blockxmc.partition.alternation import Alternation, Blocks, Rules
from blockxmc.partition.ranking import I32, LambdaPath, ObjectiveName, Ranking
from blockxmc.partition.start import cluster_rows, label_first


class Partitioner(BaseEstimator):  # type: ignore[misc]
    """Divide rows into blocks and give each block the labels that matter there.

    Parameters
    ----------
    n_blocks : int, "paper", "cost" or "auto"
        Number of blocks at the start (some may become empty). "cost" takes the number with the fewest products per row
        (blocks to route among plus labels of a block) at the captured share, from the closed-form path. "paper" raises
        the number from 2 while no block is empty, and takes the one that captures most. "auto" is "cost".
    lam : float or "auto"
        Price of label clusters in the paper's scale (it grows with the number of rows; see ``lam_rel_``). 0 keeps all
        labels seen in a block. "auto" is the largest that keeps 98 % of the positives in the first blocks.
    objective : "quadratic" or "cost"
        ``lam * sum |L|^2`` (the paper) or ``lam * sum n_l |L_l|`` (labels scored over all labelled rows; lam is then the
        positives that one scored label must capture per row, and every block keeps at least one label).
    tie : "stay" or "small"
        If several blocks are equally good for a row, it stays in its block, or goes to the smallest label cluster.
    init : "kmeans", "balanced", "labels" or array of int
        The first blocks. "kmeans": spherical k-means on the rows (above 64 blocks, one pass from a balanced tree of
        2-means). "balanced": that tree itself, with blocks of equal size. "labels": k-means on the labels, then rows to
        the labels. An array: the block of each row.
    max_iter, tol : int, float
        Most rounds (0: only the first blocks and their label step), and the decrease of f below which to stop.
    assign_at : ascending lambdas, or None
        The lambdas at which rows are assigned to blocks, one after the other, each from the assignment before. At another
        ``lam``, only the label clusters are computed again. None: only at ``lam``.
    letter : bool
        The paper to the letter where it says more than f does: a label that changes f by nothing enters its cluster, and
        the search for n_blocks="paper" ends at the number of rows or labels only, instead of at 16 rows per block.

    Attributes
    ----------
    assignment_ : block of each training row.
    label_clusters_ : ascending label ids of each block.
    objective_trace_ : f after every half-step.
    captured_ : share of positives whose label lies in their block.
    lam_, lam_rel_ : lambda used, and lam * q / n, which is comparable across numbers of rows and blocks.
    n_blocks_ : number of blocks that are not empty.
    n_iter_ : number of rounds.
    choice_ : how blocks and lambda were chosen, and why.

    Examples
    --------
    >>> X = [[1, 0], [1, 0.1], [0, 1], [0.1, 1]]
    >>> Y = [[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 1], [0, 0, 0, 1]]
    >>> p = Partitioner(n_blocks=2, lam=0.1).fit(X, Y)
    >>> sorted(labels.tolist() for labels in p.label_clusters_), p.captured_
    ([[0, 1], [2, 3]], 1.0)
    >>> p.path(lam=[0.1, 1.5]).cost.tolist()
    [2.0, 1.0]
    """

    def __init__(
        self,
        n_blocks: int | Literal["auto", "cost", "paper"] = "auto",
        lam: float | Literal["auto"] = "auto",
        objective: ObjectiveName = "quadratic",
        tie: Literal["stay", "small"] = "stay",
        init: Literal["kmeans", "balanced", "labels"] | ArrayLike = "kmeans",
        max_iter: int = 100,
        tol: float = 1e-5,
        random_state: int | np.random.RandomState | None = 0,
        n_jobs: int | None = None,
        verbose: int = 0,
        assign_at: Sequence[float] | None = None,
        letter: bool = False,
    ) -> None:
        self.n_blocks = n_blocks
        self.lam = lam
        self.objective = objective
        self.tie = tie
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.assign_at = assign_at
        self.letter = letter

    def fit(self, X: Any, Y: Any) -> Self:
        """Partition the rows of X (n x d, sparse or dense) and the labels of Y (0-1 matrix or lists of names)."""
        check_random_state(self.random_state)
        X = as_csr(validate_data(self, X, accept_sparse="csr", dtype=np.float32))
        check_values(X)
        Y01 = Targets.encode(Y)[1]
        check_consistent_length(X, Y01)
        check_training_memory(X, Y01)
        return self._fit(X, Y01, reporter_for(self.verbose))

    def _fit(self, X: sparse.csr_array, Y: sparse.csr_array, reporter: Reporter) -> Self:
        self._check_params(X.shape[0])
        self.n_features_in_ = int(X.shape[1])
        if not Y.nnz:
            raise BlockXMCError("no row has a label: there is nothing to partition")
        seed, threads = self._seed(), thread_count(self.n_jobs)
        lam = None if isinstance(self.lam, str) else float(self.lam)
        if isinstance(self.init, str) and self.n_blocks == "paper":
            if lam is None:  # the search compares numbers of blocks at one lambda: that of a single block
                one_block = Ranking.of(Y, np.zeros(X.shape[0], np.int32), 1, threads=threads)
                lam = choice.lam_at_floor(one_block, self.objective)
            blocks, chosen = choice.paper_search(
                lambda q, attempt: self._partition(X, Y, q, lam, seed + attempt, threads, reporter),
                choice.most_blocks(Y, self.letter),
                Y.nnz,
            )
        else:
            chosen = self._choose_blocks(X, Y, lam, seed, threads)
            blocks = self._partition(X, Y, chosen.n_blocks, lam, seed, threads, reporter)
        self._keep(blocks, Y.nnz)
        self.choice_ = self._explain(chosen)
        reporter.say(self.choice_["text"])
        return self

    def _check_params(self, n_rows: int) -> None:
        n_blocks: Any = self.n_blocks  # users pass anything, whatever the signature says
        lam: Any = self.lam
        if isinstance(n_blocks, str):
            if n_blocks not in ("auto", "cost", "paper"):
                raise BlockXMCError(f"n_blocks must be a number, 'auto', 'cost' or 'paper', not {n_blocks!r}")
        elif not isinstance(n_blocks, Integral) or int(n_blocks) < 1:
            raise BlockXMCError(f"n_blocks must be a whole number of at least 1, not {n_blocks!r}")
        elif int(n_blocks) > n_rows:
            raise BlockXMCError(f"n_blocks={n_blocks} is more than the {n_rows} rows: use fewer blocks")
        if lam != "auto" and not (isinstance(lam, Real) and 0 <= float(lam) < np.inf):
            raise BlockXMCError(f"lam must be 'auto' or a number of at least 0, not {lam!r}")
        for name, values in {"objective": ("quadratic", "cost"), "tie": ("stay", "small")}.items():
            if getattr(self, name) not in values:
                raise BlockXMCError(f"{name} must be one of {', '.join(values)}, not {getattr(self, name)!r}")
        if isinstance(self.init, str) and self.init not in ("kmeans", "balanced", "labels"):
            raise BlockXMCError(f"init must be kmeans, balanced, labels or a block per row, not {self.init!r}")
        if self.max_iter < 0:
            raise BlockXMCError(f"max_iter must be at least 0, not {self.max_iter}")
        if self.assign_at is not None:
            _check_steps(self.assign_at, lam)

    def _choose_blocks(
        self, X: sparse.csr_array, Y: sparse.csr_array, lam: float | None, seed: int, threads: int
    ) -> choice.Choice:
        if not isinstance(self.init, str):
            n_blocks = int(_given_start(self.init, X.shape[0]).max()) + 1
            if not isinstance(self.n_blocks, str) and n_blocks > self.n_blocks:
                raise BlockXMCError(f"init names {n_blocks} blocks, n_blocks allows {self.n_blocks}")
            return choice.Choice(n_blocks, "those of init", [])
        if not isinstance(self.n_blocks, str):
            return choice.Choice(int(self.n_blocks), "set by n_blocks", [])
        return choice.fewest_products(X, Y, lam, self.objective, seed=seed, threads=threads)

    def _partition(
        self,
        X: sparse.csr_array,
        Y: sparse.csr_array,
        q: int,
        lam: float | None,
        seed: int,
        threads: int,
        reporter: Reporter,
    ) -> Blocks:
        start = self._start(X, Y, q, seed, threads, reporter)
        if lam is None:
            lam = choice.lam_at_floor(Ranking.of(Y, start, q, threads=threads), self.objective)
        steps = [lam] if self.assign_at is None else [float(at) for at in self.assign_at]
        for at in steps:
            blocks = self._alternate(X, Y, start, at, reporter)
            start = blocks.assignment
        return blocks if at == lam else self._alternate(X, Y, start, lam, reporter, max_iter=0)

    def _alternate(
        self,
        X: sparse.csr_array,
        Y: sparse.csr_array,
        start: I32,
        lam: float,
        reporter: Reporter,
        max_iter: int | None = None,
    ) -> Blocks:
        """The alternation at one lambda."""
        rounds = self.max_iter if max_iter is None else max_iter
        with reporter.phase("partition", rounds) as phase:
            return Alternation(X, Y, start, self._rules(lam), thread_count(self.n_jobs)).run(rounds, self.tol, phase)

    def _rules(self, lam: float) -> Rules:
        return Rules(lam, self.objective, self.tie == "small", self.letter)

    def _seed(self) -> int:
        return int(sklearn_random_state(self.random_state).randint(2**31 - 1))

    def _start(
        self, X: sparse.csr_array, Y: sparse.csr_array, q: int, seed: int, threads: int, reporter: Reporter
    ) -> I32:
        if not isinstance(self.init, str):
            return _given_start(self.init, X.shape[0])
        if self.init == "labels":
            return label_first(X, Y, q, seed=seed, threads=threads, reporter=reporter)
        return cluster_rows(X, q, balanced=self.init == "balanced", seed=seed, threads=threads, reporter=reporter)

    def _keep(self, blocks: Blocks, n_positives: int) -> None:
        self.lam_ = blocks.lam
        self.assignment_ = blocks.assignment
        self.label_clusters_ = blocks.clusters.sorted_lists()
        self.objective_trace_ = np.array(blocks.trace)
        self.captured_ = blocks.captured / n_positives
        self.n_blocks_ = len(self.label_clusters_)
        self.lam_rel_ = self.lam_ * self.n_blocks_ / blocks.assignment.size
        self.n_iter_ = blocks.n_iter
        self.n_positives_ = n_positives
        self.ranking_ = blocks.ranking

    def _explain(self, chosen: choice.Choice, lam_rule: str | None = None) -> dict[str, Any]:
        """How blocks and lambda were chosen, in words and numbers; ``lam_rule`` where somebody else chose lambda."""
        cost = float(self.path([self.lam_]).cost[0])
        if lam_rule is None and isinstance(self.lam, str):
            where = "one block" if self.n_blocks == "paper" else "the blocks of the start"
            lam_rule = f"the largest that keeps {choice.FLOOR:.0%} of the positives in {where}"
            if self.n_blocks == "paper":
                lam_rule += f"; it cuts hardly anything, so that {cost:,.0f} labels per row stay: better give lam"
        lam_rule = lam_rule or "set by lam"
        text = (
            f"{self.n_blocks_} blocks ({chosen.rule}; {chosen.n_blocks} at the start); lam {self.lam_:.4g} ({lam_rule}); "
            f"{self.captured_:.1%} of the positives captured, {cost:.1f} labels per row"
        )
        if self.n_blocks_ == 1:
            text = f"one block ({chosen.rule}): it lists {cost:,.0f} labels, and all of them are scored for every row"
        return {
            "text": text,
            "n_blocks": {"start": chosen.n_blocks, "rule": chosen.rule, "tried": chosen.tried},
            "lam": {"value": self.lam_, "rule": lam_rule},
        }

    def path(self, lam: ArrayLike | None = None) -> LambdaPath:
        """Captured share and expected labels per row for this assignment, at ``lam`` or wherever they change."""
        check_is_fitted(self)
        if not self.letter:
            return self.ranking_.path(self.objective, self.n_positives_, lam)
        grid = self.ranking_.path(self.objective, self.n_positives_).lam if lam is None else np.atleast_1d(lam)
        cuts = [self._rules(float(at)).cut for at in grid]
        return replace(self.ranking_.path(self.objective, self.n_positives_, cuts), lam=np.asarray(grid, np.float64))

    def label_clusters_at(self, lam: float) -> list[NDArray[np.int64]]:
        """The label clusters this assignment would have at another lambda; those of a larger lambda are subsets."""
        check_is_fitted(self)
        return self.ranking_.clusters(self._rules(lam).cut, self.objective)[0].sorted_lists()

    def state(self) -> dict[str, Any]:
        """The fitted partition as a nested dict of arrays and JSON values; see ``from_state``."""
        check_is_fitted(self)
        params = self.get_params(deep=False)
        params["init"] = self.init if isinstance(self.init, str) else np.asarray(self.init)
        random_state: Any = self.random_state
        params["random_state"] = int(random_state) if isinstance(random_state, Integral) else None
        params["n_blocks"] = self.n_blocks if isinstance(self.n_blocks, str) else int(self.n_blocks)
        params["lam"] = self.lam if isinstance(self.lam, str) else float(self.lam)
        params["assign_at"] = None if self.assign_at is None else [float(at) for at in self.assign_at]
        return {
            "params": params,
            "assignment": stored.narrowed(self.assignment_),
            "ranking": self.ranking_.state(),
            "trace": self.objective_trace_,
            "lam": self.lam_,
            "n_iter": self.n_iter_,
            "n_positives": self.n_positives_,
            "n_features": self.n_features_in_,
            "choice": self.choice_,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Partitioner:
        """Take back what ``state`` gave (arrays may be read-only memory maps)."""
        self = cls(**state["params"])
        stored.require(self.objective in ("quadratic", "cost"), "the objective of the partition is unknown")
        ranking, lam = Ranking.restored(state["ranking"]), stored.real(state["lam"], "lam")
        assignment = stored.widened(state["assignment"], "assignment", (None,))
        stored.check_indices(assignment, ranking.n_rows.size, "assignment")
        stored.require(assignment.size, "a partition has no rows")
        trace = stored.array(state["trace"], "trace", np.float64, (None,)).tolist()
        n_positives = stored.whole(state["n_positives"], "n_positives", 1, 1 << 62)
        clusters, captured = ranking.clusters(self._rules(lam).cut, self.objective)
        n_iter = stored.whole(state["n_iter"], "n_iter")
        self._keep(Blocks(lam, assignment, ranking, clusters, captured, trace, n_iter), n_positives)
        self.n_features_in_ = stored.whole(state["n_features"], "n_features")
        self.choice_ = stored.mapping(state["choice"], "choice")
        stored.require(isinstance(self.choice_.get("text"), str), "choice has no text")
        return self

    def check_fits(self, n_rows: int, n_labels: int) -> None:
        """Refuse a stored partition of other rows or labels."""
        stored.require(self.assignment_.size == n_rows, f"{self.assignment_.size} rows are assigned, not {n_rows}")
        stored.check_indices(self.ranking_.labels, n_labels, "labels of the partition")

    def __sklearn_tags__(self) -> Tags:
        """Sparse input, labels required."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        return tags


def _check_steps(assign_at: Any, lam: Any) -> None:
    steps = np.asarray(assign_at)
    rising = steps.ndim == 1 and steps.size > 0 and steps.dtype.kind in "iuf" and (np.diff(steps) > 0).all()
    if isinstance(lam, str) or not rising or not 0 <= steps[0] <= steps[-1] < np.inf:
        raise BlockXMCError(f"assign_at must be rising lambdas of at least 0, beside a given lam, not {assign_at!r}")


def _given_start(init: Any, n_rows: int) -> I32:
    start = np.asarray(init)
    if start.shape != (n_rows,) or start.dtype.kind not in "iu":
        raise BlockXMCError(f"init must hold one whole number for each of the {n_rows} rows")
    if start.min() < 0:
        raise BlockXMCError("init must not hold negative block numbers")
    if int(start.max()) < 4 * n_rows:  # numbers that name no row are closed up
        return renumbered(start, int(start.max()) + 1)[1]
    return np.unique(start, return_inverse=True)[1].astype(np.int32)
