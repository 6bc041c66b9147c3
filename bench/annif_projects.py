"""blockxmc beside omikuji's Bonsai in a real Annif, on the bundled data: make test-annif runs this.

Every step is a command of Annif in bench/out/annif: load-vocab, train, eval, suggest, learn, hyperopt, run. Times are CPU
seconds of the command; the time to suggest is that of the backend alone, in a process that has loaded the project. Writes
annif.md to --results and prints every bar and whether it holds.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

from blockxmc.data import load_demo_texts

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from annif_parts import annif, surroundings, write_corpus, write_folder, write_punkt

OUT = Path("bench/out/annif")
BACKENDS = ("blockxmc", "omikuji")
# Files that are needed to train again from cached data, not to suggest.
TRAINING = ("-train",)
TIMED = 1000


def prepare():
    """The folder: corpora, vocabulary, projects, NLTK data."""
    train, test = load_demo_texts()
    shutil.rmtree(OUT, ignore_errors=True)
    write_folder(OUT, {name for part in (train, test) for names in part.labels for name in names})
    write_corpus(OUT / "train.tsv", train.texts, train.labels)
    write_corpus(OUT / "test.tsv", test.texts, test.labels)
    write_corpus(OUT / "held.tsv", test.texts[:500], test.labels[:500])
    write_punkt(OUT / "nltk", train.texts)
    annif(OUT, "load-vocab", "packages", "vocab.tsv", "-L", "en")


# Starts a command from a small process: one that was forked from a large one would count as large.
LAUNCHER = """
import json, resource, subprocess, sys, time
started = time.perf_counter()
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([code, used.ru_utime + used.ru_stime, time.perf_counter() - started, used.ru_maxrss / 1024]))
"""


def measured(*args):
    """CPU seconds, wall seconds and peak memory (MB) of a command of Annif."""
    program = Path(sys.executable).with_name("annif").absolute()
    command = [Path(sys.executable).absolute(), "-c", LAUNCHER, program, *args]
    with open(OUT / "annif.log", "ab") as log:
        ended = subprocess.run(command, cwd=OUT, env=surroundings(OUT), stdout=subprocess.PIPE, stderr=log, check=True)
    code, *used = json.loads(ended.stdout)
    if code:
        raise SystemExit(f"annif {' '.join(args)} failed: see {OUT / 'annif.log'}")
    return used


def size_mb(folder):
    """Megabytes of a project: what suggesting needs, and everything."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    needed = [path for path in files if not any(part in path.name for part in TRAINING)]
    return tuple(sum(path.stat().st_size for path in some) / 1e6 for some in (needed, files))


def trained(project):
    """Everything that the commands tell of a project."""
    idle = measured("show-project", "dummy")
    cpu, wall, memory = measured("train", project, "train.tsv")
    shown = OUT / f"{project}.json"
    measured("eval", project, "test.tsv", "--metrics-file", shown.name)
    scores = json.loads(shown.read_text())
    _, _, serving = measured("eval", project, "test.tsv", "--docs-limit", "100")
    needed, all_files = size_mb(OUT / "data" / "projects" / project)
    return {
        "F1@5": scores["F1@5"], "NDCG": scores["NDCG"], "train_cpu": cpu - idle[0], "train_wall": wall - idle[1],
        "train_mb": memory, "serving_mb": serving, "disk_mb": needed, "disk_all_mb": all_files,
        **timed(project),
    }  # fmt: skip


def timed(project):
    """Milliseconds of the backend for one document, and of these the analyzer's own: measured in a new process."""
    here = Path(__file__).absolute()
    command = [Path(sys.executable).absolute(), here, "--time", project]
    ended = subprocess.run(command, cwd=OUT, env=surroundings(OUT), capture_output=True, text=True, check=True)
    return json.loads(ended.stdout.splitlines()[-1])


def time_backend(project_id):
    """What ``timed`` runs: the backend on batches as Annif makes them, in CPU time."""
    import annif
    from annif.cli_util import open_documents
    from annif.registry import get_project

    from blockxmc.annif import register

    register()
    with annif.create_flask_app().app_context():
        project = get_project(project_id)
        batches = list(open_documents(("test.tsv",), project.subjects, "en", TIMED).doc_batches)
        n_documents = sum(map(len, batches))

        def milliseconds(work):
            work(batches[0])
            started = time.process_time()
            for batch in batches:
                work(batch)
            return 1000 * (time.process_time() - started) / n_documents

        words = 0.0
        if project.analyzer_spec:
            words = milliseconds(lambda batch: [project.analyzer.tokenize_words(doc.text) for doc in batch])
        print(json.dumps({"suggest_ms": milliseconds(project.backend.suggest), "words_ms": words}))


