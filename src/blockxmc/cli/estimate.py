"""blockxmc estimate: what a training will take, before it begins."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from blockxmc.cli._common import Json, Threads, print_json, print_table, read_rows, verbosity
from blockxmc.cli._text_options import (
    Analyzer,
    LabelField,
    LabelSeparator,
    MaxFeatures,
    MinDf,
    Ngrams,
    StopWords,
    TextField,
    TextSettings,
)


def estimate(
    data: Annotated[Path, typer.Argument(metavar="TRAIN", help="Data in a format that train accepts.")],
    ngrams: Ngrams = None,
    min_df: MinDf = None,
    max_features: MaxFeatures = None,
    analyzer: Analyzer = None,
    stop_words: StopWords = None,
    text_field: TextField = None,
    label_field: LabelField = None,
    label_separator: LabelSeparator = None,
    base: Annotated[
        str | None,
        typer.Option(
            "--base", help="dismec, pd-sparse or leml: the paper's experiment over it, instead of the default."
        ),
    ] = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Estimate the time and memory of a training on TRAIN, and the size of the model."""
    from blockxmc import BlockwiseClassifier, TextClassifier
    from blockxmc._core.progress import reporter_for
    from blockxmc.data._source import once
    from blockxmc.data.corpus import TEXT_FORMATS, read_corpus
    from blockxmc.data.folder import data_format

    if base is not None:
        _estimate_experiment(data, base, json)
        return
    fields = (tuple(text_field or ()), label_field, label_separator)
    text = TextSettings(ngrams, min_df, max_features, analyzer, stop_words, *fields)
    classifier = BlockwiseClassifier(n_jobs=threads, verbose=verbosity())
    source = once(data)
    found: dict[str, Any]
    with reporter_for(verbosity()).phase("estimate"):
        if data_format(source) in TEXT_FORMATS:
            model = TextClassifier(classifier, **text.parameters())
            corpus = read_corpus(source, fields=text.fields())
            found = model.estimate(corpus.texts, corpus.labels)
        else:
            text.refuse_for(source)
            dataset = read_rows(source)
            found = classifier.estimate(dataset.X, dataset.Y)
    if json:
        print_json(found)
        return
    rows = [
        ["training time", f"{found['train_seconds']:,.0f} s" if found["train_seconds"] >= 10 else "less than 10 s"],
        ["memory at the peak", f"{found['peak_memory_gb']:,.2f} GB"],
        ["model size", f"{found['model_mb']:,.1f} MB"],
        ["labels scored per row", f"{found['candidates']:,.0f}"],
    ]
    print_table("", [f"expected: {data}", ""], rows)


def _estimate_experiment(data: Path, base: str, as_json: bool) -> None:
    """What the paper's table of a base takes: the base, the protocol of five folds, and the same to the letter."""
    from blockxmc.errors import BlockXMCError
    from blockxmc.paper.expected import BASES, Sizes, expected, hours

    if base not in BASES:
        raise BlockXMCError(f"--base must be one of {', '.join(BASES)}, got {base!r}")
    rows = read_rows(data)
    found = expected(
        Sizes(rows.n_rows, rows.n_features, rows.n_labels, rows.features_per_row, rows.labels_per_row), base
    )
    if as_json:
        print_json(found)
        return
    names = {
        "base_cpu_hours": "the base alone",
        "protocol_cpu_hours": "with BP, five folds",
        "with_letter_cpu_hours": "and to the letter, three seeds",
    }
    told = [[name, *(f"{hours(found[key], cores):,.2f}" for cores in (1, 2, 16, 64))] for key, name in names.items()]
    print_table(f"{found['memory_gb']:,.1f} GB", [f"hours, {base}", "1 core", "2", "16", "64"], told)
