"""blockxmc experiment: the paper's tables and figures on any data sets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from blockxmc.cli._common import Json, Seed, Threads, print_json, verbosity

if TYPE_CHECKING:
    from blockxmc.experiments import Settings


def experiment(
    name: Annotated[
        str,
        typer.Argument(
            help="table-data, table-precision, table-time, table-router, table-recall, figure-blocks, "
            "figure-lambda, figure-q, figure-alps, or all of these; beside them table-systems (the whole library) and "
            "table-published (systems as others ran them)."
        ),
    ],
    data: Annotated[list[Path], typer.Argument(metavar="DATA_DIR...", help="Folders with a training and a test set.")],
    out: Annotated[
        Path, typer.Option("--out", help="Folder for the results; a stopped run goes on from what it holds.")
    ],
    bases: Annotated[str, typer.Option("--bases", help="Base classifiers, with commas.")] = "dismec,pd-sparse,leml",
    folds: Annotated[int, typer.Option("--folds", min=2, help="Folds of the cross-validation.")] = 5,
    tolerance: Annotated[float, typer.Option("--tolerance", min=0.0, help="Points of P@k that speed may cost.")] = 2.0,
    blocks: Annotated[str, typer.Option("--blocks", help="Blocks of BP: auto, paper, cost or a number.")] = "paper",
    raw: Annotated[bool, typer.Option("--raw", help="Take rows as they are, not scaled to unit length.")] = False,
    max_test_rows: Annotated[
        int | None, typer.Option("--max-test-rows", min=1, help="Score a random part of larger test sets, marked †.")
    ] = None,
    rank: Annotated[int, typer.Option("--rank", min=1, help="Rank of LEML.")] = 500,
    threads: Threads = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Make the paper's tables and figures from data folders: CSV, JSON, Markdown, PNG, SVG and report.html."""
    from blockxmc.experiments import Settings

    settings = Settings(
        bases=tuple(dict.fromkeys(base.strip() for base in bases.split(",") if base.strip())),
        folds=folds,
        tolerance=tolerance,
        blocks=int(blocks) if blocks.isdecimal() else blocks,
        normalise=not raw,
        max_test_rows=max_test_rows,
        rank=rank,
        threads=threads,
        seed=seed,
    )
    _run(name, data, out, settings, json)


def _run(name: str, data: list[Path], out: Path, settings: Settings, as_json: bool) -> None:
    """Make what is asked for, then print its conclusions and what failed."""
    from blockxmc._core.progress import reporter_for
    from blockxmc.experiments import run
    from blockxmc.experiments.conclusions import conclude

    results = run(name, data, out, settings, reporter_for(verbosity()))
    said = {folder: conclude(results, folder) for folder in results.data}
    failed = {cell: content["error"] for cell, content in results.contents.items() if "error" in content}
    report = out / "report.html"
    if as_json:
        rows = {cell: content.get("row") for cell, content in results.contents.items()}
        told = {"report": str(report), "conclusions": said, "failed": failed}
        print_json(told | {"settings": settings.to_dict(), "cells": rows})
        return
    for text in said.values():
        if text:
            print(f"{text}\n")
    for cell, error in failed.items():
        print(f"{cell} failed: {error}")
    print(f"Report: {report}")
