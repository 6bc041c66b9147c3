"""blockxmc train: learn a model from a data file and write it to a directory."""

from __future__ import annotations

import logging
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blockxmc._core.log import show_log
from blockxmc.cli._common import (
    Json,
    Scheduler,
    Seed,
    Threads,
    begins_with_a_word,
    check_writable,
    kept_when_interrupted,
    on_features,
    print_json,
    print_table,
    read_rows,
    verbosity,
    work_folder,
    work_on_cluster,
)
from blockxmc.cli._text_options import (
    Analyzer,
    Device,
    EncoderModel,
    Epochs,
    ExtraColumns,
    FoldLabels,
    LabelField,
    LabelSeparator,
    LabelTexts,
    MaxFeatures,
    MinDf,
    Ngrams,
    StopWords,
    TextField,
    TextSettings,
    note_on_bare,
    tell,
)
from blockxmc.cli.systems import SystemOptions, make_system
from blockxmc.errors import BlockXMCError

if TYPE_CHECKING:
    from blockxmc.data._source import PathLike


def train(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="TRAIN", help="JSONL, JSON, TSV or CSV with texts and label names; or XC text, npz or shards."
        ),
    ],
    model: Annotated[Path, typer.Option("--model", help="Directory to write the model to.")],
    system: Annotated[str, typer.Option("--system", help="bp, full, cbmlc, lpsr, lf or fastxml.")] = "bp",
    base: Annotated[
        str | None,
        typer.Option("--base", help="dismec, pd-sparse, ppd-sparse, leml or naive-bayes.", show_default="dismec"),
    ] = None,
    blocks: Annotated[
        str,
        typer.Option(
            "--blocks", help="Number of blocks, or auto, paper (the paper's search) or cost (fewest products)."
        ),
    ] = "auto",
    lam: Annotated[
        str, typer.Option("--lam", help="The paper's lambda: a larger one gives blocks fewer labels; or auto.")
    ] = "auto",
    assign_at: Annotated[
        str | None,
        typer.Option("--assign-at", help="Lambdas at which rows are assigned to blocks, in turn; see blockxmc tune."),
    ] = None,
    weights: Annotated[str, typer.Option("--weights", help="auto, shared, per-block or global.")] = "auto",
    route: Annotated[
        str,
        typer.Option("--route", help="Number of blocks a row visits, or a share of probability such as 0.7, or auto."),
    ] = "auto",
    paper: Annotated[bool, typer.Option("--paper", help="Train the paper's system exactly.")] = False,
    letter: Annotated[
        bool, typer.Option("--letter", help="With --paper: its letter, and the authors' parameters; see blockxmc tune.")
    ] = False,
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param", help="Any other parameter of the classifier, as NAME=VALUE, e.g. base__C=2; repeatable."
        ),
    ] = None,
    label_names: Annotated[
        Path | None, typer.Option("--label-names", help="File with one label name per line.")
    ] = None,
    label_texts: LabelTexts = None,
    ngrams: Ngrams = None,
    min_df: MinDf = None,
    max_features: MaxFeatures = None,
    analyzer: Analyzer = None,
    stop_words: StopWords = None,
    text_field: TextField = None,
    label_field: LabelField = None,
    label_separator: LabelSeparator = None,
    fold_labels: FoldLabels = False,
    extra: ExtraColumns = None,
    encoder: EncoderModel = None,
    epochs: Epochs = None,
    device: Device = None,
    keep_rows: Annotated[
        bool, typer.Option("--keep-rows", help="Keep the training rows in the model, so that it can be updated.")
    ] = False,
    titles: Annotated[
        bool, typer.Option("--titles/--no-titles", help="Texts: keep ids and first words, which explain shows.")
    ] = True,
    max_memory: Annotated[
        float | None,
        typer.Option("--max-memory", help="Gigabytes; a training that would take more is refused."),
    ] = None,
    work: Annotated[
        str | None,
        typer.Option("--work", help="Folder for finished stages; after a crash, repeat the command to continue."),
    ] = None,
    scheduler: Scheduler = None,
    threads: Threads = None,
    seed: Seed = 0,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Say what was chosen and why, and print all measurements.")
    ] = False,
    json: Json = False,
) -> None:
    """Train a model on TRAIN and save it to a directory."""
    show_log(logging.INFO if verbose else logging.WARNING)
    more = tuple(param or ()), assign_at, keep_rows, letter
    options = SystemOptions(system, base, paper, blocks, lam, weights, route, *more)
    fields = tuple(text_field or ()), label_field, label_separator
    words = ngrams, min_df, max_features, analyzer, stop_words
    text = TextSettings(*words, *fields, label_texts, extra, fold_labels, encoder, epochs, device)
    plan = _Plan(
        data,
        model,
        label_names,
        options,
        text,
        max_memory,
        work_folder(work),
        scheduler,
        threads,
        seed,
        verbose,
        titles,
    )
    result = plan.carry_out()
    if json:
        print_json(result)
    elif verbose:
        print_table("", ["trained", ""], [[key.replace("_", " "), value] for key, value in result.items()])
    else:
        _show(result)


