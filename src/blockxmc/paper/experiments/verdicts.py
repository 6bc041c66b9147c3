"""The paper's claims, and what the numbers say of each: the table that opens the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from blockxmc.paper.experiments.cells import LEFT_OUT, Cell
from blockxmc.paper.experiments.distances import Distance, distance
from blockxmc.paper.experiments.results import Entry, Results
from blockxmc.paper.experiments.settings import BASE_TITLES, KS
from blockxmc.paper.experiments.tables import TEXT, Column, Table

HOLDS, PARTLY, FAILS, UNKNOWN = "holds", "partly", "does not hold", "not computed"
# The smallest speed-up that the paper's text promises.
_PROMISED = 10.0
# The paper's number of blocks counts as good where its cheapest feasible pair takes at most this many times the products
# of the cheapest of all pairs.
_NEAR = 1.1
# A share of positives or labels that is lost below this says little.
_LITTLE = 0.02


@dataclass(frozen=True)
class Claim:
    """What the paper says, and how to judge one data set: what was measured, verdict, and why."""

    name: str
    paper: str
    judge: Callable[[Results, str], tuple[str, str, str]]


def table_verdicts(results: Results) -> list[Table]:
    """The claims of the paper in short and on every data set, then the same of the library's default."""
    return [
        _short(results),
        _table("verdicts", "The paper's claims", CLAIMS, results, "The paper says"),
        _table("verdicts-default", "The same claims of our default", DEFAULT_CLAIMS, results, "Claim in full"),
    ]


def _table(name: str, title: str, claims: list[Claim], results: Results, says: str) -> Table:
    rows = []
    for claim in claims:
        for data in results.data:
            measured, verdict, why = claim.judge(results, data)
            rows.append([Entry(text) for text in (claim.name, claim.paper, data, measured, verdict, why)])
    heads = ("Claim", says, "Data", "Measured", "Verdict", "Why")
    note = (
        f"Losses are the largest over P@{', P@'.join(map(str, KS))} on the test rows, in points; ± is the standard error, "
        "paired by row. Speed-ups are labels over candidates, as the paper counts, then measured CPU time per row. The "
        "automatic q is judged by the pairs that the first fold tried."
    )
    return Table(name, title, [Column(head, TEXT) for head in heads], rows, note)


def _short(results: Results) -> Table:
    """On which data sets each claim holds."""
    heads = ("Claim", "The paper says", *(verdict.capitalize() for verdict in _ORDER[::-1]), "Nothing to judge")
    rows = []
    for claim in CLAIMS:
        found = {data: claim.judge(results, data)[1] for data in results.data}
        judged = [[data for data in results.data if found[data] == verdict] for verdict in _ORDER[::-1]]
        kinds = [*judged, [data for data in results.data if found[data] not in _ORDER]]
        rows.append([Entry(text) for text in (claim.name, claim.paper, *(", ".join(kind) or "–" for kind in kinds))])
    note = "Partly: with some bases, or in one of its parts. What was measured, and why, is in the next table."
    return Table("verdicts-short", "The paper's claims in short", [Column(head, TEXT) for head in heads], rows, note)


# ---- the claims ----
def _loss(results: Results, data: str) -> tuple[str, str, str]:
    """Less than the tolerance lost at ten times the speed."""
    found = [d for base in results.settings.bases if (d := distance(results, data, base, "bp-speed"))]
    if not found:
        return _nothing(results, data)
    told, marks = [], []
    for d in found:
        counted = _counted(results, d)
        if not d.feasible:
            told.append(f"{d.base}: none within the tolerance, least loss {d.loss:.2f} ({counted:.1f}x)")
            marks.append(0)
        else:
            beyond = "" if d.over is None else ", within the tolerance in every fold but not here"
            told.append(
                f"{d.base}: {d.loss:.2f} ± {max(d.errors):.2f} at {counted:.1f}x ({d.measured:.1f}x measured){beyond}"
            )
            marks.append(2 if d.over is None and counted >= _PROMISED else 1 if d.over is None and counted > 1 else 0)
    labels = (results.row(Cell(data, "data")) or {}).get("labels", 0)
    why = [_of_labels(labels, max(_counted(results, d) for d in found))] if min(marks) < 2 else []
    if slow := [d.base for d, mark in zip(found, marks, strict=True) if mark == 1]:
        why.append(f"{', '.join(slow)}: within the tolerance, at less than {_PROMISED:.0f}x")
    if failing := [d for d, mark in zip(found, marks, strict=True) if mark == 0]:
        why.append(_of_router(results, max(failing, key=lambda d: d.loss)))
    return "; ".join(told), _overall(marks), "; ".join(filter(None, why))


