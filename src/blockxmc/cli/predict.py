"""blockxmc predict: the best labels of each row."""

from __future__ import annotations

import io
import json as jsonlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from blockxmc.cli._common import Threads, on_features, open_model, read_for, verbosity
from blockxmc.errors import BlockXMCError

if TYPE_CHECKING:
    from blockxmc._core.base import TopK
    from blockxmc.data import Dataset

FORMATS = ("xc", "jsonl", "tsv")
# Rows that are predicted and written before the next are begun: the bar moves, and memory stays small.
ROWS_AT_ONCE = 1 << 14


def predict(
    model: Annotated[Path, typer.Argument(metavar="DIR", help="A model directory.")],
    data: Annotated[str, typer.Argument(metavar="TEST", help="Data like the training data; - is standard input.")],
    top_k: Annotated[int, typer.Option("--top-k", min=1, help="Labels per row.")] = 5,
    out: Annotated[
        Path | None, typer.Option("--out", help="File to write (.gz, .xz: compressed); standard output when not given.")
    ] = None,
    format: Annotated[
        str | None, typer.Option("--format", help="xc, jsonl or tsv; jsonl for models with label names.")
    ] = None,
    threads: Threads = None,
) -> None:
    """Predict the best labels of each row of TEST."""
    if format is not None and format not in FORMATS:
        raise BlockXMCError(f"--format must be one of {', '.join(FORMATS)}, got {format!r}")
    if out is not None and data != "-" and out.is_file() and out.samefile(data):
        raise BlockXMCError(f"--out {out} is the file to predict for: choose another name")
    estimator = open_model(model, threads)
    dataset = read_for(estimator, data, require_labels=False)
    names = estimator.label_names_
    form = format or ("xc" if names is None else "jsonl")
    with _destination(out) as stream:
        for first, answer in _answers(on_features(estimator), dataset, top_k):
            for line in _lines(answer, names, form, first):
                stream.write(line + "\n")


def _answers(estimator: Any, dataset: Dataset, top_k: int) -> Iterator[tuple[int, TopK]]:
    """The best labels of some rows at a time, with the number of the first of these rows."""
    from blockxmc.data._source import SlowPhase

    k = max(1, min(top_k, estimator.targets_.n_labels))  # rows would be padded to more
    with SlowPhase("predicting", dataset.n_rows, verbosity()) as phase:
        for first in range(0, dataset.n_rows, ROWS_AT_ONCE):
            last = min(first + ROWS_AT_ONCE, dataset.n_rows)
            yield first, estimator.predict_topk(dataset.X[first:last], k)
            phase.update(last)


def _lines(answer: TopK, names: Any, format: str, first: int) -> Iterator[str]:
    labels, scores = answer
    for i in range(labels.shape[0]):
        pairs = [(int(j), float(s)) for j, s in zip(labels[i], scores[i], strict=True) if j >= 0]
        named = [j if names is None else str(names[j]) for j, _ in pairs]
        if format == "xc":
            yield " ".join(f"{j}:{s:.6g}" for j, s in pairs)
        elif format == "jsonl":
            yield jsonlib.dumps({"labels": named, "scores": [float(f"{s:.6g}") for _, s in pairs]}, ensure_ascii=False)
        else:
            for rank, (name, (_, s)) in enumerate(zip(named, pairs, strict=True), 1):
                yield f"{first + i}\t{rank}\t{_flat(name)}\t{s:.6g}"


def _flat(name: Any) -> str:
    """A label name in one field of a tab-separated line."""
    return " ".join(str(name).split())


@contextmanager
def _destination(path: Path | None) -> Iterator[IO[str]]:
    """Standard output, or a file that appears only when it is complete."""
    from blockxmc.data._source import write_atomic

    if path is None:
        try:
            yield sys.stdout
            sys.stdout.flush()
        except BrokenPipeError:  # `| head` closed the pipe: the reader has what it wanted
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    with write_atomic(path) as raw:
        text = io.TextIOWrapper(raw, encoding="utf-8", newline="\n", write_through=False)
        try:
            yield text
        finally:
            text.flush()
            text.detach()  # the file is closed by its owner
