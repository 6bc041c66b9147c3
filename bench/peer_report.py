"""From measured cells to the page about peers: medians, the bars, tables and sentences. Nothing here measures."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import StringIO
from statistics import median
from typing import Any

Row = dict[str, Any]

TITLES = {
    "blockxmc default": "blockxmc",
    "pecos xr-linear": "PECOS XR-Linear",
    "omikuji parabel-1": "omikuji Parabel, 1 tree",
    "omikuji parabel-3": "omikuji Parabel, 3 trees",
    "omikuji bonsai-3": "omikuji Bonsai, 3 trees",
    "napkinxc plt": "napkinXC PLT",
    "libmultilabel tree": "LibMultiLabel tree",
}
OURS, PECOS, OMIKUJI, NAPKINXC = "blockxmc default", "pecos xr-linear", "omikuji parabel-3", "napkinxc plt"
DEFAULT = "default"  # the setting in which blockxmc is served without being told anything
# What each system is without being told anything: what tables show; peers.csv has all settings.
USUAL = (DEFAULT, "beam 10")
COMPARABLE = 0.5  # points of P@5 below the best peer at which a setting's speed still counts
MODEL_NUMBERS = ("train_cpu_s", "train_wall_s", "peak_rss_mb", "model_mb")


@dataclass(frozen=True)
class Bar:
    """A bar to clear: ``"difference"`` must not be below the limit, ``"ratio"`` not above, ``"below"`` under it."""

    title: str
    kind: str
    limit: float

    def met(self, value: float) -> bool:
        if self.kind == "difference":
            return value >= self.limit
        return value < self.limit if self.kind == "below" else value <= self.limit

    @property
    def wanted(self) -> str:
        return {"difference": "at least", "ratio": "at most", "below": "under"}[self.kind] + f" {self.limit:.2g}"


BARS = {
    "P@1": Bar("P@1 less the best peer's", "difference", 0.0),
    "P@3": Bar("P@3 less the best peer's", "difference", 0.0),
    "P@5": Bar("P@5 less the best peer's", "difference", 0.0),
    "batch_us": Bar("batch time / fastest comparable peer", "ratio", 0.5),
    "one_us": Bar("`predict_one` / fastest comparable peer", "ratio", 0.25),
    "one_topk_us": Bar("`predict_topk` with one row / fastest comparable peer", "ratio", 0.25),
    "strict batch_us": Bar("batch time / fastest peer as precise as blockxmc", "ratio", 0.5),
    "strict one_us": Bar("`predict_one` / fastest peer as precise as blockxmc", "ratio", 0.25),
    "strict one_topk_us": Bar("`predict_topk` with one row / fastest peer as precise as blockxmc", "ratio", 0.25),
    "batch_pecos": Bar("batch time / PECOS, beam 10", "ratio", 0.6),
    "route_pecos": Bar("batch time by `route` at the P@5 of PECOS, beam 10 / its batch time", "ratio", 1 / 3),
    "train_pecos": Bar("training CPU / PECOS", "ratio", 1.2),
    "train_omikuji": Bar("training CPU / omikuji, 3 trees", "below", 1.0),
    "train_napkinxc": Bar("training CPU / napkinXC", "below", 1.0),
    "many_omikuji": Bar("training wall time with many threads / omikuji, 3 trees", "below", 1.0),
    "model_mb": Bar("model size / PECOS", "ratio", 1.1),
}


@dataclass(frozen=True)
class Check:
    """How one bar stands on one data set."""

    value: float
    met: bool
    against: str


def title(row: Row) -> str:
    """System and setting in words."""
    return f"{TITLES[row['system']]}, {row['setting']}"


def newest(cells: Iterable[Row]) -> list[Row]:
    """Of each system on each data set, the runs of the version that finished last."""
    groups: dict[tuple[str, str], dict[str, list[Row]]] = {}
    for cell in cells:
        groups.setdefault((cell["data"], cell["system"]), {}).setdefault(cell["version"], []).append(cell)
    chosen: list[Row] = []
    for versions in groups.values():
        chosen += max(versions.values(), key=lambda runs: max(run["finished"] for run in runs))
    return chosen


def medians(cells: Sequence[Row]) -> list[Row]:
    """A row per data set, system and setting: the median of every number over the runs."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for cell in cells:
        for setting, numbers in cell["settings"].items():
            key = cell["data"], cell["system"], setting
            groups.setdefault(key, []).append({name: cell.get(name) for name in MODEL_NUMBERS} | numbers)
    rows = []
    for (data, system, setting), runs in groups.items():
        row: Row = {"data": data, "system": system, "setting": setting, "runs": len(runs)}
        for name in runs[0]:
            known = [run[name] for run in runs if run[name] is not None]
            row[name] = median(known) if known else None
        rows.append(row)
    return rows


