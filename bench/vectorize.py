"""Seconds to turn texts into TF-IDF: ours beside scikit-learn's TfidfVectorizer, on one thread and on several.

    python bench/vectorize.py [FILE.jsonl.gz] [--copies 4] [--threads 2]

Runs take turns; the least of the rounds counts. One thread is CPU time; several are wall time, and, where other programs
run, the CPU time of the busiest thread (Linux): what the wall time would be if each thread had a core to itself.
"""

import argparse
import os
import time
from importlib.resources import as_file, files
from pathlib import Path

from sklearn.feature_extraction.text import TfidfVectorizer

from blockxmc.data import TextVectorizer
from blockxmc.data.corpus import read_corpus

SETTINGS = {
    "words": {},
    "pairs of words": {"ngram_range": (1, 2)},
    "letters in words": {"analyzer": "char_wb", "ngram_range": (3, 5)},
}


def timed(clock, task):
    start = clock()
    task()
    return clock() - start


def thread_seconds():
    """CPU seconds of each thread of this process so far."""
    tasks = Path("/proc/self/task")
    return {name: int((tasks / name / "schedstat").read_text().split()[0]) / 1e9 for name in os.listdir(tasks)}


def busiest(task):
    """CPU seconds of the thread that takes most of them."""
    before = thread_seconds()
    task()
    return max(seconds - before.get(name, 0.0) for name, seconds in thread_seconds().items())


def rounds(texts, options, threads, n_rounds):
    """Least seconds of each contestant."""
    learnt = TextVectorizer(min_df=2, **options).fit(texts)
    theirs = TfidfVectorizer(sublinear_tf=True, min_df=2, **options)
    contestants = {
        "scikit-learn fit": (time.process_time, lambda: theirs.fit_transform(texts)),
        "scikit-learn transform": (time.process_time, lambda: theirs.transform(texts)),
        "ours fit, CPU": (time.process_time, lambda: TextVectorizer(min_df=2, **options).fit_transform(texts, 1)),
        "ours transform, CPU": (time.process_time, lambda: learnt.transform(texts, 1)),
        "ours fit, 1 thread": (time.perf_counter, lambda: TextVectorizer(min_df=2, **options).fit_transform(texts, 1)),
        "ours transform, 1 thread": (time.perf_counter, lambda: learnt.transform(texts, 1)),
        "ours fit": (time.perf_counter, lambda: TextVectorizer(min_df=2, **options).fit_transform(texts, threads)),
        "ours transform": (time.perf_counter, lambda: learnt.transform(texts, threads)),
    }
    least = dict.fromkeys(contestants, float("inf"))
    for _ in range(n_rounds):
        for name, (clock, task) in contestants.items():
            least[name] = min(least[name], timed(clock, task))
        for step in ("fit", "transform") if Path("/proc/self/task").exists() else ():
            name = f"ours {step}, busiest"
            least[name] = min(least.get(name, float("inf")), busiest(contestants[f"ours {step}"][1]))
    return least


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", help="texts; the bundled ones when not given")
    parser.add_argument("--copies", type=int, default=1, help="read the texts so often")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with as_file(files("blockxmc.data") / "demo" / "train.jsonl.xz") as bundled:
        texts = read_corpus(args.file or bundled, require_labels=False).texts * args.copies
    print(f"{len(texts):,} texts, {sum(map(len, texts)) / 1e6:.1f} million letters, {args.threads} threads")
    print(f"{'':18} {'':10} {'scikit-learn':>13} {'ours':>8} {'faster':>8} {'more threads':>13} {'by busiest':>11}")
    for name, options in SETTINGS.items():
        found = rounds(texts, options, args.threads, args.rounds)
        for step in ("fit", "transform"):
            theirs, ours = found[f"scikit-learn {step}"], found[f"ours {step}, CPU"]
            gain = found[f"ours {step}, 1 thread"] / found[f"ours {step}"]
            own = ours / found.get(f"ours {step}, busiest", float("nan"))
            print(
                f"{name:18} {step:10} {theirs:12.2f}s {ours:7.2f}s {theirs / ours:7.1f}x {gain:12.2f}x {own:10.2f}x",
                flush=True,
            )


if __name__ == "__main__":
    main()
