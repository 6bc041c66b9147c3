"""Training from shards in bounded memory: anonymous memory, CPU time and bits beside training from memory.

    python bench/shards.py [--rows N] [--values N] [--features N] [--labels N] [--limit 0.25] [--slack MB] [--out FILE]
    python bench/shards.py --folder SHARDS ...       shards that are there, instead of synthetic rows

Each training runs in a process of its own, on one thread. Three are compared: rows in memory; shards; shards with
``max_memory_gb`` set to what the process takes at its start and ``--limit`` times the bytes of X. Anonymous memory
(RssAnon) is looked at a hundred times a second: pages of mapped files are not in it, since the system drops them when it
needs the memory. With ``--slack`` the third process also has a real limit, RLIMIT_DATA: an allocation beyond it fails.
Unlike RssAnon that counts what is allocated and not touched, so it is set so many megabytes higher. Exit code 1 where a
bar does not hold.
"""

import argparse
import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
from scipy import linalg

from blockxmc import BlockwiseClassifier
from blockxmc.data import read_shards
from blockxmc.data.shards import Rows, ShardWriter

MOST_SLOWER = 1.10  # CPU time from shards beside that from memory
PARTS = {"memory": "rows in memory", "shards": "shards", "bounded": "shards, bounded"}


def write_rows(folder, rows, values, features, labels, seed=0):
    """Long rows of one label each: half of a row's features are typical of its label, the others are anybody's."""
    rng = np.random.default_rng(seed)
    own = rng.integers(0, features, (labels, values), np.int32)
    with ShardWriter(folder) as writer:
        for first in range(0, rows, 500):
            count = min(500, rows - first)
            label = rng.integers(0, labels, count, np.int32)
            typical = own[label[:, None], rng.integers(0, values, (count, values // 2))]
            others = (features * rng.random((count, values - values // 2)) ** 2).astype(np.int32)
            columns = np.sort(np.concatenate([typical, others], axis=1), axis=1)
            kept = np.concatenate([np.ones((count, 1), bool), columns[:, 1:] > columns[:, :-1]], axis=1)
            data = (0.5 + rng.random(columns.shape, np.float32)) * kept
            data /= np.linalg.norm(data, axis=1, keepdims=True)
            indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
            writer.add(Rows(indptr, columns[kept], data[kept], np.arange(count + 1), label))
        writer.finish(8, features, labels)


def in_status(name, process="self"):
    """A number of bytes in /proc/PROCESS/status; 0 where the process has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), 0)


def train(folder, how, limit, slack):
    """Train in this process; what it took, as JSON."""
    data = read_shards(folder)
    X, Y = data.X, data.Y
    size = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    if how == "memory":
        X = type(X)((np.array(X.data), np.array(X.indices), np.array(X.indptr)), shape=X.shape)
    start = in_status("RssAnon")
    options = {}
    if how == "bounded":
        options["max_memory_gb"] = (start + limit * size) / 1e9
        if slack is not None:
            linalg.cholesky(np.eye(200) @ np.eye(200))  # OpenBLAS allocates when first used, and tries for ever
            allowed = in_status("VmData") + int(limit * size) + slack * 2**20
            resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))
    print("begins", flush=True)
    began = os.times()
    clf = BlockwiseClassifier(n_jobs=1).fit(X, Y, **options)
    ended = os.times()
    print("ends", flush=True)
    labels, scores = clf.predict_topk(X[:1000], 5)
    digest = hashlib.sha256(labels.tobytes() + scores.tobytes()).hexdigest()
    cpu = {"cpu": ended.user + ended.system - began.user - began.system, "system": ended.system - began.system}
    found = {"X": size, "start": start, "digest": digest, "blocks": int(clf.partition_.n_blocks_)}
    print(json.dumps(found | cpu))


def child(folder, how, options):
    """Train in a process of its own, whose memory this one looks at."""
    command = [sys.executable, __file__, "--folder", str(folder), "--child", how, "--limit", str(options.limit)]
    if options.slack is not None:
        command += ["--slack", str(options.slack)]
    most, stop = 0, threading.Event()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:

        def watch():
            nonlocal most
            while not stop.wait(0.01):
                most = max(most, in_status("RssAnon", process.pid))

        watcher = threading.Thread(target=watch)
        for line in process.stdout:
            if line == "begins\n":
                watcher.start()
            elif line == "ends\n":
                stop.set()
            last = line
        stop.set()
    if process.returncode:
        raise SystemExit(f"{how}: the training ended with code {process.returncode}")
    watcher.join()
    return json.loads(last) | {"peak": most}


def compare(folder, options):
    runs = {how: [] for how in PARTS}
    for _ in range(options.rounds):
        for how in runs:
            runs[how].append(child(folder, how, options))
    first = runs["memory"][0]
    print(f"X takes {first['X'] / 1e6:,.0f} MB; {first['blocks']} blocks; load {os.getloadavg()[0]:.1f}")
    bars = []
    for how, found in runs.items():
        peak = max(run["peak"] - run["start"] for run in found) / first["X"]
        cpu = statistics.median(a["cpu"] / b["cpu"] for a, b in zip(found, runs["memory"], strict=True))
        total = max(run["peak"] for run in found) / 1e6
        seconds = statistics.median(run["cpu"] for run in found)
        print(f"{PARTS[how]:16s} peak {peak:.2f} of X beyond the start, {total:,.0f} MB in all; {seconds:.1f} CPU s")
        same = {run["digest"] for run in found} == {first["digest"]}
        bars.append((same, f"{PARTS[how]}: the same answers, bit by bit"))
        if how == "bounded":
            bars.append((peak <= options.limit, f"peak {peak:.2f} of X; bar: {options.limit}"))
            bars.append((cpu <= MOST_SLOWER, f"{cpu:.3f} times the CPU time; bar: {MOST_SLOWER}"))
    for holds, text in bars:
        print("holds:" if holds else "FAILS:", text)
    if options.out:
        options.out.write_text(json.dumps(runs, indent=1))
    return all(holds for holds, _ in bars)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path)
    for name, usual in (("rows", 16_000), ("values", 2600), ("features", 20_000), ("labels", 1000), ("rounds", 1)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--limit", type=float, default=0.25)
    parser.add_argument("--slack", type=int, help="megabytes beyond the limit that may be allocated and not touched")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return train(options.folder, options.child, options.limit, options.slack)
    if options.folder:
        return 0 if compare(options.folder, options) else 1
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train"
        write_rows(path, options.rows, options.values, options.features, options.labels)
        return 0 if compare(path, options) else 1


if __name__ == "__main__":
    sys.exit(main())