def comparable(peers: Sequence[Row], ours: float = float("inf")) -> list[Row]:
    """The settings of peers whose P@5 is near the best peer's, and those that are no less precise than ours."""
    floor = min(max(row["P@5"] for row in peers) - COMPARABLE, ours)
    return [row for row in peers if row["P@5"] >= floor]


def checks(rows: Sequence[Row]) -> dict[str, Check]:
    """Every bar that can be checked with the rows of one data set."""
    ours = next((row for row in rows if row["system"] == OURS and row["setting"] == DEFAULT), None)
    peers, _ = _split(rows)
    if ours is None or not peers:
        return {}
    found = {}
    for name in ("P@1", "P@3", "P@5"):
        best = max(peers, key=lambda row, name=name: row[name])
        found[name] = ours[name] - best[name], title(best)
    for reading, near in {"": comparable(peers), "strict ": comparable(peers, ours["P@5"])}.items():
        for name, number in {"batch_us": "batch_us", "one_us": "one_us", "one_topk_us": "one_us"}.items():
            fastest = min(near, key=lambda row, number=number: row[number])
            found[reading + name] = ours[name] / fastest[number], title(fastest)
    by_system = {row["system"]: row for row in peers}
    others = {"train_pecos": PECOS, "train_omikuji": OMIKUJI, "train_napkinxc": NAPKINXC, "model_mb": PECOS}
    for name, system in others.items():
        if system in by_system:
            number = "model_mb" if name == "model_mb" else "train_cpu_s"
            found[name] = ours[number] / by_system[system][number], TITLES[system]
    usual = next((row for row in peers if (row["system"], row["setting"]) == (PECOS, "beam 10")), None)
    if usual is not None:
        found["batch_pecos"] = ours["batch_us"] / usual["batch_us"], title(usual)
        as_precise = [row for row in rows if row["system"] == OURS and row["P@5"] >= usual["P@5"]]
        if as_precise:
            fastest = min(as_precise, key=lambda row: row["batch_us"])
            found["route_pecos"] = fastest["batch_us"] / usual["batch_us"], f"{title(usual)}, by {fastest['setting']}"
    wall = [row.get("many_wall_s") for row in (ours, by_system.get(OMIKUJI, {}))]
    if wall[0] and wall[1]:
        found["many_omikuji"] = wall[0] / wall[1], TITLES[OMIKUJI]
    return {name: Check(value, BARS[name].met(value), against) for name, (value, against) in found.items()}


# ---- the page ----
def page(rows: Sequence[Row], about: Row, sets: dict[str, Row], figures: dict[str, str]) -> str:
    """The whole page: the bars first, then a section per data set."""
    lines = [
        "# blockxmc beside its peers",
        "",
        f"Written by `make bench-peers`; {_machine(about)}",
        "All settings and numbers: [peers.csv](peers.csv), to download.",
        "",
        "## The bars",
        "",
    ]
    standing = {data: checks(_of(rows, data)) for data in sets}
    lines += [*summary(standing), "", "## How it was measured", "", *_method(about), ""]
    for data in sets:
        lines += section(data, sets[data], _of(rows, data), figures.get(data))
    return "\n".join(lines).rstrip() + "\n"


def summary(standing: dict[str, dict[str, Check]]) -> list[str]:
    """A table of bars by data set, and a sentence for each bar."""
    measured = {data: found for data, found in standing.items() if found}
    lines = []
    if measured:
        lines += ["| bar | wanted | " + " | ".join(measured) + " |", "|---|---" + "|---:" * len(measured) + "|"]
        for name, bar in BARS.items():
            shown = [_standing(name, found.get(name)) for found in measured.values()]
            lines.append(f"| {bar.title} | {bar.wanted} | " + " | ".join(shown) + " |")
        lines += ["", "Bold: met.", ""]
        for name, bar in BARS.items():
            lines.append(_sentence(bar, {data: found[name] for data, found in measured.items() if name in found}))
    missing = [data for data, found in standing.items() if not found]
    if missing:
        lines += ["", f"Without both blockxmc and a peer, so not checked: {', '.join(missing)}."]
    return lines


