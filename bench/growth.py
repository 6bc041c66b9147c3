"""How the default model grows with the number of labels: one synthetic family, the same rows and labels per row throughout.

    python bench/growth.py [--rungs 13000 130000 670000] [--rows 490449] [--out docs/results]
    python bench/growth.py --top [--labels-per-row 4] [--rungs] [--work DIR]
    python bench/growth.py --rungs 140000 --rows 85000 --words-per-row 50 --labels-per-row 12 --out DIR

The family has the sizes of Amazon-670K but for its number of labels. --top adds a rung with the labels, rows and words per
row of Amazon-3M; --labels-per-row says how many labels its rows have (Amazon-3M: 36), or without --top those of all rungs.
Each rung is trained in a process of its own, and served by another that knows the saved model only. Writes growth.json,
growth.md and growth.png; rungs that growth.json holds already are not run again, so an interrupted climb goes on where it
was (but those that lack a number are). With --work the finished stages of a training are kept there: a rung that was
interrupted goes on, too, and the time of all its runs is added up. That of a run that was killed is lost; Ctrl-C (timeout
-s INT) loses nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from unittest.mock import patch

import blockxmc
from blockxmc import BlockwiseClassifier, metrics
from blockxmc._core.progress import Reporter
from blockxmc.data import make_synthetic, read_npz, write_npz
from blockxmc.metrics.timing import prediction_times
from blockxmc.paper.synthetic import SHAPES

FAMILY = "amazon-670k"
RUNGS = (13_000, 130_000, 670_000)
TOP = {"labels": 2_800_000, "rows": 1_700_000, "words": 50.0}  # like Amazon-3M
TOP_GIB = 24  # the bar: peak of memory while it trains
TEST_ROWS = 20_000
DECOYS = 3.0  # labels per row that its words tell of wrongly: precision is then neither hopeless nor perfect
HOURS, GROWTH = 2, 4  # the bars: training hours of the top rung, growth of the time per row from bottom to top


NOTHING = {"train_cpu_s": 0.0, "train_wall_s": 0.0, "train_gib": 0.0, "phases": []}  # of earlier runs


class PhaseClock(Reporter):
    """Remembers how long each phase took instead of showing it."""

    def __init__(self):
        self.phases = []

    @contextmanager
    def phase(self, title, total=None):
        spent = {}
        try:
            with super().phase(title, total) as phase, clock(spent):
                yield phase
        finally:
            self.phases.append({"phase": title, **spent})
            print(f"  {title}: {spent['cpu']:.1f} CPU s, {spent['wall']:.1f} s", file=sys.stderr, flush=True)


@contextmanager
def clock(spent=None):
    wall, cpu, spent = time.perf_counter(), time.process_time(), {} if spent is None else spent
    try:
        yield spent
    finally:
        spent |= {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def forget_peak():
    """From here on the peak of resident memory counts anew (Linux; elsewhere it counts from the start)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        print("  the peak of memory includes the making of the data", file=sys.stderr)


def peak_gib():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 2**20
    raise RuntimeError("no peak of resident memory in /proc/self/status")


def data_of(n_labels, n_rows, folder, labels_per_row, words_per_row):
    """The training rows of a rung, always the same; its test rows go to ``folder``."""
    n_features = round(SHAPES[FAMILY].n_features * min(1.0, n_rows / SHAPES[FAMILY].n_train) ** 0.5)
    sizes = {"n_train": n_rows, "n_test": TEST_ROWS, "n_features": n_features, "n_labels": n_labels}
    sizes |= {"labels_per_row": labels_per_row, "nnz_per_row": words_per_row}
    with clock() as making:
        train_set, test_set = make_synthetic(like=FAMILY, **sizes, decoys=DECOYS)
    print(f"  data made: {making['cpu']:.1f} CPU s, {making['wall']:.1f} s", file=sys.stderr, flush=True)
    write_npz(folder / "test.npz", test_set)
    return train_set


def train(n_labels, n_rows, folder, labels_per_row=None, words_per_row=None, threads=None, keep=False):
    """Make the data of a rung, train on it, leave the model and the test rows in ``folder``, and what helps to go on."""
    done = folder / "trained.json"
    if keep and done.exists():
        return json.loads(done.read_text())
    train_set = data_of(n_labels, n_rows, folder, labels_per_row, words_per_row)
    row = {"rows": n_rows, "labels": n_labels, "labels_per_row": train_set.Y.nnz / n_rows,
           "nnz_per_row": train_set.X.nnz / n_rows}  # fmt: skip
    reporter, model = PhaseClock(), BlockwiseClassifier(n_jobs=threads)
    forget_peak()
    so_far, spent = folder / "spent.json", {}
    before = json.loads(so_far.read_text()) if keep and so_far.exists() else NOTHING
    try:
        with patch("blockxmc.classifier.reporter_for", lambda verbose: reporter), clock(spent):
            model.fit(train_set.X, train_set.Y, work=folder / "work" if keep else None)
    finally:
        took = {
            "train_cpu_s": before["train_cpu_s"] + spent["cpu"],
            "train_wall_s": before["train_wall_s"] + spent["wall"],
        }
        took |= {"train_gib": max(before["train_gib"], peak_gib()), "phases": before["phases"] + reporter.phases}
        so_far.write_text(json.dumps(took))
    model.save(folder / "model")
    row |= {**took, "blocks": model.partition_.n_blocks_, "lam": model.partition_.lam_}
    row |= {"captured": model.partition_.captured_, **model.cost_}
    done.write_text(json.dumps(row))
    return row


