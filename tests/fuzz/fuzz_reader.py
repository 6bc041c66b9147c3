"""Feeds mutated files to the XC reader and compares it with the plain one; run by hand or under the sanitizers.

python tests/fuzz/fuzz_reader.py [--files 10000] [--seed 0]
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path.insert(0, str(TESTS))

TOKENS = [
    *(b"\0", b"\n", b"\r\n", b" ", b"\t", b",", b":", b"-", b"+", b".", b"e", b"E", b"nan", b"inf", b"0", b"1", b"9"),
    *(
        b"99999999999999999999",
        b"2147483647",
        b"1e400",
        b"1e-400",
        b"-1",
        b"0x1",
        b"\xff",
        b"3.4028235e38",
        b"16777217",
    ),
    b"0." + b"0" * 40 + b"1",
    b"1 2 3\n",
]


def a_good_file(rng: random.Random) -> bytes:
    n, d, m = rng.randint(0, 12), rng.randint(1, 40), rng.randint(1, 20)
    rows = []
    for _ in range(n):
        labels = ",".join(str(rng.randrange(m)) for _ in range(rng.randint(0, 4)))
        words = " ".join(f"{rng.randrange(d)}:{a_number(rng)}" for _ in range(rng.randint(0, 8)))
        rows.append(f"{labels} {words}")
    if rng.random() < 0.8:
        rows.insert(0, f"{n} {d} {m}")
    return ("\n".join(rows) + "\n" * (rng.random() < 0.9)).encode()


def a_number(rng: random.Random) -> str:
    value = rng.uniform(-1, 1) * 10.0 ** rng.randint(-40, 30)
    return rng.choice(
        [f"{value:.5g}", repr(value), f"{rng.random():.4f}", str(rng.randint(0, 10**12)), f"{value:.25e}"]
    )


def mutated(content: bytes, rng: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(rng.choice([0, 1, 1, 2, 3, 8])):
        at = rng.randint(0, len(data))
        what = rng.random()
        if what < 0.4:
            data[at:at] = rng.choice(TOKENS)
        elif what < 0.6:
            del data[at : at + rng.randint(1, 5)]
        elif what < 0.8 and at < len(data):
            data[at] = rng.randrange(256)
        elif what < 0.9:
            data[at:at] = data[: rng.randint(0, 60)]
        else:
            data = data[:at]
    return bytes(data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    from xc_reference import compare

    from blockxmc.data import _source, read_xc

    rng = random.Random(options.seed)
    seeds = [file.read_bytes() for file in sorted((TESTS / "data" / "nasty").glob("*.txt"))]
    outcomes: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fuzzed.txt"
        for number in range(options.files):
            content = mutated(rng.choice(seeds) if rng.random() < 0.4 else a_good_file(rng), rng)
            _source.BLOCK_BYTES = rng.choice([16, 100, 1 << 20])  # many blocks and one
            threads = rng.randint(1, 3)
            try:
                outcomes[compare(lambda p, t=threads: read_xc(p, n_jobs=t), path, content)] += 1
            except BaseException:
                print(f"file {number} of seed {options.seed}: {content!r}", file=sys.stderr)
                raise
    print(f"{options.files} files: " + ", ".join(f"{kind} {count}" for kind, count in outcomes.most_common()))


if __name__ == "__main__":
    main()