def other_commands():
    """suggest, train --cached, learn, hyperopt: that they work, and what they say."""
    said = {"suggest": annif(OUT, "suggest", "blockxmc", given="python3 module for parsing HTTP requests")}
    said["cached"] = annif(OUT, "train", "blockxmc", "--cached") or "(no output)"
    said["hyperopt"] = annif(OUT, "hyperopt", "blockxmc", "held.tsv", "--trials", "3", "-m", "F1@5")
    return said


def bars(found):
    """Each bar: what it is about, what was found, what is asked for, whether it holds."""
    ours, theirs = found["blockxmc"], found["omikuji"]
    words = theirs["suggest_ms"] - theirs["words_ms"]

    def ratio(key):
        return ours[key] / theirs[key]

    return [
        ("F1@5", f"{ours['F1@5']:.4f}, {theirs['F1@5']:.4f}", "at least equal", ours["F1@5"] >= theirs["F1@5"]),
        ("NDCG", f"{ours['NDCG']:.4f}, {theirs['NDCG']:.4f}", "at least equal", ours["NDCG"] >= theirs["NDCG"]),
        ("training, CPU seconds beyond Annif's start", f"{ours['train_cpu']:.1f}, {theirs['train_cpu']:.1f}: "
         f"{ratio('train_cpu'):.2f}", "at most 0.5", ratio("train_cpu") <= 0.5),
        ("backend's CPU ms per document", f"{ours['suggest_ms']:.3f}, {theirs['suggest_ms']:.3f}: "
         f"{ratio('suggest_ms'):.3f}", "at most 0.1", ratio("suggest_ms") <= 0.1),
        ("the same, without the words that Annif's analyzer cuts for omikuji", f"{ours['suggest_ms']:.3f}, {words:.3f}: "
         f"{ours['suggest_ms'] / words:.3f}", "at most 0.1", ours["suggest_ms"] <= 0.1 * words),
        ("disk for suggesting, MB", f"{ours['disk_mb']:.1f}, {theirs['disk_mb']:.1f}: {ratio('disk_mb'):.2f}",
         "at most 0.33", ratio("disk_mb") <= 1 / 3),
        ("disk with cached training data, MB", f"{ours['disk_all_mb']:.1f}, {theirs['disk_all_mb']:.1f}: "
         f"{ratio('disk_all_mb'):.2f}", "at most 0.33", ratio("disk_all_mb") <= 1 / 3),
    ]  # fmt: skip


def page(found, listed):
    """docs/results/annif.md."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("blockxmc", "annif", "omikuji"))
    rows = [f"| {what} | {seen} | {bar} | {'yes' if holds else 'no'} |" for what, seen, bar, holds in listed]
    names = {
        "F1@5": "F1@5", "NDCG": "NDCG", "train_cpu": "training, CPU s", "train_wall": "training, s",
        "train_mb": "peak memory of annif train, MB", "serving_mb": "peak memory of annif eval, 100 documents, MB",
        "suggest_ms": "backend per document, CPU ms", "words_ms": "of these Annif's analyzer, ms",
        "disk_mb": "disk for suggesting, MB", "disk_all_mb": "disk with cached training data, MB",
    }  # fmt: skip
    table = [f"| {name} | {found['blockxmc'][key]:.4g} | {found['omikuji'][key]:.4g} |" for key, name in names.items()]
    return "\n".join([
        "# In Annif, beside omikuji", "",
        "Made by `make test-annif`: the bundled data (package descriptions and what packages depend on) as a TSV corpus",
        "and vocabulary, through Annif's own commands. omikuji's project is Bonsai with Finto AI's settings",
        "(`cluster_k=100`, `max_depth=3`, `min_df=5`, `ngram=2`, `snowball(english)`); blockxmc's has defaults.",
        "Annif's own start (the time of `annif show-project`) is taken off training times.", "",
        f"{versions}; Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores.", "",
        "| bar (blockxmc, omikuji) | found | asked for | holds |", "|---|---|---|---|", *rows, "",
        "| | blockxmc | omikuji |", "|---|---|---|", *table, "",
    ])  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=OUT)
    parser.add_argument("--time", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.time:
        time_backend(options.time)
        return
    prepare()
    found = {project: trained(project) for project in BACKENDS}
    listed = bars(found)
    for what, seen, bar, holds in listed:
        print(f"{'holds' if holds else 'FAILS':6} {what}: {seen} (bar: {bar})", flush=True)
    for command, said in other_commands().items():
        print(f"\nannif {command}:\n{said}", flush=True)
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "annif.md").write_text(page(found, listed))
    sys.exit(not all(holds for *_, holds in listed))


if __name__ == "__main__":
    main()