@dataclass(frozen=True)
class _Plan:
    """What to train from what, and where it goes."""

    data: Path
    model: Path
    label_names: Path | None
    options: SystemOptions
    text: TextSettings
    max_memory: float | None
    work: Path | None
    scheduler: str | None
    threads: int | None
    seed: int
    verbose: bool
    titles: bool

    def carry_out(self) -> dict[str, Any]:
        """Read, train, save; returns everything that was measured."""
        from blockxmc.data._source import once
        from blockxmc.data.corpus import TEXT_FORMATS
        from blockxmc.storage import check_target

        estimator: Any = make_system(
            self.options, n_jobs=self.threads, random_state=self.seed, verbose=verbosity() or self.verbose
        )
        if self.work is not None and self.options.system != "bp":
            raise BlockXMCError(
                f"--work has no meaning for --system {self.options.system}: only bp is trained in stages"
            )
        check_target(self.model)
        check_writable(self.model)
        source = once(self.data)
        if self.scheduler is not None:
            fit = self._fit_on_cluster(self.scheduler, source, estimator)
        elif (kind := self._kind(source)) in TEXT_FORMATS:
            fit = self._fit_texts(source, kind, estimator)
        else:
            fit = self._fit_features(source, estimator)
        wall, cpu = time.perf_counter(), time.process_time()
        with kept_when_interrupted("finished stages", self.work):
            model = fit()
        times = {"train_seconds": time.perf_counter() - wall, "train_cpu_seconds": time.process_time() - cpu}
        model.save(self.model)
        return self._result(on_features(model), on_features(model) is not model) | times | _size(self.model)

    def _kind(self, source: PathLike) -> str:
        """The format of the data. A pipe has no suffix: names of fields say that words in its first line are a header."""
        from blockxmc.data._source import Piped
        from blockxmc.data.folder import data_format

        kind = data_format(source)
        if kind != "xc" or not isinstance(source, Piped) or not begins_with_a_word(source):
            return kind
        fields = self.text.fields()
        if fields.text or fields.labels:
            return "csv"
        raise BlockXMCError(
            f"{source}: is neither XC text, JSON nor TSV; the header of a CSV must hold text and labels, or --text-field"
            " and --label-field say what stands there"
        )

    def _fit_texts(self, source: PathLike, kind: str, classifier: Any) -> Callable[[], Any]:
        """How to make a TextClassifier, its texts read already."""
        from blockxmc import TextClassifier

        if self.label_names is not None:
            raise BlockXMCError(f"--label-names is for numbered labels; {source} names its own")
        model = TextClassifier(classifier, **self.text.parameters())
        corpus = self.text.corpus(source, kind, verbosity())
        more = self.text.of_labels(corpus.labels) | {"ids": corpus.names, "titles": self.titles}
        return partial(model.fit, corpus.texts, corpus.labels, **self._fit_options(), **more)

    def _fit_features(self, source: PathLike, classifier: Any) -> Callable[[], Any]:
        """How to train on features, read already; shards of texts make a TextClassifier."""
        from blockxmc import TextClassifier
        from blockxmc.data import read_names
        from blockxmc.training.dataset import fit_dataset

        self.text.refuse_for(source)
        names = None if self.label_names is None else read_names(self.label_names)
        dataset = read_rows(source, label_names=names)
        tell(note_on_bare(int((dataset.Y.indptr[1:] == dataset.Y.indptr[:-1]).sum()), dataset.n_rows))

        def train() -> Any:
            fitted = fit_dataset(classifier, dataset, **self._fit_options())
            return fitted if dataset.vectorizer is None else TextClassifier.from_parts(fitted, dataset.vectorizer)

        return train

    def _fit_on_cluster(self, scheduler: str, source: PathLike, classifier: Any) -> Callable[[], Any]:
        """How to train on the workers of a cluster, which read the data themselves."""
        from blockxmc import TextClassifier
        from blockxmc.data import read_names
        from blockxmc.data._source import Piped
        from blockxmc.data.corpus import TEXT_FORMATS
        from blockxmc.data.folder import data_format
        from blockxmc.data.shards import is_shards, read_shards
        from blockxmc.distributed import connected, fit

        work = work_on_cluster(None if self.work is None else str(self.work))
        if isinstance(source, Piped):
            raise BlockXMCError("--scheduler needs a data file that all workers can read, not standard input")
        names = None if self.label_names is None else read_names(self.label_names)
        more: Any = {"label_names": names, "max_memory_gb": self.max_memory}
        if data_format(source) in TEXT_FORMATS:
            if self.text.label_texts is not None or names is not None or self.text.fold_labels:
                raise BlockXMCError(
                    "--label-texts, --label-names and --fold-labels have no meaning for texts with --scheduler"
                )
            classifier, more["fields"] = TextClassifier(classifier, **self.text.parameters()), self.text.fields()
        else:
            self.text.refuse_for(source)
            if is_shards(source) and read_shards(source, check=False).vectorizer is not None:
                classifier = TextClassifier(classifier)

        def train() -> Any:
            with connected(scheduler) as client:
                return fit(classifier, source, client, work=work, **more)

        return train

    def _fit_options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"max_memory_gb": self.max_memory}
        return options if self.work is None else options | {"work": self.work}

    def _result(self, estimator: Any, takes_text: bool) -> dict[str, Any]:
        result: dict[str, Any] = {
            **getattr(estimator, "cost_", {}),
            "model": str(self.model),
            "system": self.options.system,
            "estimator": type(estimator).__name__,
            "rows": estimator.n_train_rows_,
            "features": estimator.n_features_in_,
            "labels": estimator.targets_.n_labels,
            "takes_text": takes_text,
        }
        if hasattr(estimator, "partition_"):
            part = estimator.partition_
            result |= {"blocks": part.n_blocks_, "lam": part.lam_, "captured": part.captured_}
        if self.work is not None:
            result["went_on_from"] = estimator.went_on_from_
        remark = _remark(result)
        return result | ({"remark": remark} if remark else {})


