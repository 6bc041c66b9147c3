"""What tuning found: frozen records that go to JSON and back."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from blockxmc.errors import BlockXMCError
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
    assigned_at: tuple[float, ...]  # the lambdas at which rows were assigned, one after the other, for the full data
    weights: str
    route: int
    precision: tuple[float, ...]  # one for each k
    candidates: float
    products: float
    recall: float  # candidate recall
    latency_us: float | None = None  # a single call on this machine, where it was measured
    loss: float | None = None  # the largest loss of a P@k in any fold, where folds were compared with the base

    def describe(self) -> str:
        """The setting in words."""
        return f"{self.n_blocks} blocks, lam {self.lam:.4g}, {self.weights} weights, route {self.route}"

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The inverse of ``dataclasses.asdict``, also by way of JSON."""
        return cls(**(values | {name: tuple(values[name]) for name in ("precision", "assigned_at")}))


@dataclass(frozen=True)
class Trial:
    """A pair of a number of blocks and a lambda, judged by the first fold alone."""

    n_blocks: int
    lam: float
    loss: float  # the largest over k, in points
    precision: tuple[float, ...]
    by_paper: bool  # the number of blocks is that of the paper's search at this lambda
    candidates: float
    products: float
    recall: float

    @property
    def mean(self) -> float:
        """Mean precision over k."""
        return float(np.mean(self.precision))

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
    """The lambdas that were tried (ascending, in the scale of the full data), the blocks at each, and what they share."""

    lams: tuple[float, ...]
    blocks: tuple[int, ...]
    ks: tuple[int, ...]
    reassign: bool  # rows are assigned anew at each lambda
    n_rows: int
    n_labels: int

    def point(
        self, at: int, folds: list[dict[str, Any]], setting: dict[str, Any], loss: float, place: int | None = None
    ) -> Point:
        """The lambda at this position, with means over the folds, which have it at ``place`` if that differs."""

        def mean(name: str) -> Any:
            return np.mean([fold[name][at if place is None else place] for fold in folds], axis=0)

        return Point(
            n_blocks=self.blocks[at],
            lam=self.lams[at],
            lam_rel=self.lams[at] * self.blocks[at] / self.n_rows,
            assigned_at=self.lams[: at + 1] if self.reassign else self.lams[:1],
            weights=setting["weights"],
            route=setting["route"],
            precision=tuple(mean("precision").tolist()),
            loss=loss,
            **{name: float(mean(name)) for name in ("candidates", "products", "recall")},
        )


