"""The knobs of a model with shared weights: visited blocks, pruning, bits and neighbors against precision, time and size.

Labels are trained once. Visiting another number of blocks is a matter of serving, and pruning harder one of dropping
weights, so that a whole table of settings costs little more than one model. Another knob is another line in ``_settings``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from blockxmc._core.progress import Phase
from blockxmc.errors import BlockXMCError
from blockxmc.learners._learner import Job, Learner
from blockxmc.linear.one_vs_all import typical_length
from blockxmc.linear.weights import LinearWeights
from blockxmc.metrics.timing import _single_calls
from blockxmc.partition import Partitioner
from blockxmc.serving.packed import PackedScorer
from blockxmc.serving.packing import BITS
from blockxmc.serving.routed import RoutedModel
from blockxmc.training.shared.blocks import visiting
from blockxmc.training.shared.settings import SETTINGS
from blockxmc.training.trials.grid import one_split
from blockxmc.training.trials.split import Split, measure_blocks
from blockxmc.tuning.limits import UNITS, NoSettingError, bound, checked_limits
from blockxmc.tuning.protocol import Problem

ROUTES = (1, 2, 4, 0.5, 0.7)
PRUNES = (0.01, 0.05, 0.1, 0.2)


@dataclass(frozen=True)
class Knobs:
    """One setting and what held-out rows say about it. Precisions are in points (0..100)."""

    route: float  # blocks to visit, or below 1 the share of the router's probability to reach
    prune: float | None  # None: the base has no such parameter
    precision: tuple[float, ...]  # one for each k
    candidates: float
    products: float
    recall: float
    batch_us: float  # per row of a batch, CPU time of one thread
    latency_us: float  # a single call, median
    size_mb: float  # router, weights and neighbors
    weight_bits: int = 16
    n_neighbors: int = 0  # 0 also where they were found to mislead

    def describe(self) -> str:
        """The setting in words."""
        pruned = "" if self.prune is None else f", pruned at {self.prune:g}"
        bits = "" if self.weight_bits == 16 else f", weights of {self.weight_bits} bits"
        asked = f", {self.n_neighbors} neighbors" if self.n_neighbors else ""
        return f"route {self.route}{pruned}{bits}{asked}"


@dataclass(frozen=True)
class KnobsResult:
    """The table of settings, and the one that the request picks."""

    settings: tuple[Knobs, ...]
    chosen: Knobs
    limits: dict[str, float]
    tolerance: float
    ks: tuple[int, ...]
    n_blocks: int
    taught_blocks: int
    setting: dict[str, Any]

    def explain(self) -> str:
        """What was chosen and why, in a few sentences."""
        best, chosen = _best(self.settings), self.chosen
        if self.limits:
            asked = " and ".join(f"{bound(name)} {limit:g} {UNITS[name]}" for name, limit in self.limits.items())
            rule = "the fewest products" if set(self.limits) == {"recall"} else "the best held-out precision"
            first = f"Asked for {asked}: {chosen.describe()} has {rule} of what keeps to it"
        else:
            first = f"The fewest products within {self.tolerance:g} points of {best.describe()}: {chosen.describe()}"
        return (
            f"{first}, {_points(chosen)} with {chosen.products:.0f} products, {chosen.latency_us:.1f} µs and "
            f"{chosen.size_mb:.1f} MB (most precise: {best.describe()}, {_points(best)}, {best.latency_us:.1f} µs, "
            f"{best.size_mb:.1f} MB). Labels were trained once (blocks: {self.n_blocks}, of which rows "
            f"teach the first {self.taught_blocks} that they are routed to) and served each way."
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON values only."""
        return asdict(self)