def _size(model: Path) -> dict[str, float]:
    return {"model_mb": sum(file.stat().st_size for file in model.iterdir()) / 1e6}


def _remark(result: dict[str, Any]) -> str | None:
    """What to do where blocks cost more than they save."""
    speedup = result.get("speedup", 1.0)
    if speedup >= 1 or "blocks" not in result:
        return None
    return (
        f"blocks do not pay here: a row takes {result['products']:,.0f} vector products, more than one for each of the "
        f"{result['labels']:,} labels; --system full scores all labels and is simpler"
    )


def _show(result: dict[str, Any]) -> None:
    """What a new user wants to know; --verbose has the rest."""
    from blockxmc.training.summary import names_in_words

    rows: list[list[Any]] = [["rows it learned from", result["rows"]], ["labels it can suggest", result["labels"]]]
    if "expected_P@1" in result:
        rows.append(["first suggestion is right", f"{100 * result['expected_P@1']:.0f} % of the time, expected"])
    if "expected_P@5" in result:
        rows.append(["right among five suggestions", f"{5 * result['expected_P@5']:.1f} on average, expected"])
    if "names_weight" in result:
        rows.append(["names of labels", names_in_words(result)])
    rows += [["model size", f"{result['model_mb']:,.1f} MB"], ["training time", f"{result['train_seconds']:,.1f} s"]]
    print_table("", [f"trained: {result['model']}", ""], rows)
    if result.get("went_on_from"):
        print(f"went on from: {result['went_on_from']}")
    if "remark" in result:
        print(f"note: {result['remark']}")
    model = shlex.quote(result["model"])
    asked = 'blockxmc explain {} "a text"' if result["takes_text"] else "blockxmc predict {} FILE"
    print(f"next: {asked.format(model)}, or blockxmc serve {model} for a page in the browser")
