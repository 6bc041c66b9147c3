"""Label filters (LF): a few projections in front of any base choose which labels are scored at all.

Patent notice. The authors' own program for label filters is published under a BSD licence together with a separate
PATENTS file, whose grant covers their software and not modifications of it. This module is written from scratch after
the published description and may lie outside that grant. It is kept apart from the rest of the library, nothing else
needs it, and whether to use it is for you to decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import clone

from blockxmc import _kernels
from blockxmc._core import stored
from blockxmc._core.allowed import Mask
from blockxmc._core.base import TopK, XMCEstimator
from blockxmc._core.matrix import CsrArgs, as_csr, csr_args, take_rows
from blockxmc._core.params import as_seed, require_number, require_whole
from blockxmc._core.progress import Reporter, useful_threads, watched
from blockxmc.errors import BlockXMCError
from blockxmc.learners._learner import Learner
from blockxmc.linear.weights import LinearWeights, LowRankWeights, Weights

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]

_NEGATIVES = 1000  # labels drawn per step of the direction's training
_PAIRS = 5e8  # (row, label) pairs looked at when intervals are placed; beyond that, foreign rows are sampled
_CHUNK = 8192  # rows answered at a time
_ROWS_PER_ITEM = 64  # rows that one thread scores at a time
MOST_FILTERS = 64


@dataclass(frozen=True)
class Filters:
    """Directions (d x F) and, per filter and label, the interval (lower, upper] of projections that keeps the label.

    >>> filters = Filters(np.eye(2, 1, dtype=np.float32), np.float32([[0, 2]]), np.float32([[2, 4]]))
    >>> filters.candidates(as_csr([[1, 0], [3, 0], [9, 0]])).toarray().astype(int).tolist()
    [[1, 0], [0, 1], [0, 0]]
    """

    directions: F32
    lower: F32
    upper: F32

    @cached_property
    def _index(self) -> _kernels.FilterIndex:
        return _kernels.FilterIndex(self.lower, self.upper)

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Filters:
        """Take back stored filters."""
        stored.mapping(state, "the set of filters")
        lower = stored.array(state["lower"], "lower", np.float32, (None, None))
        upper = stored.array(state["upper"], "upper", np.float32, lower.shape)
        stored.whole(lower.shape[0], "the number of filters", 1, MOST_FILTERS)
        return cls(stored.array(state["directions"], "directions", np.float32, (None, lower.shape[0])), lower, upper)

    def __reduce__(self) -> tuple[Any, ...]:
        return Filters, (self.directions, self.lower, self.upper)

    def candidates(self, X: sparse.csr_array, threads: int = 1) -> sparse.csr_array:
        """Rows x labels, ones where every filter keeps the label."""
        indptr, labels = self.candidate_lists(csr_args(X), threads)
        return sparse.csr_array((np.ones(labels.size, np.float32), labels, indptr), (X.shape[0], self.lower.shape[1]))

    def candidate_lists(self, rows: CsrArgs, threads: int) -> tuple[I64, NDArray[np.int32]]:
        """The same as row pointers and ascending labels."""
        return self._index.candidates(projected(rows, self.directions, threads), threads)


def projected(rows: CsrArgs, directions: F32, threads: int) -> F32:
    """Projections of the rows, rows x filters."""
    out = np.empty((rows[0].size - 1, directions.shape[1]), np.float32)
    _kernels.filters_project(*rows, directions, out, threads)
    return out


@dataclass(frozen=True)
class CandidateWeights:
    """The base's weights by label, so that single labels can be scored: x (or x @ W) . label row + bias + |x|_1 mass."""

    by_label: sparse.csr_array  # m x d, or m x k behind the projection W
    bias: F32 | None = None
    mass: F32 | None = None
    W: F32 | None = None

    @classmethod
    def of(cls, weights: Weights) -> CandidateWeights:
        """Turn what a base hands over after training."""
        if isinstance(weights, LinearWeights):
            return cls(as_csr(sparse.csr_array(weights.coef.T)), weights.bias, weights.mass)
        if isinstance(weights, LowRankWeights):
            return cls(as_csr(weights.H), weights.bias, W=weights.W)
        raise BlockXMCError("LabelFilters needs a base with linear or low-rank weights; this base has neither")

    @classmethod
    def restored(cls, state: dict[str, Any], n_features: int, n_labels: int) -> CandidateWeights:
        """Take back stored weights."""
        stored.mapping(state, "the set of weights")
        W = None if "W" not in state else stored.array(state["W"], "W", np.float32, (n_features, None))
        by_label = stored.csr(state["by_label"], "by_label", (n_labels, n_features if W is None else W.shape[1]))
        vectors = {
            name: stored.array(state[name], name, np.float32, (n_labels,)) for name in ("bias", "mass") if name in state
        }
        return cls(by_label, **vectors, W=W)

    @cached_property
    def _kernel(self) -> _kernels.LabelWeights:
        return _kernels.LabelWeights(*csr_args(self.by_label), self.by_label.shape[1])

    def __reduce__(self) -> tuple[Any, ...]:
        return CandidateWeights, (self.by_label, self.bias, self.mass, self.W)

    def score(self, rows: CsrArgs, indptr: I64, labels: NDArray[np.int32], threads: int) -> F32:
        """Score of each (row, label) pair."""
        inputs = rows
        if self.W is not None:
            X = sparse.csr_array((rows[2], rows[1], rows[0]), (rows[0].size - 1, self.W.shape[0]))
            inputs = csr_args(as_csr(np.asarray(X @ self.W, np.float32)))
        out = np.empty(labels.size, np.float32)
        self._kernel.score(*inputs, indptr, labels, out, useful_threads(threads, rows[0].size - 1, _ROWS_PER_ITEM))
        if self.bias is not None:
            out += self.bias[labels]
        if self.mass is not None:
            sums = np.concatenate([[0.0], np.cumsum(np.abs(rows[2]), dtype=np.float64)])
            l1 = (sums[rows[0][1:]] - sums[rows[0][:-1]]).astype(np.float32)
            out += np.repeat(l1, np.diff(indptr)) * self.mass[labels]
        return out


