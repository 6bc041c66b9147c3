"""The paper's tables as functions of finished cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from blockxmc.paper.experiments.cells import LEFT_OUT, NOT_COMPUTED, Cell
from blockxmc.paper.experiments.results import Entry, Results
from blockxmc.paper.experiments.settings import BASE_TITLES, KS
from blockxmc.paper.experiments.wanted import compared, every_system, published_systems


@dataclass(frozen=True)
class Column:
    """A column: its heading and how its numbers are written."""

    title: str
    form: str = ".2f"


@dataclass(frozen=True)
class Table:
    """Rows of entries under columns; the first columns may be text."""

    name: str
    title: str
    columns: list[Column]
    rows: list[list[Entry]]
    note: str = ""


TEXT = ""
PRECISION = [f"{metric}@{k}" for metric in ("P", "PSP") for k in KS]
_PUBLISHED_NOTE = "In brackets: the published figure, and ours less theirs."


def table_data(results: Results) -> list[Table]:
    """Sizes of the data sets (the paper's table 1)."""
    columns = {
        "train_rows": Column("# Training", ",.0f"),
        "test_rows": Column("# Testing", ",.0f"),
        "features": Column("# Features", ",.0f"),
        "labels": Column("# Labels", ",.0f"),
        "samples_per_label": Column("ASpL"),
        "labels_per_sample": Column("ALpS"),
        "nnz_per_row": Column("nnz/row", ".1f"),
    }
    cells = [Cell(data, "data") for data in results.data]
    rows = [_line(results, [Entry(cell.data)], cell, list(columns)) for cell in cells]
    note = "ASpL: average samples per label; ALpS: average labels per sample; both of the training rows."
    heads = [Column("Data", TEXT), *columns.values()]
    return [Table("table-data", "Data set statistics", heads, rows, _with_published(note, rows))]


def table_precision(results: Results) -> list[Table]:
    """Precision, propensity-scored precision and speed-up of BP, its bases and other systems (the paper's table 3)."""
    keys = [*PRECISION, "speedup_paper", "speedup", "batch_us"]
    heads = [
        *(Column(key) for key in PRECISION),
        Column("Speed-up", ".1fx"),
        Column("Speed-up, router counted", ".1fx"),
        Column("µs/row", ",.1f"),
        Column("Speed-up, measured", ".1fx"),
    ]
    cells = [cell for data in results.data for cell in compared(data, results.settings.bases)]
    lines = _lines(results, cells, keys)
    rows = [[*line, Entry(results.measured(cell), cell.id)] for line, cell in zip(lines, cells, strict=True)]
    note = (
        "Speed-up: labels over candidates, as the paper counts; router counted: labels over all vector products of a row; "
        "measured: CPU time per row of the base without blocks over that of the system, in batch on one thread. "
        "CBMLC scores all labels (the paper counts 1x); here labels without a positive in a cluster are not counted, since "
        "they cost nothing."
    )
    if any(entry.mark for row in rows for entry in row):
        note += f" † scored on a random {results.settings.max_test_rows:,} of the test rows."
    note += _slower(results)
    heads = [Column("Data", TEXT), Column("Method", TEXT), *heads]
    note += (
        " To the letter: k-means at each lambda, the paper's search for q without our limits, the authors' parameters, "
    )
    note += "rows as the files have them. " + _constants(results)
    whole = Table("table-precision", "P@k, PSP@k and prediction speed-up", heads, rows, _with_published(note, rows))
    return [whole, *_choices(results), _settings(results, cells)]


def _slower(results: Results) -> str:
    """Label filters where they count few labels and still take longer than their base."""
    told = []
    for data in results.data:
        cell = Cell(data, "lf", "dismec")
        row, measured = results.row(cell), results.measured(cell)
        if row is not None and measured is not None and measured < 1:
            told.append(f"{data} {row['speedup_paper']:.1f}x counted, {measured:.2f}x measured")
    if not told:
        return ""
    return (
        f" Label filters are slower than their base ({'; '.join(told)}): finding the labels that no filter excludes takes "
        "longer than scoring all labels with pruned vectors, which the count of labels does not show."
    )


def _constants(results: Results) -> str:
    """A and B of PSP, which say little without them."""
    found = {data: results.row(Cell(data, "full", base)) for data, base in _pairs(results)}
    told = [f"{data} {row['propensity_a']:g}, {row['propensity_b']:g}" for data, row in found.items() if row]
    return f"A and B of PSP: {'; '.join(told)}." if told else ""


def _choices(results: Results) -> list[Table]:
    """What cross-validation found: the interval of each fold, and the choices; ours beside the letter."""
    rows = []
    for data, base in _pairs(results):
        for letter in (False, True):
            tuning = results.tuning(data, base, letter=letter)
            if tuning is None:
                continue
            cell = Cell(data, "tune-letter" if letter else "tune", base).id
            intervals = [_interval(fold["interval"]) for fold in tuning["folds"]]
            lams = [lam for lam, kept in zip(tuning["lams"], tuning["feasible"], strict=True) if kept]
            feasible = ", ".join(f"{lam:.4g}" for lam in lams) or "none"
            points = [tuning["speed_driven"] or tuning["least_loss"], tuning["accuracy_driven"]]
            numbers = [[p["n_blocks"], p["lam"], p["loss"], p["products"]] for p in points]
            name = f"{BASE_TITLES[base]}{', to the letter' if letter else ''}"
            names = [data, name, "; ".join(intervals), feasible]
            rows.append([*map(Entry, names), *(Entry(value, cell) for point in numbers for value in point)])
    heads = [Column(head, TEXT) for head in ("Data", "Base", "Interval of each fold", "Feasible lambdas")]
    for name in ("Speed", "Accuracy"):
        heads += [
            Column(f"{name}: q", ".0f"),
            Column("lambda", ".5g"),
            Column("Worst loss"),
            Column("Products", ",.1f"),
        ]
    note = (
        "A fold's interval: from the smallest to the largest lambda that keeps every P@k within the tolerance there. "
        "Feasible: within it in every fold. Speed: of the feasible pairs the fewest products (none feasible: the least "
        "loss); accuracy: the best mean precision of the feasible ones, which may have another number of blocks."
    )
    return [Table("table-choices", "What cross-validation chose", heads, rows, note)] if rows else []


def _interval(found: Sequence[float] | None) -> str:
    return "none" if found is None else f"{found[0]:.4g} to {found[1]:.4g}"


def _settings(results: Results, cells: Sequence[Cell]) -> Table:
    """What each row was trained with, and the command that trains it again."""
    rows = []
    for cell in cells:
        if (row := results.row(cell)) is None:
            continue
        numbers = [row.get(key) for key in ("blocks", "lam", "captured", "candidates", "products")]
        names = [cell.data, results.title(cell)]
        rows.append([*map(Entry, names), *(Entry(value, cell.id) for value in numbers), Entry(_command(results, cell))])
    heads = [Column("Data", TEXT), Column("Method", TEXT), Column("q", ".0f"), Column("lambda", ".5g")]
    heads += [
        Column("Captured", ".3f"),
        Column("Candidates", ",.1f"),
        Column("Products", ",.1f"),
        Column("Command", TEXT),
    ]
    note = (
        "q: blocks that have rows; captured: share of the training positives whose label lies in their block. "
        "DATA-unit has rows of unit length: blockxmc convert DATA DATA-unit --unit-rows."
    )
    return Table("table-settings", "How each row is trained again", heads, rows, note)


def _command(results: Results, cell: Cell) -> str:
    """The command that trains a row of the precision table."""
    raw = cell.letter or cell.base == "naive-bayes" or not results.settings.normalise
    files = (results.row(Cell(cell.data, "data")) or {}).get("files", [])
    train = next((name for name in files if "train" in name.lower() or name.lower().startswith("trn")), "train.txt")
    train = train if raw else "train.txt"
    words = ["blockxmc train", f"{cell.data if raw else f'{cell.data}-unit'}/{train}", "--model MODEL"]
    kind = cell.system.replace("-letter", "")
    base = [f"--base {cell.base}", *(["--letter"] if cell.letter else [])]
    row = results.row(cell) or {}
    if kind in ("bp-speed", "bp-accuracy"):
        tuning = results.tuning(cell.data, cell.base, letter=cell.letter)
        if tuning is None:
            return NOT_COMPUTED
        point = tuning[f"{kind.removeprefix('bp-')}_driven"] or tuning["least_loss"]
        words += [*base, f"--blocks {point['n_blocks']} --lam {point['lam']!r}"]
        words += ["--assign-at " + ",".join(map(repr, point["assigned_at"])), "--weights per-block --route 1"]
    elif kind == "cbmlc":
        words += ["--system cbmlc", *base, f"--blocks {row.get('blocks')}"]
    elif kind != "bp-default":
        words += [f"--system {kind}", *(base if kind in ("full", "lf") else [])]
    return " ".join([*words, *([f"--seed {results.settings.seed}"] if results.settings.seed else [])])


def table_time(results: Results) -> list[Table]:
    """Seconds of partitioning, of training with BP, and of training the base alone (the paper's table 2)."""
    parts = {
        "partition_seconds": "Partitioning",
        "router_seconds": "Router",
        "blocks_seconds": "BP training",
        "train_seconds": "BP, all of it",
        "train_cpu_seconds": "BP, CPU s",
    }
    original = {"train_seconds": "Original training", "train_cpu_seconds": "Original, CPU s"}
    rows = []
    for data, base in _pairs(results):
        speed, full = Cell(data, "bp-speed", base), Cell(data, "full", base)
        infeasible = (results.row(speed) or {}).get("feasible") is False
        name = f"{BASE_TITLES[base]}{' (speed-driven: none; least loss)' if infeasible else ''}"
        line = _line(results, [Entry(data), Entry(name)], speed, list(parts))
        rows.append([*line, *_line(results, [], full, list(original))])
    heads = [Column("Data", TEXT), Column("Base", TEXT)]
    heads += [Column(title) for title in (*parts.values(), *original.values())]
    note = (
        f"Wall seconds of the speed-driven model, {results.settings.n_threads} threads, and CPU seconds of all threads "
        "together (which other work on the machine disturbs less); all of it includes the assessment of the router on "
        "held-out rows, but not the tuning of lambda and of the number of blocks."
    )
    return [Table("table-time", "Elapsed training time in seconds", heads, rows, _with_published(note, rows))]


def table_router(results: Results) -> list[Table]:
    """Seconds to train and to ask the router, and the number of blocks (the paper's table 4)."""
    keys = ["blocks", "router_seconds", "router_predict_seconds", "router_us"]
    rows = []
    for data, base in _pairs(results):
        cell = Cell(data, "bp-speed", base)
        line = _line(results, [Entry(data), Entry(results.title(cell))], cell, keys[:3])
        row = results.row(cell)
        per_row = (
            1e6 * row["router_predict_seconds"] / max(row["rows"], 1)
            if row and "router_predict_seconds" in row
            else None
        )
        rows.append([*line, Entry(per_row, cell.id, "router_predict_seconds")])
    heads = [Column("Data", TEXT), Column("Method", TEXT), Column("q", ".0f"), Column("Train s", ".3f")]
    heads += [Column("Prediction s", ".4f"), Column("Prediction µs/row", ".2f")]
    note = "Speed-driven models; prediction routes the scored test rows."
    return [Table("table-router", "Router train and prediction time", heads, rows, _with_published(note, rows))]


def table_recall(results: Results) -> list[Table]:
    """Recall of the bases and of speed-driven BP (the paper's table 5)."""
    cells = [Cell(data, kind, base) for data, base in _pairs(results) for kind in ("full", "bp-speed")]
    rows = _lines(results, cells, [f"R@{k}" for k in KS])
    heads = [Column("Data", TEXT), Column("Method", TEXT), *(Column(f"R@{k}") for k in KS)]
    note = "Rows without labels are left out."
    return [Table("table-recall", "R@k", heads, rows, _with_published(note, rows))]


def table_systems(results: Results) -> list[Table]:
    """Every system of the library on every data set: quality, counted and measured cost; and where the hits come from."""
    ranking = [f"{metric}@{k}" for metric in ("P", "PSP", "R") for k in KS]
    costs = {
        "candidates": Column("Candidates", ",.1f"),
        "speedup_paper": Column("Speed-up", ".1fx"),
        "speedup": Column("Speed-up, router counted", ".1fx"),
        "speedup_flops": Column("Speed-up, touched weights", ".1fx"),
        "batch_us": Column("µs/row batch", ",.1f"),
        "one_us": Column("µs/row single", ",.1f"),
        "train_cpu_seconds": Column("Training CPU s", ",.1f"),
        "train_seconds": Column("Training s", ",.1f"),
        "model_mb": Column("Model MB", ",.1f"),
    }
    cells = [cell for data in results.data for cell in every_system(data, results.settings.bases)]
    names = [Column("Data", TEXT), Column("System", TEXT)]
    rows = _lines(results, cells, [*ranking, *costs])
    note = (
        f"Batch: one thread, CPU time; single: one row per call; training: {results.settings.n_threads} threads. Speed-ups "
        "are over scoring all labels, by products counted; FastXML's leaves are not candidates to score. BP: the number of "
        "blocks and lambda as train --paper chooses them."
    )
    whole = Table("table-systems", "All systems", [*names, *map(Column, ranking), *costs.values()], rows, note)
    return [whole, _training(results), _deciles(results, cells, names)]


def _training(results: Results) -> Table:
    """CPU seconds of training BP and its base, as the paper compares them."""
    parts = {
        "partition_cpu_seconds": "Partitioning",
        "router_cpu_seconds": "Router",
        "blocks_cpu_seconds": "Blocks",
        "train_cpu_seconds": "BP, all of it",
    }
    rows = []
    for data in results.data:
        for base, title in BASE_TITLES.items():
            line = _line(results, [Entry(data), Entry(title)], Cell(data, "bp-quick", base), ["candidates", *parts])
            rows.append([*line, results.entry(Cell(data, "full", base), "train_cpu_seconds")])
    heads = [Column("Data", TEXT), Column("Base", TEXT), Column("Candidates", ",.1f")]
    heads += [Column(title) for title in (*parts.values(), "The base alone")]
    note = (
        "CPU seconds, the processors together. All of it includes the trials that choose q and lambda, and the assessment "
        "of the router on held-out rows."
    )
    return Table("table-systems-training", "Training BP and its base", heads, rows, note)


def table_published(results: Results) -> list[Table]:
    """Ours beside published figures: systems with our defaults, and with their authors' settings."""
    keys = [f"P@{k}" for k in KS]
    cells = [cell for data in results.data for cell in published_systems(data, results.settings.bases)]
    rows = _lines(results, cells, keys)
    note = (
        "By default: rows of unit length, default parameters. As published: rows as the files have them, and the authors' "
        "settings (to the letter: LEML rank 500, lam 0.1, no bias, a random start; PD-Sparse lam 0.1; LPSR and FastXML "
        "have those by default; naive Bayes always takes such rows). LPSR-NB ranks labels by naive Bayes: where it stays "
        "behind, naive Bayes alone does, too. DiSMEC, alone and under LPSR, shows what the tree costs. "
        + _PUBLISHED_NOTE
    )
    heads = [Column("Data", TEXT), Column("System", TEXT), *map(Column, keys)]
    return [Table("table-published", "Beside published figures", heads, rows, note)]


def _deciles(results: Results, cells: Sequence[Cell], names: list[Column]) -> Table:
    rows = []
    for cell in cells:
        row = results.row(cell)
        if row is None:
            rows.append(_line(results, [Entry(cell.data), Entry(cell.title)], cell, ["P@5"] + [""] * 10))
            continue
        shares = [
            Entry(100 * value, cell.id, f"deciles.precision[{i}]")
            for i, value in enumerate(row["deciles"]["precision"])
        ]
        rows.append([Entry(cell.data), Entry(cell.title), results.entry(cell, "P@5"), *shares])
    heads = [*names, Column("P@5"), *(Column(f"{10 * i}-{10 * i + 10} %") for i in range(10))]
    note = "Labels in ten bins of equal size, the most frequent in training first; the parts add up to P@5."
    return Table("table-systems-deciles", "P@5 by label frequency", heads, rows, note)


def _pairs(results: Results) -> list[tuple[str, str]]:
    return [(data, base) for data in results.data for base in results.settings.bases]


def why_nothing(error: str) -> str:
    """What stands where a result would.

    >>> why_nothing(LEFT_OUT), why_nothing("no memory")
    ('left out', 'failed: no memory')
    """
    return error if error in (LEFT_OUT, NOT_COMPUTED) else f"failed: {error}"


def _line(results: Results, names: list[Entry], cell: Cell, keys: Sequence[str]) -> list[Entry]:
    error = results.error(cell)
    if error is None:
        return [*names, *(results.entry(cell, key) for key in keys)]
    return [*names, Entry(why_nothing(error), cell.id, "error"), *(Entry(None, cell.id) for _ in keys[1:])]


def _lines(results: Results, cells: Sequence[Cell], keys: Sequence[str]) -> list[list[Entry]]:
    return [_line(results, [Entry(cell.data), Entry(results.title(cell))], cell, keys) for cell in cells]


def _with_published(note: str, rows: list[list[Entry]]) -> str:
    shown = any(entry.published is not None for row in rows for entry in row)
    return f"{note} {_PUBLISHED_NOTE}" if shown else note


def written(entry: Entry, column: Column) -> str:
    """An entry as text.

    >>> written(Entry(61.5, published=62.54), Column("P@1")), written(Entry(None), Column("P@1"))
    ('61.50 (62.54, −1.04)', '–')
    """
    if entry.value is None:
        return "–"
    if isinstance(entry.value, str):
        return entry.value
    text = number(entry.value, column.form) + entry.mark
    if entry.published is None:
        return text
    theirs = number(entry.published, column.form) + entry.published_mark
    return f"{text} ({theirs}, {signed(entry.difference or 0.0, column.form)})"


def number(value: float, form: str) -> str:
    """A number in a column's form; a form that ends in x puts an x after it."""
    unit = "x" if form.endswith("x") else ""
    return format(value, form.removesuffix("x")) + unit


def signed(value: float, form: str) -> str:
    """A difference with its sign, with a typographic minus."""
    return ("−" if value < 0 else "+") + number(abs(value), form)
