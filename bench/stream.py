"""`blockxmc predict -`: CPU time per row, memory, and how long a single line waits for its answer.

    python bench/stream.py [--rows 20000 100000]

The bundled texts are written to the program's standard input, as often as needed. CPU time per row is the difference
between the largest and the smallest number of rows, so that the start of the program does not count.

A million rows of the bundled texts, one thread of a loaded machine: 43 CPU s (41 µs a row) and 283 MB at the peak. The
program that read all lines before it answered took 85 s (83 µs a row) and 1,873 MB: 2.0 times as long. 60,000 rows
take 250 MB and 300,000 269 MB. Ten million rows in one stream, written as they were read, took 419 CPU s; the peak was
286 MB after one million, 300 MB after 3.5 million, and no more after five and ten million.
"""

import argparse
import itertools
import json
import resource
import subprocess
import sys
import tempfile
import time
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np

from blockxmc import TextClassifier
from blockxmc.data.corpus import read_corpus


def started(model, stdout):
    command = [sys.executable, "-m", "blockxmc", "predict", str(model), "-", "--threads", "1"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stdout)


def streamed(model, lines, n_rows):
    """CPU seconds and peak megabytes of answering so many rows."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = started(model, subprocess.DEVNULL)
    for line in itertools.islice(itertools.cycle(lines), n_rows):
        process.stdin.write(line)
    process.stdin.close()
    peak = 0.0
    while process.poll() is None:
        peak = max(peak, peak_megabytes(process.pid))
        time.sleep(0.02)
    if process.returncode:
        sys.exit(f"predict failed: {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, peak


def peak_megabytes(pid):
    """Most memory that a running process has held."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1e3 for line in status.splitlines() if line.startswith("VmHWM:")), 0.0)


def waits(model, lines, n_lines=200):
    """Milliseconds from a line to its answer, when lines come one by one."""
    with started(model, subprocess.PIPE) as process:
        found = []
        for line in lines[:n_lines]:
            start = time.perf_counter()
            process.stdin.write(line)
            process.stdin.flush()
            process.stdout.readline()
            found.append(1e3 * (time.perf_counter() - start))
        process.stdin.close()
    return found[1:]  # the first one waits for the program


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000, 100_000])
    args = parser.parse_args()
    with as_file(files("blockxmc.data") / "demo") as folder, tempfile.TemporaryDirectory() as place:
        train = read_corpus(folder / "train.jsonl.xz")
        texts = read_corpus(folder / "test.jsonl.xz").texts
        lines = [json.dumps({"text": text}).encode() + b"\n" for text in texts]
        model = Path(place) / "model"
        TextClassifier().fit(train.texts, train.labels).save(model)
        seconds = {}
        for n_rows in args.rows:
            seconds[n_rows], memory = streamed(model, lines, n_rows)
            print(f"{n_rows:12,} rows {seconds[n_rows]:8.1f} CPU s {memory:8.0f} MB at the peak", flush=True)
        least, most = min(seconds), max(seconds)
        if most > least:
            print(f"{1e6 * (seconds[most] - seconds[least]) / (most - least):.1f} CPU µs per row")
        print("one line: median {:.1f} ms, 99 % {:.1f} ms".format(*np.percentile(waits(model, lines), [50, 99])))


if __name__ == "__main__":
    main()
