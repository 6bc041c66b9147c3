"""The bundled demo set as XC text, for benchmarks that take a data folder: python bench/demo_folder.py DIR."""

import sys
from importlib.resources import as_file, files
from pathlib import Path

from blockxmc.data import load_demo, write_xc
from blockxmc.data.corpus import read_corpus


def demo_texts():
    """Training and test part of the bundled set with their texts and label names."""
    with as_file(files("blockxmc.data") / "demo") as folder:
        return [read_corpus(folder / f"{part}.jsonl.xz") for part in ("train", "test")]


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in zip(("train", "test"), load_demo(), strict=True):
        write_xc(folder / f"{name}.txt", part.X, part.Y)


if __name__ == "__main__":
    main()