def _above(results: Results, data: str) -> tuple[str, str, str]:
    """BP over LEML is more precise than LEML."""
    d = distance(results, data, "leml", "bp-accuracy") if "leml" in results.settings.bases else None
    if d is None:
        left_out = results.contents.get(Cell(data, "bp-accuracy", "leml").id, {}).get("error") == LEFT_OUT
        return ("–", LEFT_OUT, "LEML was not run") if left_out else _nothing(results, data)
    gains = [-loss for loss in d.losses]
    told = "gain " + " / ".join(f"{gain:+.2f}" for gain in gains) + f" at P@{' / '.join(map(str, KS))}"
    marks = [2 if gain > error else 1 if gain > 0 else 0 for gain, error in zip(gains, d.errors, strict=True)]
    verdict = HOLDS if min(marks) == 2 else FAILS if max(marks) == 0 else PARTLY
    sizes = results.row(Cell(data, "data")) or {}
    rank = results.settings.rank
    labels = sizes.get("labels", 0)
    if labels <= rank:
        why = f"rank {rank} is no limit for {labels:,.0f} labels: LEML loses nothing that blocks could give back"
    elif verdict == HOLDS:
        why = f"a rank of {rank} is a limit for {labels:,.0f} labels, and less of one for those of a block"
    else:
        why = f"a rank of {rank} is a limit for {labels:,.0f} labels, but a block has fewer rows to learn them from"
    return told, verdict, why


def _beside(results: Results, data: str) -> tuple[str, str, str]:
    """BP is ahead of CBMLC with DiSMEC and PD-Sparse, and behind it with LEML."""
    told, marks = [], []
    for base in results.settings.bases:
        if base not in ("dismec", "pd-sparse", "leml"):
            continue
        own, other = Cell(data, "bp-accuracy", base), Cell(data, "cbmlc", base)
        pairs = [pair for k in KS if (pair := results.loss(own, other, k)) is not None]
        if not pairs:
            continue
        ahead = -float(np.mean([loss for loss, _ in pairs]))
        error = max(error for _, error in pairs)
        told.append(f"{BASE_TITLES[base]}: BP {ahead:+.2f} ± {error:.2f} (mean over k)")
        right = ahead > 0 if base != "leml" else ahead < 0
        marks.append(1 if abs(ahead) <= error else 2 if right else 0)
    if not marks:
        return _nothing(results, data)
    return "; ".join(told), _overall(marks), "a difference within its standard error counts as partly"


def _training(results: Results, data: str) -> tuple[str, str, str]:
    """Partitioning and training of the blocks take less time than the base."""
    told, marks = [], []
    for base in results.settings.bases:
        own, full = results.row(Cell(data, "bp-speed", base)), results.row(Cell(data, "full", base))
        if own is None or full is None:
            continue
        spent = own["partition_cpu_seconds"] + own["blocks_cpu_seconds"] + own["router_cpu_seconds"]
        told.append(f"{BASE_TITLES[base]}{_none(own)}: {spent:.2f} of {full['train_cpu_seconds']:.2f} CPU s")
        marks.append(2 if spent < full["train_cpu_seconds"] else 0)
    if not marks:
        return _nothing(results, data)
    tuning = [row["tune_cpu_seconds"] for base in results.settings.bases if (row := _tuning(results, data, base))]
    why = f"the search for blocks and lambda comes first and took {sum(tuning):.0f} CPU s for all bases"
    if any((_tuning(results, data, base) or {}).get("saving", {}).get("reused") for base in results.settings.bases):
        why += ", not counting trials of a run that was stopped"
    return "; ".join(told), _overall(marks), why


