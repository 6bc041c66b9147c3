"""The report: one HTML file that works alone, without network and without other files."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

from blockxmc.paper.experiments.canvas import Figure
from blockxmc.paper.experiments.published import source
from blockxmc.paper.experiments.results import Entry, Results
from blockxmc.paper.experiments.store import to_json
from blockxmc.paper.experiments.tables import Column, Table, number, signed, written
from blockxmc.paper.experiments.writing import facts, opening

Section = tuple[str, list[Table], list[Figure]]

# Long lists, left out of the page; the cell files hold them.
_LEFT_OUT = ("hits", "labels_of_rows", "shown_labels", "shown_blocks", "label_clusters", "strips")


def as_html(sections: Sequence[Section], results: Results) -> str:
    """The whole page."""
    assets = files(__package__)
    style, script = (assets.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    data = ", ".join(results.data)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Block-wise partitioning on {escape(data)}</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>Block-wise partitioning on {escape(data)}</h1>
<nav>{" ".join(f'<a href="#section-{name}">{escape(name)}</a>' for name, _, _ in sections)}</nav>
</header>
<main>
<p>{escape(opening(results))}</p>
{"".join(_section(*section) for section in sections if section[0] == "verdicts")}
<section id="made"><h2>How it was made</h2>{_facts(results)}</section>
{"".join(_section(*section) for section in sections if section[0] != "verdicts")}
</main>
<dialog id="raw" aria-label="Raw row"><form method="dialog"><button>Close</button></form><h2></h2><pre></pre></dialog>
<script type="application/json" id="cells">{_embedded(results)}</script>
<script>{script}</script>
</body>
</html>
"""


def _facts(results: Results) -> str:
    told = [
        f"Published figures of {data} from {where}" for data in results.data if (where := source(results.known(data)))
    ]
    return "".join(f"<p class=fact>{escape(line)}</p>" for line in [*facts(results), *told])


def _section(name: str, tables: list[Table], figures: list[Figure]) -> str:
    inside = "".join([*map(_table, tables), *map(_figure, figures)])
    return f'<section id="section-{escape(name)}">{inside}</section>\n'


def _table(table: Table) -> str:
    texts = sum(not column.form for column in table.columns)
    heads = "".join(
        f'<th scope="col" class="{_kind(i, texts)}"><button>{escape(column.title)}</button></th>'
        for i, column in enumerate(table.columns)
    )
    body, previous = [], None
    for row in table.rows:
        group = row[0].value
        start = ' class="start"' if previous not in (None, group) else ""
        previous = group
        cells = [
            _cell(entry, column, _kind(i, texts))
            for i, (entry, column) in enumerate(zip(row, table.columns, strict=True))
        ]
        body.append(f"<tr{start}>{''.join(cells)}</tr>")
    note = f"<p class=note>{escape(table.note)}</p>" if table.note else ""
    return (
        f'<h2>{escape(table.title)}</h2><div class="scroll"><table id="{escape(table.name)}" class="sortable">'
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(body)}</tbody></table></div>{note}\n"
    )


def _kind(column: int, texts: int) -> str:
    """The last text column names the row and stays in sight."""
    return "number" if column >= texts else "name" if column == texts - 1 else "text"


def _cell(entry: Entry, column: Column, kind: str) -> str:
    if kind != "number":
        return f'<td class="{kind}">{escape(str(entry.value))}</td>'
    if entry.value is None:
        return '<td class="number">–</td>'
    trace = f"{entry.cell}: {entry.key} = {entry.value}" if entry.key else f"{entry.cell}: {entry.value}"
    if isinstance(entry.value, str):
        return f'<td class="failed" title="{escape(trace)}">{_link(entry, entry.value)}</td>'
    beside = ""
    if entry.published is not None:
        trace += f"; published {entry.published}"
        theirs = number(entry.published, column.form) + entry.published_mark
        beside = f" <small>{escape(theirs)} <i>{signed(entry.difference or 0.0, column.form)}</i></small>"
    own = written(Entry(entry.value, mark=entry.mark), column)
    place = f'class="number" data-value="{float(entry.value)!r}" title="{escape(trace)}"'
    return f"<td {place}>{_link(entry, own)}{beside}</td>"


def _link(entry: Entry, text: str) -> str:
    return f'<a href="#" data-cell="{escape(entry.cell)}">{escape(text)}</a>'


def _figure(figure: Figure) -> str:
    kind, data = ("svg+xml", figure.svg) if figure.vector else ("png", figure.png)
    image = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
    return (
        f'<figure id="{escape(figure.name)}"><h2>{escape(figure.title)}</h2>'
        f'<div class="scroll"><img alt="{escape(figure.title)}" src="{image}"></div>'
        f"<figcaption>{escape(figure.caption)}</figcaption></figure>\n"
    )


def _embedded(results: Results) -> str:
    """Every raw row, safe inside a script element."""
    kept: dict[str, Any] = {}
    for cell, content in results.contents.items():
        row = {key: value for key, value in content.get("row", {}).items() if key not in _LEFT_OUT}
        kept[cell] = {key: content[key] for key in ("setting", "error", "seconds") if key in content} | {"row": row}
    whole = {"settings": results.settings.to_dict(), "made": results.made, "cells": kept}
    return to_json(whole).replace("</", "<\\/").replace("<!--", "<\\!--")