class LabelFilters(XMCEstimator):
    """Score only the labels that pass ``n_filters`` interval tests on projections of the row.

    A filter is a direction and one interval per label. It is trained so that rows with a label fall into the label's
    interval and other rows outside, on the side where their own labels lie. A later filter only deals with the (row,
    label) pairs that earlier ones let through. The base is trained once, on all rows and labels, and scores the
    labels that pass every filter; a row that none passes gets no prediction. Fewer labels scored is not less time: a
    base of pruned vectors scores all labels together, feature by feature, labels that pass are scored one vector at a
    time. On 5,000 rows of debian-small 19 us of a row find these labels, and 96 us score them (the report shows both).

    Parameters
    ----------
    base : the classifier behind the filters (a learner of this library); None means ``DiSMEC()``.
    n_filters : number of filters, at most 64.
    C1, C2 : weights of keeping own labels and of removing foreign ones, against the norm of the direction. A larger
        C1 / C2 keeps more labels (recall, cost); a larger C2 at the same ratio allows finer intervals. On held-out rows
        of bibtex and delicious the defaults cost 0.2 to 0.4 points of precision and keep about a third of the labels;
        C1 = 80 costs none and keeps a half and nearly all of them (``bench/paper/choices.py``).
    n_steps : stochastic gradient steps per filter; None means six per row, between 20,000 and 1,000,000. There, a third
        or the threefold of that made no difference above 0.3 points.
    bounds : "exact" minimises the objective over each interval; "quantile" spans the 5 % to 95 % quantiles of the
        label's own projections, widened by the margin 1.

    Attributes
    ----------
    filters_ : directions and intervals.
    weights_ : the base's weights by label.
    cost_ : ``candidates``, ``candidate_recall``, ``products`` (filters + candidates), ``speedup_paper`` (labels over
        candidates) and ``speedup`` (labels over products), means over rows held out of the directions' training.
        The intervals are placed again on all rows afterwards.

    >>> from blockxmc.baselines import LabelFilters
    >>> LabelFilters(n_filters=3).n_filters
    3
    """

    def __init__(
        self,
        base: Any = None,
        n_filters: int = 5,
        C1: float = 20.0,
        C2: float = 10.0,
        n_steps: int | None = None,
        bounds: str = "exact",
        n_jobs: int | None = None,
        random_state: int | None = 0,
        verbose: int = 0,
    ) -> None:
        self.base = base
        self.n_filters = n_filters
        self.C1 = C1
        self.C2 = C2
        self.n_steps = n_steps
        self.bounds = bounds
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _check_params(self) -> None:
        require_whole(self, "n_filters", 1, MOST_FILTERS)
        require_number(self, "C1")
        require_number(self, "C2")
        if self.n_steps is not None:
            require_whole(self, "n_steps")
        if self.bounds not in ("exact", "quantile"):
            raise BlockXMCError(f"LabelFilters: bounds must be 'exact' or 'quantile', got {self.bounds!r}")

    def _fresh_base(self) -> Learner:
        if self.base is None:
            from blockxmc.learners.dismec import DiSMEC

            return DiSMEC()
        if not isinstance(self.base, Learner):
            raise BlockXMCError(f"LabelFilters: base must be a learner of blockxmc, got {type(self.base).__name__}")
        return clone(self.base)  # type: ignore[no-any-return]

    # ---- training ----
    def _fit(self, X: sparse.csr_array, Y: sparse.csr_array, reporter: Reporter) -> None:
        self._check_params()
        base = self._fresh_base()
        base._check_params()
        seed = as_seed(self.random_state)
        rng = np.random.default_rng(seed)
        shuffled = rng.permutation(X.shape[0])
        n_held = min(X.shape[0] // 10, 5000)
        held, seen = np.sort(shuffled[:n_held]), np.sort(shuffled[n_held:])
        filters = self._trained(take_rows(X, seen), take_rows(Y, seen), rng, reporter)
        measured = held if n_held else seen
        self.cost_ = self._measured_cost(filters, take_rows(X, measured), take_rows(Y, measured))
        self.filters_ = self._placed(filters.directions, X, Y, rng, reporter)
        reporter.say(
            f"label filters: {self.cost_['candidates']:.0f} of {Y.shape[1]} labels pass, "
            f"with {100 * self.cost_['candidate_recall']:.1f} % of the true ones"
        )
        with reporter.phase(f"train {type(base).__name__}", Y.shape[1]) as phase:
            self.weights_ = CandidateWeights.of(base._train(X, Y, base._context(self._threads, phase, seed)))

    def _trained(
        self, X: sparse.csr_array, Y: sparse.csr_array, rng: np.random.Generator, reporter: Reporter
    ) -> Filters:
        n, m = Y.shape
        rows, labels = csr_args(X), csr_args(Y)[:2]
        placing = _Placing(Y, self, rng)
        n_steps = self.n_steps or int(np.clip(6 * n, 20_000, 1_000_000))
        directions = np.empty((X.shape[1], 0), np.float32)
        for number in range(self.n_filters):
            with reporter.phase(f"train filter {number + 1} of {self.n_filters}", n_steps) as phase:
                direction = watched(
                    _kernels.filters_direction,
                    *rows,
                    X.shape[1],
                    *labels,
                    m,
                    *placing.earlier,
                    self.C1 * m / self.C2,
                    placing.remaining_share / self.C2,
                    n_steps,
                    _NEGATIVES,
                    max(1000, n // 50),
                    int(rng.integers(2**63)),
                    phase=phase,
                )
            directions = np.column_stack([directions, direction.astype(np.float32)])
            placing.add(projected(rows, np.ascontiguousarray(directions[:, -1:]), self._threads)[:, 0], reporter)
        return Filters(directions, placing.lower, placing.upper)

    def _placed(
        self,
        directions: F32,
        X: sparse.csr_array,
        Y: sparse.csr_array,
        rng: np.random.Generator,
        reporter: Reporter,
    ) -> Filters:
        placing = _Placing(Y, self, rng)
        for projection in projected(csr_args(X), directions, self._threads).T:
            placing.add(projection, reporter)
        return Filters(directions, placing.lower, placing.upper)

    def _measured_cost(self, filters: Filters, X: sparse.csr_array, Y: sparse.csr_array) -> dict[str, float]:
        passed = filters.candidates(X, self._threads)
        n, m = Y.shape
        carried = np.diff(Y.indptr)
        found = np.asarray(passed.multiply(Y).sum(axis=1)).ravel()
        candidates = passed.nnz / n
        return {
            "products": self.n_filters + candidates,
            "candidates": candidates,
            "candidate_recall": float((found[carried > 0] / carried[carried > 0]).mean()) if carried.any() else 1.0,
            "speedup_paper": m / candidates if candidates else float("inf"),
            "speedup": m / (self.n_filters + candidates),
        }

    # ---- answering ----
    def cost_on(self, X: Any) -> dict[str, float]:
        """Mean work per row as these rows pass the filters."""
        passed, m = self.filters_.candidates(self._validated(X), self._threads), self.targets_.n_labels
        candidates = passed.nnz / max(passed.shape[0], 1)
        products = self.filters_.lower.shape[0] + candidates
        return {
            "products": products,
            "candidates": candidates,
            "speedup_paper": m / max(candidates, 1e-12),
            "speedup": m / products,
            "speedup_flops": m / products,  # a filter counts like a label's vector
        }

    def _scored(self, rows: CsrArgs, threads: int) -> tuple[I64, NDArray[np.int32], F32]:
        indptr, labels = self.filters_.candidate_lists(rows, threads)
        return indptr, labels, self.weights_.score(rows, indptr, labels, threads)

    def _topk_of(self, rows: CsrArgs, k: int, threads: int) -> TopK:
        labels, best = (np.empty((rows[0].size - 1, k), dtype) for dtype in (np.int64, np.float32))
        _kernels.topk_of_pairs(*self._scored(rows, threads), labels, best, threads)
        return labels, best

    def _topk(self, X: sparse.csr_array, k: int, allowed: Mask | None = None) -> TopK:
        if allowed is not None:
            return self._topk_of_scores(X, k, allowed)
        starts = range(0, max(X.shape[0], 1), _CHUNK)
        parts = [self._topk_of(csr_args(X[start : start + _CHUNK]), k, self._threads) for start in starts]
        return np.concatenate([ids for ids, _ in parts]), np.concatenate([scores for _, scores in parts])

    def _scores(self, X: sparse.csr_array) -> sparse.csr_array:
        indptr, labels, scores = self._scored(csr_args(X), self._threads)
        return sparse.csr_array((scores, labels, indptr), shape=(X.shape[0], self.filters_.lower.shape[1]))

    def predict_one(
        self, indices: ArrayLike, values: ArrayLike, k: int = 5, allow: Any = None, deny: Any = None
    ) -> TopK:
        """Best k labels of one sparse row (sorted indices): no validation, no threads, the latency path."""
        if allow is not None or deny is not None:
            return self._one_among(indices, values, k, allow, deny)
        columns = np.ascontiguousarray(indices, np.int32)
        row = (np.array([0, columns.size]), columns, np.ascontiguousarray(values, np.float32))
        labels, scores = self._topk_of(row, k, 1)
        return labels[0], scores[0]

    # ---- storage ----
    def _state(self) -> dict[str, Any]:
        weights = {name: value for name, value in vars(self.weights_).items() if name in _STORED and value is not None}
        filters = {name: getattr(self.filters_, name) for name in ("directions", "lower", "upper")}
        return {"filters": filters, "weights": weights, "cost": self.cost_}

    def _restore(self, state: dict[str, Any]) -> None:
        self.filters_ = Filters.restored(state["filters"])
        n_features, n_labels = self.filters_.directions.shape[0], self.filters_.lower.shape[1]
        self._check_sizes(n_labels, n_features)
        self.weights_ = CandidateWeights.restored(state["weights"], n_features, n_labels)
        self.cost_ = stored.numbers(state["cost"], "cost")


_STORED = ("by_label", "bias", "mass", "W")


class _Placing:
    """Intervals of one filter after the other, each for the (row, label) pairs the earlier ones let through."""

    def __init__(self, Y: sparse.csr_array, model: LabelFilters, rng: np.random.Generator) -> None:
        n, m = Y.shape
        self.model = model
        self.labels = csr_args(Y)[:2]
        self.rows_of_label = csr_args(as_csr(sparse.csr_array(Y.T)))[:2]
        self.lower = np.empty((0, m), np.float32)
        self.upper = np.empty((0, m), np.float32)
        self.projections = np.empty((0, n), np.float32)
        size = min(n, max(1000, int(_PAIRS / max(m, 1))))
        self.sample = np.sort(rng.choice(n, size, replace=False)).astype(np.int64)
        self.own_weight = model.C1 * max(m, 1) / model.C2 * (size / n)
        self.remaining_share = 1.0
        self._total = 0

    @property
    def earlier(self) -> tuple[F32, F32, F32]:
        return self.lower, self.upper, self.projections

    def add(self, projection: F32, reporter: Reporter) -> None:
        projection = np.ascontiguousarray(projection)
        n_labels = self.lower.shape[1]
        if self.model.bounds == "quantile":
            lower, upper = quantile_bounds(projection, *self.rows_of_label)
        else:
            lower, upper = np.empty(n_labels, np.float32), np.empty(n_labels, np.float32)
            with reporter.phase("place intervals", n_labels) as phase:
                before, after = watched(
                    _kernels.filters_bounds,
                    *self.labels,
                    n_labels,
                    *self.rows_of_label,
                    *self.earlier,
                    projection,
                    self.sample,
                    self.own_weight,
                    lower,
                    upper,
                    self.model._threads,
                    phase=phase,
                )
            self._total = self._total or before
            self.remaining_share = max(after, 1) / max(self._total, 1)
        self.lower = np.vstack([self.lower, lower])
        self.upper = np.vstack([self.upper, upper])
        self.projections = np.vstack([self.projections, projection])


def quantile_bounds(projection: F32, label_ptr: I64, rows: NDArray[np.int32], tail: float = 0.05) -> tuple[F32, F32]:
    """The label's own projections between the ``tail`` quantiles, widened by one; labels without rows: empty.

    >>> quantile_bounds(np.float32([1, 5]), np.array([0, 2, 2]), np.int32([0, 1]))
    (array([ 0., inf], dtype=float32), array([  6., -inf], dtype=float32))
    """
    counts = np.diff(label_ptr)
    own = projection[rows]
    own = own[np.lexsort((own, np.repeat(np.arange(counts.size), counts)))]
    lower = np.full(counts.size, np.inf, np.float32)
    upper = -lower
    some = counts > 0
    cut = np.floor(tail * counts).astype(np.int64)
    lower[some] = own[(label_ptr[:-1] + cut)[some]] - 1
    upper[some] = own[(label_ptr[1:] - 1 - cut)[some]] + 1
    return lower, upper
