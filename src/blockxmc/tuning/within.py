"""The best model within limits, whatever its weights: per-block, global or shared, or no blocks at all."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

from blockxmc.classifier import BlockwiseClassifier, lean_dismec
from blockxmc.errors import BlockXMCError
from blockxmc.learners._learner import Learner
from blockxmc.linear.packed import PackedScorer
from blockxmc.linear.packing import BITS
from blockxmc.model.routed import RoutedModel
from blockxmc.training.blocks import visiting
from blockxmc.training.trials.split import Pair, Split
from blockxmc.tuning.limits import UNITS, Limits, NoSettingError, excess, in_words
from blockxmc.tuning.problem import TOLERANCE, Problem, TrialOptions
from blockxmc.tuning.reach import within_reach
from blockxmc.tuning.result import FULL, Point, points_text

# Routes to try with shared weights: numbers of blocks, and shares of the router's probability. docs/results/ablation.md
# compares 2, 4, 8, 0.5, 0.7 and 0.9; 1 is not measured. With per-block and global weights: numbers of blocks.
ROUTES, WHOLE_ROUTES = (1, 2, 4, 0.5, 0.7), (1, 2, 4, 8)
WEIGHTS = ("auto", "shared", "per-block", "global")


@dataclass(frozen=True)
class KnobGrid:
    """Settings to try: every combination of these. None: what the classifier takes by itself.

    - ``weights``: "per-block", "global", "shared", or "auto" for all of them and for the base without blocks;
    - ``routes``: numbers of visited blocks, and shares of the router's probability below 1;
    - ``prunes``: levels of pruning of shared weights; each trains the labels again;
    - ``weight_bits``: bits of a weight, 8, 16 or 32;
    - ``n_neighbors``: numbers of neighbors, 0 for none.

    >>> KnobGrid(routes=[4, 0.5, 1, 1]).sorted_routes
    [1, 4, 0.5]
    """

    weights: str = "auto"
    routes: Sequence[float] | None = None
    prunes: Sequence[float] | None = None
    weight_bits: Sequence[int] | None = None
    n_neighbors: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.weights not in WEIGHTS:
            raise BlockXMCError(f"weights must be {', '.join(WEIGHTS[:-1])} or {WEIGHTS[-1]}, got {self.weights!r}")
        if self.weight_bits is not None and not (self.weight_bits and set(self.weight_bits) <= set(BITS)):
            raise BlockXMCError(
                f"weight_bits must be some of {', '.join(map(str, BITS))}, got {list(self.weight_bits)}"
            )
        if not self.sorted_routes or not all(map(_is_route, self.sorted_routes)):
            raise BlockXMCError(
                f"routes must be numbers of blocks, or shares between 0 and 1, got {self.sorted_routes}"
            )

    @property
    def sorted_routes(self) -> list[float]:
        """Each route once: numbers of blocks, then shares."""
        return sorted(set(ROUTES if self.routes is None else self.routes), key=lambda route: (route < 1, route))

    def settings(self, base: Learner) -> list[tuple[Any, Any, Any]]:
        """Pruning, bits and neighbors of every model to train."""
        if self.prunes is not None and not hasattr(base, "prune"):
            raise BlockXMCError(f"{type(base).__name__} has no parameter prune: leave the levels out")
        levels = None if self.prunes is None else sorted({float(level) for level in self.prunes})
        if levels is not None and not (levels and levels[0] >= 0):
            raise BlockXMCError(f"levels of pruning must be numbers of at least 0, got {levels}")
        nothing: list[None] = [None]
        return list(product(levels or nothing, self.weight_bits or nothing, self.n_neighbors or nothing))


def _is_route(route: float) -> bool:
    return 0 < route < 1 or (route >= 1 and float(route).is_integer())


@dataclass(frozen=True)
class WithinResult:
    """Every setting that was measured, and the chosen one."""

    limits: dict[str, float]
    tolerance: float  # of the mean precision, where there are no limits
    chosen: Point
    points: tuple[Point, ...]
    ks: tuple[int, ...]
    n_labels: int
    setting: dict[str, Any]

    def explain(self) -> str:
        """What was chosen and why, in a few sentences."""
        best, point = max(self.points, key=_precise), self.chosen
        if self.limits:
            rule = "the fewest products" if set(self.limits) == {"recall"} else "the best held-out precision"
            first = f"Asked for {in_words(self.limits)}: {point.describe()} has {rule} of the settings that keep to it"
        else:
            first = f"The fewest products within {self.tolerance:g} points of {best.describe()}: {point.describe()}"
        us = "" if point.latency_us is None else f", {point.latency_us:.1f} µs"
        size = "" if point.size_mb is None else f" and {point.size_mb:.1f} MB"
        return (
            f"{first}, {points_text(point.precision)} with {point.products:.1f} products per row{us}{size}; candidate "
            f"recall {point.recall:.3f}. The most precise of {len(self.points)} settings: {best.describe()}, "
            f"{points_text(best.precision)}, {best.products:.1f} products."
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON values only."""
        return asdict(self)


