"""What a training will take on a cluster, stage by stage: formulas, their constants, and how well they fit what was run.

    python bench/scale_model.py [--rows N] [--labels M] [--values V] [--positives P] [--workers W ...]
    python bench/scale_model.py --measure DIR|amazon-670k:SCALE ...
    python bench/scale_model.py --cluster FILE ...
    python bench/scale_model.py --page

Prints the tables of docs/explanation/scale.md from docs/results/scale.json, which --measure writes: CPU seconds of every
stage of trainings on one thread; and from docs/results/cluster.json, which --cluster makes of what bench/cluster.py has
written. Constants are medians over the runs of scale.json. --page puts the tables into the page.
"""

import argparse
import json
import math
import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

RUNS = Path(__file__).parents[1] / "docs" / "results" / "scale.json"
# Phases of a training -> stages.
STAGES = {
    "partition": ("number of blocks", "start: label vectors", "start: balanced tree", "start: k-means", "partition"),
    "router": ("train router",),
    "routes": ("route rows",),
    "labels": ("train labels", "train labels again"),
    "held-out rows": ("fit on held-out rows",),
    "packing": ("pack", "pack neighbors", "label centroids", "check negatives"),
}
GROWTH, CLUSTER = RUNS.with_name("growth.json"), RUNS.with_name("cluster.json")
PAGE = RUNS.parents[1] / "explanation" / "scale.md"
ON_WORKERS = ("labels",)
# A block of the router learns from a sample, and from the rows of the blocks of its group; rows held out at most.
ROUTER_SAMPLE, ROUTER_GROUP, HELD_OUT = 4096, 64, 2048
# A machine of the table: threads of a worker, how much faster so many threads are than one (bench/scaling.py), and
# bytes a second of its network and of the shared disk as a whole.
THREADS, TIMES_FASTER = 16, 7.0
NETWORK, DISK = 1.25e9, 2.5e9
# Bytes of a value of X (column and float), and of a kept weight; weights of a label.
VALUE_BYTES, WEIGHT_BYTES = 8, 8


@dataclass(frozen=True)
class Sizes:
    """What the cost of a training depends on."""

    rows: int
    labels: int
    values: float  # stored values of a row
    positives: float  # labels of a row

    @property
    def blocks(self):
        """About as many as a training chooses: they grow with the square root of the labels."""
        return max(1.0, BLOCKS_PER_ROOT * math.sqrt(self.labels))

    def units(self, blocks=None):
        """What each stage's seconds are proportional to."""
        blocks = blocks or self.blocks
        return {
            "partition": self.rows * self.values * math.log2(max(2.0, blocks)),
            "router": blocks * min(self.rows, ROUTER_SAMPLE + ROUTER_GROUP * self.rows / blocks) * self.values,
            "routes": self.rows * self.values * math.log2(max(2.0, blocks)),
            # A positive brings rows that teach its label what it is not: they grow with the root of all rows.
            "labels": self.rows * self.positives * self.values * math.sqrt(self.rows),
            "held-out rows": min(max(self.rows / 40, 800), HELD_OUT),
            "packing": self.rows * self.positives * self.values,
        }


# Blocks of a default training over the root of the number of labels: 3,676 of 670,000 (docs/results/growth.md).
BLOCKS_PER_ROOT = 4.5


def by_stage(run):
    """CPU seconds of each stage of a run."""
    return {stage: sum(run["phases"].get(phase, 0.0) for phase in phases) for stage, phases in STAGES.items()}


def sizes_of(run):
    return Sizes(run["rows"], run["labels"], run["values"] / run["rows"], run["positives"] / run["rows"])


def constants(runs):
    """CPU seconds per unit of each stage: the median over runs."""
    found = {stage: [] for stage in STAGES}
    for run in runs:
        units = sizes_of(run).units(run["blocks"])
        for stage, seconds in by_stage(run).items():
            found[stage].append(seconds / units[stage])
    return {stage: statistics.median(values) for stage, values in found.items()}


def fitted(runs):
    """Of each run and stage: seconds as seen, and by the formula with the constants of the other runs."""
    rows = []
    for number, run in enumerate(runs):
        others = constants(runs[:number] + runs[number + 1 :])
        units = sizes_of(run).units(run["blocks"])
        for stage, seen in by_stage(run).items():
            rows.append({"run": run["name"], "stage": stage, "seen": seen, "expected": others[stage] * units[stage]})
    return rows


