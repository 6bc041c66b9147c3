"""blockxmc evaluate: how good and how fast a model is on a test file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from blockxmc.cli._common import (
    Json,
    RankBy,
    Scheduler,
    Threads,
    check_writable,
    on_features,
    open_model,
    print_json,
    print_table,
    rank_answers,
    read_for,
    verbosity,
    work_on_cluster,
)
from blockxmc.cli._text_options import ExtraColumns, FoldLabels, LabelField, LabelSeparator, TextField, TextSettings
from blockxmc.errors import BlockXMCError

# Precision over the rows that have labels, given where some have none.
LABELLED = "P_labelled"
# What is printed of label sets: what it is called, and digits behind the point.
OF_SETS = {
    "F1": ("F1, mean of rows (%)", 2),
    "F1_micro": ("F1, all pairs together (%)", 2),
    "F1_macro": ("F1, mean of labels (%)", 2),
    "predicted_per_row": ("labels predicted per row", 2),
    "labels_per_row": ("labels per row", 2),
    "calibration_error": ("calibration error of the first five", 4),
    "probabilities_per_hit": ("their probabilities, per hit", 4),
}


def evaluate(
    model: Annotated[Path, typer.Argument(metavar="DIR", help="A model directory.")],
    data: Annotated[
        str, typer.Argument(metavar="TEST", help="Data in the format of the training data; - for standard input.")
    ],
    at: Annotated[
        str, typer.Option("--at", metavar="K,...", help="Ranks k for P@k and the other ranking metrics.")
    ] = "1,3,5",
    propensity: Annotated[
        str | None,
        typer.Option(
            "--propensity",
            metavar="A,B",
            help="Constants of the propensity model.",
            show_default="those customary for a set of as many labels: 0.55,1.5 for most",
        ),
    ] = None,
    rank_by: RankBy = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw how reliable the probabilities are (png, svg, pdf)."),
    ] = None,
    text_field: TextField = None,
    label_field: LabelField = None,
    label_separator: LabelSeparator = None,
    fold_labels: FoldLabels = False,
    extra: ExtraColumns = None,
    scheduler: Scheduler = None,
    work: Annotated[
        str | None,
        typer.Option(
            "--work", help="Folder for answers from a cluster; after a crash, repeat the command to continue."
        ),
    ] = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Measure precision, F1, cost and time of a model on TEST (percentages, microseconds per row)."""
    from blockxmc._core.progress import reporter_for
    from blockxmc.metrics import customary_propensity
    from blockxmc.metrics.report import measure

    ks, given = _ranks(at), None if propensity is None else read_propensity(propensity)
    if plot is not None:
        from blockxmc.plots import check_figure

        check_writable(plot.parent)
        check_figure(plot)
    if scheduler is not None:
        cluster: Any = {"rank_by": rank_by, "plot": plot, "text_field": text_field, "label_field": label_field}
        cluster["extra"] = extra
        found = _by_cluster((model, data), scheduler, work_on_cluster(work, **cluster), ks, given)
        print_json(found) if json else _print(found, ks)
        return
    if work is not None:
        raise BlockXMCError("--work is the folder of a cluster's answers: it needs --scheduler")
    estimator = open_model(model, threads, extra)
    rank_answers(on_features(estimator), rank_by)
    reporter = reporter_for(verbosity())
    fields: Any = {
        "text_field": tuple(text_field or ()),
        "label_field": label_field,
        "label_separator": label_separator,
    }
    texts = TextSettings(**fields, fold_labels=fold_labels)
    dataset = read_for(estimator, data, require_labels=True, texts=texts)
    if dataset.unseen_labels and not dataset.Y.nnz:
        raise BlockXMCError(f"{data}: no row has a label that the model knows: is it another model, or another column?")
    a, b = given or customary_propensity(dataset.n_labels)
    with reporter.phase("evaluate"):
        result = with_labelled(measure(on_features(estimator), dataset, ks=ks, a=a, b=b), ks)
    if getattr(estimator, "encoder_", None) is not None:
        result["with_encoder"] = _compared(estimator, data, texts, ks)
    if plot is not None:
        _draw(on_features(estimator), dataset, plot)
    if dataset.unseen_labels:
        left = f"{result['rows_without_labels']:,} of {result['rows']:,} rows have no label left"
        print(
            f"note: {dataset.unseen_labels:,} labels of rows are unknown to the model and left out; {left}",
            file=sys.stderr,
        )
    if json:
        print_json(result)
        return
    _print(result, ks)


