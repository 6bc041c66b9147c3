"""What tuning found: frozen records that go to JSON and back."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from blockxmc.training.trials.selection import select
from blockxmc.tuning.limits import in_words

F64 = NDArray[np.float64]
# Stands for 0 candidates where labels are divided by them.
NO_CANDIDATES = 1e-12


@dataclass(frozen=True)
class Point:
    """One setting and what held-out rows say about it. Precisions are in points (0..100), like the tolerance."""

    n_blocks: int
    lam: float  # for the full data
    lam_rel: float  # lam * n_blocks / rows: the same for any number of rows
    assigned_at: float  # the lam_rel at which rows were assigned to blocks
    weights: str
    route: int
    precision: tuple[float, ...]  # one for each k
    candidates: float
    products: float
    recall: float  # candidate recall
    latency_us: float | None = None  # a single call on this machine, where it was measured

    def describe(self) -> str:
        """The setting in words."""
        return f"{self.n_blocks} blocks, lam {self.lam:.4g}, {self.weights} weights, route {self.route}"

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The inverse of ``dataclasses.asdict``, also by way of JSON."""
        return cls(**(values | {"precision": tuple(values["precision"])}))


@dataclass(frozen=True)
class FoldRecord:
    """One fold: the base without blocks, and every lambda."""

    base: tuple[float, ...]  # P@k in points
    precision: tuple[tuple[float, ...], ...]  # lambdas x ks, in points
    candidates: tuple[float, ...]
    products: tuple[float, ...]
    recall: tuple[float, ...]  # candidate recall
    feasible: tuple[bool, ...]

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The inverse of ``dataclasses.asdict``, also by way of JSON."""
        lists = {name: tuple(value) for name, value in values.items()}
        return cls(**(lists | {"precision": tuple(tuple(row) for row in values["precision"])}))


@dataclass(frozen=True)
class Tried:
    """The lambdas that were tried (ascending), and what they share."""

    lams: F64  # in the scale of the full data
    lam_rel: F64  # lams * n_blocks / rows
    n_blocks: int
    n_labels: int
    ks: tuple[int, ...]

    def point(self, at: int, folds: list[dict[str, Any]], setting: dict[str, Any]) -> Point:
        """The lambda at this position, with means over the folds."""

        def mean(name: str) -> Any:
            return np.mean([fold[name][at] for fold in folds], axis=0)

        return Point(
            n_blocks=self.n_blocks,
            lam=float(self.lams[at]),
            lam_rel=float(self.lam_rel[at]),
            assigned_at=float(self.lam_rel[0]),
            weights=setting["weights"],
            route=setting["route"],
            precision=tuple(mean("precision").tolist()),
            **{name: float(mean(name)) for name in ("candidates", "products", "recall")},
        )


@dataclass(frozen=True)
class TuningResult:
    """The outcome of :func:`tune_lambda`. Precisions are in points (0..100), lambdas in the scale of the full data."""

    lams: tuple[float, ...]
    lam_rel: tuple[float, ...]  # lam * n_blocks / rows
    n_blocks: int
    n_labels: int
    ks: tuple[int, ...]
    tolerance: float
    folds: tuple[FoldRecord, ...]
    feasible: tuple[bool, ...]  # within the tolerance in every fold, for every k
    interval: tuple[float, float] | None  # from the smallest feasible lambda to the largest before a gap
    speed_driven: Point
    accuracy_driven: Point
    warning: str | None
    saving: dict[str, float]  # trainings and seconds, of this run and of a naive one
    setting: dict[str, Any]  # what was evaluated: base, assignment, weights, route, data
    notes: tuple[str, ...] = ()

    @classmethod
    def decide(
        cls,
        folds: list[dict[str, Any]],
        tried: Tried,
        *,
        tolerance: float,
        saving: dict[str, float],
        setting: dict[str, Any],
        notes: tuple[str, ...] = (),
    ) -> TuningResult:
        """Choose by the paper's protocol. A fold is a dict of base (ks), precision (lambdas x ks), candidates,
        products and recall (lambdas)."""
        chosen = select([fold["base"] for fold in folds], [fold["precision"] for fold in folds], tolerance)
        warning, interval = None, None
        if chosen.run is None:
            warning = (
                f"no lambda keeps every P@k within {tolerance:g} points of the base in all folds; the chosen lambda has "
                f"the smallest loss in the worst fold, {chosen.worst[chosen.speed]:.2f} points"
            )
        else:
            interval = float(tried.lams[chosen.run[0]]), float(tried.lams[chosen.run[1]])
        records = [
            FoldRecord.from_dict({**fold, "feasible": mask.tolist()})
            for fold, mask in zip(folds, chosen.by_fold, strict=True)
        ]
        return cls(
            lams=tuple(tried.lams.tolist()),
            lam_rel=tuple(tried.lam_rel.tolist()),
            n_blocks=tried.n_blocks,
            n_labels=tried.n_labels,
            ks=tried.ks,
            tolerance=tolerance,
            folds=tuple(records),
            feasible=tuple(chosen.feasible),
            interval=interval,
            speed_driven=tried.point(chosen.speed, folds, setting),
            accuracy_driven=tried.point(chosen.accuracy, folds, setting),
            warning=warning,
            saving=saving,
            setting=setting,
            notes=notes,
        )

    @property
    def base_precision(self) -> F64:
        """P@k of the base without blocks, mean over the folds."""
        return np.asarray(np.mean([fold.base for fold in self.folds], axis=0))

    @property
    def mean_precision(self) -> F64:
        """P@k at each lambda (lambdas x ks), mean over the folds."""
        return np.asarray(self._precision.mean(axis=0))

    @property
    def standard_error(self) -> F64:
        """Standard error of ``mean_precision`` over the folds; nan with a single fold."""
        n = len(self.folds)
        if n == 1:
            return np.full(self._precision.shape[1:], np.nan)
        return np.asarray(self._precision.std(axis=0, ddof=1) / n**0.5)

    @property
    def candidates(self) -> F64:
        """Labels scored per row at each lambda, mean over the folds."""
        return np.asarray(np.mean([fold.candidates for fold in self.folds], axis=0))

    @property
    def products(self) -> F64:
        """Vector products per row at each lambda, router included, mean over the folds."""
        return np.asarray(np.mean([fold.products for fold in self.folds], axis=0))

    @property
    def speedup(self) -> F64:
        """Labels over candidates at each lambda: the paper's speed-up."""
        return self.n_labels / np.maximum(self.candidates, NO_CANDIDATES)

    @property
    def _precision(self) -> F64:
        return np.array([fold.precision for fold in self.folds])

    def choice(self, name: Literal["speed", "accuracy"] | str) -> Point:
        """The speed-driven or the accuracy-driven choice."""
        return {"speed": self.speed_driven, "accuracy": self.accuracy_driven}[name]

    def explain(self) -> str:
        """What was chosen and why, in a few sentences."""
        where = f"in all {len(self.folds)} folds" if len(self.folds) > 1 else "on the held-out rows"
        if self.interval is None:
            first = f"Warning: {self.warning}."
        else:
            first = (
                f"lambda from {self.interval[0]:.4g} to {self.interval[1]:.4g} keeps {self._named_ks()} within "
                f"{self.tolerance:g} points of the base {where}."
            )
        second = (
            f"Speed-driven: lam {self.speed_driven.lam:.4g} with {self._described(self.speed_driven)}; "
            f"accuracy-driven: lam {self.accuracy_driven.lam:.4g} with {self._described(self.accuracy_driven)}; "
            f"the base has {points_text(self.base_precision)}."
        )
        saving = self.saving
        warm = f", {saving['warm_trainings']:.0f} of them warm" if saving["warm_trainings"] else ""
        third = (
            f"Evaluated: {self.setting['evaluated_base']}, {self.setting['assignment']}, {self.setting['weights']} "
            f"weights, {self.n_blocks} blocks, of which a row visits {self.setting['route']}; "
            f"{saving['trainings']:.0f} trainings{warm} ({saving['seconds']:.1f} s) "
            f"instead of {saving['naive_trainings']:.0f} (an estimated {saving['naive_seconds_estimate']:.1f} s)."
        )
        return " ".join([first, second, third])

    def _described(self, point: Point) -> str:
        return f"{points_text(point.precision)} at {point.candidates:.1f} of {self.n_labels:,} labels scored per row"

    def _named_ks(self) -> str:
        return ", ".join(f"P@{k}" for k in self.ks)

    def to_dict(self) -> dict[str, Any]:
        """JSON values only; see ``from_dict``."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TuningResult:
        """The inverse of ``to_dict``, also by way of JSON."""
        fields = dict(values)
        for name in ("lams", "lam_rel", "ks", "feasible", "notes"):
            fields[name] = tuple(fields[name])
        fields["folds"] = tuple(FoldRecord.from_dict(fold) for fold in fields["folds"])
        fields["interval"] = None if fields["interval"] is None else tuple(fields["interval"])
        for name in ("speed_driven", "accuracy_driven"):
            fields[name] = Point.from_dict(fields[name])
        return cls(**fields)


@dataclass(frozen=True)
class BudgetResult:
    """The outcome of :func:`tune_budget`. Precisions are in points (0..100)."""

    mode: str  # "products", "latency_us" or "recall"
    limit: float
    chosen: Point
    points: tuple[Point, ...]  # every setting whose base was trained
    ks: tuple[int, ...]
    n_labels: int
    calibration: dict[str, float] | None  # latency: microseconds = a + b * products on this machine
    trainings: int
    setting: dict[str, Any]
    notes: tuple[str, ...] = ()

    def choice(self, name: str) -> Point:
        """The chosen point: there is only one, for any name."""
        return self.chosen

    def explain(self) -> str:
        """What was chosen and why, in a few sentences."""
        point = self.chosen
        rule = "the fewest products" if self.mode == "recall" else "the best held-out precision"
        text = (
            f"Asked for {in_words({self.mode: self.limit})}: {point.describe()} has {rule} among "
            f"{len(self.points)} settings, {points_text(point.precision)} with "
            f"{point.products:.1f} products per row and candidate recall {point.recall:.3f}."
        )
        if self.calibration is not None:
            a, b = self.calibration["a"], self.calibration["b"]
            text += (
                f" Here a row takes about {a:.2f} + {b:.4f} * products microseconds; measured {point.latency_us:.2f}."
            )
        return text

    def to_dict(self) -> dict[str, Any]:
        """JSON values only; see ``from_dict``."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> BudgetResult:
        """The inverse of ``to_dict``, also by way of JSON."""
        fields = dict(values)
        fields |= {name: tuple(fields[name]) for name in ("ks", "notes")}
        fields["points"] = tuple(Point.from_dict(point) for point in fields["points"])
        return cls(**(fields | {"chosen": Point.from_dict(fields["chosen"])}))


def points_text(precision: Any) -> str:
    """Precisions of one setting.

    >>> points_text([61.25, 40])
    'P 61.25/40.00'
    """
    return "P " + "/".join(f"{value:.2f}" for value in precision)
