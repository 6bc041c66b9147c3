"""What the workers share: reading the rows, clocks, and the file that a measured model becomes.

A worker runs in the environment of its own system, so this file needs NumPy and SciPy only. It trains once, saves the
model, loads it from disk and measures every setting in which the same model can be served:

    python run_SYSTEM.py --training NAME --rows FOLDER --cell FILE.json --threads 2 --seed 0

FOLDER holds train.npz and test.npz (and train.txt for those who read nothing else). The first five labels of every
setting are left beside the cell as .npz: the driver scores them, so that one evaluator judges all systems.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

TOP = 5
WARM_UP = 50
LONG = 20.0  # CPU seconds after which a batch is not repeated


@dataclass
class Setting:
    """One way to serve a model: a whole batch on one thread, and calls with one row in the form the system takes."""

    name: str
    batch: Callable[[], Any]
    rows: int  # rows of a batch
    top: Callable[[Any], Any]  # what a batch gives -> labels of all test rows, best first, padded with -1
    calls: dict[str, tuple[Callable[[Any], Any], Sequence[Any]]]  # name of the number -> function and its rows


def read(folder: Path, part: str) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
    """Rows of unit length and their labels, as the driver left them."""
    with np.load(folder / f"{part}.npz") as file:
        n, d, m = file["shape"]
        X = sparse.csr_matrix((file["values"], file["features"], file["row_ends"]), shape=(n, d))
        ones = np.ones(file["labels"].size, np.float32)
        Y = sparse.csr_matrix((ones, file["labels"], file["label_ends"]), shape=(n, m))
    return X, Y


def spread(rows: int, most: int) -> np.ndarray:
    """At most so many of the rows, evenly spread."""
    return np.linspace(0, rows - 1, min(rows, most)).astype(int)


def single_rows(X: sparse.csr_matrix) -> list[sparse.csr_matrix]:
    """The rows of single calls, each a matrix of its own."""
    return [X[i] for i in spread(X.shape[0], 1000)]


def pad(lists: Sequence[Sequence[int]]) -> np.ndarray:
    """Lists of at most five labels as an array."""
    labels = np.full((len(lists), TOP), -1, np.int32)
    for row, found in zip(labels, lists, strict=True):
        row[: len(found)] = found[:TOP]
    return labels


class Clock:
    """CPU (all threads of this process) and wall seconds of a with block."""

    def __enter__(self) -> "Clock":
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.cpu = time.process_time() - self._cpu
        self.wall = time.perf_counter() - self._wall


def peak_rss_mb() -> float | None:
    """Peak resident memory so far; from /proc, because getrusage passes on what the parent process had used."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    return next(int(line.split()[1]) * 1024 / 1e6 for line in status.read_text().splitlines() if "VmHWM" in line)


def batch_microseconds(setting: Setting) -> tuple[Any, dict[str, float]]:
    """CPU time of three batches, fewer where they take long; and what a batch gave."""
    spent: list[float] = []
    while not spent or (len(spent) < 3 and sum(spent) < LONG):
        with Clock() as clock:
            answer = setting.batch()
        spent.append(clock.cpu)
    return answer, {"batch_us": float(np.median(spent)) / setting.rows * 1e6, "batch_runs": len(spent)}


def call_microseconds(name: str, call: Callable[[Any], Any], rows: Sequence[Any]) -> dict[str, float]:
    """CPU time of one call per row: median and 99th percentile, after some that are not counted."""
    for row in rows[:WARM_UP]:
        call(row)
    spent = np.empty(len(rows))
    for i, row in enumerate(rows):
        start = time.process_time()
        call(row)
        spent[i] = time.process_time() - start
    return {name: float(np.median(spent)) * 1e6, f"{name}_p99": float(np.percentile(spent, 99)) * 1e6}


def main(
    version: str,
    train: Callable[[str, Path, Path, int, int], Clock],
    serve: Callable[[str, Path, sparse.csr_matrix], Any],
) -> None:
    """Train, save, serve and write the cell of a system in this version.

    ``train(training, rows, model, threads, seed)`` leaves a model and gives the clock of training alone;
    ``serve(training, model, X)`` yields settings.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--training", required=True)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--cell", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="for systems that do not draw their own")
    parser.add_argument("--train-only", action="store_true", help="measure no setting: the cell has none")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.cell.parent) as folder:
        model = Path(folder) / "model"
        clock = train(options.training, options.rows, model, options.threads, options.seed)
        cell = {
            "version": version,
            "numpy": np.__version__,
            "threads": options.threads,
            "seed": options.seed,
            "train_cpu_s": clock.cpu,
            "train_wall_s": clock.wall,
            "peak_rss_mb": peak_rss_mb(),
            "load": os.getloadavg()[0],
            "model_mb": sum(file.stat().st_size for file in model.rglob("*") if file.is_file()) / 1e6,
        }
        X, _ = read(options.rows, "test")
        settings, tops = {}, {}
        for setting in () if options.train_only else serve(options.training, model, X):
            answer, numbers = batch_microseconds(setting)
            for name, (call, rows) in setting.calls.items():
                numbers |= call_microseconds(name, call, rows)
            settings[setting.name] = numbers
            tops[setting.name] = np.asarray(setting.top(answer), np.int32)
    np.savez_compressed(options.cell.with_suffix(".npz"), **tops)
    options.cell.write_text(json.dumps(cell | {"settings": settings}, indent=1) + "\n")
