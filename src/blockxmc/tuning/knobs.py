"""The knobs of a model with shared weights: visited blocks, pruning, bits and neighbors against precision, time and size.

Labels are trained once. The other settings are made from these weights, so a whole table costs little more than one
model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from blockxmc._core.progress import Phase
from blockxmc.errors import BlockXMCError
from blockxmc.learners._learner import Context, Learner
from blockxmc.learners.dismec import DiSMEC
from blockxmc.linear.one_vs_all import typical_length, unit_prune
from blockxmc.linear.packed import PackedScorer
from blockxmc.linear.packing import BITS
from blockxmc.linear.weights import F32, LinearWeights
from blockxmc.model.routed import RoutedModel
from blockxmc.training.blocks import visiting
from blockxmc.training.settings import SETTINGS
from blockxmc.training.trials.split import Split, measure_model, single_call_us
from blockxmc.tuning.limits import UNITS, Limits, NoSettingError, excess, in_words
from blockxmc.tuning.problem import TOLERANCE, Problem, TrialOptions
from blockxmc.tuning.result import points_text

# Routes to try: numbers of blocks, and shares of the router's probability. docs/results/ablation.md compares 2, 4, 8, 0.5,
# 0.7 and 0.9; 1 is not measured.
ROUTES = (1, 2, 4, 0.5, 0.7)
# Levels of pruning to try. docs/results/ablation.md compares 0.05, 0.1 and 0.2; 0.01 is not measured.
PRUNES = (0.01, 0.05, 0.1, 0.2)
# Bits of a weight where the user asks for none. docs/results/ablation.md compares 8, 16 and 32.
USUAL_BITS = 16


@dataclass(frozen=True)
class KnobGrid:
    """The settings to try: every combination of these.

    - ``routes``: numbers of visited blocks, and shares of the router's probability below 1;
    - ``prunes``: levels of pruning (None: 0.01, 0.05, 0.1 and 0.2 where the base can prune);
    - ``weight_bits``: bits of a weight, 8, 16 or 32;
    - ``n_neighbors``: numbers of neighbors, 0 for none (None: what the classifier takes by itself).

    >>> KnobGrid(routes=[4, 0.5, 1, 1]).sorted_routes
    [1, 4, 0.5]
    """

    routes: Sequence[float] = ROUTES
    prunes: Sequence[float] | None = None
    weight_bits: Sequence[int] = (USUAL_BITS,)
    n_neighbors: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if not self.weight_bits or not set(self.weight_bits) <= set(BITS):
            raise BlockXMCError(
                f"weight_bits must be some of {', '.join(map(str, BITS))}, got {list(self.weight_bits)}"
            )
        if not self.routes or not all(map(_is_route, self.routes)):
            raise BlockXMCError(f"routes must be numbers of blocks, or shares between 0 and 1, got {list(self.routes)}")

    @property
    def sorted_routes(self) -> list[float]:
        """Each route once: numbers of blocks, then shares."""
        return sorted(set(self.routes), key=lambda route: (route < 1, route))

    def models(self, base: Learner) -> list[tuple[float | None, int, int | str]]:
        """Pruning, bits and neighbors of every model to make, weakest pruning first."""
        neighbors = ["auto"] if self.n_neighbors is None else sorted(set(self.n_neighbors))
        return list(product(self._levels(base), sorted(set(self.weight_bits)), neighbors))

    def _levels(self, base: Learner) -> list[float | None]:
        if not hasattr(base, "prune"):
            if self.prunes is not None:
                raise BlockXMCError(f"{type(base).__name__} has no parameter prune: leave the levels out")
            return [None]
        levels = sorted({float(level) for level in (PRUNES if self.prunes is None else self.prunes)})
        if not levels or levels[0] < 0:
            raise BlockXMCError(f"levels of pruning must be numbers of at least 0, got {levels}")
        return list(levels)


def _is_route(route: float) -> bool:
    return 0 < route < 1 or (route >= 1 and float(route).is_integer())


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
    weight_bits: int = USUAL_BITS
    n_neighbors: int = 0  # 0 also where held-out rows spoke against neighbors

    def describe(self) -> str:
        """The setting in words."""
        pruned = "" if self.prune is None else f", pruned at {self.prune:g}"
        bits = "" if self.weight_bits == USUAL_BITS else f", weights of {self.weight_bits} bits"
        asked = f", {self.n_neighbors} neighbors" if self.n_neighbors else ""
        return f"route {self.route}{pruned}{bits}{asked}"


@dataclass(frozen=True)
class KnobsResult:
    """The table of settings, and the chosen one."""

    settings: tuple[Knobs, ...]
    chosen: Knobs
    limits: dict[str, float]
    tolerance: float
    ks: tuple[int, ...]
    n_blocks: int  # at the start: some may have died
    negative_blocks: int  # a row is a negative in so many of the blocks it is routed to
    setting: dict[str, Any]

    def explain(self) -> str:
        """What was chosen and why, in a few sentences."""
        best, chosen = _best(self.settings), self.chosen
        if self.limits:
            rule = "the fewest products" if set(self.limits) == {"recall"} else "the best held-out precision"
            first = f"Asked for {in_words(self.limits)}: {chosen.describe()} has {rule} of the settings that keep to it"
        else:
            first = f"The fewest products within {self.tolerance:g} points of {best.describe()}: {chosen.describe()}"
        return (
            f"{first}, {points_text(chosen.precision)} with {chosen.products:.0f} products, {chosen.latency_us:.1f} µs and "
            f"{chosen.size_mb:.1f} MB (most precise: {best.describe()}, {points_text(best.precision)}, "
            f"{best.latency_us:.1f} µs, {best.size_mb:.1f} MB). Labels were trained once ({self.n_blocks} blocks; a row is "
            f"a negative in the first {self.negative_blocks} blocks it is routed to) and served each way."
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON values only."""
        return asdict(self)


