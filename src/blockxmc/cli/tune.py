"""blockxmc tune: lambda by cross-validation within a tolerance, or the best model within limits."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blockxmc.cli._common import Json, Seed, Threads, print_json, print_table, verbosity
from blockxmc.errors import BlockXMCError

if TYPE_CHECKING:
    from blockxmc.tuning import BudgetResult, KnobsResult, Point, TuningResult


def tune(
    data: Annotated[Path, typer.Argument(metavar="TRAIN", help="XC text, or JSONL/TSV/CSV with text and label names.")],
    tolerance: Annotated[float, typer.Option("--tolerance", help="Points of P@k that may be lost.")] = 2.0,
    folds: Annotated[int, typer.Option("--folds", help="Folds of the cross-validation.")] = 5,
    budget: Annotated[float | None, typer.Option("--budget", help="Instead: at most so many products per row.")] = None,
    latency_us: Annotated[
        float | None, typer.Option("--latency-us", help="Instead: at most so many microseconds for a single row, here.")
    ] = None,
    size_mb: Annotated[
        float | None, typer.Option("--size-mb", help="Instead: at most so many megabytes of shared weights.")
    ] = None,
    recall: Annotated[
        float | None,
        typer.Option("--recall", help="Instead: at least this candidate recall (0..1), at the fewest products."),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option("--base", help="dismec, pd-sparse, ppd-sparse, leml or naive-bayes.", show_default="dismec"),
    ] = None,
    blocks: Annotated[str, typer.Option("--blocks", help="auto, paper, cost or a number.")] = "auto",
    weights: Annotated[
        str,
        typer.Option(
            "--weights",
            help="shared: a table of routes and prunings, trained once; per-block or global: lambda and blocks; auto: "
            "per-block for a tolerance, and for a limit shared where the base allows it.",
        ),
    ] = "auto",
    route: Annotated[
        str | None,
        typer.Option(
            "--route",
            help="Numbers of visited blocks to try, and with shared weights shares of the router's probability.",
            show_default="1,2,4,0.5,0.7",
        ),
    ] = None,
    prune: Annotated[
        str | None,
        typer.Option("--prune", help="Prunings to try with shared weights.", show_default="0.01,0.05,0.1,0.2"),
    ] = None,
    bits: Annotated[
        str | None,
        typer.Option("--bits", help="Bits of a weight to try with shared weights: 8, 16, 32.", show_default="16"),
    ] = None,
    neighbors: Annotated[
        str | None,
        typer.Option(
            "--neighbors", help="Numbers of neighbors to try with shared weights; 0: none.", show_default="10"
        ),
    ] = None,
    lams: Annotated[
        str | None,
        typer.Option("--lams", help="Lambdas to try, separated by commas.", show_default="from the data"),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw precision and speed-up over lambda to this PNG.")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option("--cache", help="Folder for finished work: an interrupted run goes on from it.")
    ] = None,
    threads: Threads = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Choose lambda within a tolerance, as the paper does, or what keeps to a limit of products, time, size or recall."""
    from blockxmc._core.progress import reporter_for
    from blockxmc.cli.systems import blocks_or_share, make_base
    from blockxmc.data import read_dataset
    from blockxmc.tuning import tune_budget, tune_knobs, tune_lambda
    from blockxmc.tuning.limits import checked_limits

    typed = {"--budget": budget, "--latency-us": latency_us, "--size-mb": size_mb, "--recall": recall}
    limits: dict[str, Any] = {_NAMES[option]: limit for option, limit in checked_limits(typed).items()}
    learner = None if base is None else make_base(base)
    shared = _is_shared(weights, learner, limits)
    of_shared = {"--prune": prune, "--bits": bits, "--neighbors": neighbors}
    _refuse_strangers(shared, limits, of_shared, {"--lams": lams, "--plot": plot, "--cache": cache})
    grid = None if lams is None else _numbers("--lams", lams)
    routes = {} if route is None else {"routes": _numbers("--route", route, blocks_or_share if shared else int)}
    common: dict[str, Any] = {
        "n_blocks": _blocks(blocks),
        "random_state": seed,
        "n_jobs": threads,
        "verbose": verbosity(),
    }
    with reporter_for(verbosity()).phase("read"):
        dataset = read_dataset(data)
    command = [str(data), *([] if base is None else ["--base", base]), *(["--seed", str(seed)] if seed else [])]
    if shared:
        levels = None if prune is None else _numbers("--prune", prune)
        options = limits | routes | {"tolerance": tolerance, "prunes": levels}
        options |= {} if bits is None else {"weight_bits": _numbers("--bits", bits, int)}
        options |= {} if neighbors is None else {"n_neighbors": _numbers("--neighbors", neighbors, int)}
        with _naming(typed):
            table = tune_knobs(dataset.X, dataset.Y, learner, **options, **common)
        _show_knobs(table, command, json)
    elif limits:
        kinds = ("per-block", "global") if weights == "auto" else (weights,)
        options = limits | routes | {"weights": kinds, "cache": cache}
        with _naming(typed):
            found = tune_budget(dataset.X, dataset.Y, learner, **options, **common)
        _show_budget(found, command, json)
    else:
        result = tune_lambda(
            dataset.X, dataset.Y, learner, lams=grid, tolerance=tolerance, folds=folds, cache=cache, **common
        )
        if plot is not None:
            from blockxmc.plots import draw_lambda

            draw_lambda(result, plot, title=f"{data.name}, {base or 'dismec'}, {result.n_blocks} blocks")
        _show_lambda(result, command, json)