def tune_within(
    X: Any,
    Y: Any,
    base: Any = None,
    *,
    limits: Limits | None = None,
    tolerance: float = TOLERANCE,
    grid: KnobGrid | None = None,
    n_blocks: int | str = "auto",
    options: TrialOptions | None = None,
) -> WithinResult:
    """Measure settings on a fifth of the rows, and take the best that keeps to the limits.

    The best has the highest mean P@k; with a recall alone, the fewest products; without limits, the fewest products
    within ``tolerance`` points of the best. ``grid`` says what is compared: without it per-block, global and shared
    weights (one-vs-all bases) and the base without blocks. Limits that nothing keeps to raise BlockXMCError with the
    nearest setting. ``options`` has what all tuners share, see :class:`TrialOptions`.

    >>> from blockxmc import NaiveBayes
    >>> from blockxmc.data import make_synthetic
    >>> train, _ = make_synthetic(n_train=300, n_test=10, n_features=60, n_labels=12, seed=0)
    >>> tune_within(train.X, train.Y, NaiveBayes(), limits=Limits(products=9), n_blocks=2).chosen.products <= 9
    True
    """
    limits, grid, options = limits or Limits(), grid or KnobGrid(), options or TrialOptions()
    weights = grid.weights
    if options.work is not None:
        raise BlockXMCError("a search within limits keeps no finished work: leave work out of the options")
    shared = weights == "shared" or (weights == "auto" and Problem.of(X, Y, base, options).base.one_vs_all)
    problem = Problem.of(X, Y, lean_dismec() if base is None and weights == "shared" else base, options)
    split, points = problem.split(), []
    if weights != "shared":
        kinds = ["per-block", "global"] if weights == "auto" else [weights]
        asked = WHOLE_ROUTES if grid.routes is None else [route for route in grid.sorted_routes if route >= 1] or [1]
        points += list(_apart(problem, split, limits, kinds, [int(route) for route in asked], n_blocks))
    if shared:
        own = lean_dismec() if base is None else problem.task.learner
        points += list(_shared(problem, own, split, grid, n_blocks))
    if weights == "auto":
        whole = Point(1, None, (), (), 0.0, float(split.Y.shape[1]), 1.0, weights=FULL, route=1)
        points.append(_measured(split, split.base_model(), whole))
    chosen = _choose(points, limits.given, tolerance)
    setting = problem.describe() | {"held_out_rows": int(split.X_held_out.shape[0])}
    how = limits.given, float(tolerance), chosen, tuple(points), problem.task.ks, int(problem.Y.shape[1])
    result = WithinResult(*how, setting)
    problem.reporter.say(result.explain())
    return result