def serve(folder):
    """What a process that has nothing but the saved model answers, and how fast."""
    test = read_npz(folder / "test.npz")
    forget_peak()
    before = peak_gib()
    model = blockxmc.load(folder / "model")
    labels, _ = model.predict_topk(test.X, 5)
    row = {f"P@{k}": 100 * metrics.precision_at_k(test.Y, labels, k) for k in (1, 3, 5)}
    row |= prediction_times(model, test.X) | {"serve_gib": peak_gib() - before, "route_us": routing_time(model, test.X)}
    row["candidates"] = model.cost_on(test.X)["candidates"]
    return row | {"model_mb": sum(file.stat().st_size for file in (folder / "model").iterdir()) / 1e6}


def routing_time(model, X):
    """CPU microseconds a row that finding its blocks takes, on one thread; median of three."""
    times = []
    for _ in range(3):
        with clock() as spent:
            model.model_.visited(X, 1)
        times.append(spent["cpu"] / X.shape[0] * 1e6)
    return sorted(times)[1]


def climb(n_labels, n_rows, more=(), work=None):
    """One rung: a process that trains, then one that serves; ``more`` are options of the training."""
    if work is not None:
        work.mkdir(parents=True, exist_ok=True)
        more = [*more, "--work", str(work)]
    with nullcontext(work) if work else tempfile.TemporaryDirectory() as folder:
        row = {"load": os.getloadavg()[0]}
        for step in ("train", "serve"):
            command = [sys.executable, __file__, "--step", step, "--rungs", str(n_labels), "--rows", str(n_rows)]
            row |= json.loads(output_of([*command, *more, "--folder", str(folder)]))
        return row


def output_of(command):
    """What a process prints; one that Ctrl-C has reached, too, may write down what it has spent."""
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            printed, _ = process.communicate()
        except KeyboardInterrupt:
            process.wait()
            raise SystemExit(130) from None
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return printed


COLUMNS = {
    "labels": "labels", "blocks": "blocks", "candidates": "candidates", "P@1": "P@1", "P@3": "P@3", "P@5": "P@5",
    "batch_us": "batch µs/row", "route_us": "routing alone µs", "one_us": "one row µs", "one_us_p99": "p99 µs",
    "model_mb": "model MB",
    "train_cpu_s": "training CPU s", "train_wall_s": "wall s", "train_gib": "training peak GiB", "serve_gib": "serving GiB",
}  # fmt: skip


def complete(row):
    """Whether a rung has all that the page shows; one measured by an older version of this program may not."""
    return COLUMNS.keys() <= row.keys()


def report(rows, top=()):
    """The table, the phases and the bars in Markdown."""
    first, last = rows[0], rows[-1]
    titles = list(dict.fromkeys(phase["phase"] for row in rows for phase in row["phases"]))
    spent = [[sum(p["cpu"] for p in row["phases"] if p["phase"] == title) for title in titles] for row in rows]
    spent = [[r["labels"], *s, r["train_cpu_s"] - sum(s)] for r, s in zip(rows, spent, strict=True)]
    wide, batch, one = (last[key] / first[key] for key in ("labels", "batch_us", "one_us"))
    return f"""# Growth with the number of labels

Made by `python bench/growth.py`; raw numbers in `growth.json`, figure in `growth.png`.

Synthetic rows like {FAMILY}'s: {first["rows"]:,} training rows, {first["labels_per_row"]:.2f} labels and
{first["nnz_per_row"]:.0f} features per row. Training with all cores; batch: CPU time on one thread; one row: median of
single calls; routing is part of both. Serving memory: what the loaded model adds to a process.

{_table(COLUMNS.values(), [[row[column] for column in COLUMNS] for row in rows])}

CPU seconds of training by phase (a phase that comes twice is summed):

{_table(["labels", *titles, "the rest"], spent)}

From {first["labels"]:,} to {last["labels"]:,} labels ({wide:.0f}x) the time per row grows {batch:.2f}x in batch and
{one:.2f}x one row at a time (bar: {GROWTH}x). The top rung took {last["train_cpu_s"] / 3600:.2f} CPU hours and
{last["train_wall_s"] / 3600:.2f} hours of wall time (bar: {HOURS}) on {last["cores"]} cores, whose load was
{last["load"]:.1f} when it began, and {last["train_gib"]:.1f} GiB.
{"".join(_top_rung(row) for row in top)}"""