# Options of limits, and the names that Python has for them.
_NAMES = {"--budget": "products", "--latency-us": "latency_us", "--size-mb": "size_mb", "--recall": "recall"}


@contextmanager
def _naming(typed: dict[str, float | None]) -> Iterator[None]:
    """Say which options cannot be met."""
    from blockxmc.tuning.limits import NoSettingError

    try:
        yield
    except NoSettingError as error:
        asked = " ".join(f"{option} {limit:g}" for option, limit in typed.items() if limit is not None)
        raise BlockXMCError(f"{asked}: {error}") from None


def _is_shared(weights: str, learner: Any, limits: dict[str, float]) -> bool:
    """Whether a table of routes and prunings is asked for."""
    if weights not in ("auto", "shared", "per-block", "global"):
        raise BlockXMCError(f"--weights must be auto, shared, per-block or global, got {weights!r}")
    possible = learner is None or learner.one_vs_all
    if weights == "shared" and not possible:
        raise BlockXMCError("--weights shared needs a one-vs-all base: dismec, ppd-sparse or naive-bayes")
    shared = weights == "shared" or (weights == "auto" and bool(limits) and possible)
    if "size_mb" in limits and not shared:
        raise BlockXMCError("--size-mb is a limit of shared weights: leave out --weights, or take another --base")
    if not shared and len(limits) > 1:
        typed = [option for option, name in _NAMES.items() if name in limits]
        raise BlockXMCError(f"{' and '.join(typed)}: give exactly one of them, or --weights shared")
    if weights == "global" and not limits:
        raise BlockXMCError("--weights global is tuned within a limit: give --budget, --latency-us or --recall")
    return shared


def _refuse_strangers(
    shared: bool, limits: dict[str, float], of_shared: dict[str, Any], of_lambda: dict[str, Any]
) -> None:
    """Options that have no meaning for what was asked."""
    strangers = {} if shared else dict.fromkeys(of_shared, "shared weights")
    # Work within a limit is kept, but has no grid of lambdas and nothing to draw.
    others = of_lambda if shared else [option for option in of_lambda if limits and option != "--cache"]
    strangers |= dict.fromkeys(others, "tuning lambda by --tolerance")
    for option, value in (of_shared | of_lambda).items():
        if value is not None and option in strangers:
            raise BlockXMCError(f"{option} belongs to {strangers[option]}: leave it out")


