"""blockxmc tune: lambda by cross-validation within a tolerance, or the best model within limits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blockxmc.cli._common import Json, Seed, Threads, kept_when_interrupted, read_rows, verbosity, work_folder
from blockxmc.cli._text_options import LabelField, LabelSeparator, TextField, TextSettings
from blockxmc.cli._tune_results import show_lambda, show_within
from blockxmc.errors import BlockXMCError

if TYPE_CHECKING:
    from blockxmc.data import Dataset


# Options of limits, and their names in Python.
_LIMITS = {"--budget": "products", "--latency-us": "latency_us", "--size-mb": "size_mb", "--recall": "recall"}
_WEIGHTS = ("auto", "shared", "per-block", "global")

Data = Annotated[
    Path,
    typer.Argument(
        metavar="TRAIN", help="JSONL, JSON, TSV or CSV with texts and label names; or XC text, npz or shards."
    ),
]
Tolerance = Annotated[float, typer.Option("--tolerance", help="Points of P@k that may be lost.")]
Folds = Annotated[int, typer.Option("--folds", help="Folds of the cross-validation.")]
Budget = Annotated[
    float | None, typer.Option("--budget", help="Instead of --tolerance: at most this many products per row.")
]
LatencyUs = Annotated[
    float | None,
    typer.Option("--latency-us", help="Instead: at most this many microseconds per single row, on this machine."),
]
SizeMb = Annotated[
    float | None, typer.Option("--size-mb", help="Instead: at most this many megabytes of shared weights.")
]
Recall = Annotated[
    float | None,
    typer.Option("--recall", help="Instead: fewest products with at least this candidate recall (0..1)."),
]
Base = Annotated[
    str | None,
    typer.Option("--base", help="dismec, pd-sparse, ppd-sparse, leml or naive-bayes.", show_default="dismec"),
]
Blocks = Annotated[
    str,
    typer.Option(
        "--blocks",
        help="With --tolerance: auto tries 2 to 32 blocks and the paper's search at each lambda, paper only that search, "
        "cost or a number one number of blocks. With a limit: auto, paper, cost or a number.",
    ),
]
WeightsKind = Annotated[
    str,
    typer.Option(
        "--weights",
        help="shared: compare routes and prunings of one training; per-block or global: choose lambda and blocks; auto: "
        "per-block for a tolerance; for a limit whatever fits it best, also a model without blocks.",
    ),
]
Route = Annotated[
    str | None,
    typer.Option(
        "--route",
        help="Numbers of visited blocks to try; with shared weights also shares of the router's probability.",
        show_default="1,2,4,0.5,0.7",
    ),
]
Prune = Annotated[
    str | None,
    typer.Option("--prune", help="Prunings to try with shared weights.", show_default="that of train"),
]
Bits = Annotated[
    str | None,
    typer.Option("--bits", help="Bits of a weight to try with shared weights: 8, 16, 32.", show_default="16"),
]
NeighborCounts = Annotated[
    str | None,
    typer.Option("--neighbors", help="Numbers of neighbors to try with shared weights; 0: none.", show_default="10"),
]
Lams = Annotated[
    str | None,
    typer.Option("--lams", help="Lambdas to try, separated by commas.", show_default="from the data"),
]
Letter = Annotated[
    bool,
    typer.Option(
        "--letter",
        help="The paper to the letter: k-means at each lambda, its search for the number of blocks without our limits, the "
        "authors' parameters of the base.",
    ),
]
Plot = Annotated[Path | None, typer.Option("--plot", help="Draw precision and speed-up for each lambda to this PNG.")]
Work = Annotated[
    str | None,
    typer.Option("--work", help="Folder for finished trials; after a crash, repeat the command to continue."),
]


def tune(
    data: Data,
    tolerance: Tolerance = 2.0,
    folds: Folds = 5,
    budget: Budget = None,
    latency_us: LatencyUs = None,
    size_mb: SizeMb = None,
    recall: Recall = None,
    base: Base = None,
    blocks: Blocks = "auto",
    weights: WeightsKind = "auto",
    route: Route = None,
    prune: Prune = None,
    bits: Bits = None,
    neighbors: NeighborCounts = None,
    lams: Lams = None,
    letter: Letter = False,
    plot: Plot = None,
    work: Work = None,
    text_field: TextField = None,
    label_field: LabelField = None,
    label_separator: LabelSeparator = None,
    threads: Threads = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Choose settings: the paper's trade-off within a tolerance, or a limit on products, time, size or recall."""
    if plot is not None:
        from blockxmc.plots import check_figure

        check_figure(plot)
    limits = {"--budget": budget, "--latency-us": latency_us, "--size-mb": size_mb, "--recall": recall}
    of_shared = {"--prune": prune, "--bits": bits, "--neighbors": neighbors}
    of_lambda = {"--lams": lams, "--letter": letter or None, "--plot": plot, "--work": work_folder(work)}
    texts = TextSettings(text_field=tuple(text_field or ()), label_field=label_field, label_separator=label_separator)
    _run(
        Request(
            data=data,
            texts=texts,
            base=base,
            blocks=blocks,
            weights=weights,
            route=route,
            tolerance=tolerance,
            folds=folds,
            limits=limits,
            of_shared=of_shared,
            of_lambda=of_lambda,
            threads=threads,
            seed=seed,
            json=json,
        )
    )


