"""What a cluster gains and costs: one worker of one thread beside two, and `fit` on one thread.

    python bench/cluster.py [DIR] [--synthetic LIKE:SCALE] [--rung LABELS:ROWS] [--rounds 3] [--workers 1 2] [--pin]
                            [--beside] [--score ROWS] [--seconds N] [--out FILE]

DIR is a data folder; without one, a synthetic set (``amazon-670k:0.125``), one of the family of bench/growth.py (``--rung
670000:60000``) or the bundled demo set is trained. Rows are read from shards, and Dask is set as docs/howto/cluster.md
says. ``--pin`` gives the driver and each worker a core of its own, ``--beside`` trains on one machine at the same time as
with one worker (three cores), and ``--score`` has so many rows scored by each number of workers. What was found is printed
and written after every step; after ``--seconds`` no step begins.

Every bar is printed with what was found; the exit code is 1 where one does not hold. Wall time means something on an idle
machine only, and counts for the bar with ``--pin``. CPU time of the busiest worker says what a stage would take if each
worker had a core of its own; where other work slows one worker, the other takes more parts, and it looks worse than it is.
Dask's programs take CPU time for as long as a job lasts, so their share is larger on a busy machine.
"""

import argparse
import contextlib
import json
import logging
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

# As docs/howto/cluster.md starts its programs; Dask reads this when it is imported.
os.environ |= {
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
    "DASK_DISTRIBUTED__WORKER__MEMORY__MONITOR_INTERVAL": "2s",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "5s",
}

from distributed import Client, LocalCluster
from growth import DECOYS, FAMILY, PhaseClock

from blockxmc import BlockwiseClassifier
from blockxmc.data import load_demo, make_synthetic, read_data_dir, read_shards, write_shards
from blockxmc.data.shards import ShardWriter, parts_of
from blockxmc.distributed import fit, predict_topk
from blockxmc.distributed.cluster import ClusterJob
from blockxmc.paper.synthetic import SHAPES

LEAST_SPEEDUP = 1.8  # two workers beside one, on the labels
MOST_OVERHEAD = 10.0  # per cent of CPU time, beside fit on one machine
BEGAN = time.perf_counter()


def own_cores():
    """The cores that this process may use: one thread of each before second threads of any."""
    found = sorted(os.sched_getaffinity(0))
    pairs = {}
    for core in found:
        file = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
        pairs.setdefault(file.read_text() if file.exists() else core, []).append(core)
    return [each[0] for each in pairs.values()] + [core for each in pairs.values() for core in each[1:]]


