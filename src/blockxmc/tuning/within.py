"""The best model within limits, whatever its weights: per-block or global, shared, or no blocks at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from blockxmc.linear.scorers import pack_scorer
from blockxmc.model.routed import RoutedModel
from blockxmc.training.trials.split import measure_model, single_call_us
from blockxmc.tuning.budget import MODES, ROUTES, tune_budget
from blockxmc.tuning.knobs import KnobGrid, KnobsResult, tune_knobs
from blockxmc.tuning.limits import UNITS, Limits, NoSettingError, excess, in_words
from blockxmc.tuning.problem import Problem, TrialOptions
from blockxmc.tuning.result import BudgetResult, points_text

# Ways to train, by the names of results.
APART, SHARED, FULL = "per-block or global weights", "shared weights", "no blocks"


@dataclass(frozen=True)
class WholeBase:
    """The base without blocks: it scores every label. Precisions are in points (0..100); empty: it was not trained."""

    precision: tuple[float, ...]
    products: float
    recall: float
    latency_us: float | None = None
    size_mb: float | None = None

    def describe(self) -> str:
        """The setting in words."""
        return "all labels scored"


@dataclass(frozen=True)
class WithinResult:
    """What each way of training reaches within the limits, and the way that was chosen."""

    limits: dict[str, float]
    way: str  # the chosen one
    apart: BudgetResult | None
    shared: KnobsResult | None
    full: WholeBase | None
    refused: dict[str, str]  # why a way was not chosen from: the nearest it has
    ks: tuple[int, ...]
    setting: dict[str, Any]

    @property
    def chosen(self) -> Any:
        """The chosen setting."""
        return _settings(self.apart, self.shared, self.full)[self.way]

    def explain(self) -> str:
        """What was chosen and why, in a few sentences."""
        chosen, rule = self.chosen, "the fewest products" if set(self.limits) == {"recall"} else "the best precision"
        text = (
            f"Asked for {in_words(self.limits)}: {self.way} has {rule} on held-out rows ({chosen.describe()}), "
            f"{points_text(chosen.precision)} with {chosen.products:.1f} products per row and candidate recall "
            f"{chosen.recall:.3f}."
        )
        for way, other in _settings(self.apart, self.shared, self.full).items():
            if way != self.way:
                precision = f"{points_text(other.precision)} with " if other.precision else ""
                text += f" {way.capitalize()}: {precision}{other.products:.1f} products ({other.describe()})."
        for way, reason in self.refused.items():
            text += f" {way.capitalize()}: {reason}."
        return text

    def to_dict(self) -> dict[str, Any]:
        """JSON values only."""
        return asdict(self)


def tune_within(
    X: Any,
    Y: Any,
    base: Any = None,
    *,
    limits: Limits,
    grid: KnobGrid | None = None,
    routes: Sequence[int] = ROUTES,
    n_blocks: int | str = "auto",
    options: TrialOptions | None = None,
) -> WithinResult:
    """Search per-block, global and shared weights, and the base without blocks; the best that keeps to the limits wins.

    With a recall alone that is the fewest products, else the best mean P@k on held-out rows. Per-block and global weights
    are searched within a single limit of products, microseconds or recall (:func:`tune_budget`), shared weights within
    any (:func:`tune_knobs`) where the base is one-vs-all. Where no way keeps to the limits, BlockXMCError has the nearest
    of each.

    >>> from blockxmc import NaiveBayes
    >>> from blockxmc.data import make_synthetic
    >>> train, _ = make_synthetic(n_train=300, n_test=10, n_features=60, n_labels=12, seed=0)
    >>> tune_within(train.X, train.Y, NaiveBayes(), limits=Limits(products=9), n_blocks=2).chosen.products <= 9
    True
    """
    options = options or TrialOptions()
    problem = Problem.of(X, Y, base, options)
    refused: dict[str, str] = {}

    def tried(way: str, run: Callable[[], Any]) -> Any:
        try:
            return run()
        except NoSettingError as error:
            refused[way] = str(error).partition(": ")[2]
            return None

    what: dict[str, Any] = {"limits": limits, "n_blocks": n_blocks}
    apart = shared = None
    if len(limits.given) == 1 and set(limits.given) <= set(MODES):
        apart = tried(APART, lambda: tune_budget(X, Y, base, routes=routes, options=options, **what))
    if problem.base.one_vs_all:
        plain = replace(options, work=None)
        shared = tried(SHARED, lambda: tune_knobs(X, Y, base, grid=grid, options=plain, **what))
    full = tried(FULL, lambda: _full(problem, limits.given, has_others=bool(apart or shared)))
    found = _settings(apart, shared, full)
    if not found:
        nearest = "; ".join(f"{way}: {reason}" for way, reason in refused.items())
        raise NoSettingError(f"no setting has {in_words(limits.given)}: {nearest}")
    way = min(found, key=lambda name: _order(found[name], limits.given))
    setting = problem.describe() | {"held_out_rows": problem.n_rows // 5}
    return WithinResult(limits.given, way, apart, shared, full, refused, problem.task.ks, setting)


def _settings(apart: BudgetResult | None, shared: KnobsResult | None, full: WholeBase | None) -> dict[str, Any]:
    """The chosen setting of each way that has one."""
    found = {APART: apart and apart.chosen, SHARED: shared and shared.chosen, FULL: full}
    return {way: setting for way, setting in found.items() if setting is not None}


def _order(setting: Any, limits: dict[str, float]) -> tuple[float, float]:
    precision = -float(np.mean(setting.precision)) if setting.precision else 0.0
    return (setting.products, precision) if set(limits) == {"recall"} else (precision, setting.products)


def _full(problem: Problem, limits: dict[str, float], *, has_others: bool) -> WholeBase:
    """The base without blocks. It is trained only where it can be the answer."""
    n_labels = float(problem.Y.shape[1])
    whole = WholeBase((), n_labels, 1.0)
    known = {name: limit for name, limit in limits.items() if name in ("products", "recall")}
    _check(whole, known)
    if has_others and set(limits) == {"recall"}:  # others with enough recall have fewer products
        return whole
    split = problem.split()
    scorer = pack_scorer(
        [split.full], [np.arange(split.Y.shape[1])], n_features=split.X.shape[1], n_labels=split.Y.shape[1]
    )
    model = RoutedModel(None, scorer, 1)
    found = measure_model(split, model)
    size, latency = model.nbytes / 1e6, single_call_us(split, model)
    whole = WholeBase(tuple(found["precision"]), n_labels, 1.0, latency, size)
    _check(whole, limits)
    return whole


def _check(whole: WholeBase, limits: dict[str, float]) -> None:
    beyond = [name for name, limit in limits.items() if excess(whole, name, limit) > 0]
    if beyond:
        has = ", ".join(f"{getattr(whole, name):.4g} {UNITS[name]}" for name in beyond)
        raise NoSettingError(f"no setting: the nearest has {has} ({whole.describe()})")