@dataclass(frozen=True)
class Request:
    """The command line. Options that belong together are grouped, by the names that the user types."""

    data: Path
    texts: TextSettings
    base: str | None
    blocks: str
    weights: str
    route: str | None
    tolerance: float
    folds: int
    limits: dict[str, float | None]
    of_shared: dict[str, str | None]  # --prune, --bits, --neighbors
    of_lambda: dict[str, Any]  # --lams, --letter, --plot, --work
    threads: int | None
    seed: int
    json: bool

    @property
    def command(self) -> list[str]:
        """The options that a training of the chosen setting repeats."""
        base = [] if self.base is None else ["--base", self.base]
        letter = ["--letter"] if self.of_lambda["--letter"] else []
        return [str(self.data), *self.texts.typed(), *base, *letter, *(["--seed", str(self.seed)] if self.seed else [])]

    def numbers(self, option: str, kind: Callable[[str], Any] = float) -> list[Any] | None:
        """The numbers of a list option, or None where it was not given."""
        text = (self.of_shared | self.of_lambda | {"--route": self.route})[option]
        return None if text is None else _numbers(option, text, kind)


def _run(request: Request) -> None:
    from blockxmc.cli.systems import blocks_or_share, make_base
    from blockxmc.partition import Partitioner
    from blockxmc.tuning import KnobGrid, TrialOptions
    from blockxmc.tuning.limits import checked_limits

    typed = checked_limits(request.limits)
    letter = bool(request.of_lambda["--letter"])
    learner = None if request.base is None and not letter else make_base(request.base or "dismec", letter=letter)
    knobs_asked = any(value is not None for value in request.of_shared.values())
    shared = _is_shared(request.weights, learner, list(typed), knobs_asked)
    _refuse_strangers(request, shared, bool(typed))
    # Typing errors in lists of numbers are told before the data are read.
    lams, prunes, bits = request.numbers("--lams"), request.numbers("--prune"), request.numbers("--bits", int)
    routes = request.numbers("--route", int if request.weights in ("per-block", "global") else blocks_or_share)
    weights = "shared" if shared else request.weights
    grid = KnobGrid(weights, routes, prunes, bits, request.numbers("--neighbors", int))
    options = TrialOptions(
        partitioner=Partitioner(letter=letter),
        random_state=request.seed,
        n_jobs=request.threads,
        verbose=verbosity(),
        work=request.of_lambda["--work"],
    )
    n_blocks = _blocks(request.blocks)
    dataset = read_rows(request.data, request.texts)
    if verbosity():
        print(_intention(request, dataset.n_rows, bool(typed) or shared), file=sys.stderr)
    with kept_when_interrupted("finished trials", request.of_lambda["--work"]):
        if typed or shared:
            how: Any = {"n_blocks": n_blocks, "options": options, "grid": grid}
            _tune_within(request, dataset, learner, how)
        else:
            _tune_lambda(request, dataset, learner, lams, {"n_blocks": n_blocks, "options": options})


