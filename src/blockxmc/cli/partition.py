"""blockxmc partition: block-wise partitioning alone, written as plain files for use with any other program."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blockxmc.cli._common import Seed, Threads, check_writable, read_for, read_rows, verbosity
from blockxmc.cli._text_options import LabelField, LabelSeparator, TextField, TextSettings
from blockxmc.errors import BlockXMCError

if TYPE_CHECKING:
    from blockxmc._core.progress import Phase
    from blockxmc.partition import Partitioner

# Marks a folder that this command wrote and may replace.
_MARK = "blockxmc partition"


def partition(
    train: Annotated[Path, typer.Argument(help="Training data: XC text, or JSONL/TSV/CSV with text and label names.")],
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    blocks: Annotated[str, typer.Option(help="auto, paper, cost or a number.", metavar="auto|paper|cost|N")] = "auto",
    lam: Annotated[str, typer.Option(help="The paper's lambda, or auto.", metavar="auto|F")] = "auto",
    objective: Annotated[
        str, typer.Option(metavar="quadratic|cost", help="How the size of label clusters is penalized.")
    ] = "quadratic",
    tie: Annotated[
        str,
        typer.Option(
            metavar="stay|small",
            help="If several blocks suit a row equally: keep its block, or take the smallest label cluster.",
        ),
    ] = "stay",
    init: Annotated[
        str, typer.Option(metavar="kmeans|balanced|labels", help="How the first blocks are made.")
    ] = "kmeans",
    letter: Annotated[
        bool,
        typer.Option("--letter", help="Labels that change f by nothing enter; the paper's search has no other limits."),
    ] = False,
    max_iter: Annotated[int, typer.Option(help="Most rounds; 0 keeps the first blocks.")] = 100,
    seed: Seed = 0,
    threads: Threads = None,
    export: Annotated[bool, typer.Option("--export", help="Also write one XC file per block, and the router.")] = False,
    test: Annotated[
        Path | None,
        typer.Option("--test", help="With --export: test rows, written to the block the router sends them to."),
    ] = None,
    text_field: TextField = None,
    label_field: LabelField = None,
    label_separator: LabelSeparator = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Divide rows and labels into blocks and write them to a folder, for use in other programs.

    Writes assignment.txt (the block of each row), label_clusters.txt (the label ids of each block, one line per block)
    and summary.json. With --export also block-N.txt (the rows of block N in order, its labels numbered from 0),
    block-N.labels.txt (the original label id of each number) and router.txt (one line per block: its bias, then
    feature:weight pairs; a row belongs to the block with the largest sum). With --test also test_assignment.txt,
    test-N.txt (test rows of block N, labels numbered as in block-N.txt) and test-N.rows.txt (their row numbers).
    """
    if test is not None and not export:
        raise BlockXMCError("--test goes with --export: it writes test rows for other programs")
    options = {"objective": objective, "tie": tie, "init": init, "max_iter": max_iter, "letter": letter}
    options |= {"n_blocks": _number_or_word(blocks, int), "lam": _number_or_word(lam, float)}
    options |= {"random_state": seed, "n_jobs": threads, "verbose": 1}
    texts = TextSettings(text_field=tuple(text_field or ()), label_field=label_field, label_separator=label_separator)
    summary = _partition(train, out, options, texts, export, test)
    print(json.dumps(summary, indent=2) if as_json else f"{summary['choice']['text']}\nwritten to {out}")


def _partition(
    train: Path, out: Path, options: dict[str, Any], texts: TextSettings, export: bool, test: Path | None
) -> dict[str, Any]:
    """Partition TRAIN into the folder OUT; returns the summary written there."""
    from blockxmc._core.matrix import check_values
    from blockxmc._core.memory import check_training_memory
    from blockxmc.partition import Partitioner

    _check_replaceable(out)
    check_writable(out)
    partitioner = Partitioner(**options)
    data = read_rows(train, texts, n_jobs=options["n_jobs"])
    check_values(data.X)
    check_training_memory(data.X, data.Y)
    held_out = None if test is None else _read_test(test, data, texts)
    partitioner.fit(data.X, data.Y)
    summary = _summary(partitioner)

    def write(folder: Path) -> None:
        _write_partition(folder, partitioner, summary)
        if export:
            _export_blocks(folder, partitioner, data)
            _export_router(folder, partitioner, data, held_out)

    _write_folder(out, write)
    return summary


def _number_or_word(text: str, number: Callable[[str], Any]) -> Any:
    """The text as a number, if it can be read as one; any other word goes to the partitioner, which knows its own."""
    try:
        return number(text)
    except ValueError:
        return text


