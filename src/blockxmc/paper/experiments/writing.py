"""Tables and figures as files: CSV, JSON and Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from blockxmc._core.files import write_atomically
from blockxmc.paper.experiments.canvas import Figure
from blockxmc.paper.experiments.figures import PAPER_DATA
from blockxmc.paper.experiments.published import title
from blockxmc.paper.experiments.results import Results
from blockxmc.paper.experiments.store import to_json
from blockxmc.paper.experiments.tables import Table, written


def as_markdown(table: Table) -> str:
    """A table for reading in plain text."""
    head = "| " + " | ".join(column.title for column in table.columns) + " |"
    rule = "|" + "|".join("---:" if column.form else "---" for column in table.columns) + "|"
    lines = [
        "| "
        + " | ".join(
            written(entry, column).replace("|", "\\|") for entry, column in zip(row, table.columns, strict=True)
        )
        + " |"
        for row in table.rows
    ]
    note = f"\n{table.note}\n" if table.note else ""
    return f"## {table.title}\n\n" + "\n".join([head, rule, *lines]) + "\n" + note


def as_csv(table: Table) -> str:
    """Raw numbers, the published ones in columns of their own, and the cell of each row."""
    compared = [any(row[i].published is not None for row in table.rows) for i in range(len(table.columns))]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    heads = []
    for column, both in zip(table.columns, compared, strict=True):
        heads += [column.title, f"{column.title} published"] if both else [column.title]
    writer.writerow([*heads, "cells"])
    for row in table.rows:
        values: list[Any] = []
        for entry, both in zip(row, compared, strict=True):
            values += [entry.value, entry.published] if both else [entry.value]
        writer.writerow([*values, " ".join(dict.fromkeys(entry.cell for entry in row if entry.cell))])
    return out.getvalue()


def as_dict(table: Table) -> dict[str, Any]:
    """Raw numbers with the cell and key each comes from."""
    rows = [
        {
            column.title: {name: value for name, value in vars(entry).items() if value not in (None, "")}
            for column, entry in zip(table.columns, row, strict=True)
        }
        for row in table.rows
    ]
    return {"name": table.name, "title": table.title, "note": table.note, "rows": rows}


def section(tables: list[Table], figures: list[Figure]) -> str:
    """Tables, then pictures by the name of their files."""
    pictures = [
        f"## {figure.title}\n\n![{figure.title}]({figure.name}.png)\n\n{figure.caption}\n" for figure in figures
    ]
    return "\n".join([*map(as_markdown, tables), *pictures])


def opening(results: Results) -> str:
    """What a reader must know first."""
    shared = [title(known) for data in results.data if (known := results.known(data)) in PAPER_DATA]
    if not shared:
        return (
            "None of these data sets is among the paper's five (AmazonCat-13K, Wiki10-31K, Delicious-200K, WikiLSHTC-325K, "
            "Amazon-670K): the verdicts are on its claims, not on its figures."
        )
    return f"Of the paper's five data sets {', '.join(shared)} are here."


def facts(results: Results) -> list[str]:
    """When, where and how the numbers were made, and how long that took."""
    from blockxmc.training.trials.grid import FOLD_TOL

    made, chosen = results.made, results.settings
    machine = (
        f"{made.get('cpu', '')}, {made.get('cores', '')} cores, {chosen.n_threads} threads, {made.get('system', '')}"
    )
    names = ("blockxmc", "python", "numpy", "scipy", "scikit-learn")
    versions = ", ".join(f"{name} {made[name]}" for name in names if name in made)
    scored = "all test rows" if chosen.max_test_rows is None else f"at most {chosen.max_test_rows:,} test rows"
    rows = "rows of unit length (as given for naive Bayes and to the letter)" if chosen.normalise else "rows as given"
    how = (
        f"{chosen.folds}-fold cross-validation (solved to {FOLD_TOL:g}), tolerance {chosen.tolerance:g} points, blocks "
        f"{chosen.blocks}, LEML rank {chosen.rank}, FastXML {chosen.trees} trees, {rows}, {scored}, {chosen.seeds} seeds "
        f"from {chosen.seed}"
    )
    how = "; ".join([how, *results.sampled()])
    took = [content.get("seconds", 0.0) for content in results.contents.values()]
    cpu = sum(content.get("cpu_seconds", 0.0) for content in results.contents.values())
    cells = f"{len(took)} cells, computed in {sum(took) / 60:.0f} minutes, {cpu / 60:.0f} minutes of processor time"
    return [line for line in (made.get("date", ""), machine, versions, how, cells) if line]


def as_report(sections: list[tuple[str, list[Table], list[Figure]]], results: Results) -> str:
    """The whole report in plain text: verdicts, tables and figures."""
    made = "\n".join(f"- {line}" for line in facts(results))
    parts = {name: section(tables, figures) for name, tables, figures in sections}
    head = f"# Block-wise partitioning on {', '.join(results.data)}\n\n{opening(results)}\n"
    first = [parts.pop("verdicts")] if "verdicts" in parts else []
    return "\n".join([head, *first, f"## How it was made\n\n{made}\n", *parts.values()])


def write_experiment(
    folder: Path,
    name: str,
    tables: list[Table],
    figures: list[Figure],
    results: Results,
    cells: Sequence[str] = (),
) -> list[Path]:
    """All files of one experiment, made of these cells; returns where they are."""
    files: dict[str, str | bytes] = {}
    for table in tables:
        files[f"{table.name}.csv"] = as_csv(table)
    for figure in figures:
        files[f"{figure.name}.png"], files[f"{figure.name}.svg"] = figure.png, figure.svg
        files[f"{figure.name}.csv"] = as_csv(figure.points)
    whole = {
        "experiment": name,
        "settings": results.settings.to_dict(),
        "made": results.made,
        "code": {cell: known["code"] for cell in cells if (known := results.contents.get(cell, {}).get("setting"))},
        "tables": [as_dict(table) for table in [*tables, *(figure.points for figure in figures)]],
    }
    files[f"{name}.json"] = to_json(whole, indent=1)
    files[f"{name}.md"] = section(tables, figures)
    for file, content in files.items():
        write_atomically(folder / file, content)
    return [folder / file for file in files]
