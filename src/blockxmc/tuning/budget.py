"""Beyond the paper: the best model within a budget of products or microseconds, or the cheapest with enough recall.

The search goes over the number of blocks, lambda, how weights are trained and how many blocks a row visits. What a
setting costs and which labels it can reach is known as soon as the router is trained; the base is trained only for the
numbers of blocks that look best by then.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from blockxmc.errors import BlockXMCError
from blockxmc.metrics.timing import _single_calls
from blockxmc.partition import Partitioner
from blockxmc.partition.choice import MIN_ROWS
from blockxmc.training.trials.grid import one_split
from blockxmc.training.trials.split import KINDS, Split
from blockxmc.tuning.cache import Notebook, digest
from blockxmc.tuning.limits import UNITS, NoSettingError, bound, checked_limits
from blockxmc.tuning.protocol import Problem
from blockxmc.tuning.result import BudgetResult, Point
from blockxmc.tuning.scout import Scout

# Numbers of blocks tried, relative to the one with the fewest products, and how many of them get a trained base.
_AROUND = (0.25, 0.5, 1.0, 2.0)
_TRAINED = 2
# Lambdas tried relative to the one that just meets the request: fewer labels may rank better, and where a block is lost
# on the way the one that should just meet it may not.
_STEPS_UP, _STEPS_DOWN = (1.0, 1.5, 2.5), (1.0, 0.7)


def tune_budget(
    X: Any,
    Y: Any,
    base: Any = None,
    *,
    products: float | None = None,
    latency_us: float | None = None,
    recall: float | None = None,
    n_blocks: int | str = "auto",
    routes: Sequence[int] = (1, 2, 4, 8),
    weights: Sequence[str] = tuple(KINDS),
    ks: tuple[int, ...] = (1, 3, 5),
    partitioner: Partitioner | None = None,
    random_state: int | None = 0,
    n_jobs: int | None = None,
    verbose: int = 0,
    cache: str | os.PathLike[str] | None = None,
    max_rows: int = 20000,
) -> BudgetResult:
    """Choose blocks, lambda, weights and route for one of: at most ``products`` per row, at most ``latency_us`` for a
    single call on this machine, at least ``recall`` of a row's labels among its candidates.

    Within a budget the best mean P@k on held-out rows (a fifth, at most ``max_rows``) wins, for a recall the fewest
    products. A request that nothing meets raises BlockXMCError with the nearest setting.

    >>> from blockxmc import NaiveBayes
    >>> from blockxmc.data import make_synthetic
    >>> train, _ = make_synthetic(n_train=300, n_test=10, n_features=60, n_labels=12, seed=0)
    >>> result = tune_budget(train.X, train.Y, NaiveBayes(), products=9)
    >>> result.chosen.products <= 9
    True
    """
    mode, limit = _request(products=products, latency_us=latency_us, recall=recall)
    routes = sorted({int(route) for route in routes})
    if not routes or routes[0] < 1:
        raise BlockXMCError(f"routes must be whole numbers of at least 1, got {routes}")
    for kind in weights:
        if kind not in KINDS:
            raise BlockXMCError(f"weights must be among {', '.join(KINDS)}, got {kind!r}")
    problem = Problem.of(X, Y, base, ks, partitioner, random_state, n_jobs, verbose)
    search = Search(problem, mode, limit, routes, list(weights), n_blocks, max_rows, cache)
    result = search.run()
    problem.reporter.say(result.explain())
    return result


def _request(**given: float | None) -> tuple[str, float]:
    limits = checked_limits(given)
    if len(limits) != 1:
        raise BlockXMCError(f"give exactly one of {', '.join(given)}; got {', '.join(limits) or 'none'}")
    ((mode, limit),) = limits.items()
    return mode, limit


@dataclass(frozen=True)
class Plan:
    """A number of blocks and the (route, lambda) pairs worth training for, with what spoke for them (higher: better)."""

    scout: Scout
    pairs: tuple[tuple[int, float], ...]
    promise: float


class Search:
    """One run of :func:`tune_budget`."""

    def __init__(
        self,
        problem: Problem,
        mode: str,
        limit: float,
        routes: list[int],
        kinds: list[str],
        n_blocks: int | str,
        max_rows: int,
        cache: str | os.PathLike[str] | None,
    ) -> None:
        self.problem, self.mode, self.limit, self.routes, self.kinds = problem, mode, limit, routes, kinds
        train, held_out = one_split(problem.n_rows, max_rows, seed=problem.task.seed, sample=False)
        self.split = Split(problem.task, problem.X, problem.Y, train, held_out)
        self.n_blocks = n_blocks
        self.setting = problem.describe() | {
            "assignment": "fixed assignment at the lambda that captures 98 % of the positives",
            "held_out_rows": int(held_out.size),
        }
        details = self.setting | {"n_blocks": str(n_blocks), "ks": problem.task.ks, "max_rows": max_rows}
        # Times are of the moment: they are measured again.
        folder = None if mode == "latency_us" else cache
        self.book = Notebook(folder, "budget", "" if folder is None else digest(problem.X, problem.Y, details))
        self.calibration: dict[str, float] | None = None
        self.trainings = 0

    def run(self) -> BudgetResult:
        """Scout, train, choose."""
        for note in self.book.notes:
            self.problem.reporter.say(note)
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
            notes=tuple(self.book.notes),
        )

    def _scouts(self) -> list[Scout]:
        n_train = self.split.X.shape[0]
        if isinstance(self.n_blocks, str):
            centre = int(self.problem.partition(self.n_blocks).choice_["n_blocks"]["start"])
            wanted = [centre * share for share in _AROUND]
            if self.mode == "products":  # at least half of the budget must be left for labels
                wanted += [self.limit / 2, self.limit / 4]
            most = max(n_train // MIN_ROWS, 1)
            sizes = sorted({min(max(round(size), 1), most) for size in wanted})
            if self.mode == "products":
                sizes = [size for size in sizes if size < self.limit] or sizes[:1]
        else:
            sizes = [int(self.n_blocks)]
        scouts = []
        with self.problem.reporter.phase("try numbers of blocks", len(sizes)) as phase:
            for done, size in enumerate(sizes):
                scouts.append(Scout(self.split, size, self.problem.n_rows))
                phase.update(done + 1)
        return scouts

    def _routes(self, scout: Scout) -> list[int]:
        return sorted({min(route, scout.n_alive) for route in self.routes})

    def _plan(self, scout: Scout, budget: float) -> Plan:
        """Where each route meets the request, and how good that looks before training."""
        options: list[tuple[float, int, float]] = []  # promise, route, lambda
        for route in self._routes(scout):
            if self.mode == "recall":
                lam = scout.largest_reaching(route, budget)
                options += [] if lam is None else [(-scout.products(lam, route), route, lam)]
            else:
                lam = scout.smallest_within(route, budget)
                options += [] if lam is None else [(scout.recall(lam, route), route, lam)]
        best = max(options, default=(-np.inf, 0, 0.0))
        if self.mode == "recall":  # cost decides, and it is known: only the cheapest route needs its base
            options = options and [best]
        steps = _STEPS_DOWN if self.mode == "recall" else _STEPS_UP
        pairs = [(route, lam * step) for _, route, lam in options for step in steps]
        return Plan(scout, tuple(pairs), best[0])

    def _evaluate(self, plans: list[Plan]) -> Iterator[Point]:
        with self.problem.reporter.phase("evaluate", len(self.kinds) * sum(len(plan.pairs) for plan in plans)) as phase:
            done = 0
            for plan in plans:
                for kind in self.kinds:
                    nested = KINDS[kind].nested(self.problem.task.learner)
                    # The smallest lambda first: what is trained for it serves the others.
                    for route, lam in sorted(plan.pairs, key=lambda pair: pair[1]):
                        if nested or any(lam == other for other in _tightest(plan)):
                            yield self._measure(plan.scout, kind, route, lam)
                        done += 1
                        phase.update(done)

    def _measure(self, scout: Scout, kind: str, route: int, lam: float) -> Point:
        name = f"{scout.n_blocks} blocks, {kind}, route {route}, lam {lam:.12g}"
        found = self.book.once(name, lambda: scout.blocks.measure(lam, kind, route))
        self.trainings += found["trainings"]
        point = scout.point(lam, found, kind, route)
        if self.mode == "latency_us":
            point = replace(point, latency_us=self._latency(scout, lam, kind, route))
        return point

    def _latency(self, scout: Scout, lam: float, kind: str, route: int) -> float:
        """Median microseconds of a single call."""
        blocks = scout.blocks.serve(lam, kind, route)
        if blocks is None:
            return 0.0
        return _single_calls(SimpleNamespace(predict_one=blocks.one), self.split.X_held_out, 5)["one_us"]

    def _calibrate(self, scouts: list[Scout]) -> float:
        """Time the packed kernels over the grid of the middle number of blocks; the budget in products that follows."""
        scout = scouts[len(scouts) // 2]
        kind = self.kinds[0]
        work, spent = [], []
        for lam in scout.grid[:: max(scout.grid.size // 4, 1)]:
            for route in self._routes(scout)[::2]:
                blocks = scout.blocks.serve(float(lam), kind, route)
                if blocks is not None:
                    candidates = blocks.scorer.n_candidates(blocks.visited(self.split.X_held_out, 1))
                    work.append(blocks.router_products + float(candidates.mean()))
                    spent.append(self._latency(scout, float(lam), kind, route))
        self.trainings += self.split.trainings
        slope = float(np.polyfit(work, spent, 1)[0]) if np.ptp(work) > 0 else 0.0
        slope = max(slope, 1e-6)  # noise can tilt the line the wrong way where products hardly matter
        start = float(np.mean(spent) - slope * np.mean(work))
        self.calibration = {"a": start, "b": slope, "timed_settings": float(len(work))}
        return (self.limit - start) / slope

    def _meets(self, point: Point) -> bool:
        return self._distance(point) <= 0

    def _distance(self, point: Point) -> float:
        """How far a point is from the request; not above 0 where it meets it."""
        if self.mode == "recall":
            return self.limit - point.recall
        return _value(point, self.mode) - self.limit

    def _order(self, point: Point) -> tuple[float, ...]:
        precision = -float(np.mean(point.precision))
        return (point.products, precision) if self.mode == "recall" else (precision, point.products)

    def _nearest(self, scouts: list[Scout]) -> Point:
        """Of all that was looked at, the point that comes closest to a request that nothing meets."""
        options = []
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
            options.append(point)
        return min(options, key=self._distance)

    def _refusal(self, nearest: Point) -> str:
        return (
            f"no setting has {bound(self.mode)} {self.limit:g} {UNITS[self.mode]}: the nearest has "
            f"{_value(nearest, self.mode):.4g} ({nearest.describe()})"
        )


def _tightest(plan: Plan) -> set[float]:
    """The smallest lambda of each route."""
    return {min(lam for other, lam in plan.pairs if other == route) for route, _ in plan.pairs}


def _value(point: Point, mode: str) -> float:
    value = getattr(point, mode)
    return float("inf") if value is None else float(value)
