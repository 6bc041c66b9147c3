"""blockxmc predict: the best labels of each row, as rows come."""

from __future__ import annotations

import csv
import io
import json as jsonlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from blockxmc.cli._common import (
    RankBy,
    Scheduler,
    Threads,
    kind_of,
    on_features,
    open_model,
    rank_answers,
    read_for,
    verbosity,
    work_on_cluster,
)
from blockxmc.cli._text_options import ExtraColumns, IdField, TextField
from blockxmc.errors import BlockXMCError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from blockxmc._core.base import TopK, XMCEstimator
    from blockxmc.data._source import PathLike
    from blockxmc.data.corpus import Fields, Row
    from blockxmc.data.lines import Lines

FORMATS = ("xc", "jsonl", "tsv", "csv")
# Rows that are predicted and written before the next are begun: the bar moves, and memory stays small.
ROWS_AT_ONCE = 1 << 14


def predict(
    model: Annotated[Path, typer.Argument(metavar="DIR", help="A model directory.")],
    data: Annotated[
        str, typer.Argument(metavar="TEST", help="Data in the format of the training data; - for standard input.")
    ],
    top_k: Annotated[int, typer.Option("--top-k", min=1, help="Labels per row.")] = 5,
    out: Annotated[
        Path | None, typer.Option("--out", help="File to write (.gz, .xz: compressed); default: standard output.")
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="xc, jsonl, tsv or csv; default: by the ending of --out, else jsonl if labels have names, or xc.",
        ),
    ] = None,
    bom: Annotated[
        bool, typer.Option("--bom", help="Begin with a byte-order mark, by which Excel knows UTF-8.")
    ] = False,
    threshold: Annotated[
        str | None,
        typer.Option(
            "--threshold", help="Give only labels above this score, a number; or f1: the best cut for each row."
        ),
    ] = None,
    rank_by: RankBy = None,
    allow: Annotated[
        Path | None, typer.Option("--allow", help="File with the only labels that may be predicted.")
    ] = None,
    deny: Annotated[Path | None, typer.Option("--deny", help="File with labels that must not be predicted.")] = None,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Most rows to predict at a time.")] = ROWS_AT_ONCE,
    text_field: TextField = None,
    id_field: IdField = None,
    extra: ExtraColumns = None,
    scheduler: Scheduler = None,
    work: Annotated[
        str | None,
        typer.Option(
            "--work", help="Folder for answers from a cluster; after a crash, repeat the command to continue."
        ),
    ] = None,
    threads: Threads = None,
) -> None:
    """Predict the best labels of each row of TEST. With - as TEST, each line is answered as soon as it arrives."""
    from blockxmc.data.corpus import Fields

    form = _form(format, out)
    if out is not None and data != "-" and out.is_file() and out.samefile(data):
        raise BlockXMCError(f"--out {out} is the file to predict for: choose another name")
    estimator = open_model(model, threads, extra)
    classifier = on_features(estimator)
    if scheduler is not None:
        folder = work_on_cluster(
            work, rank_by=rank_by, allow=allow, deny=deny, text_field=text_field, id_field=id_field, extra=extra
        )
        answers = _of_cluster(classifier, (model, data), scheduler, folder, top_k, threshold)
        _write_all(classifier, answers, out, form, bom)
        return
    if work is not None:
        raise BlockXMCError("--work is the folder of a cluster's answers: it needs --scheduler")
    rank_answers(classifier, rank_by)
    ask = _question(estimator, top_k, threshold, allow, deny)
    source = _Source(estimator, data, Fields(tuple(text_field or ()), id=id_field), batch)
    _write_all(classifier, ((ask(rows), rows) for rows in source.batches()), out, form, bom)
    if source.unknown:
        print(f"note: the model knows no word of {source.unknown:,} texts; they get no labels", file=sys.stderr)


def _form(format: str | None, out: Path | None) -> str | None:
    """The format that was asked for, by name or by the ending of the file."""
    if format is not None and format not in FORMATS:
        raise BlockXMCError(f"--format must be one of {', '.join(FORMATS)}, got {format!r}")
    endings = [] if out is None else [suffix[1:].lower() for suffix in out.suffixes[-2:]]
    return format or next((ending for ending in reversed(endings) if ending in FORMATS), None)


