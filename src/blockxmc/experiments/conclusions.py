"""What a reader should conclude: two sentences per data set, made from the numbers."""

from __future__ import annotations

from dataclasses import dataclass

from blockxmc.experiments.cells import Cell
from blockxmc.experiments.results import KS, Results
from blockxmc.experiments.settings import BASE_TITLES


@dataclass(frozen=True)
class Distance:
    """How a BP model stands against its base on the test rows."""

    base: str
    loss: float  # the largest over k of the points lost; negative where it gains everywhere
    counted: float
    measured: float
    over: float | None  # the loss where it exceeds the tolerance plus one standard error


def distance(results: Results, data: str, base: str, system: str) -> Distance | None:
    """The distance of a BP model from its base, or None where one of the two is missing."""
    own, full = Cell(data, system, base), Cell(data, "full", base)
    row, whole = results.row(own), results.row(full)
    if row is None or whole is None:
        return None
    losses = [loss for k in KS if (loss := results.loss(own, full, k)) is not None]
    beyond = [loss for loss, error in losses if loss > results.settings.tolerance + error]
    measured = whole["batch_us"] / row["batch_us"]
    over = max(beyond) if beyond else None
    return Distance(BASE_TITLES[base], max(loss for loss, _ in losses), row["speedup"], measured, over)


def conclude(results: Results, data: str) -> str:
    """Two sentences: the accuracy-driven and the speed-driven models against their bases, as far as they were computed."""
    sentences = []
    if accuracy := _distances(results, data, "bp-accuracy"):
        sentences.append(f"On {data}, accuracy-driven BP {_listed([_told(d) for d in accuracy])}.")
    if speed := _distances(results, data, "bp-speed"):
        start = "Speed-driven BP" if accuracy else f"On {data}, speed-driven BP"
        verdict = _verdict(speed, results.settings.tolerance) + _unreached(results, data)
        sentences.append(f"{start} {_listed([_told(d) for d in speed])}; {verdict}.")
    if failed := [BASE_TITLES[base] for base in results.settings.bases if _failed(results, data, base)]:
        sentences.append(f"Nothing can be said of {_listed(failed)}: a model failed, see the tables.")
    return " ".join(sentences)


def _failed(results: Results, data: str, base: str) -> bool:
    cells = [Cell(data, system, base) for system in ("full", "bp-accuracy", "bp-speed")]
    return any("error" in results.contents.get(cell.id, {}) for cell in cells)


def _distances(results: Results, data: str, system: str) -> list[Distance]:
    found = [distance(results, data, base, system) for base in results.settings.bases]
    return [one for one in found if one is not None]


def _told(d: Distance) -> str:
    points = f"loses at most {d.loss:.2f} points" if d.loss >= 0 else f"gains at least {-d.loss:.2f} points"
    return f"{points} on {d.base} ({d.counted:.1f}x counted, {d.measured:.1f}x measured speed-up)"


def _verdict(speed: list[Distance], tolerance: float) -> str:
    limit = f"the tolerance of {tolerance:g} points plus one standard error"
    beyond = [f"{d.base} ({d.over:.2f} points)" for d in speed if d.over is not None]
    if not beyond:
        return f"every loss is within {limit}"
    kept = [d.base for d in speed if d.over is None]
    start = f"the loss is within {limit} for {_listed(kept)} but not" if kept else f"the loss exceeds {limit}"
    return f"{start} for {_listed(beyond)}"


def _unreached(results: Results, data: str) -> str:
    """Cross-validation itself may have found no lambda within the tolerance; then the least loss was taken."""
    rows = [(base, results.row(Cell(data, "tune", base))) for base in results.settings.bases]
    named = [BASE_TITLES[base] for base, row in rows if row is not None and row["interval"] is None]
    return f"; in cross-validation no lambda kept within it for {_listed(named)}" if named else ""


def _listed(parts: list[str]) -> str:
    """Commas and a final "and"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
