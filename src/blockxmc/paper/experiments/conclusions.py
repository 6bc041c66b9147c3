"""What a reader should conclude: two sentences per data set, made from the numbers."""

from __future__ import annotations

from blockxmc.paper.experiments.cells import Cell
from blockxmc.paper.experiments.distances import Distance, distances
from blockxmc.paper.experiments.results import Results
from blockxmc.paper.experiments.settings import BASE_TITLES

# A measured speed-up below this counts as no faster. Not measured.
_FASTER = 1.1


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
    rows = "rows of unit length (as given for Naive Bayes)" if chosen.normalise else "rows as given"
    how = (
        f"{chosen.folds}-fold cross-validation (solved to {FOLD_TOL:g}), tolerance {chosen.tolerance:g} points, blocks "
        f"{chosen.blocks}, LEML rank {chosen.rank}, FastXML {chosen.trees} trees, {rows}, {scored}, seed {chosen.seed}"
    )
    how = "; ".join([how, *results.sampled()])
    took = [content.get("seconds", 0.0) for content in results.contents.values()]
    cpu = [content["cpu_seconds"] for content in results.contents.values() if "cpu_seconds" in content]
    spent = f", {sum(cpu) / 60:.0f} minutes of processor time" if len(cpu) == len(took) else ""
    cells = f"{len(took)} cells, computed in {sum(took) / 60:.0f} minutes{spent}"
    return [line for line in (made.get("date", ""), machine, versions, how, cells) if line]


def conclude(results: Results, data: str) -> str:
    """A few sentences on what was computed: how far BP is from its bases, and what follows from that."""
    told = []
    for system, name in (("bp-accuracy", "accuracy-driven"), ("bp-speed", "speed-driven")):
        if found := [d for d in distances(results, data, system) if d.feasible]:
            twins = [d.base for d in found if "same_as" in (results.row(d.cell) or {})]
            parts = [_told(d) for d in found if d.base not in twins]
            if twins:
                parts.append(f"is the same model on {_listed(twins)}")
            told.append(f"{name} BP {_listed(parts)}")
    sentences = [f"On {data}, {'; '.join(told)}."] if told else []
    speed = distances(results, data, "bp-speed")
    if feasible := [d for d in speed if d.feasible]:
        sentences.append(_advice(feasible))
    if none := [d for d in speed if not d.feasible]:
        parts = [f"{d.base} (the least loss: at most {d.loss:.2f} points on the test rows)" for d in none]
        limit = f"{none[0].tolerance:g} points"
        sentences.append(f"No lambda keeps within {limit} in all folds: speed-driven BP is none for {_listed(parts)}.")
    if failed := [BASE_TITLES[base] for base in results.settings.bases if _failed(results, data, base)]:
        sentences.append(f"Nothing can be said of {_listed(failed)}: a model failed or was left out, see the tables.")
    return " ".join(sentences)


def _failed(results: Results, data: str, base: str) -> bool:
    cells = [Cell(data, system, base) for system in ("full", "bp-accuracy", "bp-speed")]
    return any("error" in results.contents.get(cell.id, {}) for cell in cells)


def _told(d: Distance) -> str:
    points = f"loses at most {d.loss:.2f} points" if d.loss >= 0 else f"gains at least {-d.loss:.2f} points"
    return f"{points} on {d.base} ({d.counted:.1f}x counted, {d.measured:.1f}x measured speed-up)"


def _advice(speed: list[Distance]) -> str:
    """Where speed-driven BP pays, where it loses more than it may, and where it is no faster."""
    limit = f"the tolerance of {speed[0].tolerance:g} points plus one standard error"
    kept = [d for d in speed if d.over is None]
    paying = [d.base for d in kept if d.measured >= _FASTER]
    idle = [f"{d.base} ({d.measured:.1f}x)" for d in kept if d.measured < _FASTER]
    beyond = [f"{d.base} ({d.over:.2f} points{_unforeseen(d)})" for d in speed if d.over is not None]
    parts = []
    if paying:
        parts.append(f"Speed-driven BP pays for {_listed(paying)}: faster, with every loss within {limit}")
    if idle:
        parts.append(f"it keeps within {limit} but is hardly faster for {_listed(idle)}")
    if beyond:
        parts.append(f"its loss exceeds {limit} for {_listed(beyond)}")
    text = "; ".join(parts)
    return ("Speed-driven BP: " if not paying else "") + text + "."


def _unforeseen(d: Distance) -> str:
    """Feasible means that cross-validation, where it was run, found it within the tolerance."""
    return "" if d.promised is None else ", not foreseen by cross-validation"


def _listed(parts: list[str]) -> str:
    """Commas and a final "and"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
