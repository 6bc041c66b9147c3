"""blockxmc tune: lambda by cross-validation within a tolerance, or the best model within a budget."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blockxmc.cli._common import Json, Seed, Threads, print_json, print_table, verbosity
from blockxmc.errors import BlockXMCError

if TYPE_CHECKING:
    from blockxmc.tuning import BudgetResult, Point, TuningResult


def tune(
    data: Annotated[Path, typer.Argument(metavar="TRAIN", help="XC text, or JSONL/TSV/CSV with text and label names.")],
    tolerance: Annotated[float, typer.Option("--tolerance", help="Points of P@k that may be lost.")] = 2.0,
    folds: Annotated[int, typer.Option("--folds", help="Folds of the cross-validation.")] = 5,
    budget: Annotated[float | None, typer.Option("--budget", help="Instead: at most so many products per row.")] = None,
    latency_us: Annotated[
        float | None, typer.Option("--latency-us", help="Instead: at most so many microseconds for a single row, here.")
    ] = None,
    recall: Annotated[
        float | None,
        typer.Option("--recall", help="Instead: at least this candidate recall (0..1), at the fewest products."),
    ] = None,
    base: Annotated[str, typer.Option("--base", help="dismec, pd-sparse, ppd-sparse, leml or naive-bayes.")] = "dismec",
    blocks: Annotated[str, typer.Option("--blocks", help="auto, paper, cost or a number.")] = "auto",
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
    """Choose lambda within a tolerance, as the paper does, or blocks, lambda, weights and route within a budget."""
    from blockxmc.cli.systems import make_base
    from blockxmc.data import read_dataset
    from blockxmc.progress import reporter_for
    from blockxmc.tuning import tune_budget, tune_lambda

    limits: dict[str, Any] = {"products": budget, "latency_us": latency_us, "recall": recall}
    by_budget = any(limit is not None for limit in limits.values())
    if by_budget and (lams is not None or plot is not None):
        raise BlockXMCError(
            "--lams and --plot belong to tuning by --tolerance: leave out --budget, --latency-us, --recall"
        )
    learner, grid = make_base(base), None if lams is None else _numbers(lams)
    common: dict[str, Any] = {
        "n_blocks": _blocks(blocks),
        "random_state": seed,
        "n_jobs": threads,
        "verbose": verbosity(),
        "cache": cache,
    }
    with reporter_for(verbosity()).phase("read"):
        dataset = read_dataset(data)
    if by_budget:
        found = tune_budget(dataset.X, dataset.Y, learner, **limits, **common)
        _show_budget(found, json)
        return
    result = tune_lambda(dataset.X, dataset.Y, learner, lams=grid, tolerance=tolerance, folds=folds, **common)
    if plot is not None:
        from blockxmc.plots import draw_lambda

        draw_lambda(result, plot, title=f"{data.name}, {base}, {result.n_blocks} blocks")
    _show_lambda(result, json)


def _show_lambda(result: TuningResult, as_json: bool) -> None:
    if as_json:
        print_json(result.to_dict() | {"explanation": result.explain()})
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


def _choices(result: TuningResult) -> dict[str, Point]:
    return {"speed-driven": result.speed_driven, "accuracy-driven": result.accuracy_driven}


def _show_budget(result: BudgetResult, as_json: bool) -> None:
    if as_json:
        print_json(result.to_dict() | {"explanation": result.explain()})
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


def _say(text: str) -> None:
    from rich.console import Console

    Console(highlight=False, soft_wrap=True).print(text, markup=False)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise BlockXMCError(f"--lams must be numbers separated by commas, got {text!r}") from None


def _blocks(text: str) -> int | str:
    if text in ("auto", "paper", "cost"):
        return text
    try:
        return int(text)
    except ValueError:
        raise BlockXMCError(f"--blocks must be auto, paper, cost or a number, got {text!r}") from None
