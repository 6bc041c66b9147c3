"""blockxmc predict: the best labels of each row."""

from __future__ import annotations

import json as jsonlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from blockxmc.cli._common import Threads, read_for, test_file, verbosity
from blockxmc.errors import BlockXMCError

if TYPE_CHECKING:
    from blockxmc._core.base import TopK

FORMATS = ("xc", "jsonl", "tsv")


def predict(
    model: Annotated[Path, typer.Argument(metavar="DIR", help="A model directory.")],
    data: Annotated[str, typer.Argument(metavar="TEST", help="Data like the training data; - is standard input.")],
    top_k: Annotated[int, typer.Option("--top-k", min=1, help="Labels per row.")] = 5,
    out: Annotated[Path | None, typer.Option("--out", help="File to write; standard output when not given.")] = None,
    format: Annotated[
        str | None, typer.Option("--format", help="xc, jsonl or tsv; jsonl for models with label names.")
    ] = None,
    threads: Threads = None,
) -> None:
    """Predict the best labels of each row of TEST."""
    from blockxmc._core.progress import reporter_for
    from blockxmc.storage import load

    if format is not None and format not in FORMATS:
        raise BlockXMCError(f"--format must be one of {', '.join(FORMATS)}, got {format!r}")
    if out is not None and data != "-" and out.exists() and out.samefile(data):
        raise BlockXMCError(f"--out {out} is the file to predict for: choose another name")
    estimator = load(model).set_params(n_jobs=threads)
    with test_file(data) as path, reporter_for(verbosity()).phase("read"):
        dataset = read_for(estimator, path, require_labels=False)
    names = estimator.label_names_
    with reporter_for(verbosity()).phase("predict"):
        answer = estimator.predict_topk(dataset.X, top_k)
    with _destination(out) as stream:
        for line in _lines(answer, names, format or ("xc" if names is None else "jsonl")):
            stream.write(line + "\n")


def _lines(answer: TopK, names: Any, format: str) -> Iterator[str]:
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
                yield f"{i}\t{rank}\t{_flat(name)}\t{s:.6g}"


def _flat(name: Any) -> str:
    """A label name that cannot break a tab-separated line."""
    return " ".join(str(name).split())


@contextmanager
def _destination(path: Path | None) -> Iterator[IO[str]]:
    """Standard output, or a file that appears only when it is complete."""
    if path is None:
        try:
            yield sys.stdout
            sys.stdout.flush()
        except BrokenPipeError:  # `| head` closed the pipe: the reader has what it wanted
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    part = path.with_name(path.name + ".part")
    try:
        with part.open("w", encoding="utf-8") as stream:
            yield stream
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
