"""blockxmc update: new rows and labels into a model that keeps its rows, or rows out of it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blockxmc.cli._common import (
    Json,
    Threads,
    check_writable,
    kind_of,
    loaded,
    on_features,
    print_json,
    print_table,
    read_rows,
    verbosity,
)
from blockxmc.cli._text_options import ExtraColumns, FoldLabels, LabelField, LabelSeparator, TextField, TextSettings
from blockxmc.errors import BlockXMCError

if TYPE_CHECKING:
    from blockxmc.data._source import PathLike


def update(
    model: Annotated[Path, typer.Argument(metavar="DIR", help="A model trained with --keep-rows.")],
    new: Annotated[
        Path | None, typer.Argument(metavar="[NEW]", help="New rows, in the format of the training data.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the updated model here, and leave DIR unchanged.")
    ] = None,
    forget: Annotated[
        Path | None, typer.Option("--forget", help="File with row numbers to remove first, one per line, from 0.")
    ] = None,
    text_field: TextField = None,
    label_field: LabelField = None,
    label_separator: LabelSeparator = None,
    fold_labels: FoldLabels = False,
    extra: ExtraColumns = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Add the rows of NEW to a model, or remove rows, without a full training. The model is replaced in one step."""
    from blockxmc.storage import check_target

    if new is None and forget is None:
        raise BlockXMCError("nothing to do: give a file of new rows, or --forget FILE")
    fields: Any = {
        "text_field": tuple(text_field or ()),
        "label_field": label_field,
        "label_separator": label_separator,
    }
    text = TextSettings(**fields, fold_labels=fold_labels)
    target = model if out is None else out
    check_target(target)
    check_writable(target)
    known: Any = loaded(model, extra)
    classifier: Any = on_features(known)
    if not hasattr(classifier, "update"):
        raise BlockXMCError(f"{model} is a {type(classifier).__name__}, which cannot be updated: train --system bp")
    jobs, done = classifier.n_jobs, len(classifier.history_)
    classifier.set_params(n_jobs=threads, verbose=verbosity())
    wall, cpu = time.perf_counter(), time.process_time()
    if forget is not None:
        known.forget(row_numbers(forget, classifier.n_train_rows_))
    if new is not None:
        _learn(known, new, text)
    classifier = on_features(known)  # a text model has changed to another
    times = {"update_seconds": time.perf_counter() - wall, "update_cpu_seconds": time.process_time() - cpu}
    classifier.set_params(n_jobs=jobs, verbose=0)
    known.save(target)
    _show(classifier, target, classifier.history_[done:], times, json)


def _learn(model: Any, new: Path, text: TextSettings) -> None:
    from blockxmc.data import fold_labels
    from blockxmc.data._source import once
    from blockxmc.data.corpus import read_corpus

    source = once(new)
    vectorizer = getattr(model, "vectorizer_", None)
    kind = kind_of(source, wants_text=vectorizer is not None, fields=text.fields())
    if vectorizer is not None and kind == "shards":
        raise BlockXMCError(f"{new}: holds features; a model of texts is updated by texts, which may have new words")
    if vectorizer is None:
        text.refuse_for(source)
        _learn_features(model, source)
        return
    corpus = read_corpus(source, kind=kind, verbose=verbosity(), fields=text.fields())
    if not len(corpus.texts):
        raise BlockXMCError(f"{new}: holds no rows; give a file with at least one row")
    labels = fold_labels(corpus.labels, known=model.classes_) if text.fold_labels else corpus.labels
    model.update(list(corpus.texts), list(labels), ids=corpus.names)


def _learn_features(model: Any, source: PathLike) -> None:
    """Rows of features; numbers of features and labels may be fewer or more than the model has."""
    from blockxmc.training.kept import widened

    dataset = read_rows(source)
    names = None if dataset.label_names is None else list(dataset.label_names)
    X, Y = dataset.X, dataset.Y
    if names is None or model.label_names_ is None:
        names = None
        Y = widened(Y, max(Y.shape[1], model.targets_.n_labels))
    model.update(widened(X, max(X.shape[1], model.n_features_in_)), Y, label_names=names)


def row_numbers(path: Path, n_rows: int) -> list[int]:
    """The numbers in a file, one a line, of a model with so many rows."""
    out = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        if not line.strip():
            continue
        if not line.strip().isdecimal():
            raise BlockXMCError(f"{path}:{number}: {line.strip()[:40]!r} is no row number; give one a line, from 0")
        digits = line.strip().lstrip("0") or "0"
        if len(digits) > len(str(n_rows)) or int(digits) >= n_rows:
            last = f"its rows have the numbers 0 to {n_rows - 1:,}"
            raise BlockXMCError(f"{path}:{number}: the model has no row {line.strip()[:40]}: {last}")
        out.append(int(digits))
    if not out:
        raise BlockXMCError(f"{path}: holds no row numbers; give one a line, from 0")
    return out


def _show(classifier: Any, target: Path, events: list[dict[str, Any]], times: dict[str, float], json: bool) -> None:
    from blockxmc.cli.inspect import history

    result: dict[str, Any] = {
        "model": str(target),
        "rows": classifier.n_train_rows_,
        "features": classifier.n_features_in_,
        "labels": classifier.targets_.n_labels,
        "done": events,
        "advice": history(classifier)["advice"],
        **times,
    }
    if json:
        print_json(result)
        return
    rows: list[list[Any]] = []
    for event in events:
        rows.append([f"rows {'learnt' if event['what'] == 'update' else 'forgotten'}", event["rows"]])
        rows += [[key.replace("_", " "), event[key]] for key in ("new_labels", "new_features") if event.get(key)]
        rows.append(["labels solved again", event["labels_solved"]])
        if "P@1" in event:
            seen = " / ".join(f"{100 * event[f'P@{k}']:.1f}" for k in (1, 3, 5))
            rows.append(["P@1 / 3 / 5 of these rows before", f"{seen} %"])
    rows += [
        ["training rows", result["rows"]],
        ["labels", result["labels"]],
        ["time", f"{times['update_seconds']:,.1f} s"],
    ]
    print_table("", [f"updated: {target}", ""], rows)
    if any(event["what"] == "forget" for event in events):
        print("Rows behind forgotten ones have moved up: their numbers are new.")
    if result["advice"] is not None:
        print(f"note: {result['advice']}")