def pin(core):
    """A core of its own for a process and all its threads."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), {core})


def cpu_of(client):
    """CPU seconds that each worker has used, all its threads together."""
    return client.run(time.process_time)


@contextlib.contextmanager
def phases_of_fit():
    """CPU and wall time of the phases of trainings in this process, by name."""
    clock, found = PhaseClock(), {}
    with contextlib.ExitStack() as stack:
        stack.enter_context(patch("blockxmc.classifier.reporter_for", lambda verbose: clock))
        stack.enter_context(contextlib.redirect_stderr(stack.enter_context(open(os.devnull, "w"))))
        yield found
    for phase in clock.phases:
        known = found.setdefault(phase["phase"], {"cpu": 0.0, "wall": 0.0})
        for key in known:
            known[key] += phase[key]


class Watch:
    """Of each stage that workers do: wall time, CPU time of each, and ranges."""

    def __init__(self, client):
        self.client, self.stages = client, {}

    def __enter__(self):
        self._ranges = results = ClusterJob.ranges

        def watched(job, stage, parts, compute):
            before, began = cpu_of(self.client), time.perf_counter()
            yield from results(job, stage, parts, compute)
            wall = time.perf_counter() - began
            cpu = [seconds - before[address] for address, seconds in cpu_of(self.client).items()]
            idle = 1 - sum(cpu) / (len(cpu) * wall)
            self.stages[stage] = {"wall": wall, "cpu": cpu, "parts": len(parts), "idle": idle}

        ClusterJob.ranges = watched
        return self

    def __exit__(self, *_):
        ClusterJob.ranges = self._ranges

    def sum(self, key):
        return sum(stage[key] for stage in self.stages.values())

    @property
    def cpu(self):
        """Of each worker, in all stages."""
        return [sum(each) for each in zip(*(stage["cpu"] for stage in self.stages.values()), strict=True)]


@contextlib.contextmanager
def cluster_of(workers, options):
    """A client of so many workers of one thread; a program's start is not a job's cost."""
    how = {"n_workers": workers, "threads_per_worker": 1, "processes": True}
    quiet = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with LocalCluster(**how, **quiet) as cluster, Client(cluster) as client:
        client.wait_for_workers(workers)
        client.run(__import__, "blockxmc.distributed.worker")
        if options.pin:
            for number, address in enumerate(client.scheduler_info(n_workers=-1)["workers"]):
                client.run(pin, options.cores[(1 + number) % len(options.cores)], workers=[address])
        yield client


def trained(path, workers, options):
    """Train on so many workers: seconds of stages and of everything."""
    with tempfile.TemporaryDirectory(dir=path.parent) as work, cluster_of(workers, options) as client:
        before, own, began = sum(cpu_of(client).values()), time.process_time(), time.perf_counter()
        with Watch(client) as watch, phases_of_fit() as phases:
            clf = fit(BlockwiseClassifier(n_jobs=1), path, client, work=work)
        wall, own = time.perf_counter() - began, time.process_time() - own
        everything = own + sum(cpu_of(client).values()) - before
        if options.save is not None:
            clf.save(options.save)
    return {
        "blocks": clf.partition_.n_blocks_,
        "wall": wall,
        "label_wall": watch.sum("wall"),
        "label_cpu": max(watch.cpu),
        "label_cpu_all": sum(watch.cpu),
        "cpu": everything,
        "driver_cpu": own,
        "parts": watch.sum("parts"),
        "idle": 1 - sum(watch.cpu) / (workers * watch.sum("wall")),
        "stages": watch.stages,
        "phases": phases,
    }


def scored(model, path, workers, n_rows, options):
    """Have all rows scored by so many workers: rows per second, and the most memory that a worker held."""
    with tempfile.TemporaryDirectory(dir=path.parent) as work, cluster_of(workers, options) as client:
        own, before, began = time.process_time(), cpu_of(client), time.perf_counter()
        for _ in predict_topk(model, path, client, out=work, k=5):
            pass
        wall, own = time.perf_counter() - began, time.process_time() - own
        cpu = [seconds - before[address] for address, seconds in cpu_of(client).items()]
        memory = max(client.run(anonymous).values())
    return {
        "rows": n_rows,
        "rows_per_second": n_rows / wall,
        "rows_per_cpu_second": n_rows / (sum(cpu) + own),
        "busiest": max(cpu),
        "worker_mb": memory / 1e6,
    }


def anonymous():
    """Bytes of memory that no file stands behind."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def alone(path, core=None):
    """`fit` on one thread of this process, from the same shards."""
    if core is not None:
        pin(core)
    data = read_shards(path)
    cpu, wall = time.process_time(), time.perf_counter()
    with phases_of_fit() as phases:
        clf = BlockwiseClassifier(n_jobs=1).fit(data.X, data.Y)
    spent = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    return {"blocks": clf.partition_.n_blocks_, **spent, "phases": phases}


class Steps:
    """What was found, which is printed and written after every step."""

    def __init__(self, options, sizes):
        self.options, self.sizes, self.runs, self.scores = options, sizes, {}, {}

    def add(self, where, name, found):
        where.setdefault(name, []).append(found)
        plain = {key: round(value, 2) for key, value in found.items() if not isinstance(value, dict)}
        print(f"{time.perf_counter() - BEGAN:.0f} s, {name}: {plain}", flush=True)
        self.write({})

    def write(self, more):
        around = {"load": os.getloadavg()[0], "cores": len(self.options.cores), **self.sizes}
        if self.options.out:
            everything = {"runs": self.runs, "scores": self.scores, **around, **more}
            self.options.out.write_text(json.dumps(everything, indent=1) + "\n")

    @property
    def in_time(self):
        return time.perf_counter() - BEGAN < self.options.seconds


