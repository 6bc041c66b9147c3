"""What several commands share: options, reading data, tables on stdout."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blockxmc._core.shown import printable
from blockxmc.errors import BlockXMCError

if TYPE_CHECKING:
    from blockxmc._core.base import XMCEstimator
    from blockxmc.cli._text_options import TextSettings
    from blockxmc.data import Dataset
    from blockxmc.data._source import PathLike
    from blockxmc.data.corpus import Fields
    from blockxmc.data.lines import Lines

Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object on stdout.")]
Threads = Annotated[
    int | None, typer.Option("--threads", min=1, max=1024, help="Number of threads; default: all cores.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, max=2**31 - 1, help="Seed of the random numbers.")]
Scheduler = Annotated[
    str | None,
    typer.Option("--scheduler", metavar="ADDRESS", help="Run on the workers of this Dask scheduler; needs --work."),
]

RankBy = Annotated[
    str | None,
    typer.Option(
        "--rank-by", help="probability, or propensity (ranks rare labels higher).", show_default="as the model was made"
    ),
]


def verbosity() -> int:
    """1 on a terminal, where progress is shown; 0 in scripts and logs."""
    return int(sys.stderr.isatty())


def print_json(value: Any) -> None:
    """One JSON object; NaN and infinity, which JSON does not have, become null."""
    json.dump(_finite(value), sys.stdout, indent=2, default=_plain, allow_nan=False)
    print()


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table for people; the first column is text, the rest is right-aligned."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    heading = Text(printable(title), style="bold") if title else None
    table = Table(title=heading, box=box.SIMPLE_HEAD, title_justify="left")
    for i, column in enumerate(columns):
        table.add_column(Text(printable(column)), justify="left" if i == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(_cell(value))) for value in row))
    # Piped output has no width of its own: lines stay whole.
    width = None if sys.stdout.isatty() else 160
    Console(width=width, highlight=False).print(table)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def work_folder(typed: str | None) -> Path | None:
    """The folder of ``--work``; an empty name, as of a variable that is not set, would be the current folder."""
    if typed == "":
        raise BlockXMCError("--work needs the name of a folder, got an empty one")
    return None if typed is None else Path(typed)


def work_on_cluster(typed: str | None, **given: Any) -> Path:
    """The folder in which a cluster works; options that only one process knows must not be ``given``."""
    work = work_folder(typed)
    if work is None:
        raise BlockXMCError("--scheduler needs --work DIR, a folder that all workers see under this name")
    for option, value in given.items():
        if value:
            raise BlockXMCError(f"--{option.replace('_', '-')} has no meaning with --scheduler")
    return work


@contextmanager
def kept_when_interrupted(what: str, folder: Path | None) -> Iterator[None]:
    """Say on Ctrl-C that work in a folder was not in vain."""
    try:
        yield
    except KeyboardInterrupt:
        if folder is not None:
            print(f"{what} are kept in {folder}: the same command goes on", file=sys.stderr)
        raise


def check_writable(folder: Path) -> None:
    """Refuse a folder in which nothing can be written, before hours of work for it; it need not be there yet."""
    import tempfile

    there = folder.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise BlockXMCError(f"{folder}: nothing can be written there: {there}: {error.strerror}") from None


def read_rows(path: PathLike, texts: TextSettings | None = None, **options: Any) -> Dataset:
    """Training data of any format, with at least one row; ``texts`` says where those of a file stand."""
    from blockxmc.data import read_dataset, read_text
    from blockxmc.data._source import once
    from blockxmc.data.corpus import TEXT_FORMATS
    from blockxmc.data.folder import data_format

    source, options = once(path), options | {"verbose": verbosity()}
    if texts is None:
        return _with_rows(path, read_dataset(source, **options))
    if data_format(source) in TEXT_FORMATS:
        return _with_rows(path, read_text(source, fields=texts.fields(), **options))
    texts.refuse_for(path)
    return _with_rows(path, read_dataset(source, **options))


def refuse_fields_of_features(source: PathLike, texts: TextSettings) -> None:
    """Refuse options that say where texts stand, for a file of features or a folder with such files."""
    from blockxmc.data._source import Piped
    from blockxmc.data.corpus import TEXT_FORMATS
    from blockxmc.data.folder import data_format, train_and_test
    from blockxmc.data.shards import is_shards

    is_folder = not isinstance(source, Piped) and Path(source).is_dir() and not is_shards(source)
    pair = train_and_test(Path(source)) if is_folder else (source, source)
    if pair is None or data_format(pair[0]) not in TEXT_FORMATS:
        texts.refuse_for(source)


def open_model(path: PathLike, threads: int | None, extra: str | None = None) -> Any:
    """The model of a directory, a TextClassifier where it was trained on text, to run with so many threads.

    ``extra`` names what makes extra columns, as it was typed.
    """
    model = loaded(path, extra)
    on_features(model).set_params(n_jobs=threads)
    return model


def loaded(path: PathLike, extra: str | None) -> Any:
    """The model of a directory, with what makes its extra columns."""
    from blockxmc.data.named import named_function
    from blockxmc.storage import load

    return load(path, extra=None if extra is None else named_function(extra))


def on_features(model: Any) -> XMCEstimator:
    """The classifier that scores features: the model itself, or what lies inside a text model."""
    from blockxmc import TextClassifier

    classifier: XMCEstimator = model.classifier_ if isinstance(model, TextClassifier) else model
    return classifier


def rank_answers(classifier: XMCEstimator, by: str | None) -> None:
    """Rank the answers of a model by probability or propensity, as it was typed; None: as it was made."""
    from blockxmc.model.label_sets import LabelSetEstimator

    if by is None:
        return
    if by not in ("probability", "propensity"):
        raise BlockXMCError(f"--rank-by must be probability or propensity, got {by!r}")
    if not isinstance(classifier, LabelSetEstimator) or classifier.model_.calibration is None:
        raise BlockXMCError("--rank-by needs probabilities, but the scores of this model are margins")
    classifier.set_params(rank_by=by)


def read_for(model: Any, path: PathLike, *, require_labels: bool, texts: TextSettings | None = None) -> Dataset:
    """Test data in the features and labels of a model; ``texts`` says where those of a file stand."""
    from blockxmc.data import fold_labels, from_texts, read_dataset, read_text
    from blockxmc.data._source import once
    from blockxmc.data.corpus import read_corpus

    source = once(path)
    vectorizer = getattr(model, "vectorizer_", None)
    model = on_features(model)
    names = None if model.label_names_ is None else list(model.label_names_)
    fields = None if texts is None else texts.fields()
    kind = kind_of(source, wants_text=vectorizer is not None, fields=fields)
    options: dict[str, Any] = {"label_names": names, "verbose": verbosity()}
    if vectorizer is not None and texts is not None and texts.fold_labels and kind != "shards":
        corpus = read_corpus(source, require_labels, verbosity(), kind=kind, fields=fields)
        dataset = from_texts(corpus.texts, fold_labels(corpus.labels, names or ()), vectorizer, names)
    elif vectorizer is not None and kind != "shards":
        dataset = read_text(source, vectorizer, kind=kind, require_labels=require_labels, fields=fields, **options)
    else:
        if texts is not None:
            texts.refuse_for(path)
        sizes = {"n_features": model.n_features_in_, "n_labels": model.targets_.n_labels}
        dataset = read_dataset(source, **sizes, **options)
        if vectorizer is not None and not vectorizer.has_words_of(dataset.vectorizer):
            raise BlockXMCError(
                f"{path}: its words are not those of the model; convert it together with the training data"
            )
    for what, found, known in (
        ("features", dataset.X.shape[1], model.n_features_in_),
        ("labels", dataset.Y.shape[1], model.targets_.n_labels),
    ):
        if found != known:
            raise BlockXMCError(f"{path}: has {found} {what}, but the model was trained on {known}")
    return _with_rows(source, dataset)


def kind_of(source: PathLike, lines: Lines | None = None, *, wants_text: bool, fields: Fields | None = None) -> str:
    """The format of test data; what is neither text with label names nor features is plain lines for a text model.

    Of a pipe that is read line by line, ``lines`` has the first. ``fields`` that are named say that it is a header, where
    no suffix says what the lines are.
    """
    from blockxmc.data._source import Piped, first_line
    from blockxmc.data.corpus import TEXT_FORMATS, format_of_line
    from blockxmc.data.folder import data_format
    from blockxmc.data.xc import looks_like_xc

    live = lines is not None and lines.live and not isinstance(source, Piped)
    if lines is not None and live:
        kind = format_of_line(lines.first()) or "xc"
    else:
        kind = data_format(source)
    if kind == "shards":  # made of texts or of features: whoever reads them sees
        return kind
    piped = live or isinstance(source, Piped)
    plain = kind == "xc" and (piped or not looks_like_xc(first_line(source)))
    if wants_text and (plain or (kind == "tsv" and piped)):
        return "csv" if fields is not None and (fields.text or fields.labels or fields.id) else "tsv"
    is_text = kind in TEXT_FORMATS or (kind == "xc" and begins_with_a_word(lines.first() if live and lines else source))
    if is_text != wants_text:
        name = lines.name if lines is not None else source
        kinds = ("features (XC text or npz)", "text (JSONL, JSON, TSV or CSV)")
        raise BlockXMCError(f"{name}: holds {kinds[is_text]}, but the model was trained on {kinds[wants_text]}")
    return kind


def begins_with_a_word(source: PathLike | bytes) -> bool:
    """Whether data, or its first line, is text: rows of features begin with digits."""
    from blockxmc.data._source import first_line

    line = source if isinstance(source, bytes) else first_line(source)
    return next(filter(str.isalnum, line.decode("utf-8", errors="ignore")), "").isalpha()


def _with_rows(path: PathLike, dataset: Dataset) -> Dataset:
    if dataset.n_rows == 0:
        raise BlockXMCError(f"{path}: holds no rows; give a file with at least one row")
    return dataset