@dataclass(frozen=True)
class TuningResult:
    """The outcome of :func:`tune_lambda`. Precisions are in points (0..100), lambdas in the scale of the full data.

    Lambdas, blocks and folds are those of one path: of the speed-driven choice, or, where no lambda is feasible, of the
    least loss. The accuracy-driven choice may have another number of blocks.
    """

    lams: tuple[float, ...]
    blocks: tuple[int, ...]  # at each lambda
    n_blocks: int  # of the speed-driven choice, or of the least loss
    n_labels: int
    ks: tuple[int, ...]
    tolerance: float
    folds: tuple[FoldRecord, ...]
    feasible: tuple[bool, ...]  # within the tolerance in every fold, for every k
    interval: tuple[float, float] | None  # from the smallest feasible lambda to the largest before a gap
    speed_driven: Point | None  # None: no lambda is feasible
    least_loss: Point  # the smallest loss in the worst fold
    accuracy_driven: Point
    warning: str | None
    setting: dict[str, Any]  # what was evaluated: base, assignment, weights, route, data
    saving: dict[str, float] = field(
        default_factory=dict
    )  # trainings, pairs and seconds, of this run and of a naive one
    scouted: tuple[Trial, ...] = ()  # every pair of blocks and lambda that the first fold tried
    refined: tuple[Point, ...] = ()  # feasible lambdas between those of the grid
    notes: tuple[str, ...] = ()

    @classmethod
    def decide(
        cls,
        folds: list[dict[str, Any]],
        tried: Tried,
        *,
        tolerance: float,
        setting: dict[str, Any],
        notes: tuple[str, ...] = (),
    ) -> TuningResult:
        """Choose by the paper's protocol. A fold is a dict of base (ks), precision (lambdas x ks), candidates,
        products and recall (lambdas)."""
        chosen = select([fold["base"] for fold in folds], [fold["precision"] for fold in folds], tolerance)
        warning, interval, speed = None, None, None

        def point(at: int) -> Point:
            return tried.point(at, folds, setting, float(chosen.worst[at]))

        if chosen.run is None or chosen.speed is None:
            warning = (
                f"no lambda keeps every P@k within {tolerance:g} points of the base in all folds: there is no speed-driven "
                f"choice; the smallest loss in the worst fold is {chosen.worst[chosen.least]:.2f} points"
            )
        else:
            interval = tried.lams[chosen.run[0]], tried.lams[chosen.run[1]]
            speed = point(chosen.speed)
        records = [
            FoldRecord.from_dict({**fold, "feasible": mask.tolist()})
            for fold, mask in zip(folds, chosen.by_fold, strict=True)
        ]
        return cls(
            lams=tried.lams,
            blocks=tried.blocks,
            n_blocks=tried.blocks[chosen.least if chosen.speed is None else chosen.speed],
            n_labels=tried.n_labels,
            ks=tried.ks,
            tolerance=tolerance,
            folds=tuple(records),
            feasible=tuple(chosen.feasible),
            interval=interval,
            speed_driven=speed,
            least_loss=point(chosen.least),
            accuracy_driven=point(chosen.accuracy),
            warning=warning,
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

    def choice(self, name: Literal["speed", "accuracy", "least-loss"] | str) -> Point:
        """The speed-driven or the accuracy-driven choice, or the least loss; no feasible lambda raises BlockXMCError."""
        if name == "speed" and self.speed_driven is None:
            raise BlockXMCError(f"{self.warning}; take the choice 'accuracy' or 'least-loss'")
        found = {"speed": self.speed_driven, "accuracy": self.accuracy_driven, "least-loss": self.least_loss}.get(name)
        if found is None:
            raise BlockXMCError(f"choice must be 'speed', 'accuracy' or 'least-loss', got {name!r}")
        return found

    @property
    def choices(self) -> dict[str, Point]:
        """The choices there are, by the names of tables."""
        first = {"least loss": self.least_loss} if self.speed_driven is None else {"speed-driven": self.speed_driven}
        return first | {"accuracy-driven": self.accuracy_driven}

    def explain(self) -> str:
        """What was chosen and why, in a few sentences."""
        where = f"in all {len(self.folds)} folds" if len(self.folds) > 1 else "on the held-out rows"
        if self.interval is None:
            first = f"Warning: {self.warning}."
        else:
            first = (
                f"With {self._named_blocks()}, lambda from {self.interval[0]:.4g} to {self.interval[1]:.4g} keeps "
                f"{self._named_ks()} within {self.tolerance:g} points of the base {where}."
            )
        chosen = [f"{name}: {self._described(point)}" for name, point in self.choices.items()]
        text = "; ".join(chosen)
        second = f"{text[0].upper()}{text[1:]}; the base has {points_text(self.base_precision)}."
        sentences = [first, second]
        if self.scouted:
            sentences.append(
                f"The first fold tried {len(self.scouted)} pairs of blocks and lambda "
                f"({', '.join(map(str, sorted({trial.n_blocks for trial in self.scouted})))} blocks); "
                "what could have the fewest products was tried in all folds."
            )
        sentences += [f"{note[0].upper()}{note[1:]}." for note in self.notes]
        return " ".join([*sentences, self._costs()])

    def _costs(self) -> str:
        """What the path cost."""
        saving = self.saving
        warm = f", {saving['warm_trainings']:.0f} of them warm" if saving["warm_trainings"] else ""
        reused = f"{saving['reused_pairs']:,.0f} of {saving['pairs']:,.0f} (block, label) pairs reused"
        return (
            f"Evaluated: {self.setting['evaluated_base']}, {self.setting['assignment']}, {self.setting['weights']} "
            f"weights, of {self._named_blocks()} a row visits {self.setting['route']}; {saving['trainings']:.0f} "
            f"trainings{warm}, {reused}, {saving['seconds']:.1f} s and {saving['setup_seconds']:.1f} s for blocks and "
            f"routers, instead of {saving['naive_trainings']:.0f} trainings (an estimated "
            f"{saving['naive_seconds_estimate']:.1f} s)."
        )

    def _described(self, point: Point) -> str:
        return (
            f"{point.n_blocks} blocks, lam {point.lam:.4g} with {points_text(point.precision)} at {point.candidates:.1f} "
            f"of {self.n_labels:,} labels scored per row"
        )

    def _named_blocks(self) -> str:
        if len(set(self.blocks)) == 1:
            return f"{self.blocks[0]} blocks"
        return f"{min(self.blocks)} to {max(self.blocks)} blocks, by lambda"

    def _named_ks(self) -> str:
        return ", ".join(f"P@{k}" for k in self.ks)

    def to_dict(self) -> dict[str, Any]:
        """JSON values only; see ``from_dict``."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TuningResult:
        """The inverse of ``to_dict``, also by way of JSON."""
        fields = dict(values)
        for name in ("lams", "blocks", "ks", "feasible", "notes"):
            fields[name] = tuple(fields[name])
        fields["scouted"] = tuple(Trial.from_dict(trial) for trial in fields["scouted"])
        fields["refined"] = tuple(Point.from_dict(point) for point in fields["refined"])
        fields["folds"] = tuple(FoldRecord.from_dict(fold) for fold in fields["folds"])
        fields["interval"] = None if fields["interval"] is None else tuple(fields["interval"])
        for name in ("speed_driven", "least_loss", "accuracy_driven"):
            fields[name] = None if fields[name] is None else Point.from_dict(fields[name])
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
