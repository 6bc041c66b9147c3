"""What ``blockxmc tune`` prints: a table, what was chosen and why, and the command that trains it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from blockxmc.cli._common import print_json, print_table

if TYPE_CHECKING:
    from blockxmc.tuning import Point, TuningResult, WithinResult


# Settings that a table shows; --json has all.
SHOWN = 10


def show_lambda(result: TuningResult, command: list[str], as_json: bool) -> None:
    """The ten best lambdas, the interval of each fold, and the commands that train the chosen lambdas."""
    commands = {name: train_command(command, point) for name, point in result.choices.items()}
    if as_json:
        print_json(result.to_dict() | {"explanation": result.explain(), "train": commands})
        return
    base = [*map(float, result.base_precision), float(result.n_labels), "", 1.0, ""]
    rows: list[list[Any]] = [["no blocks", "", *base]]
    allowed = [sum(fold.feasible[i] for fold in result.folds) for i in range(len(result.lams))]
    chosen = {(point.lam, point.n_blocks) for point in result.choices.values()}
    best = sorted(
        range(len(allowed)),
        key=lambda i: ((result.lams[i], result.blocks[i]) not in chosen, -allowed[i], -float(result.speedup[i])),
    )[:SHOWN]
    for i in sorted(best):
        lam = result.lams[i]
        at = lam, result.blocks[i]
        marks = [name for name, point in result.choices.items() if (point.lam, point.n_blocks) == at]
        numbers = [*map(float, result.mean_precision[i]), float(result.candidates[i]), float(result.products[i])]
        said = ", ".join(["feasible" if result.feasible[i] else f"{allowed[i]} of {len(result.folds)} folds", *marks])
        rows.append([f"{lam:.5g}", at[1], *numbers, float(result.speedup[i]), said])
    columns = ["lambda", "blocks", *(f"P@{k}" for k in result.ks), "candidates", "products", "speed-up (paper)", ""]
    print_table(f"{len(result.folds)} folds", columns, rows)
    _say_rest(len(result.lams))
    _say(result.explain())
    for name, line in commands.items():
        _say(f"{name}:\n  {line}")


def show_within(result: WithinResult, command: list[str], as_json: bool) -> None:
    """The ten most precise settings that were measured, and the command that trains the chosen one."""
    line = train_command(command, result.chosen)
    if as_json:
        print_json(result.to_dict() | {"explanation": result.explain(), "train": line})
        return
    rows = []
    best = sorted(result.points, key=lambda point: (point != result.chosen, -sum(point.precision)))[:SHOWN]
    for point in sorted(best, key=lambda point: point.products):
        numbers = [*point.precision, point.candidates, point.products, f"{point.recall:.3f}"]
        measured = [point.batch_us, point.latency_us, point.size_mb]
        rows.append([point.describe(), *numbers, *measured, "chosen" if point == result.chosen else ""])
    columns = ["setting", *(f"P@{k}" for k in result.ks), "candidates", "products", "recall"]
    print_table("settings tried", [*columns, "µs/row batch", "µs/row single", "MB", ""], rows)
    _say_rest(len(result.points))
    _say(result.explain())
    _say(f"To train it on all rows:\n  {line}")


def _say_rest(measured: int) -> None:
    if measured > SHOWN:
        _say(f"the {SHOWN} best of {measured} settings; --json has all")


def train_command(command: list[str], point: Point) -> str:
    """The command that trains a setting as it was tuned: numbers are written so that they are read back exactly."""
    from blockxmc.tuning.result import FULL

    if point.weights == FULL:
        options = ["--system", "full"]
    else:
        options = ["--blocks", str(point.n_blocks)]
        if point.lam is not None:
            options += ["--lam", repr(point.lam)]
        if point.assigned_at and point.assigned_at != (point.lam,):
            options += ["--assign-at", ",".join(map(repr, point.assigned_at))]
        options += ["--weights", point.weights, "--route", f"{point.route:g}"]
        params = {"base__prune": point.prune, "weight_bits": point.weight_bits, "n_neighbors": point.n_neighbors}
        for name, value in params.items():
            options += [] if value is None else ["--param", f"{name}={value:g}"]
    return shlex.join(["blockxmc", "train", *command, *options, "--model", "MODEL"])


def _say(text: str) -> None:
    from rich.console import Console

    Console(highlight=False, soft_wrap=True).print(text, markup=False)