def tune_knobs(
    X: Any,
    Y: Any,
    base: Any = None,
    *,
    limits: Limits | None = None,
    tolerance: float = TOLERANCE,
    grid: KnobGrid | None = None,
    n_blocks: int | str = "auto",
    options: TrialOptions | None = None,
) -> KnobsResult:
    """Precision, latency and size of the shared-weights model at every setting of the grid.

    Of the settings that keep to all limits the best mean P@k on held-out rows (a fifth) is chosen; with a recall alone
    the fewest products; without limits the fewest products within ``tolerance`` points of the best precision.
    ``options`` has what all tuners share, see :class:`TrialOptions`. Limits that no setting keeps to raise BlockXMCError
    with the nearest setting.

    >>> from blockxmc.data import make_synthetic
    >>> train, _ = make_synthetic(n_train=300, n_test=10, n_features=60, n_labels=12, seed=0)
    >>> result = tune_knobs(train.X, train.Y, grid=KnobGrid(routes=[1, 2], prunes=[0.1, 0.2]), n_blocks=4)
    >>> [(knobs.route, knobs.prune) for knobs in result.settings]
    [(1, 0.1), (2, 0.1), (1, 0.2), (2, 0.2)]
    """
    from blockxmc.classifier import BlockwiseClassifier, lean_dismec  # here, since the classifier imports trial models

    limits, grid, options = limits or Limits(), grid or KnobGrid(), options or TrialOptions()
    if options.work is not None:
        raise BlockXMCError("tune_knobs keeps no finished work: leave work out of the options")
    problem = Problem.of(X, Y, lean_dismec() if base is None else base, options)
    model = BlockwiseClassifier(
        None,
        options.partitioner,
        n_blocks,
        weights="shared",
        n_jobs=options.n_jobs,
        random_state=options.random_state,
        verbose=options.verbose,
    )
    split = problem.split()
    settings = tuple(_settings(model, problem.task.learner, split, grid))
    chosen = _choose(settings, limits.given, tolerance)
    setting = problem.describe() | {"weights": "shared", "held_out_rows": split.X_held_out.shape[0]}
    counts = (
        int(model.partition_.choice_["n_blocks"]["start"]),
        min(SETTINGS.negative_blocks, model.partition_.n_blocks_),
    )
    result = KnobsResult(settings, chosen, limits.given, float(tolerance), problem.task.ks, *counts, setting)
    problem.reporter.say(result.explain())
    return result


def _settings(classifier: Any, base: Learner, split: Split, grid: KnobGrid) -> Iterator[Knobs]:
    """Every setting, measured on the held-out rows."""
    models = grid.models(base)
    weakest = models[0][0]
    if weakest is not None:
        base = base.set_params(prune=weakest)
    trainings = Trainings()
    for level, bits, neighbors in models:
        trainings.rewind()
        classifier.set_params(base=Remembered(base, level, trainings), weight_bits=bits, n_neighbors=neighbors)
        classifier.fit(split.X, split.Y)
        n_blocks, linear = classifier.partition_.n_blocks_, isinstance(classifier.model_.scorer, PackedScorer)
        for route in grid.sorted_routes:
            if route <= n_blocks and (route >= 1 or linear):
                most, top_p = visiting(route)
                model = replace(classifier.model_, route=min(most, n_blocks), top_p=top_p)
                yield _measured(split, model, route=route, prune=level, weight_bits=bits)


