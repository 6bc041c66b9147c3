"""What tuning found: frozen records that go to JSON and back."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from blockxmc.errors import BlockXMCError
from blockxmc.training.trials.selection import interval, select

F64 = NDArray[np.float64]
# Stands for 0 candidates where labels are divided by them.
NO_CANDIDATES = 1e-12
# Ways to train, beside the weights of BlockwiseClassifier: all labels are scored.
FULL = "no blocks"


@dataclass(frozen=True)
class Point:
    """One setting and what held-out rows say about it. Precisions are in points (0..100), like the tolerance.

    What is None was left to the classifier, or was not measured.
    """

    n_blocks: int
    lam: float | None  # for the full data
    assigned_at: tuple[float, ...]  # the lambdas at which rows were assigned, one after the other, for the full data
    precision: tuple[float, ...]  # one for each k
    candidates: float
    products: float
    recall: float  # candidate recall
    loss: float | None = None  # the largest loss of a P@k in any fold, where folds were compared with the base
    weights: str = "per-block"
    route: float = 1  # blocks to visit, or below 1 the share of the router's probability to reach
    prune: float | None = None
    weight_bits: int | None = None
    n_neighbors: int | None = None
    batch_us: float | None = None  # per row of a batch, CPU time of one thread
    latency_us: float | None = None  # a single call on this machine, median
    size_mb: float | None = None  # router, weights and neighbors

    @property
    def mean(self) -> float:
        """Mean precision over k."""
        return float(np.mean(self.precision)) if self.precision else 0.0

    def describe(self) -> str:
        """The setting in words."""
        if self.weights == FULL:
            return "all labels scored"
        lam = "" if self.lam is None else f", lam {self.lam:.4g}"
        pruned = "" if self.prune is None else f", pruned at {self.prune:g}"
        bits = "" if self.weight_bits is None else f", weights of {self.weight_bits} bits"
        near = f", {self.n_neighbors} neighbors" if self.n_neighbors else ""
        return f"{self.n_blocks} blocks{lam}, {self.weights} weights, route {self.route:g}{pruned}{bits}{near}"

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The inverse of ``dataclasses.asdict``, also by way of JSON."""
        return cls(**(values | {name: tuple(values[name]) for name in ("precision", "assigned_at")}))