def fill_readme(readme: str, rows: Sequence[Row]) -> str:
    """The README with its table of results, between its two marks, made anew: ours and the two most precise peers of each
    set, all at their own defaults."""
    chosen = {(OURS, DEFAULT)}
    chosen |= {(system, "beam 10") for system in (PECOS, OMIKUJI, "omikuji bonsai-3", NAPKINXC)}
    titles = ["data", "system", "P@1 / 3 / 5", "training CPU s", "model MB", "batch µs", "one row µs"]
    lines = ["", "| " + " | ".join(titles) + " |", "|---|---" + "|---:" * (len(titles) - 2) + "|"]
    for data in dict.fromkeys(row["data"] for row in rows):
        shown = [row for row in _of(rows, data) if (row["system"], row["setting"]) in chosen]
        shown.sort(key=lambda row: (row["system"] != OURS, -(row["P@1"] + row["P@3"] + row["P@5"])))
        for first, row in enumerate(shown[:3]):
            name = TITLES[row["system"]]
            cells = [data if not first else "", f"**{name}**" if row["system"] == OURS else name,
                     _three(row, "P"), f"{row['train_cpu_s']:,.1f}", f"{row['model_mb']:,.1f}", _micro(row["batch_us"]),
                     _micro(row["one_us"])]  # fmt: skip
            lines.append("| " + " | ".join(cells) + " |")
    head, _, rest = readme.partition("<!-- results -->")
    _, _, tail = rest.partition("<!-- /results -->")
    return f"{head}<!-- results -->" + "\n".join(lines) + f"\n<!-- /results -->{tail}"


def section(data: str, size: Row, rows: Sequence[Row], figure: str | None) -> list[str]:
    """One data set: its size, what every system is by default, and how the settings compare."""
    lines = [f"## {data}", ""]
    lines += [f"{size['train_rows']:,} training rows, {size['test_rows']:,} test rows, {size['features']:,} features, "
              f"{size['labels']:,} labels.", ""]  # fmt: skip
    lines += [*table([row for row in rows if row["setting"] in USUAL]), ""]
    missing = [name for system, name in TITLES.items() if system not in {row["system"] for row in rows}]
    if missing:
        lines.append(f"- Not measured here: {'; '.join(missing)}.")
    peers, ours = _split(rows)
    if peers and ours:
        lines.append("- " + _fastest_of_ours(peers, ours))
    if figure:
        lines += ["", f"![P@5 against batch time on {data}]({figure})"]
    return [*lines, ""]


def as_csv(rows: Sequence[Row]) -> str:
    """Every system and setting of all data sets, a row each."""
    text, names = StringIO(), list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(row | {"system": TITLES[row["system"]]} for row in rows)
    return text.getvalue()


def table(rows: Sequence[Row]) -> list[str]:
    """Systems and settings of one data set."""
    titles = ["system", "setting", "training CPU s", "wall s", "many threads s", "peak MB", "model MB", "P@1 / 3 / 5",
              "PSP@1 / 3 / 5", "batch µs", "one row µs", "p99", "runs"]  # fmt: skip
    lines = ["| " + " | ".join(titles) + " |", "|---|---" + "|---:" * (len(titles) - 2) + "|"]
    known = list(TITLES)
    for row in sorted(rows, key=lambda row: known.index(row["system"])):
        one, p99 = _micro(row["one_us"]), _micro(row["one_us_p99"])
        if "one_topk_us" in row:
            one, p99 = f"{one}; {_micro(row['one_topk_us'])}", f"{p99}; {_micro(row['one_topk_us_p99'])}"
        many = f"{row['many_wall_s']:,.1f}" if row.get("many_wall_s") else ""
        rss = "" if row["peak_rss_mb"] is None else f"{row['peak_rss_mb']:,.0f}"
        shown = [TITLES[row["system"]], row["setting"], f"{row['train_cpu_s']:,.1f}", f"{row['train_wall_s']:,.1f}", many,
                 rss, f"{row['model_mb']:,.1f}", _three(row, "P"), _three(row, "PSP"), _micro(row["batch_us"]), one, p99,
                 str(row["runs"])]  # fmt: skip
        lines.append("| " + " | ".join(shown) + " |")
    return lines