def _automatic(results: Results, data: str) -> tuple[str, str, str]:
    """The search for q stops by itself at a good number of blocks."""
    told, marks = [], []
    for base in results.settings.bases:
        tuning = _tuning(results, data, base)
        kept = [t for t in (tuning or {}).get("scouted", []) if t["loss"] <= results.settings.tolerance]
        if not kept:
            continue
        best = min(kept, key=lambda t: t["products"])
        own = [t for t in kept if t["by_paper"]]
        if own:
            paper = min(own, key=lambda t: t["products"])
            told.append(
                f"{BASE_TITLES[base]}: {paper['n_blocks']} blocks, {paper['products']:.0f} products; best of all pairs "
                f"{best['n_blocks']} blocks, {best['products']:.0f}"
            )
            marks.append(2 if paper["products"] <= _NEAR * best["products"] else 1)
        else:
            told.append(
                f"{BASE_TITLES[base]}: no feasible pair with fewer than twice the products of the best "
                f"({best['n_blocks']} blocks, {best['products']:.0f})"
            )
            marks.append(0)
    plan = results.row(Cell(data, "plan")) or {}
    unbounded, lams = sum(plan.get("unbounded", [])), len(plan.get("lams", []))
    why = f"no pair died at {unbounded} of {lams} lambdas: there only the limit ended the search" if unbounded else ""
    if not marks:
        tuned = any(_tuning(results, data, base) for base in results.settings.bases)
        said = "no pair was feasible in the first fold: nothing to compare" if tuned else "–"
        return _nothing(results, data, said, why)
    return "; ".join(told), _overall(marks) if not unbounded else min(PARTLY, _overall(marks), key=_ORDER.index), why


def _recall(results: Results, data: str) -> tuple[str, str, str]:
    """Candidates hold nearly all labels that the base finds."""
    told, marks, worst = [], [], (-np.inf, "")
    for base in results.settings.bases:
        own, full = results.row(Cell(data, "bp-speed", base)), results.row(Cell(data, "full", base))
        if own is None or full is None:
            continue
        lost = max(full[f"R@{k}"] - own[f"R@{k}"] for k in KS)
        told.append(f"{BASE_TITLES[base]}{_none(own)}: {_recall_lost(lost)}")
        marks.append(2 if lost <= results.settings.tolerance else 0)
        held = f"blocks hold {100 * own['captured']:.0f} % of the training positives ({BASE_TITLES[base]})"
        worst = max(worst, (lost, held))
    return ("; ".join(told), _overall(marks), worst[1]) if marks else _nothing(results, data)


def _recall_lost(lost: float) -> str:
    return f"R@k loses at most {lost:.2f}" if lost >= 0 else f"R@k gains at least {-lost:.2f}"


def _none(row: dict[str, Any]) -> str:
    """What is said of the model that stands in where nothing was feasible."""
    return " (none feasible, the least loss)" if row.get("feasible") is False else ""


def _lambda(results: Results, data: str) -> tuple[str, str, str]:
    """Lambda trades precision for speed, and the smallest is not always the most precise."""
    told, marks, later = [], [], []
    for base in results.settings.bases:
        tuning = _tuning(results, data, base)
        if tuning is None:
            continue
        precision = np.mean([fold["precision"] for fold in tuning["folds"]], axis=(0, 2))
        candidates = np.mean([fold["candidates"] for fold in tuning["folds"]], axis=0)
        falling = bool((np.diff(candidates) <= 0).all())
        best = int(np.argmax(precision))
        told.append(
            f"{BASE_TITLES[base]}: {candidates[0]:.0f} to {candidates[-1]:.0f} labels scored, mean P@k "
            f"{precision[0]:.1f} to {precision[-1]:.1f}, best at lambda {tuning['lams'][best]:.3g}"
        )
        marks.append(2 if falling and precision[-1] < precision.max() else 1)
        later += [BASE_TITLES[base]] if best > 0 else []
    if not marks:
        return _nothing(results, data)
    more = f"a larger lambda than the smallest is the most precise with {', '.join(later)}" if later else ""
    if not later and _overall(marks) == HOLDS:
        return (
            "; ".join(told),
            PARTLY,
            "it trades precision for speed; the smallest lambda tried is the most precise here",
        )
    return "; ".join(told), _overall(marks), more


CLAIMS = [
    Claim(
        "Loss below 2 points at 10x to 1000x", "speed-ups of 4x to 2780x, every P@k within 2 points of the base", _loss
    ),
    Claim("BP over LEML above LEML", "accuracy-driven BP LEML has better P@k than LEML on all data sets", _above),
    Claim("BP beside CBMLC", "BP ahead with DiSMEC and PD-Sparse, CBMLC ahead with LEML", _beside),
    Claim("Shorter training", "partitioning and training of blocks take less time than the base", _training),
    Claim("The automatic q", "raise q while no pair is empty, take the most captured: unique and good", _automatic),
    Claim("Recall of label selection", "R@k of BP close to that of the base", _recall),
    Claim("The role of lambda", "it trades precision for speed; the smallest is not always the most precise", _lambda),
]