@dataclass(frozen=True)
class Trial:
    """A pair of a number of blocks and a lambda, judged by the fold that was asked first."""

    n_blocks: int
    lam: float
    fold: int
    loss: float  # the largest over k, in points
    precision: tuple[float, ...]
    by_paper: bool  # the number of blocks is that of the paper's search at this lambda
    candidates: float
    products: float
    recall: float

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
    interval: tuple[float, float] | None  # the smallest and the largest lambda within the tolerance

    @classmethod
    def of(
        cls, base: list[float], found: list[dict[str, Any]], lams: tuple[float, ...], tolerance: float
    ) -> FoldRecord:
        """The record of what was found at each lambda."""
        columns = {name: tuple(one[name] for one in found) for name in ("candidates", "products", "recall")}
        precision = tuple(tuple(one["precision"]) for one in found)
        kept = select([base], [precision], columns["products"], tolerance).feasible
        return cls(tuple(base), precision, **columns, feasible=tuple(kept.tolist()), interval=interval(lams, kept))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The inverse of ``dataclasses.asdict``, also by way of JSON."""
        lists = {name: None if value is None else tuple(value) for name, value in values.items()}
        return cls(**(lists | {"precision": tuple(tuple(row) for row in values["precision"])}))


@dataclass(frozen=True)
class TuningResult:
    """The outcome of :func:`tune_lambda`. Precisions are in points (0..100), lambdas in the scale of the full data.

    Lambdas, blocks and folds are those of one path: of the speed-driven choice, or, where no lambda is feasible, of the
    least loss. The accuracy-driven choice may have another number of blocks.
    """

    lams: tuple[float, ...]
    blocks: tuple[int, ...]  # at each lambda
    n_labels: int
    ks: tuple[int, ...]
    tolerance: float
    folds: tuple[FoldRecord, ...]
    feasible: tuple[bool, ...]  # within the tolerance in every fold, for every k
    interval: tuple[float, float] | None  # the smallest and the largest feasible lambda
    speed_driven: Point | None  # None: no lambda is feasible
    least_loss: Point  # the smallest loss in the worst fold
    accuracy_driven: Point
    setting: dict[str, Any]  # what was evaluated: base, assignment, weights, route, data
    tried: tuple[Trial, ...] = ()  # every pair that the search over several numbers of blocks tried
    notes: tuple[str, ...] = ()
    trainings: float = 0
    seconds: float = 0.0  # of the trainings, when they were made

    @classmethod
    def decide(
        cls,
        lams: tuple[float, ...],
        blocks: tuple[int, ...],
        folds: list[FoldRecord],
        points: list[Point],
        others: list[Point],
        **rest: Any,
    ) -> TuningResult:
        """Choose by the paper's rule along one path; ``others`` may be the most precise."""
        base, products = [fold.base for fold in folds], [point.products for point in points]
        chosen = select(base, [fold.precision for fold in folds], products, rest["tolerance"])
        speed, kept = None if chosen.speed is None else points[chosen.speed], chosen.feasible
        able = [point for point in others if speed is None or (point.loss or 0.0) <= rest["tolerance"]]
        accuracy = max([points[chosen.accuracy], *able], key=lambda point: (point.mean, -point.products))
        if speed is not None and accuracy.products < speed.products:
            speed = accuracy
        return cls(
            lams,
            blocks,
            folds=tuple(folds),
            feasible=tuple(kept.tolist()),
            interval=interval(lams, kept),
            speed_driven=speed,
            least_loss=points[chosen.least],
            accuracy_driven=accuracy,
            **rest,
        )

    @property
    def n_blocks(self) -> int:
        """Blocks of the speed-driven choice, or of the least loss."""
        return (self.speed_driven or self.least_loss).n_blocks

    @property
    def base_precision(self) -> F64:
        """P@k of the base without blocks, mean over the folds."""
        return np.asarray(np.mean([fold.base for fold in self.folds], axis=0))

    @property
    def mean_precision(self) -> F64:
        """P@k at each lambda (lambdas x ks), mean over the folds."""
        return np.asarray(np.mean([fold.precision for fold in self.folds], axis=0))

    @property
    def standard_error(self) -> F64:
        """Standard error of ``mean_precision`` over the folds."""
        values = np.array([fold.precision for fold in self.folds])
        return np.asarray(values.std(axis=0, ddof=1) / len(self.folds) ** 0.5)

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
    def warning(self) -> str | None:
        """What is wrong where no lambda is feasible."""
        if self.speed_driven is not None:
            return None
        return (
            f"no lambda keeps every P@k within {self.tolerance:g} points of the base in all folds: there is no "
            f"speed-driven choice; the smallest loss in the worst fold is {self.least_loss.loss:.2f} points"
        )

    def choice(self, name: str) -> Point:
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
        q = (
            f"{min(self.blocks)} to {max(self.blocks)} blocks"
            if len(set(self.blocks)) > 1
            else f"{self.blocks[0]} blocks"
        )
        first = f"Warning: {self.warning}."
        if self.interval is not None:
            within = f"{', '.join(f'P@{k}' for k in self.ks)} within {self.tolerance:g} points of the base"
            low, high = self.interval
            count = f"{sum(self.feasible)} lambdas from {low:.4g} to {high:.4g}"
            first = f"With {q}, {count} keep {within} in all {len(self.folds)} folds."
        by_fold = [
            f"{number} {'none' if fold.interval is None else '{:.4g} to {:.4g}'.format(*fold.interval)}"
            for number, fold in enumerate(self.folds, 1)
        ]
        said = [first, f"By fold: {', '.join(by_fold)}."]
        for name, point in self.choices.items():
            said.append(
                f"{name.capitalize()}: {point.describe()}, {points_text(point.precision)} at {point.candidates:.1f} of "
                f"{self.n_labels:,} labels scored per row."
            )
        said.append(f"The base has {points_text(self.base_precision)}.")
        if self.tried:
            said.append(f"{len(self.tried)} pairs of blocks and lambda were tried, from the fewest products on.")
        said += [f"{note[0].upper()}{note[1:]}." for note in self.notes]
        how = f"{self.setting['evaluated_base']}, {self.setting['assignment']}"
        return " ".join([*said, f"{self.trainings:.0f} trainings in {self.seconds:.1f} s ({how})."])

    def to_dict(self) -> dict[str, Any]:
        """JSON values only; see ``from_dict``."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TuningResult:
        """The inverse of ``to_dict``, also by way of JSON."""
        fields = dict(values)
        for name in ("lams", "blocks", "ks", "feasible", "notes"):
            fields[name] = tuple(fields[name])
        fields["tried"] = tuple(Trial.from_dict(trial) for trial in fields["tried"])
        fields["folds"] = tuple(FoldRecord.from_dict(fold) for fold in fields["folds"])
        fields["interval"] = None if fields["interval"] is None else tuple(fields["interval"])
        for name in ("speed_driven", "least_loss", "accuracy_driven"):
            fields[name] = None if fields[name] is None else Point.from_dict(fields[name])
        return cls(**fields)


def points_text(precision: Any) -> str:
    """Precisions of one setting.

    >>> points_text([61.25, 40])
    'P 61.25/40.00'
    """
    return "P " + "/".join(f"{value:.2f}" for value in precision)