def _show_lambda(result: TuningResult, command: list[str], as_json: bool) -> None:
    commands = {name: _train_command(command, point) for name, point in _choices(result).items()}
    if as_json:
        print_json(result.to_dict() | {"explanation": result.explain(), "train": commands})
        return
    rows: list[list[Any]] = [["no blocks", *map(float, result.base_precision), float(result.n_labels), "", 1.0, ""]]
    for i, lam in enumerate(result.lams):
        marks = [name for name, point in _choices(result).items() if point.lam == lam]
        inside = result.interval is not None and result.interval[0] <= lam <= result.interval[1]
        numbers = [*map(float, result.mean_precision[i]), float(result.candidates[i]), float(result.products[i])]
        feasible = "in range" if inside else "feasible" if result.feasible[i] else ""
        rows.append([f"{lam:.5g}", *numbers, float(result.speedup[i]), ", ".join([feasible] * bool(feasible) + marks)])
    columns = ["lambda", *(f"P@{k}" for k in result.ks), "candidates", "products", "speed-up (paper)", ""]
    print_table(f"{result.n_blocks} blocks, {len(result.folds)} folds", columns, rows)
    _say(result.explain())
    for name, line in commands.items():
        _say(f"{name}:\n  {line}")


def _choices(result: TuningResult) -> dict[str, Point]:
    return {"speed-driven": result.speed_driven, "accuracy-driven": result.accuracy_driven}


def _train_command(command: list[str], point: Point) -> str:
    """What to type next. Rows are assigned at the lambda of the command; ``fit_tuned`` keeps the tuned assignment."""
    options = ["--blocks", str(point.n_blocks), "--lam", f"{point.lam:.6g}"]
    return _typed(command, [*options, "--weights", point.weights, "--route", str(point.route)])


def _typed(command: list[str], options: list[str]) -> str:
    return shlex.join(["blockxmc", "train", *command, *options, "--model", "MODEL"])


def _show_knobs(result: KnobsResult, command: list[str], as_json: bool) -> None:
    from blockxmc.serving.neighbors import DEFAULT_NEIGHBORS

    chosen = result.chosen
    options = ["--weights", "shared", "--route", str(chosen.route)]
    if chosen.prune is not None:
        options += ["--param", f"base__prune={chosen.prune:g}"]
    if chosen.weight_bits != 16:
        options += ["--param", f"weight_bits={chosen.weight_bits}"]
    if chosen.n_neighbors != DEFAULT_NEIGHBORS:
        options += ["--param", f"n_neighbors={chosen.n_neighbors}"]
    line = _typed(command, [*options, "--blocks", str(result.n_blocks)])
    if as_json:
        print_json(result.to_dict() | {"explanation": result.explain(), "train": line})
        return
    columns = ["route", "prune", "bits", "neighbors", *(f"P@{k}" for k in result.ks)]
    columns += ["candidates", "products", "recall", "µs/row batch", "µs/row single", "MB", ""]
    rows = [
        [
            str(knobs.route),
            "" if knobs.prune is None else f"{knobs.prune:g}",
            str(knobs.weight_bits),
            str(knobs.n_neighbors),
            *knobs.precision,
            knobs.candidates,
            knobs.products,
            f"{knobs.recall:.3f}",
            knobs.batch_us,
            knobs.latency_us,
            knobs.size_mb,
            "chosen" if knobs == chosen else "",
        ]
        for knobs in result.settings
    ]
    print_table(f"{result.n_blocks} blocks, shared weights", columns, rows)
    _say(result.explain())
    _say(f"To train it on all rows:\n  {line}")


def _show_budget(result: BudgetResult, command: list[str], as_json: bool) -> None:
    line = _train_command(command, result.chosen)
    if as_json:
        print_json(result.to_dict() | {"explanation": result.explain(), "train": line})
        return
    timed = result.mode == "latency_us"
    rows = []
    for point in sorted(result.points, key=lambda point: point.products):
        numbers = [*point.precision, point.candidates, point.products, f"{point.recall:.3f}"]
        latency = [point.latency_us] if timed else []
        mark = "chosen" if point == result.chosen else ""
        rows.append([point.weights, point.n_blocks, point.route, f"{point.lam:.4g}", *numbers, *latency, mark])
    columns = [
        "weights",
        "blocks",
        "route",
        "lambda",
        *(f"P@{k}" for k in result.ks),
        "candidates",
        "products",
        "recall",
    ]
    print_table("settings tried", [*columns, *(["µs/row"] if timed else []), ""], rows)
    _say(result.explain())
    _say(f"To train it on all rows:\n  {line}")


def _say(text: str) -> None:
    from rich.console import Console

    Console(highlight=False, soft_wrap=True).print(text, markup=False)


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
