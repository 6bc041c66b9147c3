"""blockxmc train: learn a model from a data file and write it to a directory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from blockxmc.cli._common import Json, Seed, Threads, print_json, print_table, verbosity


def train(
    data: Annotated[Path, typer.Argument(metavar="TRAIN", help="XC text, or JSONL/TSV/CSV with text and label names.")],
    model: Annotated[Path, typer.Option("--model", help="Directory to write the model to.")],
    system: Annotated[str, typer.Option("--system", help="bp, full, cbmlc, lpsr, lf or fastxml.")] = "bp",
    base: Annotated[
        str | None,
        typer.Option("--base", help="dismec, pd-sparse, ppd-sparse, leml or naive-bayes.", show_default="dismec"),
    ] = None,
    blocks: Annotated[str, typer.Option("--blocks", help="auto, paper, cost or a number.")] = "auto",
    lam: Annotated[str, typer.Option("--lam", help="The paper's lambda, or auto.")] = "auto",
    weights: Annotated[str, typer.Option("--weights", help="auto, shared, per-block or global.")] = "auto",
    route: Annotated[str, typer.Option("--route", help="Blocks a row visits, or a share like 0.7, or auto.")] = "auto",
    paper: Annotated[bool, typer.Option("--paper", help="The paper's system, exactly.")] = False,
    param: Annotated[
        list[str] | None, typer.Option("--param", help="Any other parameter, as NAME=VALUE, e.g. base__C=2.")
    ] = None,
    label_names: Annotated[Path | None, typer.Option("--label-names", help="File with one label name a line.")] = None,
    threads: Threads = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Train a model on TRAIN and write it to a directory."""
    from blockxmc._core.progress import reporter_for
    from blockxmc.cli.systems import make_system
    from blockxmc.data import read_dataset, read_names
    from blockxmc.data.folder import data_format
    from blockxmc.errors import BlockXMCError
    from blockxmc.storage import check_target
    from blockxmc.training.dataset import fit_dataset

    common: dict[str, Any] = {"n_jobs": threads, "random_state": seed, "verbose": verbosity()}
    options: dict[str, Any] = {"blocks": blocks, "lam": lam, "weights": weights, "route": route}
    estimator = make_system(system, base, paper=paper, parameters=param, **options, **common)
    check_target(model)
    with reporter_for(verbosity()).phase("read"):
        if label_names is not None and data_format(data) in ("jsonl", "tsv", "csv"):
            raise BlockXMCError(f"--label-names is for numbered labels; {data} names its own")
        dataset = read_dataset(data, label_names=None if label_names is None else read_names(label_names))
    wall, cpu = time.perf_counter(), time.process_time()
    fit_dataset(estimator, dataset)
    result: dict[str, Any] = {
        **getattr(estimator, "cost_", {}),
        "model": str(model),
        "system": system,
        "estimator": type(estimator).__name__,
        "rows": dataset.X.shape[0],
        "features": dataset.X.shape[1],
        "labels": dataset.Y.shape[1],
        "train_seconds": time.perf_counter() - wall,
        "train_cpu_seconds": time.process_time() - cpu,
    }
    if hasattr(estimator, "partition_"):
        part = estimator.partition_
        result |= {"blocks": part.n_blocks_, "lam": part.lam_, "captured": part.captured_}
    estimator.save(model)
    result["model_mb"] = sum(file.stat().st_size for file in model.iterdir()) / 1e6
    if json:
        print_json(result)
    else:
        print_table("", ["trained", ""], [[key.replace("_", " "), value] for key, value in result.items()])
