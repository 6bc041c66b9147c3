"""Full DiSMEC against the paper's BP over it, at several numbers of blocks and lambdas.

    python bench/paper/paper_mode.py DATA_DIR... [--anew default] [--out docs/results]

Writes paper_mode.json (every number, the machine, versions) and paper_mode.md. Finished cells are kept
in the JSON file, so an interrupted run goes on where it was; --anew names those that are computed again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from functools import partial
from pathlib import Path

from blockxmc import BlockwiseClassifier, DiSMEC, __version__
from blockxmc.data import read_data_dir
from blockxmc.metrics.report import measure

BLOCKS = (4, 16)
LAM_REL = (2e-4, 2e-5, 2e-6)  # lambda in units of rows per block, so that one grid serves every data set
COLUMNS = {
    "q": "q", "lam": "lam", "P@1": "P@1", "P@3": "P@3", "P@5": "P@5", "PSP@1": "PSP@1", "PSP@3": "PSP@3", "PSP@5": "PSP@5",
    "captured": "captured %", "candidate_recall": "candidate recall %", "candidates": "candidates",
    "speedup_paper": "speed-up (paper)", "speedup": "speed-up (counted)", "batch_us": "µs/row", "one_us": "µs single",
    "train_cpu_seconds": "training CPU s",
}  # fmt: skip


def systems(n_rows):
    """Name of a cell -> how to make its system."""
    yield "full", DiSMEC
    for q in BLOCKS:
        for lam_rel in LAM_REL:
            lam = lam_rel * n_rows / q
            yield f"q={q} lam_rel={lam_rel:g}", partial(BlockwiseClassifier.paper, n_blocks=q, lam=lam)
    yield "default", BlockwiseClassifier


def cell(train, test, make):
    estimator = make()
    wall, cpu = time.perf_counter(), time.process_time()
    estimator.fit(train.X, train.Y)
    spent = {"train_seconds": time.perf_counter() - wall, "train_cpu_seconds": time.process_time() - cpu}
    row = measure(estimator, test) | spent
    with tempfile.TemporaryDirectory() as folder:
        estimator.save(Path(folder) / "model")
        row["model_mb"] = sum(file.stat().st_size for file in (Path(folder) / "model").iterdir()) / 1e6
    if hasattr(estimator, "partition_"):
        part = estimator.partition_
        row |= {"q": part.n_blocks_, "lam": part.lam_, "captured": 100 * part.captured_}
        row |= {key: 100 * estimator.cost_[key] for key in ("candidate_recall", "router_accuracy")}
    return row


def name_of(key):
    return {"full": "full DiSMEC", "default": "BP, our default"}.get(key, "BP (paper)")


def table(cells):
    lines = ["# The paper's BP over DiSMEC, against full DiSMEC", ""]
    lines += ["Made by `python bench/paper/paper_mode.py`; raw numbers, versions and machine in `paper_mode.json`.", ""]
    lines += ["Batch: CPU time on one thread; single: one row per call, median. PSP with A = 0.55, B = 1.5.", ""]
    for name in dict.fromkeys(key.split("|")[0] for key in cells):
        rows = {key.split("|", 1)[1]: row for key, row in cells.items() if key.startswith(name + "|")}
        full = rows["full"]
        lines += [f"## {name} ({full['labels']:,} labels)", ""]
        lines += ["| system | " + " | ".join(COLUMNS.values()) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
        for key, row in rows.items():
            shown = [_text(row.get(column)) for column in COLUMNS]
            lines.append(f"| {name_of(key)} | " + " | ".join(shown) + " |")
        paper = [row for key, row in rows.items() if key not in ("full", "default")]
        best = max([row for row in paper if row["speedup"] >= 10] or paper, key=lambda row: row["P@1"])
        loss = full["P@1"] - best["P@1"]
        lines += ["", f"The paper's best with a counted speed-up of at least 10x: P@1 {best['P@1']:.2f}, {loss:.2f} points "
                  f"below the full classifier at {best['speedup']:.0f}x (q = {best['q']}).", ""]  # fmt: skip
    return "\n".join(lines)


def _text(value):
    if value is None:
        return ""
    if not isinstance(value, float):
        return str(value)
    return f"{value:.3g}" if abs(value) < 0.1 else f"{value:,.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--anew", nargs="+", default=[], help="cells that are computed again: full, default, ...")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    store = options.out / "paper_mode.json"
    result = json.loads(store.read_text()) if store.exists() else {"cells": {}}
    result["about"] = {"blockxmc": __version__, "python": platform.python_version(), "cores": os.cpu_count(),
                       "machine": platform.machine()}  # fmt: skip
    for folder in options.folders:
        train, test = read_data_dir(folder)
        for name, make in systems(train.X.shape[0]):
            key = f"{folder.name}|{name}"
            if key not in result["cells"] or name in options.anew:
                result["cells"][key] = row = cell(train, test, make)
                shown = ("P@1", "P@3", "P@5", "candidates", "train_cpu_seconds")
                print(key, {column: round(row[column], 2) for column in shown}, flush=True)
                store.write_text(json.dumps(result, indent=1) + "\n")
    (options.out / "paper_mode.md").write_text(table(result["cells"]))


if __name__ == "__main__":
    main()