def train_all(path, counts, steps, options):
    """All trainings of a round; `fit` on one machine beside that with one worker, where that is wanted."""
    spawned = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as stack:
        pending = None
        if options.beside:
            core = options.cores[2 % len(options.cores)] if options.pin else None
            pending = stack.enter_context(spawned.Pool(1)).apply_async(alone, (path, core))
        elif steps.in_time:
            steps.add(steps.runs, "alone", alone(path))
        for count in counts:
            if steps.in_time:
                steps.add(steps.runs, str(count), trained(path, count, options))
            if pending is not None:
                steps.add(steps.runs, "alone", pending.get())
                pending = None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--synthetic", help="name and scale, like amazon-670k:0.125")
    parser.add_argument("--rung", help="labels and rows, like 670000:60000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--pin", action="store_true", help="a core of its own for the driver and for each worker")
    parser.add_argument("--beside", action="store_true", help="fit on one machine at the same time as with one worker")
    parser.add_argument("--score", type=int, default=0, help="rows to be scored, those of the test set again and again")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after so many no step begins")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    options.cores = own_cores()
    train, test = _data(options)
    counts = sorted({1, 2, *options.workers})
    named = options.folder.name if options.folder else options.rung or options.synthetic or "demo"
    sizes = {"name": named, "rows": train.n_rows, "labels": train.n_labels, "values": int(train.X.nnz)}
    steps = Steps(options, sizes | {"positives": int(train.Y.nnz)})
    print(f"{time.perf_counter() - BEGAN:.0f} s, {named}: {train.n_rows:,} rows, {train.n_labels:,} labels", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path, rows = Path(folder) / "train", Path(folder) / "rows"
        options.save = Path(folder) / "model" if options.score else None
        write_shards(path, train, n_shards=4)
        if options.pin:
            pin(options.cores[0])
        for _ in range(options.rounds):
            train_all(path, counts, steps, options)
        if options.score and steps.in_time:
            n_rows = _again_and_again(rows, test, options.score)
            for count in reversed(counts):  # those that take longest come last
                if steps.in_time:
                    steps.add(steps.scores, str(count), scored(options.save, rows, count, n_rows, options))
    found = report(steps.runs, options.pin)
    steps.write(found)
    return 0 if found["holds"] else 1


def _data(options):
    if options.rung:
        labels, rows = map(int, options.rung.split(":"))
        n_features = round(SHAPES[FAMILY].n_features * min(1.0, rows / SHAPES[FAMILY].n_train) ** 0.5)
        sizes = {"n_train": rows, "n_test": 20_000, "n_features": n_features, "n_labels": labels}
        return make_synthetic(like=FAMILY, **sizes, decoys=DECOYS)
    if options.synthetic:
        like, scale = options.synthetic.split(":")
        return make_synthetic(like=like, scale=float(scale))
    return load_demo() if options.folder is None else read_data_dir(options.folder)


def _again_and_again(folder, data, n_rows):
    """Shards of about so many rows: those of the data, repeated."""
    times = -(-n_rows // data.n_rows)
    with ShardWriter(folder) as writer:
        for _ in range(times):
            for rows in parts_of(data):
                writer.add(rows)
        writer.finish(16, data.n_features, data.n_labels)
    return times * data.n_rows


def report(runs, by_the_clock):
    """Medians over rounds, beside the bars; of what was run."""

    def ratio(a, b, key):
        both = zip(runs.get(a, []), runs.get(b, []), strict=False)
        return statistics.median([x[key] / y[key] for x, y in both] or [float("nan")])

    counts = [name for name in runs if name != "alone"]
    gains = {name: {key: ratio("1", name, key) for key in ("wall", "label_wall", "label_cpu")} for name in counts}
    overheads = {name: 100 * (ratio(name, "alone", "cpu") - 1) for name in counts}
    for name, gain in gains.items():
        last = runs[name][-1]
        print(f"{name} workers: {last['parts']} parts, {100 * last['idle']:.0f} % idle;")
        print(
            f"  labels {gain['label_wall']:.2f} times as fast by the clock, {gain['label_cpu']:.2f} by CPU of the busiest"
        )
    found = gains.get("2", {}).get("label_wall" if by_the_clock else "label_cpu", float("nan"))
    bars = [(found >= LEAST_SPEEDUP, f"{found:.2f} times as fast with two workers; bar: {LEAST_SPEEDUP}")]
    for name, percent in overheads.items():
        text = f"{percent:+.1f} % CPU with {name} workers beside fit; bar: {MOST_OVERHEAD} %"
        bars.append((percent <= MOST_OVERHEAD, text))
    for holds, text in bars:
        print("holds:" if holds else "FAILS:", text)
    return {"gains": gains, "overheads": overheads, "holds": all(holds for holds, _ in bars)}


if __name__ == "__main__":
    sys.exit(main())
