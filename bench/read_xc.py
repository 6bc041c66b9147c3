"""Reading XC text: blockxmc beside scikit-learn's load_svmlight_file, interleaved in one run.

    python bench/read_xc.py FILE [--repeat 3]

CPU seconds count all threads. Peak memory is that of a fresh process, less what it used before reading.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import time
from pathlib import Path

from sklearn.datasets import load_svmlight_file

from blockxmc.data import Dataset, read_xc

PEAK = "import sys; sys.path.insert(0, sys.argv[2]); from read_xc import report_memory; report_memory(sys.argv[1])"


def peak_bytes() -> int:
    """Peak resident memory (Linux; getrusage would also count the process that started this one)."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))


def array_bytes(data: Dataset) -> int:
    return sum(part.nbytes for matrix in (data.X, data.Y) for part in (matrix.data, matrix.indices, matrix.indptr))


def report_memory(path: str) -> None:
    before = peak_bytes()
    data = read_xc(path, n_jobs=2)
    print((peak_bytes() - before) / array_bytes(data))


def timed(job) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    job()
    return time.process_time() - cpu, time.perf_counter() - wall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    content = options.file.read_bytes()
    megabytes = len(content) / 1e6
    without_header = content[content.index(b"\n") + 1 :]
    del content
    jobs = {
        "blockxmc, 1 thread": lambda: read_xc(options.file, n_jobs=1),
        "blockxmc, 2 threads": lambda: read_xc(options.file, n_jobs=2),
        "scikit-learn": lambda: load_svmlight_file(io.BytesIO(without_header), multilabel=True),
    }
    best = dict.fromkeys(jobs, (float("inf"), float("inf")))
    for _ in range(options.repeat):
        for name, job in jobs.items():
            best[name] = tuple(map(min, best[name], timed(job)))  # type: ignore[assignment]
    peer = best["scikit-learn"]
    print(f"{options.file.name}: {megabytes:.0f} MB, best of {options.repeat}")
    print(f"{'':20} {'CPU s':>8} {'wall s':>8} {'CPU ms/MB':>10} {'CPU ratio':>10} {'wall ratio':>10}")
    for name, (cpu, wall) in best.items():
        ratios = f"{peer[0] / cpu:10.1f} {peer[1] / wall:10.1f}"
        print(f"{name:20} {cpu:8.3f} {wall:8.3f} {1e3 * cpu / megabytes:10.2f} {ratios}")
    one, two = best["blockxmc, 1 thread"][1], best["blockxmc, 2 threads"][1]
    print(f"two threads over one, wall: {one / two:.2f}")
    command = [sys.executable, "-c", PEAK, str(options.file), str(Path(__file__).parent)]
    ratio = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(f"peak memory over the arrays returned: {ratio:.2f}")


if __name__ == "__main__":
    main()
