"""Training and batch prediction by the number of threads: python bench/scaling.py DATA_DIR... [--threads 1,16].

Wall time of each, its ratio to one thread, the phases that take more than 2 % of the run with the most threads, and whether
the models are the same bit for bit. With --markdown FILE the page is written. Run it on an idle machine. What stands in
the folder of --keep is not measured again: several calls, one number of threads each, make one page.
"""

import argparse
import hashlib
import json
import os
import threading
import time
from pathlib import Path

import numpy as np

from blockxmc import BlockwiseClassifier
from blockxmc._core import progress
from blockxmc.data import read_data_dir

SHARE = 0.02


class Clock(progress.Reporter):
    """Keeps the wall time of every phase that is not inside another of its thread, and the time in which there is none.

    Phases that run side by side are counted both: all of them together may take longer than the training.
    """

    def __init__(self):
        super().__init__()
        self.seconds, self.outside, self.open = {}, 0.0, 0
        self.lock, self.own = threading.Lock(), threading.local()
        self.since = time.perf_counter()

    def phase(self, *args, **options):
        return _Timed(self, super().phase(*args, **options), args[0])

    def step(self, opened):
        """One phase more, or one less; returns the time."""
        now = time.perf_counter()
        with self.lock:
            self.outside += 0.0 if self.open else now - self.since
            self.open += opened
            self.since = now
        return now


class _Timed:
    def __init__(self, clock, phase, title):
        self.clock, self.inner, self.title = clock, phase, title

    def __enter__(self):
        self.clock.own.depth = getattr(self.clock.own, "depth", 0) + 1
        self.start = self.clock.step(1)
        return self.inner.__enter__()

    def __exit__(self, *error):
        self.clock.own.depth -= 1
        spent = self.clock.step(-1) - self.start
        if self.clock.own.depth == 0:
            with self.clock.lock:
                self.clock.seconds[self.title] = self.clock.seconds.get(self.title, 0.0) + spent
        return self.inner.__exit__(*error)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--threads", default=f"1,{os.cpu_count()}")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--keep", type=Path, help="a folder for what was measured")
    options = parser.parse_args()
    counts = sorted(map(int, options.threads.split(",")))
    found = [[kept(folder, count, options.keep) for count in counts] for folder in options.data]
    lines = [
        "# Threads",
        "",
        f"Made by `python bench/scaling.py`; {found[0][-1]['cores']} cores. Wall seconds of training, and microseconds per"
        " row of batch prediction over all test rows (best of three).",
        "",
        "| data | threads | training s | CPU s | times faster | batch µs | times faster | same bits |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    phases = []
    for folder, rows in zip(options.data, found, strict=True):
        first = rows[0]
        for row in rows:
            same = "yes" if row["digest"] == first["digest"] else "NO"
            faster = [f"{first[name] / row[name]:.1f}" for name in ("wall", "batch")]
            lines.append(
                f"| {folder.name} | {row['threads']} | {row['wall']:.2f} | {row['cpu']:.1f} | {faster[0]}"
                f" | {row['batch']:.2f} | {faster[1]} | {same} |"
            )
            print(json.dumps({"data": folder.name} | row), flush=True)
        phases += phase_table(folder.name, first, rows[-1])
    note = "Phases of more than 2 % of the run with the most threads; some run side by side."
    page = "\n".join([*lines, "", note, *phases, ""])
    print(page)
    if options.markdown:
        options.markdown.write_text(page)


def kept(folder, threads, place):
    """What an earlier call has measured, or what this one does."""
    if place is None:
        return measured(folder, threads)
    file = place / f"{folder.name}-{threads}.json"
    if not file.exists():
        place.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(measured(folder, threads), indent=1))
    return json.loads(file.read_text())


def phase_table(name, first, last):
    """Lines of Markdown: the long phases of the last run, the longest first, beside the same in the first."""
    few, many = (row["phases"] | {"outside phases": row["outside"]} for row in (first, last))
    long = {phase: s for phase, s in many.items() if s > SHARE * last["wall"]}
    short = [sum(s for phase, s in row.items() if phase not in long) for row in (few, many)]
    rows = [(phase, few.get(phase, 0.0), s) for phase, s in sorted(long.items(), key=lambda item: -item[1])]
    return [
        "",
        f"{name}:",
        "",
        f"| phase | s, {first['threads']} threads | s, {last['threads']} threads | times faster | share |",
        "|---|---:|---:|---:|---:|",
        *(
            f"| {phase} | {before:.3f} | {after:.3f} | {before / max(after, 1e-9):.1f} | {after / last['wall']:.1%} |"
            for phase, before, after in [*rows, ("all others", *short)]
        ),
    ]


def measured(folder, threads):
    train, test = read_data_dir(folder)
    clock = Clock()
    classifier = _Clocked(n_jobs=threads)
    classifier.clock = clock
    wall, cpu = time.perf_counter(), time.process_time()
    clock.step(0)
    clock.outside = 0.0
    classifier.fit(train.X, train.Y)
    clock.step(0)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    batch = []
    for _ in range(3):
        start = time.perf_counter()
        labels, scores = classifier.predict_topk(test.X, 5)
        batch.append((time.perf_counter() - start) / test.X.shape[0] * 1e6)
    digest = hashlib.sha256(labels.tobytes() + scores.tobytes() + state_digest(classifier)).hexdigest()[:16]
    return {
        "threads": threads,
        "cores": os.cpu_count(),
        "wall": wall,
        "cpu": cpu,
        "batch": min(batch),
        "digest": digest,
        "phases": clock.seconds,
        "outside": clock.outside,
    }


class _Clocked(BlockwiseClassifier):
    def fit(self, X, Y):
        X, Y = self._training_data(X, Y, None)
        self.label_counts_ = np.bincount(Y.indices, minlength=Y.shape[1]).astype(np.int64)
        self._fit(X, Y, self.clock)
        return self


def state_digest(classifier):
    """All arrays of the model."""
    found = hashlib.sha256()

    def walk(value):
        if isinstance(value, dict):
            for name in sorted(value):
                found.update(name.encode())
                walk(value[name])
        elif isinstance(value, (list, tuple)):
            for item in value:
                walk(item)
        elif isinstance(value, np.ndarray):
            found.update(np.ascontiguousarray(value).tobytes())

    walk(classifier._state())
    return found.digest()


if __name__ == "__main__":
    main()
