"""Beyond the paper: the best model within a limit of products or microseconds, or the cheapest with enough recall.

The search goes over the number of blocks, lambda, how weights are trained and how many blocks a row visits. The products
and the candidate recall of a setting are known as soon as the router is trained, so the base is trained only for the
numbers of blocks that look best by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from blockxmc.errors import BlockXMCError
from blockxmc.partition.choice import MIN_ROWS
from blockxmc.training.job import Job
from blockxmc.training.trials.split import KINDS, single_call_us
from blockxmc.tuning.limits import Limits, NoSettingError, in_words
from blockxmc.tuning.notebook import Notebook, opened_job
from blockxmc.tuning.problem import Problem, TrialOptions
from blockxmc.tuning.result import BudgetResult, Point
from blockxmc.tuning.scout import Scout

MODES = ("products", "latency_us", "recall")
# Numbers of visited blocks to try. Not measured here; docs/results/ablation.md compares 2, 4 and 8 for shared weights.
ROUTES = (1, 2, 4, 8)
# Numbers of blocks to try, as shares of the number with the fewest products. Not measured.
_AROUND = (0.25, 0.5, 1.0, 2.0)
# Within a limit of products, these shares of the limit are numbers of blocks to try, too: the rest is left for labels. Not
# measured.
_SHARES_OF_LIMIT = (0.5, 0.25)
# Rows are assigned at the lambda that captures 98 % of the positives, and once more at those that capture these shares: a
# large lambda keeps few labels, and other blocks suit these better. Not measured.
_ASSIGNED_FOR = (0.8, 0.5)
# The base is trained for so many assignments, the most promising ones. Not measured.
_TRAINED = 2
# Lambdas to try, as multiples of the lambda that just keeps to the limit. Larger: fewer labels may rank better. Smaller:
# recall may be lost where a block loses all its labels. Not measured.
_STEPS_UP, _STEPS_DOWN = (1.0, 1.5, 2.5), (1.0, 0.7)
# Microseconds are timed at so many steps of the lambda grid, and at every second route. Not measured.
_TIMED_STEPS, _TIMED_ROUTES = 4, 2
# The least microseconds per product: noise can make the fitted line fall where products hardly matter.
_LEAST_SLOPE = 1e-6


def tune_budget(
    X: Any,
    Y: Any,
    base: Any = None,
    *,
    limits: Limits,
    n_blocks: int | str = "auto",
    routes: Sequence[int] = ROUTES,
    weights: Sequence[str] = tuple(KINDS),
    options: TrialOptions | None = None,
) -> BudgetResult:
    """Choose blocks, lambda, weights and route within one limit: products, latency_us or recall.

    Within products or microseconds the best mean P@k on held-out rows (a fifth) wins, for a recall the fewest products.
    ``weights`` are ways to train, "per-block" and "global". ``options`` has what all tuners share, see
    :class:`TrialOptions`. A limit that no setting keeps to raises BlockXMCError with the nearest setting.

    >>> from blockxmc import NaiveBayes
    >>> from blockxmc.data import make_synthetic
    >>> train, _ = make_synthetic(n_train=300, n_test=10, n_features=60, n_labels=12, seed=0)
    >>> result = tune_budget(train.X, train.Y, NaiveBayes(), limits=Limits(products=9))
    >>> result.chosen.products <= 9
    True
    """
    if len(limits.given) != 1 or not set(limits.given) <= set(MODES):
        raise BlockXMCError(f"give exactly one of {', '.join(MODES)}; got {', '.join(limits.given) or 'none'}")
    ((mode, limit),) = limits.given.items()
    routes = sorted({int(route) for route in routes})
    if not routes or routes[0] < 1:
        raise BlockXMCError(f"routes must be whole numbers of at least 1, got {routes}")
    for kind in weights:
        if kind not in KINDS:
            raise BlockXMCError(f"weights must be among {', '.join(KINDS)}, got {kind!r}")
    problem = Problem.of(X, Y, base, options)
    search = Search(problem, mode, limit, routes, list(weights), n_blocks)
    details = {"n_blocks": str(n_blocks), "max_rows": problem.options.max_rows}
    # Microseconds are measured again in every run.
    with opened_job(problem, search.setting | details, keep=mode != "latency_us") as job:
        search.book = Notebook(job)
        result = replace(search.run(), notes=tuple(job.notes))
    problem.reporter.say(result.explain())
    return result


@dataclass(frozen=True)
class Plan:
    """A number of blocks, the (route, lambda) pairs to train for, and how good they look (higher: better)."""

    scout: Scout
    pairs: tuple[tuple[int, float], ...]
    promise: float


class Search:
    """One run of :func:`tune_budget`: look at numbers of blocks, train the best of them, choose."""

    def __init__(
        self, problem: Problem, mode: str, limit: float, routes: list[int], kinds: list[str], n_blocks: int | str
    ) -> None:
        self.problem, self.mode, self.limit, self.routes, self.kinds = problem, mode, limit, routes, kinds
        self.split, self.n_blocks = problem.split(), n_blocks
        self.setting = problem.describe() | {
            "assignment": "fixed assignments at the lambdas that capture 98, 80 and 50 % of the positives",
            "held_out_rows": int(self.split.X_held_out.shape[0]),
        }
        self.book = Notebook(Job())
        self.calibration: dict[str, float] | None = None
        self.trainings = 0

    def run(self) -> BudgetResult:
        """The best setting that keeps to the limit."""
        scouts = self._scouts()
        budget = self._calibrate(scouts) if self.mode == "latency_us" else self.limit
        plans = [plan for plan in (self._plan(scout, budget) for scout in scouts) if plan.pairs]
        if not plans:
            raise NoSettingError(self._refusal(self._nearest(scouts)))
        plans.sort(key=lambda plan: -plan.promise)
        points = list(self._evaluate(plans[:_TRAINED]))
        meeting = [point for point in points if self._meets(point)]
        if not meeting:
            raise NoSettingError(self._refusal(min(points, key=self._distance)))
        return BudgetResult(
            mode=self.mode,
            limit=self.limit,
            chosen=min(meeting, key=self._order),
            points=tuple(points),
            ks=self.problem.task.ks,
            n_labels=int(self.problem.Y.shape[1]),
            calibration=self.calibration,
            trainings=self.trainings,
            setting=self.setting,
        )

    def _scouts(self) -> list[Scout]:
        sizes, scouts = self._numbers_of_blocks(), []
        with self.problem.reporter.phase("try numbers of blocks", len(sizes)) as phase:
            for done, size in enumerate(sizes):
                first = Scout(self.split, size, self.problem.n_rows)
                others = (first.assigned_for(share) for share in _ASSIGNED_FOR if size > 1)
                scouts += [first, *(scout for scout in others if scout is not None)]
                phase.update(done + 1)
        return scouts

    def _numbers_of_blocks(self) -> list[int]:
        """The given number of blocks, or those around the number with the fewest products."""
        if not isinstance(self.n_blocks, str):
            return [int(self.n_blocks)]
        centre = int(self.problem.partition(self.n_blocks).choice_["n_blocks"]["start"])
        wanted = [centre * share for share in _AROUND]
        if self.mode == "products":
            wanted += [self.limit * share for share in _SHARES_OF_LIMIT]
        most = max(self.split.X.shape[0] // MIN_ROWS, 1)
        sizes = sorted({min(max(round(size), 1), most) for size in wanted})
        if self.mode == "products":
            sizes = [size for size in sizes if size < self.limit] or sizes[:1]
        return sizes

    def _routes(self, scout: Scout) -> list[int]:
        return sorted({min(route, scout.n_alive) for route in self.routes})

    def _plan(self, scout: Scout, budget: float) -> Plan:
        """The lambda at which each route keeps to the limit, and how good that looks before training."""
        found: list[tuple[float, int, float]] = []  # promise, route, lambda
        for route in self._routes(scout):
            if self.mode == "recall":
                lam = scout.largest_reaching(route, budget)
                found += [] if lam is None else [(-scout.products(lam, route), route, lam)]
            else:
                lam = scout.smallest_within(route, budget)
                found += [] if lam is None else [(scout.recall(lam, route), route, lam)]
        best = max(found, default=(-np.inf, 0, 0.0))
        if self.mode == "recall":  # products decide and are known: only the cheapest route needs a base
            found = found and [best]
        steps = _STEPS_DOWN if self.mode == "recall" else _STEPS_UP
        pairs = [(route, lam * step) for _, route, lam in found for step in steps]
        return Plan(scout, tuple(pairs), best[0])

    def _evaluate(self, plans: list[Plan]) -> Iterator[Point]:
        with self.problem.reporter.phase("evaluate", len(self.kinds) * sum(len(plan.pairs) for plan in plans)) as phase:
            done = 0
            for plan in plans:
                for kind in self.kinds:
                    nested = KINDS[kind].nested(self.problem.task.learner)
                    # The smallest lambda first: its weights serve the others.
                    for route, lam in sorted(plan.pairs, key=lambda pair: pair[1]):
                        if nested or any(lam == other for other in _tightest(plan)):
                            yield self._measure(plan.scout, kind, route, lam)
                        done += 1
                        phase.update(done)

    def _measure(self, scout: Scout, kind: str, route: int, lam: float) -> Point:
        at = scout.blocks.partition.lam_
        name = f"{scout.n_blocks} blocks assigned at {at:.12g}, {kind}, route {route}, lam {lam:.12g}"
        found = self.book.once(name, lambda: scout.blocks.measure(lam, kind, route))
        self.trainings += found["trainings"]
        point = scout.point(lam, found, kind, route)
        if self.mode == "latency_us":
            point = replace(point, latency_us=self._latency(scout, lam, kind, route))
        return point

    def _latency(self, scout: Scout, lam: float, kind: str, route: int) -> float:
        """Median microseconds of a single call."""
        model = scout.blocks.serve(lam, kind, route)
        return 0.0 if model is None else single_call_us(self.split, model)

    def _calibrate(self, scouts: list[Scout]) -> float:
        """Fit microseconds = a + b * products for the middle number of blocks, and turn the limit into products."""
        scout, kind = scouts[len(scouts) // 2], self.kinds[0]
        work, spent = [], []
        for lam in scout.grid[:: max(scout.grid.size // _TIMED_STEPS, 1)]:
            for route in self._routes(scout)[::_TIMED_ROUTES]:
                model = scout.blocks.serve(float(lam), kind, route)
                if model is not None:
                    candidates = model.scorer.n_candidates(model.visited(self.split.X_held_out, 1))
                    work.append(model.router_products + float(candidates.mean()))
                    spent.append(single_call_us(self.split, model))
        self.trainings += self.split.trainings
        slope = float(np.polyfit(work, spent, 1)[0]) if np.ptp(work) > 0 else 0.0
        slope = max(slope, _LEAST_SLOPE)
        start = float(np.mean(spent) - slope * np.mean(work))
        self.calibration = {"a": start, "b": slope, "timed_settings": float(len(work))}
        return (self.limit - start) / slope

    def _meets(self, point: Point) -> bool:
        return self._distance(point) <= 0

    def _distance(self, point: Point) -> float:
        """How far a point is beyond the limit; 0 or less where it keeps to it."""
        if self.mode == "recall":
            return self.limit - point.recall
        return _value(point, self.mode) - self.limit

    def _order(self, point: Point) -> tuple[float, ...]:
        precision = -float(np.mean(point.precision))
        return (point.products, precision) if self.mode == "recall" else (precision, point.products)

    def _nearest(self, scouts: list[Scout]) -> Point:
        """The point closest to a limit that no setting keeps to."""
        points = []
        for scout in scouts:
            routes = self._routes(scout)
            route, lam = (routes[-1], scout.low) if self.mode == "recall" else (routes[0], scout.high)
            found = {
                "precision": (),
                "candidates": scout.products(lam, route) - scout.blocks.router.products,
                "products": scout.products(lam, route),
                "recall": scout.recall(lam, route),
            }
            point = scout.point(float(lam), found, self.kinds[0], route)
            if self.mode == "latency_us":
                point = replace(point, latency_us=self._latency(scout, float(lam), self.kinds[0], route))
            points.append(point)
        return min(points, key=self._distance)

    def _refusal(self, nearest: Point) -> str:
        return (
            f"no setting has {in_words({self.mode: self.limit})}: the nearest has "
            f"{_value(nearest, self.mode):.4g} ({nearest.describe()})"
        )


def _tightest(plan: Plan) -> set[float]:
    """The smallest lambda of each route."""
    return {min(lam for other, lam in plan.pairs if other == route) for route, _ in plan.pairs}


def _value(point: Point, mode: str) -> float:
    value = getattr(point, mode)
    return float("inf") if value is None else float(value)
