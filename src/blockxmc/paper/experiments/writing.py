"""Tables and figures as files: CSV, JSON and Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from blockxmc._core.files import write_atomically
from blockxmc.paper.experiments.canvas import Figure
from blockxmc.paper.experiments.conclusions import conclude, facts
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


def as_report(sections: list[tuple[str, list[Table], list[Figure]]], results: Results) -> str:
    """The whole report in plain text: conclusions, tables and figures."""
    said = [f"{text}\n" for data in results.data if (text := conclude(results, data))]
    conclusions = ["## What to conclude\n", *said] if said else []
    made = "\n".join(f"- {line}" for line in facts(results))
    parts = {name: section(tables, figures) for name, tables, figures in sections}
    head = f"# Block-wise partitioning on {', '.join(results.data)}\n"
    opening = [parts.pop("verdicts")] if "verdicts" in parts else []
    return "\n".join([head, *opening, *conclusions, f"## How it was made\n\n{made}\n", *parts.values()])


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
