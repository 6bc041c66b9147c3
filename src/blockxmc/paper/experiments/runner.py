"""An experiment by name: its cells, then its tables, figures and the report."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from blockxmc._core.files import write_atomically
from blockxmc._core.progress import Reporter
from blockxmc.data.repository import is_archive
from blockxmc.errors import BlockXMCError
from blockxmc.paper.experiments import figures, pictures, tables, verdicts
from blockxmc.paper.experiments.canvas import Figure
from blockxmc.paper.experiments.cells import MAKERS, Bench, Cell, CellFailedError
from blockxmc.paper.experiments.page import as_html
from blockxmc.paper.experiments.results import Results
from blockxmc.paper.experiments.schedule import compute
from blockxmc.paper.experiments.settings import BASE_TITLES, Settings, provenance
from blockxmc.paper.experiments.store import Store
from blockxmc.paper.experiments.tables import Table
from blockxmc.paper.experiments.wanted import compared, every_system, published_systems
from blockxmc.paper.experiments.writing import as_report, write_experiment

Bases = Sequence[str]


@dataclass(frozen=True)
class Experiment:
    """Which cells are read, and what is made of them."""

    cells: Callable[[str, Bases], list[Cell]]
    tables: Callable[[Results], list[Table]] = field(default=lambda results: [])
    figures: Callable[[Results], list[Figure]] = field(default=lambda results: [])


def _kinds(*kinds: str) -> Callable[[str, Bases], list[Cell]]:
    return lambda data, bases: [Cell(data, kind, base) for base in bases for kind in kinds]


def _alone(kind: str) -> Callable[[str, Bases], list[Cell]]:
    return lambda data, bases: [Cell(data, kind)]


EXPERIMENTS: dict[str, Experiment] = {
    "verdicts": Experiment(compared, verdicts.table_verdicts),
    "table-data": Experiment(_alone("data"), tables.table_data),
    "table-precision": Experiment(compared, tables.table_precision),
    "table-time": Experiment(_kinds("full", "bp-speed"), tables.table_time),
    "table-router": Experiment(_kinds("bp-speed"), tables.table_router),
    "table-recall": Experiment(_kinds("full", "bp-speed"), tables.table_recall),
    "figure-blocks": Experiment(_alone("blocks"), figures=pictures.figure_blocks),
    "figure-lambda": Experiment(_kinds("tune"), figures=figures.figure_lambda),
    "figure-q": Experiment(_alone("q"), figures=figures.figure_q),
    "figure-alps": Experiment(_kinds("bp-speed"), figures=figures.figure_alps),
    "table-systems": Experiment(every_system, tables.table_systems),
    "table-published": Experiment(published_systems, tables.table_published),
}
# About the library, not in the paper: "all" leaves these out.
APART = ("table-systems", "table-published")


def plan(names: Sequence[str], data: Sequence[str], bases: Bases) -> list[Cell]:
    """Every cell once, data set by data set, in the order of ``MAKERS``: a cell comes after the cells it needs.

    >>> [cell.id for cell in plan(["table-router"], ["bibtex"], ["leml"])][:3]
    ['bibtex/data', 'bibtex/plan', 'bibtex/tune/leml']
    """
    order = list(MAKERS)
    cells = []
    for folder in data:
        wanted: set[Cell] = set()
        left = [Cell(folder, "data"), *(cell for name in names for cell in EXPERIMENTS[name].cells(folder, bases))]
        while left:
            cell = left.pop()
            if cell not in wanted:
                wanted.add(cell)
                left += cell.needs
        cells += sorted(wanted, key=lambda cell: (order.index(cell.system), cell.id))
    return cells


def named(name: str) -> list[str]:
    """The experiments behind a name: one, the paper's ("all"), or those about the library, too ("everything")."""
    if name == "everything":
        return list(EXPERIMENTS)
    return [name for name in EXPERIMENTS if name not in APART] if name == "all" else [name]


def run(
    name: str,
    folders: Sequence[Path],
    out: Path,
    settings: Settings,
    reporter: Reporter | None = None,
    *,
    jobs: int = 1,
    draw: bool = True,
    seconds: float | None = None,
) -> Results:
    """Compute what is missing, and write tables, figures, ``report.md`` and ``report.html`` to ``out``.

    ``jobs`` processes compute cells side by side; ``draw=False`` ends with the cells, and needs no plotting library. After
    so many ``seconds`` nothing is begun any more; what is then missing is shown as not computed.
    """
    stop_at = None if seconds is None else time.time() + seconds
    names = named(name)
    by_name = _check(names, folders, settings)
    reporter = reporter or Reporter()
    bench = Bench(by_name, settings, Store(out / "cells"), stop_at)
    cells = plan(names, list(by_name), settings.bases)
    _read_first(bench)
    contents = compute(bench, cells, reporter, jobs)
    results = Results(tuple(by_name), settings, contents, _made(contents))
    if draw:
        write_all(names, out, results)
    return results


def _made(contents: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Where and when the cells were made: the machine that draws them may be another one."""
    made = [known["made"] for cell, known in contents.items() if "made" in known and not cell.endswith("/data")]
    return max(made, key=lambda one: str(one.get("date")), default=provenance())


def write_all(names: Sequence[str], out: Path, results: Results) -> None:
    """Tables, figures and the report from finished cells."""
    sections = []
    for name in names:
        experiment = EXPERIMENTS[name]
        made = [_captioned(table, results) for table in experiment.tables(results)], experiment.figures(results)
        own = plan([name], results.data, results.settings.bases)
        write_experiment(out, name, *made, results, [cell.id for cell in own])
        sections.append((name, *made))
    write_atomically(out / "report.md", as_report(sections, results))
    write_atomically(out / "report.html", as_html(sections, results))


def _captioned(table: Table, results: Results) -> Table:
    """The table with the samples named in its caption."""
    said = [one for one in results.sampled() if any(one.startswith(f"{row[0].value}:") for row in table.rows)]
    said = results.sampled() if table.name.startswith("verdicts") else said
    return replace(table, note=" ".join([table.note, *(f"{one}." for one in said)]).strip())


def _read_first(bench: Bench) -> None:
    """Refuse folders that cannot be read before anything long begins."""
    for data in bench.folders:
        try:
            bench.row(Cell(data, "data"))
        except CellFailedError as error:
            raise BlockXMCError(str(error)) from None


def _check(names: Sequence[str], folders: Sequence[Path], settings: Settings) -> dict[str, Path]:
    for name in names:
        if name not in EXPERIMENTS:
            raise BlockXMCError(
                f"unknown experiment {name!r}: choose one of {', '.join([*EXPERIMENTS, 'all', 'everything'])}"
            )
    for base in settings.bases or ("nothing",):
        if base not in BASE_TITLES:
            raise BlockXMCError(f"--bases must name some of {', '.join(BASE_TITLES)}; got {base!r}")
    by_name: dict[str, Path] = {}
    for folder in folders:
        if not (folder.is_dir() or is_archive(folder)):
            raise BlockXMCError(
                f"{folder}: not a folder; give folders (or zip archives) with a training and a test set"
            )
        data = folder.resolve().name.removesuffix(".zip")
        if data in by_name:
            raise BlockXMCError(
                f"{folder}: another folder is called {data} too; tables tell data sets apart by that name"
            )
        by_name[data] = folder
    return by_name