def tune_knobs(
    X: Any,
    Y: Any,
    base: Any = None,
    *,
    products: float | None = None,
    latency_us: float | None = None,
    size_mb: float | None = None,
    recall: float | None = None,
    tolerance: float = 2.0,
    routes: Sequence[float] = ROUTES,
    prunes: Sequence[float] | None = None,
    weight_bits: Sequence[int] = (16,),
    n_neighbors: Sequence[int] | None = None,
    n_blocks: int | str = "auto",
    partitioner: Partitioner | None = None,
    random_state: int | None = 0,
    n_jobs: int | None = None,
    verbose: int = 0,
    max_rows: int = 20000,
) -> KnobsResult:
    """Precision, latency and size of the shared-weights model at every route, pruning, precision and neighbourhood.

    Of the settings that keep to all given limits the best mean P@k on held-out rows (a fifth, at most ``max_rows``) is
    chosen; with a recall alone the fewest products; without limits the fewest products within ``tolerance`` points of
    the best precision. A request that nothing meets raises BlockXMCError with the nearest setting.

    >>> from blockxmc.data import make_synthetic
    >>> train, _ = make_synthetic(n_train=300, n_test=10, n_features=60, n_labels=12, seed=0)
    >>> result = tune_knobs(train.X, train.Y, n_blocks=4, routes=[1, 2], prunes=[0.1, 0.2], n_jobs=1)
    >>> [(knobs.route, knobs.prune) for knobs in result.settings]
    [(1, 0.1), (2, 0.1), (1, 0.2), (2, 0.2)]
    """
    from blockxmc.classifier import BlockwiseClassifier, lean_dismec  # here, since the model asks tuning for its lambda

    if not weight_bits or not set(weight_bits) <= set(BITS):
        raise BlockXMCError(f"weight_bits must be some of {', '.join(map(str, BITS))}, got {list(weight_bits)}")
    limits = checked_limits({"products": products, "latency_us": latency_us, "size_mb": size_mb, "recall": recall})
    if not routes or not all(0 < route < 1 or (route >= 1 and float(route).is_integer()) for route in routes):
        raise BlockXMCError(f"routes must be numbers of blocks, or shares between 0 and 1, got {list(routes)}")
    routes = sorted(set(routes), key=lambda route: (route < 1, route))
    problem = Problem.of(
        X, Y, lean_dismec() if base is None else base, (1, 3, 5), partitioner, random_state, n_jobs, verbose
    )
    split = Split(
        problem.task, problem.X, problem.Y, *one_split(problem.n_rows, max_rows, seed=problem.task.seed, sample=False)
    )
    model = BlockwiseClassifier(
        None,
        partitioner,
        n_blocks,
        weights="shared",
        n_jobs=n_jobs,
        random_state=random_state,
        verbose=verbose,
    )
    serving = sorted(set(weight_bits)), ["auto"] if n_neighbors is None else sorted(set(n_neighbors))
    settings = tuple(_settings(model, problem.base, split, routes, prunes, *serving))
    chosen = _choose(settings, limits, tolerance)
    setting = problem.describe() | {"weights": "shared", "held_out_rows": split.X_held_out.shape[0]}
    counts = model.partition_.n_blocks_, min(SETTINGS.negative_blocks, model.partition_.n_blocks_)
    result = KnobsResult(settings, chosen, limits, float(tolerance), problem.task.ks, *counts, setting)
    problem.reporter.say(result.explain())
    return result


def _settings(
    model: Any,
    base: Learner,
    split: Split,
    routes: Sequence[float],
    prunes: Sequence[float] | None,
    weight_bits: Sequence[int],
    n_neighbors: Sequence[int | str],
) -> Iterator[Knobs]:
    """Every setting measured on the held-out rows."""
    if not hasattr(base, "prune"):
        if prunes is not None:
            raise BlockXMCError(f"{type(base).__name__} has no parameter prune: leave the levels out")
        levels: list[Any] = [None]
    else:
        levels = sorted({float(level) for level in (PRUNES if prunes is None else prunes)})
        if not levels or levels[0] < 0:
            raise BlockXMCError(f"levels of pruning must be numbers of at least 0, got {levels}")
        base = base.set_params(prune=levels[0])
    trainings = Trainings()
    for level, bits, neighbors in product(levels, weight_bits, n_neighbors):
        trainings.rewind()
        model.set_params(base=Remembered(base, level, trainings), weight_bits=bits, n_neighbors=neighbors)
        model.fit(split.X, split.Y)
        n_blocks, linear = model.partition_.n_blocks_, isinstance(model.model_.scorer, PackedScorer)
        for route in routes:
            if route <= n_blocks and (route >= 1 or linear):
                most, mass = visiting(route)
                blocks = replace(model.model_, route=min(most, n_blocks), top_p=mass)
                yield _measured(split, blocks, route=route, prune=level, weight_bits=bits)


