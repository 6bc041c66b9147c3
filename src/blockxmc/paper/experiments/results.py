"""Finished cells as tables, figures and text read them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from blockxmc.paper.experiments.cells import NOT_COMPUTED, Cell
from blockxmc.paper.experiments.published import known_as, published
from blockxmc.paper.experiments.settings import KS, Settings

# Names of systems among the published figures.
AS_PUBLISHED = {"fastxml": "fastxml", "lpsr": "lpsr/naive-bayes"}


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

    def known(self, data: str) -> str:
        """The set that published figures call by another name."""
        return known_as(data, (self.row(Cell(data, "data")) or {}).get("labels"))

    def title(self, cell: Cell) -> str:
        """The name of a system in tables; "speed-driven" is said of feasible models only."""
        if cell.system.endswith("speed") and (self.row(cell) or {}).get("feasible") is False:
            return cell.title.replace("(speed-driven)", "(speed-driven: none; least loss)")
        return cell.title

    def tuning(self, data: str, base: str, *, letter: bool = False) -> dict[str, Any] | None:
        """What tuning found for a base."""
        return self.row(Cell(data, "tune-letter" if letter else "tune", base))

    def measured(self, cell: Cell) -> float | None:
        """How many times faster than its base a system answers a batch, in CPU time on one thread."""
        base = "dismec" if cell.system == "bp-default" else cell.base
        own, full = self.row(cell), self.row(Cell(cell.data, "full-letter" if cell.letter else "full", base))
        if own is None or full is None or cell.system in ("lpsr", "fastxml", "published"):
            return None
        return float(full["batch_us"] / own["batch_us"])

    def entry(self, cell: Cell, key: str) -> Entry:
        """A number of a cell with its published counterpart; a dagger where only a part of the test rows was scored."""
        row, known = self.row(cell) or {}, self.known(cell.data)
        system = cell.id.removeprefix(f"{cell.data}/").replace("-letter", "")
        system = AS_PUBLISHED[cell.base] if cell.system == "published" else system
        about_test = "@" in key
        dagger = "†" if about_test and self._is_subset(cell.data) else ""
        theirs = "†" if about_test and published(known, system, "dagger") else ""
        return Entry(row.get(key), cell.id, key, published(known, system, key), dagger, theirs)

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

    def loss(self, cell: Cell, base: Cell, k: int, metric: str = "P") -> tuple[float, float] | None:
        """Points that a system loses against its base, and the standard error of that.

        The error has two parts: of the test rows, paired, and of the seeds of both models. The mean over the seeds counts.
        That of PSP is as large, in its share of the metric, as that of P.
        """
        own, full = self.row(cell), self.row(base)
        if own is None or full is None:
            return None
        per_row = self._per_row(cell.data, full, k, metric) - self._per_row(cell.data, own, k, metric)
        seeds = [np.array(row.get("seeds", {}).get(f"P@{k}", [row[f"P@{k}"]])) for row in (full, own)]
        spread = sum(values.var(ddof=1) / values.size for values in seeds if values.size > 1)
        rows = float(per_row.var(ddof=1) / per_row.size) if per_row.size > 1 else math.inf
        error = math.sqrt(rows + spread)
        if metric == "P":
            return float(seeds[0].mean() - seeds[1].mean()), error
        scale = full[f"PSP@{k}"] / max(full[f"P@{k}"], 1e-9) if metric == "PSP" else 1.0
        return float(full[f"{metric}@{k}"] - own[f"{metric}@{k}"]), error * scale

    def _per_row(self, data: str, row: dict[str, Any], k: int, metric: str) -> Any:
        """P@k of each test row in points; for recall R@k of those with labels."""
        right = np.frombuffer(row["hits"][str(k)].encode(), np.uint8).astype(float) - ord("0")
        if metric != "R":
            return 100 * right / k
        labels = np.array((self.row(Cell(data, "data")) or {}).get("labels_of_rows", np.full(right.size, k)))
        return 100 * right[labels > 0] / labels[labels > 0]

    def worst(self, cell: Cell, base: Cell, metric: str = "P") -> tuple[float, float] | None:
        """The largest loss over k, with its error."""
        pairs = [pair for k in KS if (pair := self.loss(cell, base, k, metric)) is not None]
        return max(pairs) if pairs else None
