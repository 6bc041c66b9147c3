"""``blockxmc stats``: the paper's data table for a file or a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from blockxmc.cli._common import read_rows, refuse_fields_of_features
from blockxmc.cli._text_options import LabelField, LabelSeparator, TextField, TextSettings, tell


def stats(
    data: Annotated[Path, typer.Argument(help="A data file, or a folder with a training and a test set.")],
    text_field: TextField = None,
    label_field: LabelField = None,
    label_separator: LabelSeparator = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print the sizes of a data set and how unevenly its labels are distributed."""
    from blockxmc._core.spelling import remarks, spelled_alike
    from blockxmc.data import describe, read_data_dir
    from blockxmc.data._source import once
    from blockxmc.data.corpus import TEXT_FORMATS, read_corpus
    from blockxmc.data.folder import data_format
    from blockxmc.data.repository import is_archive
    from blockxmc.data.shards import is_shards

    texts = TextSettings(text_field=tuple(text_field or ()), label_field=label_field, label_separator=label_separator)
    if is_archive(data) or (data.is_dir() and not is_shards(data)):
        refuse_fields_of_features(data, texts)
        train, test = read_data_dir(data, fields=texts.fields(), verbose=1)
        figures = describe(data.resolve().name, train, test)
    else:
        source = once(data)
        train = read_rows(source, texts)
        figures = describe(data.name, train, None)
        if data_format(source) in TEXT_FORMATS:
            corpus = read_corpus(source, fields=texts.fields())
            tell(*remarks(corpus.texts, corpus.labels))
    tell(spelled_alike(train.label_names or ()))
    if as_json:
        import json

        print(json.dumps(figures))
    else:
        _print_tables(figures)


def _print_tables(figures: dict[str, Any]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 200  # a pipe has no width to fold to

    def count(value: int | None) -> str:
        return "-" if value is None else f"{value:,}"

    table = Table(box=box.SIMPLE_HEAD)
    row = {
        "Data": figures["data"],
        "# Training": count(figures["train_rows"]),
        "# Testing": count(figures["test_rows"]),
        "# Features": count(figures["features"]),
        "# Labels": count(figures["labels"]),
        "ASpL": f"{figures['samples_per_label']:,.2f}",
        "ALpS": f"{figures['labels_per_sample']:,.2f}",
        "nnz/row": f"{figures['nnz_per_row']:,.1f}",
    }
    for name in row:
        table.add_column(name, justify="left" if name == "Data" else "right", no_wrap=True)
    table.add_row(*row.values())
    console.print(table)

    skew = Table(title="training rows per label, percentiles", title_justify="left", box=box.SIMPLE_HEAD)
    for p in figures["label_frequency_percentiles"]:
        skew.add_column(f"{p}%", justify="right", no_wrap=True)
    skew.add_row(*(f"{value:,.0f}" for value in figures["label_frequency_percentiles"].values()))
    console.print(skew)
    empty = f"rows without labels: {count(figures['rows_without_labels'])} training"
    if figures["test_rows"] is not None:
        empty += f", {count(figures['test_rows_without_labels'])} test"
    console.print(f"{empty}; labels without a training row: {count(figures['labels_without_training_row'])}")
    console.print("ASpL: average samples per label; ALpS: average labels per sample (training rows)")
    if figures["unseen_labels"]:
        console.print(f"label occurrences in test that training never shows: {count(figures['unseen_labels'])}")
