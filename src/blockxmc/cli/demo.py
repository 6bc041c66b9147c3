"""blockxmc demo: BP beside the full classifier on the bundled data."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blockxmc.cli._common import Json, Threads, print_json, print_table, verbosity
from blockxmc.errors import BlockXMCError

if TYPE_CHECKING:
    from blockxmc.data import Dataset
    from blockxmc.data.corpus import Corpus

SENTENCES = (
    "A command-line tool written in Python that downloads weather forecasts over HTTP and draws charts",
    "Graphical image viewer for the GNOME desktop with thumbnails and EXIF metadata",
    "Perl module to parse and validate XML documents and web pages",
)

YOUR_OWN_DATA = r"""
Your own data: a file with the columns text and labels (labels separated by semicolons). Paste these lines to try it:

printf 'text,labels\nPurring cats sleep,Cats;Animals\nDogs bark at cats,Dogs;Animals\nRoses bloom,Plants\n' > mine.csv
{program} train mine.csv --model mine-model
echo "cats that purr" | {program} predict mine-model -
"""


def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for the figure.")] = Path("demo-output"),
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Write the bundled data into this folder as train.csv and test.csv, and stop."),
    ] = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Train BP and the full classifier on the bundled data; show a table, a figure and labels for three sentences."""
    if data is not None:
        _write_data(data)
        return
    from blockxmc import BlockwiseClassifier, DiSMEC, TextClassifier
    from blockxmc._core.progress import reporter_for
    from blockxmc.data import load_demo, load_demo_texts
    from blockxmc.model.sources import Source, Sources

    out.mkdir(parents=True, exist_ok=True)
    reporter = reporter_for(verbosity())
    with reporter.phase("read the bundled data"):
        train, test = load_demo()
    common: dict[str, Any] = {"n_jobs": threads, "verbose": verbosity()}
    systems: dict[str, Any] = {
        "full DiSMEC": DiSMEC(**common),
        "BP, as in the paper": BlockwiseClassifier.paper(DiSMEC(), **common),
        "BP, default": BlockwiseClassifier(**common),
    }
    results = {}
    for name, estimator in systems.items():
        reporter.say(f"\n{name}")
        results[name] = _train_and_measure(estimator, train, test)
    assert train.vectorizer is not None
    best = TextClassifier.from_parts(systems["BP, default"], train.vectorizer)
    texts = load_demo_texts()[0].texts
    best.classifier_.sources_ = Sources.of([Source(None, text) for text in texts], whole=False)
    sentences = [[text, ", ".join(s.label for s in best.suggest(text))] for text in SENTENCES]
    figure = _draw(train, out)
    if json:
        print_json({"systems": results, "sentences": sentences, "figure": figure})
        return
    title = (
        f"Debian packages -> what they depend on: {train.X.shape[0]:,} training rows, {train.Y.shape[1]:,} labels, "
        f"{test.X.shape[0]:,} test rows"
    )
    shown = {
        "P@1": "P@1", "P@3": "P@3", "P@5": "P@5", "PSP@5": "PSP@5", "candidates": "candidates",
        "speedup_paper": "speed-up (paper)", "speedup": "speed-up (counted)", "batch_us": "µs/row batch",
        "one_us": "µs/row single", "train_seconds": "training s",
    }  # fmt: skip
    rows = [[head, *(result.get(key, float("nan")) for result in results.values())] for key, head in shown.items()]
    print_table(title, ["", *results], rows)
    for text, labels in sentences:
        print(f"{text}\n    -> {labels}")
    print(f"\nWhy the first one?\n{best.explain(SENTENCES[0], k=1)[0]}")
    missing = "No figure: install the extra `plots` to draw the blocks"
    print(f"\nFigure of what blocks capture and miss where they are small: {figure}" if figure else missing)
    print(YOUR_OWN_DATA.format(program=_program()))


def _write_data(folder: Path) -> None:
    from blockxmc.data import load_demo_texts
    from blockxmc.data.corpus import write_csv

    folder.mkdir(parents=True, exist_ok=True)
    files = dict(zip((folder / "train.csv", folder / "test.csv"), load_demo_texts(), strict=True))
    for path, corpus in files.items():
        if path.exists() and not _holds(path, corpus):
            raise BlockXMCError(f"{path} is there and holds other rows: give another folder to --data")
    for path, corpus in files.items():
        write_csv(path, corpus)
        print(f"{path}: {len(corpus.texts):,} rows")


def _holds(path: Path, corpus: Corpus) -> bool:
    """Whether a file has just these rows."""
    from blockxmc.data.corpus import read_corpus

    try:
        return read_corpus(path) == corpus
    except BlockXMCError:
        return False


def _train_and_measure(estimator: Any, train: Dataset, test: Dataset) -> dict[str, Any]:
    from blockxmc.metrics.report import measure
    from blockxmc.training.dataset import fit_dataset

    start = time.perf_counter()
    fit_dataset(estimator, train)
    seconds = time.perf_counter() - start
    return measure(estimator, test) | {"train_seconds": seconds}


def _program() -> str:
    """How this program was called, for lines that can be pasted."""
    name = Path(sys.argv[0]).name
    return sys.argv[0] if name == "blockxmc" else "python -m blockxmc"


def _draw(train: Dataset, out: Path) -> str | None:
    from blockxmc.errors import MissingExtraError
    from blockxmc.plots import draw_trade

    path = out / "blocks.png"
    try:
        draw_trade(train, path)
    except MissingExtraError:
        return None
    return str(path)
