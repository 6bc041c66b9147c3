"""What ``blockxmc tune`` prints: a table, what was chosen and why, and the command that trains it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from blockxmc.cli._common import print_json, print_table

if TYPE_CHECKING:
    from blockxmc.tuning import BudgetResult, KnobsResult, Point, TuningResult, WithinResult


def show_lambda(result: TuningResult, command: list[str], as_json: bool) -> None:
    """Every lambda of the grid, and the commands that train the chosen ones."""
    commands = {name: _train_command(command, point) for name, point in result.choices.items()}
    if as_json:
        print_json(result.to_dict() | {"explanation": result.explain(), "train": commands})
        return
    if result.scouted:
        _show_pairs(result)
    base = [*map(float, result.base_precision), float(result.n_labels), "", 1.0, ""]
    rows: list[list[Any]] = [["no blocks", "", *base]]
    for i, lam in enumerate(result.lams):
        at = lam, result.blocks[i]
        marks = [name for name, point in result.choices.items() if (point.lam, point.n_blocks) == at]
        inside = result.interval is not None and result.interval[0] <= lam <= result.interval[1]
        numbers = [*map(float, result.mean_precision[i]), float(result.candidates[i]), float(result.products[i])]
        feasible = "in range" if inside else "feasible" if result.feasible[i] else ""
        said = ", ".join([feasible] * bool(feasible) + marks)
        rows.append([f"{lam:.5g}", at[1], *numbers, float(result.speedup[i]), said])
    for point in result.refined:
        numbers = [*point.precision, point.candidates, point.products, result.n_labels / point.candidates]
        marks = [name for name, chosen in result.choices.items() if chosen == point]
        rows.append([f"{point.lam:.5g}", point.n_blocks, *numbers, ", ".join(["feasible, between", *marks])])
    columns = ["lambda", "blocks", *(f"P@{k}" for k in result.ks), "candidates", "products", "speed-up (paper)", ""]
    print_table(f"{len(result.folds)} folds", columns, rows)
    _say(result.explain())
    if result.speed_driven is None:
        _say("speed-driven: none")
    for name, line in commands.items():
        _say(f"{name}:\n  {line}")


def _show_pairs(result: TuningResult) -> None:
    """For each number of blocks, the cheapest pair that the first fold allows, or its least loss."""
    rows = []
    numbers = sorted({(trial.by_paper, 0 if trial.by_paper else trial.n_blocks) for trial in result.scouted})
    for by_paper, q in numbers:
        trials = [t for t in result.scouted if t.by_paper == by_paper and (by_paper or t.n_blocks == q)]
        kept = [trial for trial in trials if trial.loss <= result.tolerance]
        best = min(kept, key=lambda t: t.products) if kept else min(trials, key=lambda t: t.loss)
        name = f"paper's search ({best.n_blocks})" if by_paper else str(q)
        said = "within the tolerance" if kept else "none; the least loss"
        rows.append([name, f"{best.lam:.5g}", *best.precision, best.loss, best.candidates, best.products, said])
    columns = ["blocks", "lambda", *(f"P@{k}" for k in result.ks), "loss", "candidates", "products", ""]
    print_table("one fold", columns, rows)


def _train_command(command: list[str], point: Point) -> str:
    """The command that trains a setting as it was tuned: numbers are written so that they are read back exactly."""
    options = ["--blocks", str(point.n_blocks), "--lam", repr(point.lam)]
    if point.assigned_at != (point.lam,):
        options += ["--assign-at", ",".join(map(repr, point.assigned_at))]
    return _typed(command, [*options, "--weights", point.weights, "--route", str(point.route)])


def _typed(command: list[str], options: list[str]) -> str:
    return shlex.join(["blockxmc", "train", *command, *options, "--model", "MODEL"])


def _knobs_command(result: KnobsResult, command: list[str]) -> str:
    from blockxmc.model.neighbors import DEFAULT_NEIGHBORS
    from blockxmc.tuning.knobs import USUAL_BITS

    chosen = result.chosen
    options = ["--weights", "shared", "--route", str(chosen.route)]
    if chosen.prune is not None:
        options += ["--param", f"base__prune={chosen.prune:g}"]
    if chosen.weight_bits != USUAL_BITS:
        options += ["--param", f"weight_bits={chosen.weight_bits}"]
    if chosen.n_neighbors != DEFAULT_NEIGHBORS:
        options += ["--param", f"n_neighbors={chosen.n_neighbors}"]
    return _typed(command, [*options, "--blocks", str(result.n_blocks)])


def show_within(result: WithinResult, command: list[str], as_json: bool) -> None:
    """What each way of training reaches, and the command that trains the chosen setting."""
    from blockxmc.tuning.within import APART, SHARED

    if result.way == SHARED and result.shared is not None:
        line = _knobs_command(result.shared, command)
    elif result.way == APART and result.apart is not None:
        line = _train_command(command, result.apart.chosen)
    else:
        line = _typed(command, ["--system", "full"])
    if as_json:
        print_json(result.to_dict() | {"explanation": result.explain(), "train": line})
        return
    if result.apart is not None:
        _budget_table(result.apart)
    if result.shared is not None:
        _knobs_table(result.shared)
    _say(result.explain())
    _say(f"To train it on all rows:\n  {line}")


def show_knobs(result: KnobsResult, command: list[str], as_json: bool) -> None:
    """Every setting of shared weights, and the command that trains the chosen one."""
    line = _knobs_command(result, command)
    if as_json:
        print_json(result.to_dict() | {"explanation": result.explain(), "train": line})
        return
    _knobs_table(result)
    _say(result.explain())
    _say(f"To train it on all rows:\n  {line}")


def _knobs_table(result: KnobsResult) -> None:
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
            "chosen" if knobs == result.chosen else "",
        ]
        for knobs in result.settings
    ]
    print_table(f"{result.n_blocks} blocks, shared weights", columns, rows)


def show_budget(result: BudgetResult, command: list[str], as_json: bool) -> None:
    """Every setting tried within the limit, and the command that trains the chosen one."""
    line = _train_command(command, result.chosen)
    if as_json:
        print_json(result.to_dict() | {"explanation": result.explain(), "train": line})
        return
    _budget_table(result)
    _say(result.explain())
    _say(f"To train it on all rows:\n  {line}")


def _budget_table(result: BudgetResult) -> None:
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


def _say(text: str) -> None:
    from rich.console import Console

    Console(highlight=False, soft_wrap=True).print(text, markup=False)
