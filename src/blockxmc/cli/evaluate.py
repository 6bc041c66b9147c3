"""blockxmc evaluate: how good and how fast a model is on a test file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from blockxmc.cli._common import Json, Threads, on_features, open_model, print_json, print_table, read_for, verbosity


def evaluate(
    model: Annotated[Path, typer.Argument(metavar="DIR", help="A model directory.")],
    data: Annotated[str, typer.Argument(metavar="TEST", help="Data like the training data; - is standard input.")],
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Measure precision, cost and time of a model on TEST (percentages, microseconds per row)."""
    from blockxmc._core.progress import reporter_for
    from blockxmc.metrics.report import measure

    estimator = open_model(model, threads)
    reporter = reporter_for(verbosity())
    dataset = read_for(estimator, data, require_labels=True)
    with reporter.phase("evaluate"):
        result = measure(on_features(estimator), dataset)
    if dataset.unseen_labels:
        left = f"{result['rows_without_labels']:,} of {result['rows']:,} rows have no label left"
        print(f"note: {dataset.unseen_labels:,} labels are unknown to the model and left out; {left}", file=sys.stderr)
    if json:
        print_json(result)
        return
    ks = (1, 3, 5)
    rows = [[name, *(result[f"{name}@{k}"] for k in ks)] for name in ("P", "nDCG", "R", "PSP", "PSnDCG")]
    print_table(f"{result['rows']:,} rows, {result['labels']:,} labels", ["%", *(f"@{k}" for k in ks)], rows)
    rest = {key: value for key, value in result.items() if "@" not in key and key not in ("rows", "labels")}
    print_table("", ["cost per row", ""], [[key.replace("_", " "), value] for key, value in rest.items()])
