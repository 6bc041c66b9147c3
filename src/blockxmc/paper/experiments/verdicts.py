"""The paper's claims, and what the numbers say of each, base by base: the tables that open the report.

A claim is a quantity and a limit. It holds or it does not where the quantity is beyond the limit by more than its standard
error; else it cannot be told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blockxmc.paper.experiments.cells import LEFT_OUT, Cell
from blockxmc.paper.experiments.results import Entry, Results
from blockxmc.paper.experiments.settings import BASE_TITLES
from blockxmc.paper.experiments.tables import TEXT, Column, Table

F64 = NDArray[np.float64]
HOLDS, FAILS, OPEN, MISSING = "holds", "does not hold", "cannot be told", "not computed"
# Points of PSP@k that the paper's text allows.
PSP_TOLERANCE = 6.0
# Seconds of a training differ by this share when nothing else does.
TIMING = 0.1


@dataclass(frozen=True)
class Finding:
    """One judgement: of which data and base, what was measured, and the verdict."""

    data: str
    base: str
    measured: str
    verdict: str


@dataclass(frozen=True)
class Claim:
    """What the paper says, and how to judge it."""

    name: str
    paper: str
    judge: Callable[[Results], Iterator[Finding]]


def verdict(value: float, limit: float, error: float) -> str:
    """Whether a value is below its limit, beyond one standard error.

    >>> verdict(1.0, 2.0, 0.5), verdict(2.3, 2.0, 0.5), verdict(2.6, 2.0, 0.5)
    ('holds', 'cannot be told', 'does not hold')
    """
    return HOLDS if value < limit - error else FAILS if value > limit + error else OPEN


def table_verdicts(results: Results) -> list[Table]:
    """The claims in short, then with what was measured."""
    found = [(claim, list(claim.judge(results))) for claim in CLAIMS]
    kinds = (HOLDS, OPEN, FAILS)
    short = []
    for claim, findings in found:
        named = [", ".join(_where(one) for one in findings if one.verdict == kind) or "–" for kind in kinds]
        rest = ", ".join(_where(one) for one in findings if one.verdict not in kinds) or "–"
        short.append([Entry(text) for text in (claim.name, claim.paper, *named, rest)])
    heads = ("Claim", "The paper says", "Holds", "Cannot be told", "Does not hold", "Not judged")
    rows = [
        [Entry(text) for text in (claim.name, one.data, one.base, one.measured, one.verdict)]
        for claim, findings in found
        for one in findings
    ]
    note = (
        f"A verdict holds beyond one standard error: of the test rows (paired) and of {results.settings.seeds} seeds, or, "
        "along lambda, of the folds. A loss is the largest over k. Speed-ups are labels over candidates, as the paper "
        f"counts. Times count as equal within {TIMING:.0%}. Tolerance: {results.settings.tolerance:g} points."
    )
    columns = [Column(head, TEXT) for head in ("Claim", "Data", "Base", "Measured", "Verdict")]
    return [
        Table("verdicts-short", "The paper's claims in short", [Column(head, TEXT) for head in heads], short, note),
        Table("verdicts", "The paper's claims", columns, rows, note),
    ]


def _where(one: Finding) -> str:
    return f"{one.data} {one.base}".strip()


Judged = tuple[str, str]


def _each(judge: Callable[[Results, str, str], Judged | None]) -> Callable[[Results], Iterator[Finding]]:
    """Judge every data set and base; what has no numbers is said to be left out or not computed."""

    def judged(results: Results) -> Iterator[Finding]:
        for data in results.data:
            for base in results.settings.bases:
                found = judge(results, data, base)
                if found is None:
                    error = results.error(Cell(data, "bp-speed", base))
                    found = "–", LEFT_OUT if error == LEFT_OUT else MISSING
                yield Finding(data, BASE_TITLES[base], *found)

    return judged


def _loss(metric: str, limit: float | None) -> Callable[[Results, str, str], Judged | None]:
    """A loss of speed-driven BP stays below a limit (None: the tolerance)."""

    def judge(results: Results, data: str, base: str) -> Judged | None:
        own = Cell(data, "bp-speed", base)
        if (worst := results.worst(own, Cell(data, "full", base), metric)) is None:
            return None
        row = results.row(own) or {}
        told = f"loses {worst[0]:.2f} ± {worst[1]:.2f} at {row['speedup_paper']:.1f}x"
        if row.get("feasible") is False:
            return f"no lambda within the tolerance in all folds; the least loss {told}", FAILS
        return told, verdict(worst[0], results.settings.tolerance if limit is None else limit, worst[1])

    return judge


def _speed(results: Results, data: str, base: str) -> Judged | None:
    """Prediction is faster, as counted and as measured."""
    cell = Cell(data, "bp-speed", base)
    row, measured = results.row(cell), results.measured(cell)
    if row is None or measured is None:
        return None
    told = f"{row['speedup_paper']:.1f}x counted, {measured:.1f}x measured"
    return told, verdict(1 / measured, 1.0, TIMING)


def _above(results: Results, data: str, base: str) -> Judged | None:
    """Accuracy-driven BP over LEML is more precise than LEML, at every k."""
    if base != "leml":
        return "the claim is about LEML", "–"
    worst = results.worst(Cell(data, "bp-accuracy", base), Cell(data, "full", base))
    if worst is None:
        return None
    return f"gains {-worst[0]:.2f} ± {worst[1]:.2f} at least", verdict(worst[0], 0.0, worst[1])


def _beside(results: Results, data: str, base: str) -> Judged | None:
    """BP is ahead of CBMLC with DiSMEC and PD-Sparse, and behind it with LEML: the mean over k."""
    pairs = [results.loss(Cell(data, "bp-accuracy", base), Cell(data, "cbmlc", base), k) for k in (1, 3, 5)]
    found = [pair for pair in pairs if pair is not None]
    if not found:
        return None
    ahead, error = -float(np.mean([loss for loss, _ in found])), max(error for _, error in found)
    return f"BP {ahead:+.2f} ± {error:.2f}", verdict(ahead if base == "leml" else -ahead, 0.0, error)


def _training(results: Results, data: str, base: str) -> Judged | None:
    """Training with BP, partitioning and routing included, takes less time than the base."""
    own, full = results.row(Cell(data, "bp-speed", base)), results.row(Cell(data, "full", base))
    if own is None or full is None:
        return None
    told = f"{own['train_cpu_seconds']:.2f} of {full['train_cpu_seconds']:.2f} CPU s"
    return told, verdict(own["train_cpu_seconds"] / full["train_cpu_seconds"], 1.0, TIMING)


def _recall(results: Results, data: str, base: str) -> Judged | None:
    """R@k stays close to that of the base: within the tolerance."""
    worst = results.worst(Cell(data, "bp-speed", base), Cell(data, "full", base), "R")
    if worst is None:
        return None
    return f"R@k loses {worst[0]:.2f} ± {worst[1]:.2f}", verdict(worst[0], results.settings.tolerance, worst[1])


def _trades(results: Results, data: str, base: str) -> Judged | None:
    """The largest lambda is less precise and scores fewer labels than the most precise one."""
    if (found := _along(results, data, base)) is None:
        return None
    precision, candidates, _ = found
    best = int(np.argmax(precision.mean(axis=0)))
    lost, error = _paired(precision[:, best] - precision[:, -1])
    told = f"mean P@k loses {lost:.2f} ± {error:.2f}, {candidates[best]:.0f} to {candidates[-1]:.0f} labels scored"
    return told, verdict(-lost, 0.0, error) if candidates[-1] < candidates[best] else FAILS


def _smallest(results: Results, data: str, base: str) -> Judged | None:
    """A larger lambda is more precise than the smallest."""
    if (found := _along(results, data, base)) is None:
        return None
    precision, _, lams = found
    best = 1 + int(np.argmax(precision[:, 1:].mean(axis=0)))
    gain, error = _paired(precision[:, best] - precision[:, 0])
    return f"lambda {lams[best]:.3g}: {gain:+.2f} ± {error:.2f} mean P@k", verdict(-gain, 0.0, error)


def _along(results: Results, data: str, base: str) -> tuple[F64, F64, list[float]] | None:
    """Mean P@k (folds x lambdas), candidates and lambdas of what was tuned."""
    tuning = results.tuning(data, base)
    if tuning is None or len(tuning["lams"]) < 2:
        return None
    precision = np.array([fold["precision"] for fold in tuning["folds"]]).mean(axis=2)
    candidates = np.mean([fold["candidates"] for fold in tuning["folds"]], axis=0)
    return precision, candidates, tuning["lams"]


def _paired(differences: F64) -> tuple[float, float]:
    error = differences.std(ddof=1) / math.sqrt(differences.size) if differences.size > 1 else math.inf
    return float(differences.mean()), float(error)


def _unique(results: Results) -> Iterator[Finding]:
    """The search for q, to the letter, ends at every lambda because a pair dies."""
    for data in results.data:
        plan = results.row(Cell(data, "plan-letter"))
        if plan is None:
            yield Finding(data, "", "–", MISSING)
            continue
        ends = plan["unbounded"]
        low, high = min(plan["paper"]), max(plan["paper"])
        told = f"a pair died at {len(ends) - sum(ends)} of {len(ends)} lambdas; q from {low} to {high}"
        yield Finding(data, "", told, HOLDS if not any(ends) else FAILS)


def _good(results: Results, data: str, base: str) -> Judged | None:
    """To the letter, with the number of blocks of its search, some lambda is feasible and prediction is faster."""
    cell = Cell(data, "bp-letter-speed", base)
    worst, row = results.worst(cell, Cell(data, "full-letter", base)), results.row(cell)
    if worst is None or row is None:
        return None
    told = f"q {row['blocks']}, loses {worst[0]:.2f} ± {worst[1]:.2f} at {row['speedup_paper']:.1f}x"
    if row.get("feasible") is False:
        return f"no lambda within the tolerance in all folds; the least loss: {told}", FAILS
    return told, verdict(worst[0], results.settings.tolerance, worst[1])


def _labels_per_row(results: Results) -> Iterator[Finding]:
    """With PD-Sparse and DiSMEC the speed-up grows with the labels per row, over the data sets (Spearman)."""
    for base in results.settings.bases:
        if base not in ("dismec", "pd-sparse"):
            continue
        points = []
        for data in results.data:
            sizes, row = results.row(Cell(data, "data")), results.row(Cell(data, "bp-speed", base))
            if sizes is not None and row is not None and row.get("feasible") is not False:
                points.append((sizes["labels_per_sample"], row["speedup_paper"]))
        if len(points) < 3:
            yield Finding("all sets", BASE_TITLES[base], f"{len(points)} sets with a feasible lambda", MISSING)
            continue
        ranks = np.argsort(np.argsort(np.array(points), axis=0), axis=0)
        rho = float(np.asarray(np.corrcoef(ranks.T))[0, 1])
        told = f"rank correlation {rho:+.2f} over {len(points)} sets"
        yield Finding("all sets", BASE_TITLES[base], told, verdict(-rho, 0.0, 1 / math.sqrt(len(points) - 1)))


def _naive(results: Results, data: str, base: str) -> Judged | None:
    """LPSR over naive Bayes is less precise than the base."""
    found = results.loss(Cell(data, "lpsr", "naive-bayes"), Cell(data, "full", base), 1)
    return None if found is None else (f"P@1 {-found[0]:+.2f} ± {found[1]:.2f}", verdict(-found[0], 0.0, found[1]))


CLAIMS = [
    Claim("Loss of P@k", "less than 2 points in all scenarios (section 4, 1)", _each(_loss("P", None))),
    Claim("Loss of PSP@k", "less than 6 points (section 4, 1)", _each(_loss("PSP", PSP_TOLERANCE))),
    Claim("Faster prediction", "up to 2780 times, in all scenarios (section 4, 2)", _each(_speed)),
    Claim(
        "BP over LEML above LEML", "accuracy-driven BP LEML has better P@k on all data (section 4, 1)", _each(_above)
    ),
    Claim("Speed-up and labels per row", "less with few labels per row (section 4, 2)", _labels_per_row),
    Claim("Lambda trades", "it controls the trade-off of P@k and speed-up (section 4, 3)", _each(_trades)),
    Claim("The smallest lambda", "it is not necessarily the most precise (section 4, 3)", _each(_smallest)),
    Claim("Shorter training", "partitioning and training take less than the base (section 4, 4)", _each(_training)),
    Claim("BP beside CBMLC", "CBMLC better with LEML, worse with the others (section 4, 5)", _each(_beside)),
    Claim("LPSR-NB", "naive Bayes does not reach a high accuracy (section 4, 5)", _each(_naive)),
    Claim("A unique q", "with too many blocks a pair is empty (section 3.3; to the letter)", _unique),
    Claim("The automatic q", "its search finds a good number of blocks (section 3.3; to the letter)", _each(_good)),
    Claim("Recall", "R@k close to that of the base (appendix)", _each(_recall)),
]
