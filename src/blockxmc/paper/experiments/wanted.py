"""Which cells an experiment reads."""

from __future__ import annotations

from collections.abc import Sequence

from blockxmc.paper.experiments.cells import PUBLISHED, Cell
from blockxmc.paper.experiments.published import known_as, source
from blockxmc.paper.experiments.settings import BASE_TITLES

# A base and what BP and CBMLC make of it, in ours and to the letter.
OURS = ("full", "bp-accuracy", "bp-speed", "cbmlc")
LETTER = ("full-letter", "bp-letter-accuracy", "bp-letter-speed", "cbmlc-letter")


def compared(data: str, bases: Sequence[str]) -> list[Cell]:
    """The systems of the paper's precision table, FastXML, label filters and the library's default."""
    cells = [Cell(data, system, base) for base in bases for system in (*OURS, *LETTER)]
    others = [Cell(data, "lpsr", "naive-bayes"), Cell(data, "fastxml"), Cell(data, "lf", "dismec")]
    return [*cells, *others, Cell(data, "bp-default")]


def every_system(data: str, bases: Sequence[str]) -> list[Cell]:
    """All systems of the library with their defaults: each base alone, under the paper's BP and under CBMLC; the rest."""
    cells = []
    for base in [*bases, *(base for base in BASE_TITLES if base not in bases)]:
        cells += [Cell(data, system, base) for system in ("full", "bp-quick", "cbmlc-default")]
    others = [Cell(data, "lpsr", "naive-bayes"), Cell(data, "fastxml"), Cell(data, "lf", "dismec")]
    return [*cells, *others, Cell(data, "bp-default")]


def published_systems(data: str, bases: Sequence[str]) -> list[Cell]:
    """Systems with published figures: with our defaults, and with their authors' settings where these differ.

    >>> published_systems("a-set-of-our-own", ["leml"])
    []
    """
    if not source(known_as(data)):
        return []
    given = [Cell(data, "full", base) for base in ("leml", "pd-sparse", "naive-bayes", "dismec")]
    others = [Cell(data, "lpsr-over", "dismec"), Cell(data, "fastxml")]
    letter = [Cell(data, "full-letter", base) for base in ("leml", "pd-sparse", "dismec")]
    return [*given, *others, *letter, *(Cell(data, "published", name) for name in PUBLISHED)]