def _top_rung(row):
    """A rung with rows of its own, in Markdown."""
    phases = {phase["phase"]: 0.0 for phase in row["phases"]}
    for phase in row["phases"]:
        phases[phase["phase"]] += phase["cpu"]
    long = [f"{name} {spent:,.0f}" for name, spent in phases.items() if spent > 0.02 * row["train_cpu_s"]]
    held = "within" if row["train_gib"] <= TOP_GIB else "above"
    return f"""
## {row["labels"]:,} labels

{row["rows"]:,} training rows with {row["labels_per_row"]:.2f} labels and {row["nnz_per_row"]:.0f} features each.

{_table(COLUMNS.values(), [[row[column] for column in COLUMNS]])}

Training took {row["train_gib"]:.1f} GiB at its peak, {held} the bar of {TOP_GIB}, on {row["cores"]} cores. CPU seconds of
its longer phases: {", ".join(long)}.
"""


def _table(titles, rows):
    lines = ["| " + " | ".join(titles) + " |", "|---:" * len(titles) + "|"]
    return "\n".join(lines + ["| " + " | ".join(_text(value) for value in row) + " |" for row in rows])


def _text(value):
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}" if abs(value) >= 100 else f"{value:,.2f}"


def draw(rows, path):
    """Time per row, training time, memory and size against the number of labels."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = {
        "µs per row": {"batch_us": "batch", "one_us": "one row per call"},
        "training seconds": {"train_cpu_s": "CPU", "train_wall_s": "wall"},
        "GiB": {"train_gib": "training peak", "model_gb": "model"},
        "precision": {"P@1": "P@1", "P@3": "P@3", "P@5": "P@5"},
    }
    shown = [row | {"model_gb": row["model_mb"] / 1073.741824} for row in rows]
    figure, axes = pyplot.subplots(1, len(panels), figsize=(14, 3.2), layout="constrained")
    for axis, (title, curves) in zip(axes, panels.items(), strict=True):
        for column, name in curves.items():
            axis.plot([row["labels"] for row in shown], [row[column] for row in shown], marker="o", label=name)
        axis.set(title=title, xlabel="labels", xscale="log", ylim=(0, None))
        axis.set_xticks([row["labels"] for row in shown], [f"{row['labels']:,}" for row in shown])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        axis.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rungs", type=int, nargs="*", default=RUNGS, help="numbers of labels")
    parser.add_argument("--top", action="store_true", help="add the rung like Amazon-3M")
    parser.add_argument("--labels-per-row", type=float, help="of the top rung, or without --top of all")
    parser.add_argument("--words-per-row", type=float, help="of all rungs but the top one; as usual if not given")
    parser.add_argument("--threads", type=int, help="of the training; as many as there are cores if not given")
    parser.add_argument("--rows", type=int, default=SHAPES[FAMILY].n_train, help="training rows; fewer for a rehearsal")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--work", type=Path, help="folder where a training keeps what it has, to go on from there")
    parser.add_argument("--step", choices=("train", "serve"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        training = options.step == "train"
        how = options.rungs[0], options.rows, options.folder, options.labels_per_row, options.words_per_row
        row = train(*how, options.threads, options.work is not None) if training else serve(options.folder)
        print(json.dumps(row))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    store = options.out / "growth.json"
    cells = json.loads(store.read_text()) if store.exists() else {}
    about = {"blockxmc": blockxmc.__version__, "python": platform.python_version(), "cores": os.cpu_count()}
    usual = ["--threads", str(options.threads)] if options.threads else []
    positives = ["--labels-per-row", str(options.labels_per_row)] if options.labels_per_row else []
    own = [*usual, *([] if options.top else positives)]
    own += ["--words-per-row", str(options.words_per_row)] if options.words_per_row else []
    rungs = [(f"{options.rows} rows, {n_labels} labels", n_labels, options.rows, own) for n_labels in options.rungs]
    if options.top:
        more = [*usual, "--words-per-row", str(TOP["words"]), *positives]
        key = f"{TOP['rows']} rows, {TOP['labels']} labels, {options.labels_per_row or 'the usual'} per row"
        rungs.append((key, TOP["labels"], TOP["rows"], more))
    for key, n_labels, n_rows, more in rungs:
        if not complete(cells.get(key, {})):
            place = options.work and options.work / key.replace(", ", "-").replace(" ", "-")
            cells[key] = climb(n_labels, n_rows, more, place) | about
            store.write_text(json.dumps(cells, indent=1) + "\n")
        row = cells[key]
        print(f"{key}: {row['train_cpu_s']:.0f} CPU s, {row['train_gib']:.1f} GiB, {row['batch_us']:.1f} µs, "
              f"P@1 {row['P@1']:.2f}", flush=True)  # fmt: skip
    known = sorted((row for row in cells.values() if complete(row)), key=lambda row: row["labels"])
    top = [row for row in known if row["labels"] == TOP["labels"]]
    rows = [row for row in known if row["rows"] == options.rows and row not in top]
    if rows:
        (options.out / "growth.md").write_text(report(rows, top))
        draw(rows, options.out / "growth.png")


if __name__ == "__main__":
    main()
