"""How far BP models are from their bases on the test rows, in points and in speed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blockxmc.paper.experiments.cells import Cell
from blockxmc.paper.experiments.results import Results
from blockxmc.paper.experiments.settings import BASE_TITLES, KS


@dataclass(frozen=True)
class Distance:
    """A BP model against its base."""

    cell: Cell
    losses: tuple[float, ...]  # points of P@k lost, for each k; negative: gained
    errors: tuple[float, ...]  # their standard errors, paired by test row
    promised: tuple[float, ...] | None  # what cross-validation said of them
    counted: float  # labels over vector products
    measured: float  # microseconds per row of the base over the model's
    tolerance: float
    feasible: bool = True  # cross-validation found it within the tolerance (said of speed-driven models)

    @property
    def base(self) -> str:
        """The name of the base."""
        return BASE_TITLES[self.cell.base]

    @property
    def loss(self) -> float:
        """The largest over k."""
        return max(self.losses)

    @property
    def over(self) -> float | None:
        """The largest loss that exceeds the tolerance plus one standard error, or None."""
        pairs = zip(self.losses, self.errors, strict=True)
        return max((loss for loss, error in pairs if loss > self.tolerance + error), default=None)


def distance(results: Results, data: str, base: str, system: str) -> Distance | None:
    """The distance of a BP model from its base, or None where one of the two is missing."""
    own, full = Cell(data, system, base), Cell(data, "full", base)
    row, whole = results.row(own), results.row(full)
    if row is None or whole is None:
        return None
    pairs = [pair for k in KS if (pair := results.loss(own, full, k)) is not None]
    return Distance(
        own,
        tuple(loss for loss, _ in pairs),
        tuple(error for _, error in pairs),
        _promised(results, own),
        row["speedup"],
        whole["batch_us"] / row["batch_us"],
        results.settings.tolerance,
        row.get("feasible") is not False,
    )


def _promised(results: Results, cell: Cell) -> tuple[float, ...] | None:
    tuning = results.row(Cell(cell.data, "tune", cell.base))
    if tuning is None:
        return None
    point = tuning[f"{cell.system.removeprefix('bp-')}_driven"] or tuning["least_loss"]
    losses = np.mean([fold["base"] for fold in tuning["folds"]], axis=0) - np.array(point["precision"])
    return tuple(losses.tolist())


def distances(results: Results, data: str, system: str) -> list[Distance]:
    """The distances of all bases that have one."""
    found = [distance(results, data, base, system) for base in results.settings.bases]
    return [one for one in found if one is not None]