def with_labelled(result: dict[str, Any], ks: list[int]) -> dict[str, Any]:
    """A result that says P@k of the rows with labels, too, where other rows have none and are misses in P@k.

    >>> with_labelled({"rows": 4, "rows_without_labels": 1, "P@1": 30.0}, [1])
    {'rows': 4, 'rows_without_labels': 1, 'P@1': 30.0, 'P_labelled@1': 40.0}
    """
    rows, without = result["rows"], result["rows_without_labels"]
    if not 0 < without < rows:
        return result
    return result | {f"{LABELLED}@{k}": result[f"P@{k}"] * rows / (rows - without) for k in ks}


def _by_cluster(
    of: tuple[Path, str], scheduler: str, work: Path, ks: list[int], propensity: tuple[float, float] | None
) -> dict[str, Any]:
    """Rankings of a data file by a model, scored by a cluster, in points."""
    from blockxmc.distributed import connected, evaluate

    with connected(scheduler) as client:
        found = evaluate(*of, client, out=work, ks=ks, propensity=propensity, verbose=verbosity())
    return with_labelled({key: 100 * value if "@" in key else value for key, value in found.items()}, ks)


def _print(result: dict[str, Any], ks: list[int]) -> None:
    names = {name: name for name in ("P", LABELLED, "nDCG", "R", "F1", "PSP", "PSnDCG") if f"{name}@{ks[0]}" in result}
    names |= {LABELLED: "P, rows with labels"} if LABELLED in names else {}
    values = [[head, *(result[f"{name}@{k}"] for k in ks)] for name, head in names.items()]
    rows, without = result["rows"], result["rows_without_labels"]
    title = f"{rows:,} rows" + (f", {result['labels']:,} labels" if "labels" in result else "")
    print_table(title, ["%", *(f"@{k}" for k in ks)], values)
    if "propensity_a" in result:
        print(
            f"PSP with A {result['propensity_a']:g} and B {result['propensity_b']:g} (--propensity A,B changes them)\n"
        )
    if without:
        print(f"{without:,} rows have no labels: they are misses in P, and left out of the other lines\n")
    sets = [[head, f"{result[key]:.{digits}f}"] for key, (head, digits) in OF_SETS.items() if key in result]
    if sets:
        print_table("", ["label sets", ""], sets)
    shown = {"rows", "labels", "rows_without_labels", "propensity_a", "propensity_b", "with_encoder", *OF_SETS}
    if (found := result.get("with_encoder")) is not None:
        keys = list(found["fused"])
        rows = [[name, *(f"{found[name][key]:.2f}" if key in found[name] else "" for key in keys)] for name in found]
        print_table("with the encoder (all other lines: the linear model)", ["", *keys], rows)
    rest = {key: value for key, value in result.items() if "@" not in key and key not in shown}
    if rest:
        print_table("", ["cost per row", ""], [[key.replace("_", " "), value] for key, value in rest.items()])


def _compared(model: Any, data: str, texts: TextSettings, ks: list[int]) -> dict[str, dict[str, float]]:
    """The linear model, the encoder and both on the texts of a file; shards and pipes hold none any more."""
    from blockxmc.data.corpus import read_corpus
    from blockxmc.encoder.report import compared

    if not Path(data).is_file():
        raise BlockXMCError(f"{data}: a model with an encoder is evaluated on a file of texts")
    corpus = read_corpus(data, verbose=verbosity(), fields=texts.fields())
    known = model.classifier_.targets_.ids_by_name
    Y = model.classifier_.targets_.encode_more([[name for name in row if name in known] for row in corpus.labels])[0]
    return compared(model, corpus.texts, Y, ks)


def _ranks(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.strip().isdigit() and int(part) >= 1 for part in parts):
        raise BlockXMCError(
            f"--at takes whole numbers of at least 1 with commas between them, like 1,3,5; got {text!r}"
        )
    return sorted({int(part) for part in parts})


def read_propensity(text: str) -> tuple[float, float]:
    """The two numbers of ``--propensity``.

    >>> read_propensity("0.6,2.6")
    (0.6, 2.6)
    """
    try:
        a, b = (float(part) for part in text.split(","))
        if not (0 <= a < 100 and 0 <= b < 1e9):
            raise ValueError
    except ValueError:
        raise BlockXMCError(f"--propensity takes two numbers, like 0.55,1.5; got {text!r}") from None
    return a, b


def _draw(estimator: Any, dataset: Any, path: Path) -> None:
    from blockxmc.metrics.report import SUGGESTED, suggestions
    from blockxmc.plots import draw_reliability

    answers = suggestions(estimator, dataset)
    if answers is None:
        raise BlockXMCError("--plot draws what probabilities mean, but the scores of this model are margins")
    draw_reliability(*answers, path, title=f"The first {SUGGESTED} suggestions of {dataset.n_rows:,} rows")
