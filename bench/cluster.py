"""What a cluster gains and costs: one worker of one thread beside two, and `fit` on one thread.

    python bench/cluster.py [DIR] [--synthetic LIKE:SCALE] [--rounds 3] [--workers 1 2] [--least-pairs N] [--pin]
                            [--score ROWS] [--out FILE]

DIR is a data folder; without one, a synthetic set (``amazon-670k:0.125``) or the bundled demo set is trained. Rows are
read from shards, and Dask is set as docs/howto/cluster.md says. ``--pin`` gives each worker a core of its own, ``--score``
has so many rows scored by each number of workers, and ``--least-pairs`` makes parts of labels smaller than usual.

Every bar is printed with what was found; the exit code is 1 where one does not hold. Wall time means something on an idle
machine only. CPU time of the busiest worker says what a stage would take if each worker had a core of its own. The labels
of a small set, elife-keywords too, are one part, which two workers do not share; smaller parts (for `fit` on one machine
too) show what the cluster itself costs. Dask's programs take CPU time for as long as a job lasts, so its share is
larger on a busy machine.
"""

import argparse
import contextlib
import dataclasses
import json
import logging
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

# As docs/howto/cluster.md starts its programs; Dask reads this when it is imported.
os.environ |= {
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
    "DASK_DISTRIBUTED__WORKER__MEMORY__MONITOR_INTERVAL": "2s",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "5s",
}

from distributed import Client, LocalCluster

from blockxmc import BlockwiseClassifier
from blockxmc.data import load_demo, make_synthetic, read_data_dir, write_shards
from blockxmc.data.shards import ShardWriter, parts_of
from blockxmc.distributed import fit, predict_topk
from blockxmc.distributed.crew import Crew

LEAST_SPEEDUP = 1.8  # two workers beside one, on the labels
MOST_OVERHEAD = 10.0  # per cent of CPU time, beside fit on one machine


def smaller_parts(pairs):
    """Parts of labels of at least so many pairs, in this process."""
    from blockxmc.training.shared import settings

    change = {"least_pairs": pairs, "least_pairs_per_row": 0}
    settings.SETTINGS = dataclasses.replace(settings.SETTINGS, **change)