def checked(runs):
    """Larger trainings (docs/results/growth.json) beside the formulas: seconds seen and expected."""
    per_unit, rows = constants(runs), []
    for name, run in json.loads(GROWTH.read_text()).items():
        sizes = Sizes(run["rows"], run["labels"], run["nnz_per_row"], run["labels_per_row"])
        units = sizes.units(run["blocks"])
        for stage in ("partition", "router", "labels"):
            seen = sum(phase["cpu"] for phase in run["phases"] if phase["phase"] in STAGES[stage])
            rows.append({"run": name, "stage": stage, "seen": seen, "expected": per_unit[stage] * units[stage]})
    return rows


def on_clusters(runs):
    """Trainings by bench/cluster.py beside the formulas: wall seconds of labels and of other stages, seen and expected."""
    per_unit, rows = constants(runs), []
    for found in json.loads(CLUSTER.read_text()):
        for workers, rounds in sorted(found["runs"].items()):
            seen, units = _middle(rounds), sizes_of(found).units(rounds[0]["blocks"])
            seconds = {stage: per_unit[stage] * unit for stage, unit in units.items()}
            labels = sum(seconds[stage] for stage in ON_WORKERS)
            row = {"run": found["name"], "workers": workers, "seen": seen, "others": sum(seconds.values()) - labels}
            rows.append(row | {"labels": labels / (1 if workers == "alone" else int(workers))})
    return rows


def _middle(rounds):
    """Medians over rounds; `fit` on one machine has phases only."""
    found = []
    for each in rounds:
        labels = each.get(
            "label_wall", sum(each["phases"][name]["wall"] for name in STAGES["labels"] if name in each["phases"])
        )
        found.append({"labels": labels, "others": each["wall"] - labels, "cpu": each["cpu"]})
        found[-1] |= {key: each[key] for key in ("parts", "idle", "mb") if key in each}
    return {key: statistics.median(each[key] for each in found) for key in found[0]}


def plan(sizes, per_unit, workers, weights_per_label):
    """Seconds of each stage on so many workers, and what moves: the driver has one machine, labels have all."""
    seconds = {stage: per_unit[stage] * unit for stage, unit in sizes.units().items()}
    table = {}
    for stage, cpu in seconds.items():
        machines = workers if stage in ON_WORKERS else 1
        table[stage] = cpu / (TIMES_FASTER if stage not in ON_WORKERS else THREADS) / machines
    x_bytes = sizes.rows * sizes.values * VALUE_BYTES
    weight_bytes = sizes.labels * weights_per_label * WEIGHT_BYTES
    # Every worker reads X once, all at the same time; the driver reads all weights, which workers have written.
    table["reading X"] = max(x_bytes / NETWORK, workers * x_bytes / DISK)
    table["moving weights"] = weight_bytes / min(NETWORK, DISK) + weight_bytes / min(workers * NETWORK, DISK)
    return table, {"X": x_bytes, "weights": weight_bytes}


def measure(names):
    """Train on each set with one thread, and write CPU seconds of its phases."""
    from growth import PhaseClock

    from blockxmc import BlockwiseClassifier
    from blockxmc.data import make_synthetic, read_data_dir

    runs = []
    for name in names:
        like, _, scale = name.partition(":")
        data = make_synthetic(like=like, scale=float(scale))[0] if scale else read_data_dir(name)[0]
        clf, clock = BlockwiseClassifier(n_jobs=1), PhaseClock()
        X, Y = clf._training_data(data.X, data.Y, None)
        began = time.process_time()
        clf._fit(X, Y, clock)
        run = {"name": name if scale else Path(name).name, "rows": data.n_rows, "labels": data.n_labels}
        run |= {"values": int(X.nnz), "positives": int(Y.nnz), "blocks": clf.partition_.n_blocks_}
        run |= {"total": time.process_time() - began, "load": os.getloadavg()[0], "phases": {}}
        for phase in clock.phases:
            run["phases"][phase["phase"]] = run["phases"].get(phase["phase"], 0.0) + phase["cpu"]
        runs.append(run)
    RUNS.write_text(json.dumps({"runs": runs}, indent=1) + "\n")