def _measured(split: Split, model: RoutedModel, **setting: Any) -> Knobs:
    found, X = measure_model(split, model), split.X_held_out
    start = time.process_time()
    model.topk(X, max(split.task.ks), 1)
    batch = (time.process_time() - start) / max(X.shape[0], 1) * 1e6
    return Knobs(
        **setting,
        n_neighbors=0 if model.neighbors is None else model.neighbors.count,
        precision=tuple(found["precision"]),
        **{name: found[name] for name in ("candidates", "products", "recall")},
        batch_us=batch,
        latency_us=single_call_us(split, model),
        size_mb=model.nbytes / 1e6,
    )


class Trainings:
    """The weights of each training, in order: another fit of the same model asks for the same trainings."""

    def __init__(self) -> None:
        self._known: list[LinearWeights] = []
        self._next = 0

    def rewind(self) -> None:
        """Another fit begins."""
        self._next = 0

    def next(self, train: Callable[[], LinearWeights]) -> LinearWeights:
        """The weights of the next training, trained now if they are not known."""
        if self._next == len(self._known):
            self._known.append(train())
        self._next += 1
        return self._known[self._next - 1]

    def __deepcopy__(self, memo: dict[int, Any]) -> Trainings:
        return self  # a clone of the learner remembers the same trainings


class Remembered(Learner):
    """A one-vs-all learner that trains once; weights below ``prune`` are dropped from what it gives."""

    one_vs_all: ClassVar[bool] = True

    def __init__(self, base: Learner, prune: float | None, trainings: Trainings) -> None:
        self.base = base
        self.prune = prune
        self.trainings = trainings

    def _context(self, threads: int, phase: Phase, seed: int | None = None) -> Context:
        return self.base._context(threads, phase, seed)

    @property
    def _threshold(self) -> float:  # type: ignore[override]
        return self.base._threshold

    @property
    def takes_costs(self) -> bool:  # type: ignore[override]
        """Whether rows may count differently: as the base has it."""
        return self.base.takes_costs

    @property
    def takes_nearest(self) -> bool:  # type: ignore[override]
        """Whether labels with few positives may learn from the rows most like them: as the base has it."""
        return self.base.takes_nearest

    def _check_params(self) -> None:
        self.base._check_params()

    def _train(
        self,
        X: sparse.csr_array,
        Y: sparse.csr_array,
        job: Context,
        rows: sparse.csr_array | None = None,
        costs: F32 | None = None,
        nearest: tuple[int, int] | None = None,
    ) -> LinearWeights:
        base: Any = self.base
        options: dict[str, Any] = {} if costs is None else {"costs": costs}
        options |= {} if nearest is None else {"nearest": nearest}
        weights = self.trainings.next(lambda: base._train(X, Y, job, rows=rows, **options))
        if self.prune is None:
            return weights
        level, feature = self.prune, (base.bias or 0.0) if isinstance(base, DiSMEC) else 0.0  # others keep every bias
        if getattr(base, "unit_rows", False):
            level, feature = unit_prune(level, X), feature * typical_length(X)
        return pruned(weights, level, feature)


def pruned(weights: LinearWeights, level: float, feature: float) -> LinearWeights:
    """The weights without those of smaller magnitude, that of the constant ``feature``, which makes the bias, included.

    With a ``feature`` of 0 every bias stays.

    >>> weights = LinearWeights(sparse.csr_array(np.array([[0.1, 0.3]], np.float32)), np.array([0.5, 0.2], np.float32))
    >>> pruned(weights, 0.25, feature=1.0).scores(sparse.csr_array(np.ones((1, 1), np.float32))).tolist()
    [[0.5, 0.30000001192092896]]
    """
    coef = weights.coef.copy()
    coef.data[np.abs(coef.data) < np.float32(level)] = 0
    coef.eliminate_zeros()
    return replace(
        weights, coef=coef, bias=np.where(np.abs(weights.bias) < np.float32(level * feature), 0, weights.bias)
    )


def _choose(settings: Sequence[Knobs], limits: dict[str, float], tolerance: float) -> Knobs:
    within = [knobs for knobs in settings if all(excess(knobs, *limit) <= 0 for limit in limits.items())]
    if not within:
        nearest = min(settings, key=lambda knobs: max(excess(knobs, *limit) for limit in limits.items()))
        has = ", ".join(f"{getattr(nearest, name):.4g} {UNITS[name]}" for name in limits)
        raise NoSettingError(f"no setting has {in_words(limits)}: the nearest has {has} ({nearest.describe()})")
    if not limits:
        enough = float(np.mean(_best(settings).precision)) - tolerance
        within = [knobs for knobs in within if float(np.mean(knobs.precision)) >= enough]
    if set(limits) <= {"recall"}:
        return min(within, key=lambda knobs: (knobs.products, -float(np.mean(knobs.precision)), knobs.size_mb))
    return _best(within)


def _best(settings: Sequence[Knobs]) -> Knobs:
    return max(settings, key=lambda knobs: (float(np.mean(knobs.precision)), -knobs.products, -knobs.size_mb))