def _summary(p: Partitioner) -> dict[str, Any]:
    sizes = [int(labels.size) for labels in p.label_clusters_]
    return {
        "made_by": _MARK,
        "n_rows": int(p.assignment_.size),
        "n_blocks": p.n_blocks_,
        "lam": p.lam_,
        "lam_rel": p.lam_rel_,
        "captured": p.captured_,
        "labels_per_row": float(p.path([p.lam_]).cost[0]),
        "n_iter": p.n_iter_,
        "objective_trace": p.objective_trace_.tolist(),
        "rows_per_block": p.ranking_.n_rows.tolist(),
        "labels_per_block": sizes,
        "choice": p.choice_,
        "params": p.get_params(),
    }


def _write_partition(folder: Path, p: Partitioner, summary: dict[str, Any]) -> None:
    (folder / "assignment.txt").write_text("".join(f"{block}\n" for block in p.assignment_.tolist()))
    lines = (" ".join(map(str, labels.tolist())) + "\n" for labels in p.label_clusters_)
    (folder / "label_clusters.txt").write_text("".join(lines))
    (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")


def _export_blocks(folder: Path, p: Partitioner, data: Any) -> None:
    from blockxmc.data._source import SlowPhase

    with SlowPhase("writing blocks", p.n_blocks_, verbosity()) as phase:
        _write_blocks(folder, p, data, phase)


def _write_blocks(folder: Path, p: Partitioner, data: Any, phase: Phase) -> None:
    import numpy as np

    from blockxmc.data import write_xc

    order = np.argsort(p.assignment_, kind="stable")
    rows_of = np.split(order, np.cumsum(p.ranking_.n_rows)[:-1])
    for block, (rows, labels) in enumerate(zip(rows_of, p.label_clusters_, strict=True)):
        phase.update(block)
        write_xc(folder / f"block-{block}.txt", data.X[rows], data.Y[rows][:, labels])
        (folder / f"block-{block}.labels.txt").write_text("".join(f"{label}\n" for label in labels.tolist()))


def _read_test(test: Path, train: Any, texts: TextSettings) -> Any:
    """Test rows in the features and labels of the training rows."""
    known: Any = SimpleNamespace(
        label_names_=train.label_names,
        vectorizer_=train.vectorizer,
        n_features_in_=train.n_features,
        targets_=SimpleNamespace(n_labels=train.n_labels),
    )
    return read_for(known, test, require_labels=False, texts=texts)


def _export_router(folder: Path, p: Partitioner, data: Any, test: Any) -> None:
    """The router as text, and the test rows by the block it sends them to."""
    import numpy as np

    from blockxmc._core.progress import reporter_for, thread_count
    from blockxmc.data import write_xc
    from blockxmc.routing import Router

    threads = thread_count(p.n_jobs)
    weights = Router().weights(data.X, p.assignment_, p.n_blocks_, threads, reporter_for(verbosity()))
    columns = weights.coef.tocsc()
    columns.sort_indices()
    lines = []
    for block in range(p.n_blocks_):
        inside = slice(columns.indptr[block], columns.indptr[block + 1])
        pairs = zip(columns.indices[inside].tolist(), columns.data[inside].tolist(), strict=True)
        lines.append(" ".join([repr(float(weights.bias[block])), *(f"{f}:{w!r}" for f, w in pairs)]) + "\n")
    (folder / "router.txt").write_text("".join(lines))
    if test is None:
        return
    blocks = Router.from_weights(weights).blocks(test.X, 1, threads=threads)[:, 0]
    (folder / "test_assignment.txt").write_text("".join(f"{block}\n" for block in blocks.tolist()))
    for block, labels in enumerate(p.label_clusters_):
        rows = np.flatnonzero(blocks == block)
        write_xc(folder / f"test-{block}.txt", test.X[rows], test.Y[rows][:, labels])
        (folder / f"test-{block}.rows.txt").write_text("".join(f"{row}\n" for row in rows.tolist()))


def _check_replaceable(out: Path) -> None:
    if not out.exists():
        return
    if not out.is_dir():
        raise BlockXMCError(f"{out} is a file: --out must name a folder")
    if not any(out.iterdir()):
        return
    try:
        ours = json.loads((out / "summary.json").read_text()).get("made_by") == _MARK
    except (OSError, ValueError, AttributeError):
        ours = False
    if not ours:
        raise BlockXMCError(f"{out} is not empty and was not written by this command: name another folder")


def _write_folder(out: Path, write: Callable[[Path], None]) -> None:
    """Fill a temporary folder beside it and move it into place: the folder is there complete, or not at all."""
    target = out.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    new, old = temporary / "new", temporary / "old"
    try:
        new.mkdir()
        write(new)
        if target.exists():
            os.rename(target, old)
        try:
            os.rename(new, target)
        except OSError:
            if old.exists():
                os.rename(old, target)
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