def _measured(split: Split, blocks: RoutedModel, **setting: Any) -> Knobs:
    found, X = measure_blocks(split, blocks), split.X_held_out
    start = time.process_time()
    blocks.topk(X, max(split.task.ks), 1)
    batch = (time.process_time() - start) / max(X.shape[0], 1) * 1e6
    return Knobs(
        **setting,
        n_neighbors=0 if blocks.neighbors is None else blocks.neighbors.count,
        precision=tuple(found["precision"]),
        **{name: found[name] for name in ("candidates", "products", "recall")},
        batch_us=batch,
        latency_us=_single_calls(SimpleNamespace(predict_one=blocks.one), X, max(split.task.ks))["one_us"],
        size_mb=blocks.nbytes / 1e6,
    )


class Trainings:
    """What a learner was asked to train and what came out, in order: a fit of the same model asks the same again."""

    def __init__(self) -> None:
        self._known: list[LinearWeights] = []
        self._next = 0

    def rewind(self) -> None:
        """Another fit begins."""
        self._next = 0

    def next(self, train: Callable[[], LinearWeights]) -> LinearWeights:
        """The weights of the next training, which is done if it never was."""
        if self._next == len(self._known):
            self._known.append(train())
        self._next += 1
        return self._known[self._next - 1]

    def __deepcopy__(self, memo: dict[int, Any]) -> Trainings:
        return self  # a clone of the learner remembers the same trainings


class Remembered(Learner):
    """A one-vs-all learner that trains once, and hands out its weights less those below ``prune``."""

    one_vs_all: ClassVar[bool] = True

    def __init__(self, base: Learner, prune: float | None, trainings: Trainings) -> None:
        self.base = base
        self.prune = prune
        self.trainings = trainings

    def _job(self, threads: int, phase: Phase, seed: int | None = None) -> Job:
        return self.base._job(threads, phase, seed)

    @property
    def _threshold(self) -> float:  # type: ignore[override]
        return self.base._threshold

    def _check_params(self) -> None:
        self.base._check_params()

    def _train(
        self, X: sparse.csr_array, Y: sparse.csr_array, job: Job, rows: sparse.csr_array | None = None
    ) -> LinearWeights:
        base: Any = self.base
        weights = self.trainings.next(lambda: base._train(X, Y, job, rows=rows))
        if self.prune is None:
            return weights
        return pruned(weights, self.prune / (typical_length(X) if getattr(base, "unit_rows", False) else 1.0))


def pruned(weights: LinearWeights, level: float) -> LinearWeights:
    """The weights less those of smaller magnitude, biases included.

    >>> weights = LinearWeights(sparse.csr_array(np.array([[0.1, 0.3]], np.float32)), np.array([0.5, 0.2], np.float32))
    >>> pruned(weights, 0.25).scores(sparse.csr_array(np.ones((1, 1), np.float32))).tolist()
    [[0.5, 0.30000001192092896]]
    """
    coef = weights.coef.copy()
    coef.data[np.abs(coef.data) < np.float32(level)] = 0
    coef.eliminate_zeros()
    return replace(weights, coef=coef, bias=np.where(np.abs(weights.bias) < np.float32(level), 0, weights.bias))


def _choose(settings: Sequence[Knobs], limits: dict[str, float], tolerance: float) -> Knobs:
    within = [knobs for knobs in settings if all(_excess(knobs, *limit) <= 0 for limit in limits.items())]
    if not within:
        nearest = min(settings, key=lambda knobs: max(_excess(knobs, *limit) for limit in limits.items()))
        asked = " and ".join(f"{bound(name)} {limit:g} {UNITS[name]}" for name, limit in limits.items())
        has = ", ".join(f"{getattr(nearest, name):.4g} {UNITS[name]}" for name in limits)
        raise NoSettingError(f"no setting has {asked}: the nearest has {has} ({nearest.describe()})")
    if not limits:
        enough = float(np.mean(_best(settings).precision)) - tolerance
        within = [knobs for knobs in within if float(np.mean(knobs.precision)) >= enough]
    if set(limits) <= {"recall"}:
        return min(within, key=lambda knobs: (knobs.products, -float(np.mean(knobs.precision)), knobs.size_mb))
    return _best(within)


def _excess(knobs: Knobs, name: str, limit: float) -> float:
    """How far a setting is beyond a limit, as a share of it; not above 0 where it keeps to it."""
    value = float(getattr(knobs, name))
    return ((limit - value) if name == "recall" else (value - limit)) / limit


def _best(settings: Sequence[Knobs]) -> Knobs:
    return max(settings, key=lambda knobs: (float(np.mean(knobs.precision)), -knobs.products, -knobs.size_mb))


def _points(knobs: Knobs) -> str:
    return "P " + "/".join(f"{value:.2f}" for value in knobs.precision)
