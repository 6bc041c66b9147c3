"""The rows that `blockxmc experiment --max-train-rows NAME=N --max-test-rows M` takes of a data folder, as a small folder.

    python bench/paper/sampled_folder.py DATA_DIR OUT_DIR --train N --test M

Lines are copied as they are, so the matrices, and with them the keys of cells, are those of the whole folder with these
options: cells can be computed where only the small folder fits, and drawn where the whole folder is.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import numpy as np

KEPT = ("labels.txt",)


def main() -> None:
    """Copy a sample of the lines of both parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--train", type=int, required=True)
    parser.add_argument("--test", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", given.train), ("test", given.test)):
        head, *lines = (given.folder / f"{part}.txt").read_bytes().splitlines(keepends=True)
        chosen = range(len(lines))
        if len(lines) > count:
            chosen = np.sort(np.random.default_rng(given.seed).choice(len(lines), count, replace=False)).tolist()
        _, features, labels = head.split()
        first = b"%d %s %s\n" % (len(chosen), features, labels)
        (given.out / f"{part}.txt").write_bytes(first + b"".join(lines[row] for row in chosen))
    for name in KEPT:
        if (given.folder / name).exists():
            shutil.copy(given.folder / name, given.out / name)


if __name__ == "__main__":
    main()
