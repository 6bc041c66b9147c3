"""What ``estimate`` expects beside what a training takes, set by set.

    python bench/estimate.py DIR... [--threads 1]

Each set is trained in a process of its own. Times are wall time, calibration and training alike, and CPU time likewise,
which says more where other programs run.

Expected over found, CPU time and memory, on one thread beside a load of 25 on two cores: debian-small 1.10 and 1.11,
bibtex 0.87 and 1.07, delicious 1.05 and 0.99, elife-keywords 0.74 and 1.16, citeulike-t-tags 0.74 and 0.93, tate-subjects
1.23 and 0.96. Memory of the larger sets was watched while they trained: gutenberg-lcsh 1.23, yso-finna-en 1.07,
commit-files-xl 0.98. The size of the model is expected 1.9 times too high on tate-subjects, which
keeps no neighbors since they mislead its rows, 1.4 times on bibtex, and within 1.3 on the other seven.

Candidates, expected and found: debian-small 422 and 407, elife-keywords 659 and 742, citeulike-t-tags 2,685 and 3,023,
tate-subjects 1,352 and 1,132, yso-finna-en 13,537 and 11,354, of which 11,283 are frequent labels (its labels come beside
many others and lie in more than four blocks). With 60,000 rows of yso-finna-en 262 and 3,678: far too low.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from blockxmc import BlockwiseClassifier
from blockxmc._core.memory import used_memory
from blockxmc.data import read_data_dir
from blockxmc.training.estimate import calibration


def measured(folder, threads):
    """Expected and measured numbers of one set."""
    train, _ = read_data_dir(folder)
    clf = BlockwiseClassifier(n_jobs=threads)
    clf.estimate(train.X[:10], train.Y[:10])  # calibrates
    expected = clf.estimate(train.X, train.Y)
    in_cpu_time = calibration(threads, time.process_time) / calibration(threads)
    expected["cpu_seconds"] = expected["train_seconds"] * in_cpu_time
    peak, stop = [0], threading.Event()

    def watch():
        while not stop.wait(0.02):
            peak[0] = max(peak[0], used_memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    wall, cpu = time.perf_counter(), time.process_time()
    clf.fit(train.X, train.Y)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    stop.set()
    watcher.join()
    with tempfile.TemporaryDirectory() as place:
        clf.save(Path(place) / "model")
        size = sum(file.stat().st_size for file in (Path(place) / "model").iterdir()) / 1e6
    found = {"peak_memory_gb": peak[0] / 1e9, "model_mb": size, "candidates": clf.cost_["candidates"]}
    return {"expected": expected, "found": found | {"train_seconds": wall, "cpu_seconds": cpu}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measured(args.folders[0], args.threads)))
        return
    keys = {
        "train_seconds": "seconds",
        "cpu_seconds": "CPU s",
        "peak_memory_gb": "peak GB",
        "model_mb": "model MB",
        "candidates": "candidates",
    }
    print(f"{'set':18}" + "".join(f"{title + ': expected / found':>34}" for title in keys.values()))
    for folder in args.folders:
        command = [sys.executable, __file__, folder, "--threads", str(args.threads), "--one"]
        done = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        cells = []
        for key in keys:
            want, have = done["expected"][key], done["found"][key]
            cells.append(f"{want:,.2f} / {have:,.2f} ({want / have:.2f})")
        print(f"{Path(folder).name:18}" + "".join(f"{cell:>34}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