def _intention(request: Request, n_rows: int, within: bool) -> str:
    """What is going to be done, and how to know how long it takes."""
    if within:
        what = f"tune measures settings on rows held out of {n_rows:,}, each after a training or a change of one"
    else:
        what = f"tune trains at each lambda on {request.folds} parts of {n_rows:,} rows, and without blocks"
    kept = "" if request.of_lambda["--work"] is not None else "; with --work DIR, finished trials outlive Ctrl-C"
    return f"{what}. After the first one it says about how long all others take{kept}"


def _tune_within(request: Request, dataset: Dataset, learner: Any, how: Any) -> None:
    from blockxmc.tuning import Limits, tune_within

    limits = Limits(**{_LIMITS[option]: limit for option, limit in request.limits.items() if limit is not None})
    how |= {"limits": limits, "tolerance": request.tolerance}
    with _naming(request.limits):
        result = tune_within(dataset.X, dataset.Y, learner, **how)
    show_within(result, request.command, request.json)


def _tune_lambda(request: Request, dataset: Dataset, learner: Any, lams: list[float] | None, how: Any) -> None:
    from blockxmc.tuning import tune_lambda

    how |= {"lams": lams, "tolerance": request.tolerance, "folds": request.folds}
    result = tune_lambda(dataset.X, dataset.Y, learner, **how)
    if (plot := request.of_lambda["--plot"]) is not None:
        from blockxmc.plots import draw_lambda

        draw_lambda(result, plot, title=f"{request.data.name}, {request.base or 'dismec'}, {result.n_blocks} blocks")
    show_lambda(result, request.command, request.json)


@contextmanager
def _naming(typed: dict[str, float | None]) -> Iterator[None]:
    """Name the options that no setting keeps to."""
    from blockxmc.tuning.limits import NoSettingError

    try:
        yield
    except NoSettingError as error:
        asked = " ".join(f"{option} {limit:g}" for option, limit in typed.items() if limit is not None)
        raise BlockXMCError(f"{asked}: {error}") from None


def _is_shared(weights: str, learner: Any, limits: list[str], knobs_asked: bool) -> bool:
    """Whether the knobs of shared weights alone are tuned."""
    if weights not in _WEIGHTS:
        raise BlockXMCError(f"--weights must be auto, shared, per-block or global, got {weights!r}")
    possible = learner is None or learner.one_vs_all
    if weights == "shared" and not possible:
        raise BlockXMCError("--weights shared needs a one-vs-all base: dismec, ppd-sparse or naive-bayes")
    shared = weights == "shared" or (weights == "auto" and bool(limits) and possible and knobs_asked)
    if weights == "global" and not limits:
        raise BlockXMCError(
            "--weights global is tuned within a limit: give --budget, --latency-us, --size-mb or --recall"
        )
    return shared


def _refuse_strangers(request: Request, shared: bool, limited: bool) -> None:
    """Refuse options that have no meaning for what was asked."""
    strangers = {} if shared else dict.fromkeys(request.of_shared, "shared weights")
    if shared or limited:
        strangers |= dict.fromkeys(request.of_lambda, "tuning lambda by --tolerance")
    if request.route is not None and not (shared or limited):
        raise BlockXMCError(
            "--route belongs to shared weights and to limits: by --tolerance a row visits one block, as in the paper"
        )
    for option, value in (request.of_shared | request.of_lambda).items():
        if value is not None and option in strangers:
            raise BlockXMCError(f"{option} belongs to {strangers[option]}: leave it out")


def _numbers(option: str, text: str, kind: Callable[[str], Any] = float) -> list[Any]:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        what = "whole numbers" if kind is int else "numbers"
        raise BlockXMCError(f"{option} must be {what} separated by commas, got {text!r}") from None


def _blocks(text: str) -> int | str:
    if text in ("auto", "paper", "cost"):
        return text
    try:
        return int(text)
    except ValueError:
        raise BlockXMCError(f"--blocks must be auto, paper, cost or a number, got {text!r}") from None
