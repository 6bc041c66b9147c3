"""blockxmc experiment: the paper's tables and figures on any data sets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from blockxmc.cli._common import Json, Seed, Threads, check_writable, kept_when_interrupted, print_json, verbosity
from blockxmc.errors import BlockXMCError

if TYPE_CHECKING:
    from blockxmc.paper.experiments import Settings

# Experiments after which the verdicts are printed.
SAID = ("verdicts", "all", "everything")


def experiment(
    name: Annotated[
        str,
        typer.Argument(
            help="verdicts (on the paper's claims), table-data, table-precision, table-time, table-router, table-recall, "
            "figure-blocks, figure-lambda, figure-q, figure-alps, or all of these; beside them table-systems (the whole "
            "library) and table-published (systems as others ran them); everything: all pages at once."
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", help="Folder for the results; repeat the command to continue a stopped run.")
    ],
    data: Annotated[
        list[Path] | None, typer.Argument(metavar="DATA_DIR...", help="Folders with a training and a test set.")
    ] = None,
    bases: Annotated[
        str, typer.Option("--bases", help="Base classifiers, separated by commas.")
    ] = "dismec,pd-sparse,leml",
    folds: Annotated[int, typer.Option("--folds", min=2, help="Folds of the cross-validation.")] = 5,
    tolerance: Annotated[
        float, typer.Option("--tolerance", min=0.0, help="Points of P@k that may be lost for speed.")
    ] = 2.0,
    blocks: Annotated[
        str,
        typer.Option(
            "--blocks",
            help="Blocks of BP. paper: its search at each lambda; auto: 2, 4, 8, 16 and 32 at each lambda, too, and the "
            "best pair; cost or a number: the same along lambda.",
        ),
    ] = "auto",
    raw: Annotated[bool, typer.Option("--raw", help="Do not scale rows to unit length.")] = False,
    max_test_rows: Annotated[
        int | None,
        typer.Option("--max-test-rows", min=1, help="Score only this many random rows of larger test sets (marked †)."),
    ] = None,
    max_train_rows: Annotated[
        list[str] | None,
        typer.Option("--max-train-rows", help="NAME=N: train on N random rows of data set NAME; the pages say so."),
    ] = None,
    skip: Annotated[
        list[str] | None,
        typer.Option("--skip", help="Cells to leave out, as DATA/SYSTEM/BASE with wildcards, e.g. 'yso*/*/leml'."),
    ] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, help="Seeds of models whose seed counts; they tell its spread.")
    ] = 3,
    propensity: Annotated[
        str | None,
        typer.Option(
            "--propensity", metavar="A,B", help="Constants of PSP.", show_default="those customary for the data"
        ),
    ] = None,
    letter: Annotated[
        bool, typer.Option("--letter/--no-letter", help="Columns of the paper to the letter beside ours.")
    ] = True,
    rank: Annotated[int, typer.Option("--rank", min=1, help="Rank of LEML.")] = 500,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Number of processes that compute in parallel.")] = 1,
    stop_after: Annotated[
        float | None,
        typer.Option(
            "--stop-after",
            min=0.0,
            metavar="SECONDS",
            help="Start nothing new after this time; the same command continues later. 0: only draw what is finished.",
        ),
    ] = None,
    cells_only: Annotated[
        bool,
        typer.Option(
            "--cells-only", help="Compute, but draw nothing; the same command without this option draws later."
        ),
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Only list the pages in --out that were made by other code.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log each finished cell and the time left.")] = False,
    threads: Threads = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Make the paper's tables and figures from data folders: CSV, JSON, Markdown, PNG, SVG and report.html."""
    from blockxmc.cli.evaluate import read_propensity
    from blockxmc.paper.experiments import Settings

    if check:
        _check(out, json)
        return
    if not data:
        raise BlockXMCError("give at least one DATA_DIR: a folder with a training and a test set")
    settings = Settings(
        bases=tuple(dict.fromkeys(base.strip() for base in bases.split(",") if base.strip())),
        folds=folds,
        tolerance=tolerance,
        blocks=int(blocks) if blocks.isdecimal() else blocks,
        normalise=not raw,
        max_test_rows=max_test_rows,
        max_train_rows=tuple(_named_number(text) for text in max_train_rows or ()),
        skip=(*(skip or ()), *([] if letter else ["*letter*"])),
        seeds=seeds,
        propensity=None if propensity is None else read_propensity(propensity),
        rank=rank,
        threads=threads,
        seed=seed,
    )
    _run(name, data, out, settings, json, Running(jobs, not cells_only, verbose, stop_after))


def _named_number(text: str) -> tuple[str, int]:
    name, equals, number = text.partition("=")
    if not (name and equals and number.isdecimal() and int(number) > 0):
        raise BlockXMCError(f"--max-train-rows wants NAME=N, a data set and a number of rows, got {text!r}")
    return name, int(number)


def _check(out: Path, as_json: bool) -> None:
    from blockxmc.paper.experiments.freshness import check_pages

    pages = check_pages(out)
    stale = {page: cells for page, cells in pages.items() if cells}
    if as_json:
        print_json({"pages": list(pages), "stale": stale})
        return
    for page, cells in pages.items():
        print(f"{page}: {f'stale, {len(cells)} of its cells were made by other code' if cells else 'fresh'}")
    print(f"{len(stale)} of {len(pages)} pages are stale")


@dataclass(frozen=True)
class Running:
    """How a run goes about it."""

    jobs: int
    draw: bool
    verbose: bool
    seconds: float | None


def _run(name: str, data: list[Path], out: Path, settings: Settings, as_json: bool, how: Running) -> None:
    """Make what is asked for, then print the verdicts and what failed."""
    from blockxmc._core.progress import reporter_for
    from blockxmc.paper.experiments import run
    from blockxmc.paper.experiments.verdicts import CLAIMS

    check_writable(out)
    draw, reporter = how.draw, reporter_for(1 if how.verbose else verbosity())
    with kept_when_interrupted("finished cells", out / "cells"):
        results = run(name, data, out, settings, reporter, jobs=how.jobs, draw=draw, seconds=how.seconds)
    found = {claim.name: [vars(one) for one in claim.judge(results)] for claim in CLAIMS} if name in SAID else {}
    errors = {cell: content["error"] for cell, content in results.contents.items() if "error" in content}
    waiting = [cell for cell, error in errors.items() if error == "not computed"]
    failed = {cell: error for cell, error in errors.items() if cell not in waiting}
    place = out / ("report.html" if draw else "cells")
    if as_json:
        rows = {cell: content.get("row") for cell, content in results.contents.items()}
        told = {
            "report" if draw else "cells_folder": str(place),
            "verdicts": found,
            "failed": failed,
            "not_computed": waiting,
        }
        print_json(told | {"settings": settings.to_dict(), "cells": rows})
        return
    for claim, judged in found.items():
        for one in judged:
            print(f"{claim}, {one['data']} {one['base']}: {one['verdict']} ({one['measured']})")
    for cell, error in failed.items():
        print(f"{cell}: {error}" if error == "left out" else f"{cell} failed: {error}")
    if waiting:
        print(f"{len(waiting)} of {len(results.contents)} cells are left: run the same command again to go on.")
    print(f"{'Report' if draw else 'Cells'}: {place}")