def fit_table(runs):
    """How far off the formulas are, in Markdown."""
    lines = ["| stage | CPU seconds per unit | " + " | ".join(run["name"] for run in runs) + " |"]
    lines.append("|---|---:|" + "---:|" * len(runs))
    per_unit, rows = constants(runs), fitted(runs)
    for stage in STAGES:
        own = [row for row in rows if row["stage"] == stage]
        cells = [f"{row['seen']:.2f} ({row['expected'] / row['seen']:.2f})" for row in own]
        lines.append(f"| {stage} | {per_unit[stage]:.2e} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def check_table(runs):
    """Larger trainings beside the formulas, in Markdown."""
    lines = ["| run | stage | CPU s | by the formula |", "|---|---|---:|---:|"]
    lines += [f"| {row['run']} | {row['stage']} | {row['seen']:.0f} | {row['expected']:.0f} |" for row in checked(runs)]
    return "\n".join(lines)


def cluster_table(runs):
    """Trainings on clusters beside the formulas, in Markdown."""
    lines = [
        "| set | workers | parts | MB | idle | labels s | by the formula | other stages s | by the formula | CPU s |"
    ]
    lines.append("|---|---:|" + "---:|" * 8)
    for row in on_clusters(runs):
        seen = row["seen"]
        own = (
            ("", "", "")
            if "parts" not in seen
            else (f"{seen['parts']:.0f}", f"{seen['mb']:.1f}", f"{100 * max(seen['idle'], 0):.0f} %")
        )
        times = (seen["labels"], row["labels"], seen["others"], row["others"], seen["cpu"])
        cells = [
            row["run"],
            "`fit`" if row["workers"] == "alone" else row["workers"],
            *own,
            *(f"{each:.1f}" for each in times),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def put_into(page, table):
    """The page with a table in place of the one that has the same first cells."""
    lines, new = page.splitlines(), table.splitlines()
    name = new[0].split("|")[1:3]
    start = next(number for number, line in enumerate(lines) if line.startswith("|") and line.split("|")[1:3] == name)
    end = next(number for number in range(start, len(lines)) if not lines[number].startswith("|"))
    return "\n".join([*lines[:start], *new, *lines[end:]]) + "\n"


def plan_table(sizes, per_unit, counts, weights_per_label):
    """Hours of each stage for several numbers of workers, in Markdown."""
    plans = [plan(sizes, per_unit, workers, weights_per_label)[0] for workers in counts]
    lines = ["| hours | " + " | ".join(f"{workers} workers" for workers in counts) + " |"]
    lines.append("|---|" + "---:|" * len(counts))
    for stage in plans[0]:
        lines.append(f"| {stage} | " + " | ".join(f"{table[stage] / 3600:.2f}" for table in plans) + " |")
    lines.append("| all | " + " | ".join(f"{sum(table.values()) / 3600:.2f}" for table in plans) + " |")
    limits = [max(table, key=table.get) for table in plans]
    lines.append("| the longest | " + " | ".join(limits) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", nargs="+", metavar="DIR")
    parser.add_argument("--cluster", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--rows", type=int, default=60_000_000)
    parser.add_argument("--labels", type=int, default=10_000_000)
    parser.add_argument("--values", type=float, default=75)
    parser.add_argument("--positives", type=float, default=5.5)
    parser.add_argument("--weights", type=float, default=250, help="kept weights of a label")
    parser.add_argument("--workers", type=int, nargs="+", default=[8, 64, 256])
    options = parser.parse_args()
    if options.measure:
        measure(options.measure)
    if options.cluster:
        CLUSTER.write_text(json.dumps([json.loads(file.read_text()) for file in options.cluster], indent=1) + "\n")
    runs = json.loads(RUNS.read_text())["runs"]
    sizes = Sizes(options.rows, options.labels, options.values, options.positives)
    tables = [fit_table(runs), check_table(runs), plan_table(sizes, constants(runs), options.workers, options.weights)]
    tables += [cluster_table(runs)] if CLUSTER.exists() else []
    print(*tables, sep="\n\n")
    moved = plan(sizes, constants(runs), options.workers[0], options.weights)[1]
    print("\n" + ", ".join(f"{name}: {size / 1e9:,.0f} GB" for name, size in moved.items()))
    if options.page:
        page = PAGE.read_text()
        for table in tables:
            page = put_into(page, table)
        PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
