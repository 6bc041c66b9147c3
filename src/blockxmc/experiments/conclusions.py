"""What a reader should conclude: two sentences per data set, made from the numbers."""

from __future__ import annotations

from blockxmc.experiments.cells import Cell
from blockxmc.experiments.distances import Distance, distances
from blockxmc.experiments.results import Results
from blockxmc.experiments.settings import BASE_TITLES

# Below this a reader of the clock would not call it faster.
_FASTER = 1.1


def conclude(results: Results, data: str) -> str:
    """Two sentences: how far BP is from its bases, and what follows from that; as far as it was computed."""
    told = []
    for system, name in (("bp-accuracy", "accuracy-driven"), ("bp-speed", "speed-driven")):
        if found := distances(results, data, system):
            told.append(f"{name} BP {_listed([_told(d) for d in found])}")
    sentences = [f"On {data}, {'; '.join(told)}."] if told else []
    if speed := distances(results, data, "bp-speed"):
        sentences.append(_advice(results, data, speed))
    if failed := [BASE_TITLES[base] for base in results.settings.bases if _failed(results, data, base)]:
        sentences.append(f"Nothing can be said of {_listed(failed)}: a model failed, see the tables.")
    return " ".join(sentences)


def _failed(results: Results, data: str, base: str) -> bool:
    cells = [Cell(data, system, base) for system in ("full", "bp-accuracy", "bp-speed")]
    return any("error" in results.contents.get(cell.id, {}) for cell in cells)


def _told(d: Distance) -> str:
    points = f"loses at most {d.loss:.2f} points" if d.loss >= 0 else f"gains at least {-d.loss:.2f} points"
    return f"{points} on {d.base} ({d.counted:.1f}x counted, {d.measured:.1f}x measured speed-up)"


def _advice(results: Results, data: str, speed: list[Distance]) -> str:
    """Where speed-driven BP pays, where it loses more than it may, and where it is no faster."""
    limit = f"the tolerance of {speed[0].tolerance:g} points plus one standard error"
    kept = [d for d in speed if d.over is None]
    paying = [d.base for d in kept if d.measured >= _FASTER]
    idle = [f"{d.base} ({d.measured:.1f}x)" for d in kept if d.measured < _FASTER]
    beyond = [f"{d.base} ({d.over:.2f} points{_warned(results, data, d)})" for d in speed if d.over is not None]
    parts = []
    if paying:
        parts.append(f"Speed-driven BP pays for {_listed(paying)}: faster, with every loss within {limit}")
    if idle:
        parts.append(f"it keeps within {limit} but is hardly faster for {_listed(idle)}")
    if beyond:
        parts.append(f"its loss exceeds {limit} for {_listed(beyond)}")
    text = "; ".join(parts)
    return ("Speed-driven BP: " if not paying else "") + text + "."


def _warned(results: Results, data: str, d: Distance) -> str:
    """Whether cross-validation had found no lambda within the tolerance, or a choice did not hold on the test rows."""
    tuning = results.row(Cell(data, "tune", d.cell.base))
    if tuning is None:
        return ""
    return ", as cross-validation warned" if tuning["interval"] is None else ", not foreseen by cross-validation"


def _listed(parts: list[str]) -> str:
    """Commas and a final "and"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