def pin(core):
    """A core of its own for a worker and all its threads."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), {core})


def cpu_of(client):
    """CPU seconds that each worker has used, all its threads together."""
    return client.run(time.process_time)


class Watch:
    """Wall time of the stages that a crew does, and CPU time that its workers take for them."""

    def __init__(self, client):
        self.client, self.wall, self.cpu, self.parts = client, 0.0, {}, 0

    def __enter__(self):
        self._keep = keep = Crew.keep

        def watched(crew, stage, parts, finished):
            before, began = cpu_of(self.client), time.perf_counter()
            keep(crew, stage, parts, finished)
            self.wall += time.perf_counter() - began
            self.parts += len(parts)
            for address, seconds in cpu_of(self.client).items():
                self.cpu[address] = self.cpu.get(address, 0.0) + seconds - before[address]

        Crew.keep = watched
        return self

    def __exit__(self, *_):
        Crew.keep = self._keep


@contextlib.contextmanager
def cluster_of(workers, options):
    """A client of so many workers of one thread; a program's start is not a job's cost."""
    how = {"n_workers": workers, "threads_per_worker": 1, "processes": True}
    quiet = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with LocalCluster(**how, **quiet) as cluster, Client(cluster) as client:
        client.wait_for_workers(workers)
        client.run(__import__, "blockxmc.distributed.worker")
        if options.least_pairs:
            client.run(smaller_parts, options.least_pairs)
        if options.pin:
            cores = sorted(os.sched_getaffinity(0))
            for number, address in enumerate(client.scheduler_info(n_workers=-1)["workers"]):
                client.run(pin, cores[-1 - number % len(cores)], workers=[address])
        yield client


def trained(path, workers, options):
    """Train on so many workers: seconds of stages and of everything."""
    with tempfile.TemporaryDirectory(dir=path.parent) as work, cluster_of(workers, options) as client:
        before, own, began = sum(cpu_of(client).values()), time.process_time(), time.perf_counter()
        with Watch(client) as watch:
            clf = fit(BlockwiseClassifier(n_jobs=1), path, client, work=work)
        wall, own = time.perf_counter() - began, time.process_time() - own
        everything = own + sum(cpu_of(client).values()) - before
        size = sum(file.stat().st_size for file in Path(work).glob("labels*"))
        if options.save is not None:
            clf.save(options.save)
    idle = 1 - sum(watch.cpu.values()) / (workers * max(watch.cpu.values()))
    return {
        "wall": wall,
        "label_wall": watch.wall,
        "label_cpu": max(watch.cpu.values()),
        "label_cpu_all": sum(watch.cpu.values()),
        "cpu": everything,
        "driver_cpu": own,
        "parts": watch.parts,
        "idle": idle,
        "mb": size / 1e6,
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
        "rows_per_second": n_rows / wall,
        "rows_per_cpu_second": n_rows / (sum(cpu) + own),
        "busiest": max(cpu),
        "worker_mb": memory / 1e6,
    }


def anonymous():
    """Bytes of memory that no file stands behind."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def alone(train):
    began = time.process_time()
    BlockwiseClassifier(n_jobs=1).fit(train.X, train.Y)
    return {"cpu": time.process_time() - began}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--synthetic", help="name and scale, like amazon-670k:0.125")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--least-pairs", type=int, help="pairs of a label and a row in a part of labels, at least")
    parser.add_argument("--pin", action="store_true", help="a core of its own for each worker")
    parser.add_argument("--score", type=int, default=0, help="rows to be scored, those of the test set again and again")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    train, test = _data(options)
    if options.least_pairs:
        smaller_parts(options.least_pairs)
    counts = sorted({1, 2, *options.workers})
    runs = {"alone": []} | {str(count): [] for count in counts}
    scores = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train"
        options.save = Path(folder) / "model" if options.score else None
        write_shards(path, train, n_shards=4)
        for number in range(options.rounds):
            runs["alone"].append(alone(train))
            for count in counts:
                runs[str(count)].append(trained(path, count, options))
            print(number, *({k: round(v, 2) for k, v in runs[name][-1].items()} for name in runs), flush=True)
        if options.score:
            rows = _again_and_again(Path(folder) / "rows", test, options.score)
            for count in counts:
                scores[str(count)] = found = scored(options.save, Path(folder) / "rows", count, rows, options)
                print(f"{count} workers score {rows:,} rows:", {k: round(v, 2) for k, v in found.items()}, flush=True)
    found = report(runs) | {"load": os.getloadavg()[0], "cores": len(os.sched_getaffinity(0)), "scores": scores}
    if options.out:
        options.out.write_text(json.dumps({"runs": runs, **found}, indent=1))
    return 0 if found["holds"] else 1


def _data(options):
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


def report(runs):
    """Medians over rounds, beside the bars."""

    def ratio(a, b, key):
        return statistics.median(x[key] / y[key] for x, y in zip(runs[a], runs[b], strict=True))

    wall, busiest = ratio("1", "2", "label_wall"), ratio("1", "2", "label_cpu")
    overheads = {name: 100 * (ratio(name, "alone", "cpu") - 1) for name in runs if name != "alone"}
    print(f"labels, two workers beside one: {wall:.2f} times as fast by the clock")
    for name in overheads:
        last = runs[name][-1]
        print(f"{name} workers: {last['parts']} parts, {last['mb']:.1f} MB of weights, {100 * last['idle']:.0f} % idle")
    bars = [(busiest >= LEAST_SPEEDUP, f"{busiest:.2f} times as fast by CPU of the busiest; bar: {LEAST_SPEEDUP}")]
    for name, percent in overheads.items():
        bars.append(
            (percent <= MOST_OVERHEAD, f"{percent:+.1f} % CPU with {name} workers beside fit; bar: {MOST_OVERHEAD} %")
        )
    for holds, text in bars:
        print("holds:" if holds else "FAILS:", text)
    return {"wall": wall, "busiest": busiest, "overheads": overheads, "holds": all(holds for holds, _ in bars)}


if __name__ == "__main__":
    sys.exit(main())