def _apart(
    problem: Problem, split: Split, limits: Limits, kinds: list[str], routes: list[int], n_blocks: int | str
) -> Iterator[Point]:
    """Per-block and global weights at the pairs that may be best within the limits."""
    scale = problem.n_rows / split.X.shape[0]
    pairs = within_reach(problem, split, limits, routes, n_blocks)
    with problem.reporter.phase("train settings", len(pairs) * len(kinds)) as phase:
        for done, ((pair, route), kind) in enumerate(product(pairs, kinds)):
            began = time.perf_counter()
            model = split.served(pair, kind, route)
            if done == 0:
                left = len(pairs) * len(kinds) - 1
                problem.say_how_long(time.perf_counter() - began, left, left)
            if model is not None:
                full = Pair(pair.n_blocks, tuple(lam * scale for lam in pair.steps), pair.lam * scale)
                point = Point(full.n_blocks, full.lam, full.steps, (), 0.0, 0.0, 0.0, weights=kind, route=route)
                yield _measured(split, model, point)
            phase.update(done + 1)


def _shared(problem: Problem, base: Learner, split: Split, grid: KnobGrid, n_blocks: int | str) -> Iterator[Point]:
    """Shared weights with every combination of knobs; routes are served from one training."""
    options = problem.options
    settings = grid.settings(base)
    for done, (level, bits, neighbors) in enumerate(settings):
        learner = base if level is None else base.set_params(prune=level)
        knobs = {"weight_bits": bits, "n_neighbors": neighbors}
        given: Any = {name: value for name, value in knobs.items() if value is not None}
        common: Any = {"n_jobs": options.n_jobs, "random_state": options.random_state, "verbose": options.verbose}
        model = BlockwiseClassifier(learner, options.partitioner, n_blocks, weights="shared", **given, **common)
        began = time.perf_counter()
        model.fit(split.X, split.Y)
        if done == 0:
            left = len(settings) - 1
            problem.say_how_long(time.perf_counter() - began, left, left)
        fitted: Any = model.model_
        q, linear = model.partition_.n_blocks_, isinstance(fitted.scorer, PackedScorer)
        for route in grid.sorted_routes:
            if route <= q and (route >= 1 or linear):
                most, top_p = visiting(route)
                served = replace(fitted, route=min(most, q), top_p=top_p)
                started = int(model.partition_.choice_["n_blocks"]["start"])
                point = Point(started, None, (), (), 0.0, 0.0, 0.0, weights="shared", route=route, prune=level)
                yield _measured(split, served, replace(point, **knobs))


def _measured(split: Split, model: RoutedModel, point: Point) -> Point:
    """The point with what held-out rows and the clock say of its model."""
    found, X = split.measured(model), split.X_held_out
    start = time.process_time()
    model.topk(X, max(split.task.ks), 1)
    found["batch_us"] = (time.process_time() - start) / max(X.shape[0], 1) * 1e6
    found["precision"] = tuple(found["precision"])
    return replace(point, **found, latency_us=split.single_call_us(model), size_mb=model.nbytes / 1e6)


def _precise(point: Point) -> tuple[float, float]:
    return point.mean, -point.products


def _choose(points: Sequence[Point], limits: dict[str, float], tolerance: float) -> Point:
    within = [point for point in points if all(excess(point, *limit) <= 0 for limit in limits.items())]
    if not within:
        nearest = min(points, key=lambda point: max(excess(point, *limit) for limit in limits.items()))
        has = ", ".join(f"{getattr(nearest, name):.4g} {UNITS[name]}" for name in limits)
        raise NoSettingError(f"no setting has {in_words(limits)}: the nearest has {has} ({nearest.describe()})")
    if not limits:
        enough = max(within, key=_precise).mean - tolerance
        within = [point for point in within if point.mean >= enough]
    if set(limits) <= {"recall"}:
        return min(within, key=lambda point: (point.products, -point.mean))
    return max(within, key=_precise)
