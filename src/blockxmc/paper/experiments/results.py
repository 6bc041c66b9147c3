"""Finished cells as tables, figures and text read them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from blockxmc.paper.experiments.cells import NOT_COMPUTED, Cell
from blockxmc.paper.experiments.published import published
from blockxmc.paper.experiments.settings import BASE_TITLES, Settings

# Names of systems among the published figures.
AS_PUBLISHED = {"leml": "full/leml", "pd-sparse": "full/pd-sparse", "fastxml": "fastxml", "lpsr": "lpsr/naive-bayes"}


@dataclass(frozen=True)
class Entry:
    """One place of a table: a value, the cell it comes from, and the published value."""

    value: Any
    cell: str = ""
    key: str = ""
    published: float | None = None
    mark: str = ""
    published_mark: str = ""

    @property
    def difference(self) -> float | None:
        """Our value less the published value."""
        return (
            None if self.published is None or not isinstance(self.value, (int, float)) else self.value - self.published
        )


@dataclass(frozen=True)
class Results:
    """Contents of cells by id, for these data sets, with these settings."""

    data: tuple[str, ...]
    settings: Settings
    contents: dict[str, dict[str, Any]]
    made: dict[str, Any] = field(default_factory=dict)

    def row(self, cell: Cell) -> dict[str, Any] | None:
        """The raw numbers of a cell; None where it failed or was not part of the run."""
        row: dict[str, Any] | None = self.contents.get(cell.id, {}).get("row")
        return row

    def error(self, cell: Cell) -> str | None:
        """Why a cell has no numbers."""
        if cell.id not in self.contents:
            return NOT_COMPUTED
        error: str | None = self.contents[cell.id].get("error")
        return error

    def title(self, cell: Cell) -> str:
        """The name of a system in tables; "speed-driven" is said of feasible models only."""
        if cell.system == "bp-speed" and (self.row(cell) or {}).get("feasible") is False:
            return f"BP {BASE_TITLES[cell.base]} (speed-driven: none; least loss)"
        return cell.title

    def measured(self, cell: Cell) -> float | None:
        """How many times faster than its base a system answers a batch, in CPU time on one thread."""
        base = "dismec" if cell.system == "bp-default" else cell.base
        own, full = self.row(cell), self.row(Cell(cell.data, "full", base))
        if own is None or full is None or cell.system in ("lpsr", "fastxml", "published"):
            return None
        return float(full["batch_us"] / own["batch_us"])

    def entry(self, cell: Cell, key: str) -> Entry:
        """A number of a cell with its published counterpart; a dagger where only a part of the test rows was scored."""
        row = self.row(cell) or {}
        system = AS_PUBLISHED.get(cell.base) if cell.system == "published" else None
        system = system or cell.id.removeprefix(f"{cell.data}/")
        about_test = "@" in key
        dagger = "†" if about_test and self._is_subset(cell.data) else ""
        theirs = "†" if about_test and published(cell.data, system, "dagger") else ""
        return Entry(row.get(key), cell.id, key, published(cell.data, system, key), dagger, theirs)

    def _is_subset(self, data: str) -> bool:
        row = self.row(Cell(data, "data")) or {}
        return bool(row.get("scored_rows", 0) < (row.get("test_rows") or 0))

    def sampled(self) -> list[str]:
        """What is to be said of data sets that were trained on a sample of their rows."""
        said = []
        for data in self.data:
            row = self.row(Cell(data, "data")) or {}
            if row.get("train_rows", 0) < row.get("all_train_rows", 0):
                said.append(
                    f"{data}: trained on a random {row['train_rows']:,} of {row['all_train_rows']:,} rows, "
                    "without the labels that none of them has"
                )
        return said

    def loss(self, cell: Cell, base: Cell, k: int) -> tuple[float, float] | None:
        """Points of P@k that a system loses against its base, and the standard error of that (paired by test row)."""
        own, full = self.row(cell), self.row(base)
        if own is None or full is None:
            return None
        hits = [np.frombuffer(row["hits"][str(k)].encode(), np.uint8).astype(float) for row in (full, own)]
        lost = 100 * (hits[0] - hits[1]) / k
        if lost.size < 2:
            return float(lost.sum()), math.inf
        return float(lost.mean()), float(lost.std(ddof=1) / math.sqrt(lost.size))
