"""The bundled demo set as XC text, for benchmarks that take a data folder: python bench/demo_folder.py DIR."""

import sys
from pathlib import Path

from blockxmc.data import load_demo, write_xc


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in zip(("train", "test"), load_demo(), strict=True):
        write_xc(folder / f"{name}.txt", part.X, part.Y)


if __name__ == "__main__":
    main()