def _write_all(
    classifier: XMCEstimator,
    answers: Iterable[tuple[TopK, _Rows | None]],
    out: Path | None,
    form: str | None,
    bom: bool,
) -> None:
    """Answers, with what is known of their rows, as they come."""
    import numpy as np

    form = form or ("xc" if classifier.label_names_ is None else "jsonl")
    write = _Writer(classifier.label_names_, form, set(np.flatnonzero(classifier.label_counts_ == 0).tolist()))
    with _destination(out) as stream:
        stream.write("\ufeff" * bom + write.header)
        for answer, rows in answers:
            stream.writelines(write.lines(answer, rows))
            if out is None:
                stream.flush()


def _of_cluster(
    classifier: XMCEstimator,
    of: tuple[Path, str],
    scheduler: str,
    work: Path,
    top_k: int,
    threshold: str | None,
) -> Iterator[tuple[TopK, None]]:
    """The answers of a model for a data file, scored by a cluster."""
    import numpy as np

    from blockxmc.distributed import connected, predict_topk
    from blockxmc.text import least_score

    least = least_score(classifier, _threshold(threshold))
    k = max(1, min(top_k, classifier.targets_.n_labels))
    with connected(scheduler) as client:
        answers = predict_topk(*of, client, out=work, k=k, verbose=verbosity())
    for labels, scores in answers:
        yield (np.where(scores <= least(scores), -1, labels), scores), None


class _Rows(NamedTuple):
    """Features of some rows, and the rows of a file of texts."""

    X: Any
    rows: list[Row] | None = None


def _question(
    model: Any, top_k: int, threshold: str | None, allow: Path | None, deny: Path | None
) -> Callable[[_Rows], TopK]:
    """What is asked about rows: their best labels within the limits."""
    from blockxmc.text import least_score

    classifier, cut = on_features(model), _threshold(threshold)
    lists = {"allow": allow, "deny": deny}
    limits = {name: _mask(classifier, path, f"--{name}") for name, path in lists.items() if path is not None}
    k = max(1, min(top_k, classifier.targets_.n_labels))  # rows would be padded to more

    def best(rows: _Rows) -> TopK:
        answering = classifier if rows.rows is None else model._answering([row.text for row in rows.rows])
        labels, scores = answering.predict_topk(rows.X, k, **limits)
        labels[scores <= least_score(answering, cut)(scores)] = -1
        if rows.rows is not None:
            labels[rows.X.indptr[1:] == rows.X.indptr[:-1]] = -1
        return labels, scores

    return best


def _threshold(typed: str | None) -> float | str | None:
    try:
        return typed if typed in (None, "f1") else float(str(typed))
    except ValueError:
        raise BlockXMCError(f"--threshold must be a number or f1, got {typed!r}") from None


def _mask(classifier: XMCEstimator, path: Path, option: str) -> NDArray[np.bool_]:
    """Which labels a file lists, by name or, where labels have none, by number; those the model lacks are counted."""
    import numpy as np

    from blockxmc.data import read_names

    listed = {name.strip() for name in read_names(path)} - {""}
    names = map(str, classifier.classes_)
    mask = np.array([name in listed or f"<{name}>" in listed for name in names], dtype=bool)
    unknown = len(listed) - int(mask.sum())
    if unknown:
        print(f"note: the model does not know {unknown:,} of the {len(listed):,} labels of {path}", file=sys.stderr)
    if option == "--allow" and not mask.any():
        raise BlockXMCError(f"{option} {path}: lists no label of the model; give one label a line, as in training")
    return mask


@dataclass
class _Source:
    """The rows that are asked about."""

    model: Any
    path: str
    fields: Fields
    at_once: int
    unknown: int = 0  # texts without a word that the model knows

    @property
    def _is_text(self) -> bool:
        return on_features(self.model) is not self.model

    def batches(self) -> Iterator[_Rows]:
        """Some rows at a time; from a pipe, as they come."""
        from blockxmc.data._source import Piped
        from blockxmc.data.lines import open_live
        from blockxmc.data.shards import is_shards

        if is_shards(self.path):
            yield from self._of_features(self.path)
            return
        with open_live(self.path, verbosity()) as lines:
            source: PathLike = self.path
            if lines.live and lines.head() == b"PK":  # an archive is no lines
                source = Piped(lines.name, lines.rest())
            kind = kind_of(source, lines, wants_text=self._is_text, fields=self.fields)
            some = 0
            for rows in self._batches(source, kind, lines):
                some += rows.X.shape[0]
                yield rows
        if not some:
            raise BlockXMCError(f"{lines.name}: holds no rows; give a file with at least one row")

    def _batches(self, source: PathLike, kind: str, lines: Lines) -> Iterator[_Rows]:
        from blockxmc.data.corpus import rows_of
        from blockxmc.data.lines import together
        from blockxmc.data.xc import stream_xc

        classifier = on_features(self.model)
        if self._is_text:
            for batch in together(rows_of(lines, lines.name, kind, False, self.fields), lines, self.at_once):
                X = self.model.vectorizer_.transform([row.text for row in batch], classifier.n_jobs)
                self.unknown += int((X.indptr[1:] == X.indptr[:-1]).sum())
                yield _Rows(X, batch)
            return
        if lines.live and kind == "xc":
            sizes = {"n_features": classifier.n_features_in_, "n_labels": classifier.targets_.n_labels}
            for X in stream_xc(lines, lines.name, **sizes, at_once=self.at_once, n_jobs=classifier.n_jobs):
                yield _Rows(X)
            return
        yield from self._of_features(source)

    def _of_features(self, source: PathLike) -> Iterator[_Rows]:
        """The rows of a data set, which is there as a whole."""
        from blockxmc.data._source import SlowPhase

        X = read_for(self.model, source, require_labels=False).X
        with SlowPhase("predicting", X.shape[0], verbosity()) as phase:
            for first in range(0, X.shape[0], self.at_once):
                yield _Rows(X[first : first + self.at_once])
                phase.update(first)


