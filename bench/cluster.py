"""What a cluster gains and costs: one worker of one thread beside two, and `fit` on one thread.

    python bench/cluster.py [DIR] [--rounds 3] [--workers 1 2] [--out FILE]

DIR is a data folder; without one, the bundled demo set is trained. Rows are read from shards, and Dask is set as
docs/howto/cluster.md says. Every bar is printed with what was found; the exit code is 1 where one does not hold. Wall time
means something on an idle machine only. CPU time of the busiest worker says what a stage would take if each worker had a
core of its own. The labels of a small set, elife-keywords too, are one part: two workers do not share it.
"""

import argparse
import json
import logging
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

# As docs/howto/cluster.md starts its programs; Dask reads this when it is imported.
os.environ |= {"DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False", "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s"}

from distributed import Client, LocalCluster

from blockxmc import BlockwiseClassifier
from blockxmc.data import load_demo, read_data_dir, write_shards
from blockxmc.distributed import fit
from blockxmc.distributed.crew import Crew

LEAST_SPEEDUP = 1.8  # two workers beside one, on the labels
MOST_OVERHEAD = 10.0  # per cent of CPU time, beside fit on one machine


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


def trained(path, workers):
    """Train on so many workers: seconds of stages and of everything."""
    how = {"n_workers": workers, "threads_per_worker": 1, "processes": True}
    quiet = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with (
        tempfile.TemporaryDirectory(dir=path.parent) as work,
        LocalCluster(**how, **quiet) as cluster,
        Client(cluster) as client,
    ):
        client.run(__import__, "blockxmc.distributed.worker")  # a program's start is not a job's cost
        before, own = sum(cpu_of(client).values()), time.process_time()
        with Watch(client) as watch:
            fit(BlockwiseClassifier(n_jobs=1), path, client, work=work)
        own = time.process_time() - own
        everything = own + sum(cpu_of(client).values()) - before
        size = sum(file.stat().st_size for file in Path(work).glob("labels*"))
    idle = 1 - sum(watch.cpu.values()) / (workers * max(watch.cpu.values()))
    return {
        "label_wall": watch.wall,
        "label_cpu": max(watch.cpu.values()),
        "cpu": everything,
        "driver_cpu": own,
        "parts": watch.parts,
        "idle": idle,
        "mb": size / 1e6,
    }


def alone(train):
    began = time.process_time()
    BlockwiseClassifier(n_jobs=1).fit(train.X, train.Y)
    return {"cpu": time.process_time() - began}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    train = load_demo()[0] if options.folder is None else read_data_dir(options.folder)[0]
    counts = sorted({1, 2, *options.workers})
    runs = {"alone": []} | {str(count): [] for count in counts}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train"
        write_shards(path, train, n_shards=4)
        for number in range(options.rounds):
            runs["alone"].append(alone(train))
            for count in counts:
                runs[str(count)].append(trained(path, count))
            print(number, *({k: round(v, 2) for k, v in runs[name][-1].items()} for name in runs), flush=True)
    found = report(runs) | {"load": os.getloadavg()[0], "cores": len(os.sched_getaffinity(0))}
    if options.out:
        options.out.write_text(json.dumps({"runs": runs, **found}, indent=1))
    return 0 if found["holds"] else 1


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