# ---- the same of the default ----
def _default_rows(results: Results, data: str) -> tuple[dict[str, float], dict[str, float]] | None:
    own, full = results.row(Cell(data, "bp-default")), results.row(Cell(data, "full", "dismec"))
    return None if own is None or full is None else (own, full)


def _default_loss(results: Results, data: str) -> tuple[str, str, str]:
    if (rows := _default_rows(results, data)) is None:
        return _nothing(results, data)
    own, cell = rows[0], Cell(data, "bp-default")
    pairs = [pair for k in KS if (pair := results.loss(cell, Cell(data, "full", "dismec"), k)) is not None]
    loss, error = max(pairs)
    counted, measured = own["speedup_paper"], results.measured(cell) or 0.0
    told = f"{loss:.2f} ± {error:.2f} at {counted:.1f}x ({measured:.1f}x measured)"
    kept = loss <= results.settings.tolerance + error
    mark = 2 if kept and counted >= _PROMISED else 1 if kept else 0
    labels = (results.row(Cell(data, "data")) or {}).get("labels", 0)
    return told, _overall([mark]), _of_labels(labels, counted) if mark < 2 else ""


def _default_training(results: Results, data: str) -> tuple[str, str, str]:
    if (rows := _default_rows(results, data)) is None:
        return _nothing(results, data)
    own, full = (row["train_cpu_seconds"] for row in rows)
    return f"{own:.1f} of {full:.1f} CPU s", HOLDS if own < full else FAILS, "everything included, nothing tuned before"


def _default_recall(results: Results, data: str) -> tuple[str, str, str]:
    if (rows := _default_rows(results, data)) is None:
        return _nothing(results, data)
    own, full = rows
    lost = max(full[f"R@{k}"] - own[f"R@{k}"] for k in KS)
    return (
        _recall_lost(lost),
        HOLDS if lost <= results.settings.tolerance else FAILS,
        f"{own['candidates']:,.0f} labels scored per row",
    )


DEFAULT_CLAIMS = [
    Claim("Loss below 2 points at 10x to 1000x", "against DiSMEC, every P@k", _default_loss),
    Claim("Shorter training", "against DiSMEC", _default_training),
    Claim("Recall of label selection", "R@k close to that of DiSMEC", _default_recall),
]


# ---- what they share ----
_ORDER = [FAILS, PARTLY, HOLDS]


def _overall(marks: list[int]) -> str:
    """One verdict of several marks: 2 holds, 1 partly, 0 does not.

    >>> _overall([2, 2]), _overall([2, 0]), _overall([0, 0])
    ('holds', 'partly', 'does not hold')
    """
    return HOLDS if min(marks) == 2 else FAILS if max(marks) == 0 else PARTLY


def _nothing(results: Results, data: str, told: str = "–", why: str = "") -> tuple[str, str, str]:
    return told, UNKNOWN, why


def _tuning(results: Results, data: str, base: str) -> dict[str, Any] | None:
    return results.row(Cell(data, "tune", base))


def _counted(results: Results, d: Distance) -> float:
    return float((results.row(d.cell) or {}).get("speedup_paper", 0.0))


def _of_labels(labels: float, speedup: float) -> str:
    """Few labels: even the labels that rows need are a large part of them."""
    if speedup >= _PROMISED:
        return ""
    return f"of {labels:,.0f} labels {labels / max(speedup, 1e-9):,.0f} are needed; the paper has 13,330 to 670,091"


def _of_router(results: Results, d: Distance) -> str:
    """Whether blocks lack labels, or rows go to the wrong block."""
    row = results.row(d.cell) or {}
    tuning = results.row(Cell(d.cell.data, "tune", d.cell.base))
    if tuning is None or "captured" not in row:
        return ""
    point = tuning["speed_driven"] or tuning["least_loss"]
    captured, routed = row["captured"], point["recall"]
    if captured - routed < _LITTLE:
        return (
            f"{d.base}: its blocks hold {100 * captured:.0f} % of the positives, and weights of a block see fewer rows"
        )
    return (
        f"{d.base}: blocks hold {100 * captured:.0f} % of the training positives, but the block a held-out row is sent to "
        f"holds {100 * routed:.0f} % of its labels"
    )