class _Writer:
    """Answers as lines of text."""

    def __init__(self, names: Any, form: str, untrained: set[int]) -> None:
        """``untrained`` are labels that no training row has, known by their texts alone: JSON marks them."""
        self._names, self._form, self._untrained, self._row = names, form, untrained, 0
        self._written: dict[int, str] = {}  # names as they are written
        self.header = "id,text,labels\n" if form == "csv" else ""
        # Names that hold the separator, or look like lists, would be read as several: then all cells are lists.
        known = names if form == "csv" and names is not None else ()
        self._lists = any(";" in name or name.startswith("[") for name in map(str, known))

    def lines(self, answer: TopK, of: _Rows | None) -> Iterator[str]:
        """A line per row, or per label, with its end."""
        labels, scores = (part.tolist() for part in answer)
        line = {"xc": self._xc, "jsonl": self._jsonl, "tsv": self._tsv, "csv": self._csv}[self._form]
        rows = repeat(None) if of is None or of.rows is None else of.rows
        for row, js, found in zip(rows, labels, scores, strict=False):
            yield line([(j, f"{s:.6g}") for j, s in zip(js, found, strict=True) if j >= 0], row)
            self._row += 1

    def _csv(self, pairs: list[tuple[int, str]], row: Row | None) -> str:
        names = [str(j if self._names is None else self._names[j]) for j, _ in pairs]
        labels = jsonlib.dumps(names, ensure_ascii=False) if self._lists else ";".join(names)
        line = io.StringIO(newline="")
        name, text = ("", "") if row is None else (row.id, row.text)
        csv.writer(line, lineterminator="\n").writerow([name, text, labels])
        return line.getvalue()

    def _xc(self, pairs: list[tuple[int, str]], row: Row | None) -> str:
        return " ".join(f"{j}:{score}" for j, score in pairs) + "\n"

    def _jsonl(self, pairs: list[tuple[int, str]], of: Row | None) -> str:
        name = None if of is None else of.id
        labels = ", ".join([self._name(j) for j, _ in pairs])
        scores = ", ".join([score if "." in score or "e" in score else f"{score}.0" for _, score in pairs])
        start = "" if name is None else f'"id": {jsonlib.dumps(name, ensure_ascii=False)}, '
        marked = [self._name(j) for j, _ in pairs if j in self._untrained] if self._untrained else []
        end = f', "untrained": [{", ".join(marked)}]' if marked else ""
        return f'{{{start}"labels": [{labels}], "scores": [{scores}]{end}}}\n'

    def _tsv(self, pairs: list[tuple[int, str]], of: Row | None) -> str:
        row = self._row if of is None or of.id is None else _flat(of.id)
        return "".join(f"{row}\t{rank}\t{self._name(j)}\t{score}\n" for rank, (j, score) in enumerate(pairs, 1))

    def _name(self, label: int) -> str:
        """A label's name as JSON, or in one field of a tab-separated line."""
        if label not in self._written:
            name = label if self._names is None else self._names[label]
            plain = name.item() if hasattr(name, "item") else name
            json = self._form == "jsonl"
            self._written[label] = jsonlib.dumps(plain, ensure_ascii=False) if json else _flat(plain)
        return self._written[label]


def _flat(name: Any) -> str:
    """A name in one field of a tab-separated line."""
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