def _fastest_of_ours(peers: Sequence[Row], ours: Sequence[Row]) -> str:
    floor = max(row["P@5"] for row in peers) - COMPARABLE
    near = [row for row in ours if row["P@5"] >= floor]
    if not near:
        return f"No setting of blockxmc reaches P@5 {floor:.2f}, {COMPARABLE:g} below the best peer's."
    fastest, peer = min(near, key=_batch), min(comparable(peers), key=_batch)
    return (
        f"At P@5 of at least {floor:.2f} ({COMPARABLE:g} below the best peer's) the fastest is {title(fastest)} with "
        f"{_micro(fastest['batch_us'])} µs among ours and {title(peer)} with {_micro(peer['batch_us'])} µs among peers."
    )


def _method(about: Row) -> list[str]:
    versions = ", ".join(f"{name} {'/'.join(found)}" for name, found in about["versions"].items())
    return [
        f"- Versions: {versions}. Every system has its defaults; Bonsai is omikuji with the settings its documentation "
        "gives.",
        "- Rows have unit length for all. The first five labels of every system are scored by `blockxmc.metrics`, PSP with "
        "A = 0.55, B = 1.5.",
        f"- Training: CPU seconds (user and system, all threads) with {about['threads']} threads, reading the input not "
        "counted; napkinXC copies its input and writes its model while it trains, and both are in its figure. Peak MB is "
        "the resident memory of the process up to the end of training, its rows included.",
        f"- Many threads: wall seconds of one more training with {about.get('many') or 16} threads, on a machine with so "
        "many cores, which need not be that of the other columns.",
        "- Models are saved, measured in MB on disk, and served from disk. Batch: CPU microseconds per row of the whole "
        "test set on one thread, median of three, fewer where that takes more than 20 s of CPU; omikuji has no batch "
        "call and is called row by row, with sparse weights for up to 5,000 rows (the labels of the others are those of "
        "densified weights).",
        "- One row: CPU microseconds of a call with one row through the Python API, in the form that API takes; median and "
        "99th percentile over up to 1,000 rows. For blockxmc: `predict_one`; `predict_topk`.",
        f"- Load average of the machine when trainings ended: {about['load']}. A busy machine inflates CPU time as well, "
        "by its caches: compare ratios of cells measured under the same load.",
        f"- Numbers are medians over up to {about['repeats']} trainings; over one where a training takes more than "
        f"{about['long_s']:g} s of CPU. Trainings of blockxmc and PECOS differ by their seed, the others draw their own. "
        "Differences of precision under about half a point are noise on small test sets.",
        f"- Comparable peers: settings whose P@5 is within {COMPARABLE:g} of the best peer's. Where blockxmc is less "
        "precise than that, this leaves out faster peers that it does not beat either; the stricter reading counts them: "
        "every setting that is comparable or has at least the P@5 of blockxmc's default.",
    ]


def _machine(about: Row) -> str:
    return f"{about['cpu']}, {about['cores']} cores, Python {about['python']}, {about['date'][:10]}."


def _sentence(bar: Bar, found: dict[str, Check]) -> str:
    if not found:
        return f"- {bar.title}: not measured."
    missed = [data for data, check in found.items() if not check.met]
    if not missed:
        return f"- {bar.title}, {bar.wanted}: met on all {len(found)}."
    return (
        f"- {bar.title}, {bar.wanted}: met on {len(found) - len(missed)} of {len(found)}; not on {', '.join(missed)}."
    )


def _standing(name: str, check: Check | None) -> str:
    if check is None:
        return ""
    return f"**{_value(name, check.value)}**" if check.met else _value(name, check.value)


def _value(name: str, value: float) -> str:
    return f"{value:+.2f}" if BARS[name].kind == "difference" else f"{value:.2f}"


def _of(rows: Sequence[Row], data: str) -> list[Row]:
    return [row for row in rows if row["data"] == data]


def _split(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    return [row for row in rows if row["system"] != OURS], [row for row in rows if row["system"] == OURS]


def _batch(row: Row) -> float:
    return float(row["batch_us"])


def _three(row: Row, name: str) -> str:
    return " / ".join(f"{row[f'{name}@{k}']:.2f}" for k in (1, 3, 5))


def _micro(value: float) -> str:
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"
