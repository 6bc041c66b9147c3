"""What updates keep of a fresh training, and what they cost, beside the bars they are held to.

    python bench/update.py DIR... [--sets NAME,...] [--threads 2] [--seeds 1] [--only-one] [--json FILE] [--markdown PAGE]

Rows in file order; labels are numbered as they first come. A model of the first 80 % of the training rows learns the next
10 % in one update, and is compared with a training on 90 %; another learns 20 times 1 %, and is compared with a training
on all rows. Then a saved model learns ten rows, and ten more. P@k is measured on the test rows, in points; two trainings
that differ by their seed alone differ by a few tenths of a point, so several seeds say more. DIR is a data folder; with
``--sets``, a folder that has these. The exit code is 1 where a bar does not hold. ``--json`` keeps the numbers, and those
of sets that were measured before into the same file; ``--markdown`` puts them into the table of docs/results/update.md,
which says what they take.
"""

import argparse
import json
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
from scipy import sparse

from blockxmc import BlockwiseClassifier, load, metrics
from blockxmc.data import read_data_dir

RECALL_AT = 10
BEGIN, END = "<!-- bench/update.py -->", "<!-- end of bench/update.py -->"


class Rows:
    """A data set whose labels are numbered in the order in which they first come."""

    def __init__(self, folder):
        train, test = read_data_dir(folder)
        _, first = np.unique(train.Y.indices, return_index=True)
        order = train.Y.indices[np.sort(first)]
        self.X, self.Y = train.X, sparse.csr_array(train.Y[:, order])
        self.test_X, self.test_Y = test.X, sparse.csr_array(test.Y[:, order])

    def upto(self, share):
        return round(share * self.X.shape[0])

    def part(self, start, stop):
        """Rows from one to another, with the labels that have come until then."""
        known = int(self.Y[:stop].indices.max()) + 1
        return self.X[start:stop], sparse.csr_array(self.Y[start:stop, :known])

    def precision(self, clf):
        labels = clf.predict_topk(self.test_X, 5)[0]
        Y = sparse.csr_array(self.test_Y[:, : clf.targets_.n_labels])
        return [100 * metrics.precision_at_k(Y, labels, k) for k in (1, 3, 5)]

    def recall(self, clf, labels):
        """Share of the test rows' positives of these labels that are among the first."""
        return float(self._found(clf, labels).mean())

    def recalls(self, updated, fresh, labels):
        """The recall of both, the standard error of its difference, and of how many positives."""
        ours, theirs = self._found(updated, labels), self._found(fresh, labels)
        error = (ours - theirs).std() / np.sqrt(ours.size)
        return float(ours.mean()), float(theirs.mean()), float(error), ours.size

    def _found(self, clf, labels):
        """For each positive of these labels in the test rows, 1 if it is among the first, else 0."""
        found = clf.predict_topk(self.test_X, RECALL_AT)[0]
        wanted = sparse.csr_array(self.test_Y[:, labels])
        hits = [np.isin(labels[wanted.indices[a:b]], row) for a, b, row in _rows(wanted, found)]
        return np.concatenate(hits).astype(float) if wanted.nnz else np.zeros(1)


def _rows(matrix, found):
    return zip(matrix.indptr[:-1], matrix.indptr[1:], found, strict=True)


def timed(work):
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - wall, time.process_time() - cpu


def size_of(folder):
    return sum(path.stat().st_size for path in folder.iterdir()) / 1e6


def measured(folder, threads, place, seed, only_one):
    """All numbers of one set and seed."""
    rows, new = Rows(folder), {"n_jobs": threads, "keep_rows": True, "random_state": seed}
    start, stop = rows.upto(0.8), rows.upto(0.9)
    first = BlockwiseClassifier(**new).fit(*rows.part(0, start))
    first.save(place / "first")
    fresh, _, training = timed(lambda: BlockwiseClassifier(**new).fit(*rows.part(0, stop)))
    updated, _, updating = timed(lambda: load(place / "first").update(*rows.part(start, stop)))
    came = np.arange(first.targets_.n_labels, updated.targets_.n_labels)
    out = {
        "one": np.subtract(rows.precision(updated), rows.precision(fresh)).tolist(),
        "cpu": updating / training,
        "training_cpu": training,
        "recall": rows.recalls(updated, fresh, came),
        "new_labels": int(came.size),
        "history": updated.history_[-1],
    }
    return out | ({} if only_one else _twenty(rows, place, new, start)) | _ten(rows, place, start)


def _twenty(rows, place, new, start):
    clf = load(place / "first")
    ends = np.linspace(start, rows.X.shape[0], 21).astype(int)
    for a, b in pairwise(ends):
        clf.update(*rows.part(a, b))
    fresh = BlockwiseClassifier(**new).fit(*rows.part(0, rows.X.shape[0]))
    for name, model in (("twenty", clf), ("whole", fresh)):
        model.save(place / name)
    seconds = [[], []]
    for _ in range(5):
        for model, own in zip((clf, fresh), seconds, strict=True):
            own.append(timed(lambda model=model: model.predict_topk(rows.test_X, 5))[2])
    came = np.arange(load(place / "first").targets_.n_labels, clf.targets_.n_labels)
    return {
        "twenty": np.subtract(rows.precision(clf), rows.precision(fresh)).tolist(),
        "size": size_of(place / "twenty") / size_of(place / "whole"),
        "batch": float(np.min(seconds[0]) / np.min(seconds[1])),
        "recall_twenty": rows.recalls(clf, fresh, came),
        "advice": clf.advice_,
    }


def _ten(rows, place, start):
    """Ten rows, and ten more: with the first, blocks also learn of the rows that were held out of the fit."""
    _, _, first = _ten_rows(rows, place, start)
    wall, cpu, again = _ten_rows(rows, place, start + 10)
    written = {"ten_written_mb": first, "ten_more_written_mb": again}
    return {"ten_wall": wall, "ten_cpu": cpu, "model_mb": size_of(place / "first")} | written


def _ten_rows(rows, place, start):
    clf = load(place / "first")
    before = {path.name for path in (place / "first").iterdir()}
    _, wall, cpu = timed(lambda: clf.update(*rows.part(start, start + 10)).save(place / "first"))
    after = {path.name: path.stat().st_size for path in (place / "first").iterdir()}
    written = sum(size for name, size in after.items() if name not in before or name == "manifest.json")
    return wall, cpu, written / 1e6


def bars(found):
    """What was found beside what was asked for."""
    out = [
        ("10 % at once, P@1/3/5 beside training, -0.3", _points(found, "one"), min(found["one"]) >= -0.3),
        ("its CPU, share of training, 0.2", f"{found['cpu']:.2f}", found["cpu"] <= 0.2),
        (f"R@{RECALL_AT} of its new labels, 95 %", *_recall(found["recall"])),
        (
            "ten rows and saving: seconds (CPU), below 1",
            f"{found['ten_wall']:.2f} ({found['ten_cpu']:.2f})",
            found["ten_wall"] < 1,
        ),
        (
            "MB written for the first ten, ten more, of; below a tenth",
            f"{found['ten_written_mb']:.1f}, {found['ten_more_written_mb']:.1f} of {found['model_mb']:.1f}",
            max(found["ten_written_mb"], found["ten_more_written_mb"]) < 0.1 * found["model_mb"],
        ),
    ]
    if "twenty" not in found:
        return out
    return [
        *out,
        ("20 times 1 %, P@1/3/5, -0.5", _points(found, "twenty"), min(found["twenty"]) >= -0.5),
        (f"R@{RECALL_AT} of their new labels, 95 %", *_recall(found["recall_twenty"])),
        (
            "their size, batch time, 1.1",
            f"{found['size']:.2f}, {found['batch']:.2f}",
            max(found["size"], found["batch"]) <= 1.1,
        ),
    ]


def _points(found, key):
    """Differences in points, with the largest of their standard errors over seeds where there are several."""
    error = found.get(f"{key}_error")
    return " / ".join(f"{d:+.2f}" for d in found[key]) + ("" if error is None else f" (± {max(error):.2f})")


def _recall(found):
    """Recall beside that of a training, with the standard error of the difference, and whether it is 95 % of it."""
    gained, whole, error, positives = found
    return f"{gained:.3f} of {whole:.3f} (± {error:.3f}, {positives:.0f} positives)", gained >= 0.95 * whole


def table(results):
    """The table of docs/results/update.md: a column for each set, a row for each bar."""
    columns = {f"{name} ({_seeds(found['seeds'])})": bars(found) for name, found in results.items()}
    lines = [["", *columns], ["---", *("---:" for _ in columns)]]
    titles = dict.fromkeys(what for found in columns.values() for what, _, _ in found)
    for title in titles:
        cells = [next((bar for bar in found if bar[0] == title), None) for found in columns.values()]
        lines.append([title, *("not run" if bar is None else bar[1] + ("" if bar[2] else ": missed") for bar in cells)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _seeds(count):
    return f"{count:.0f} seed{'s' if count > 1 else ''}"


def put_table(page, results):
    """Replace the table of a page, which stands between two marks."""
    head, _, rest = page.read_text().partition(BEGIN)
    page.write_text(f"{head}{BEGIN}\n{table(results)}\n{END}{rest.partition(END)[2]}")


def mean(results):
    """The numbers of all seeds as one; what is no number is the last seed's."""
    numbers = {key for key, value in results[0].items() if isinstance(value, (int, float, list, tuple))}
    means = {key: np.mean([result[key] for result in results], axis=0).tolist() for key in numbers}
    out = results[-1] | means | {"seeds": len(results)}
    for key in ("one", "twenty"):
        if len(results) > 1 and key in out:
            out[f"{key}_error"] = (np.std([run[key] for run in results], axis=0) / np.sqrt(len(results) - 1)).tolist()
    return out


def folders_of(given, sets):
    """Data folders: those that are given, or the sets of these names in them."""
    return given if sets is None else [Path(folder) / name for folder in given for name in sets.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--sets", help="names of data sets, with commas between them: only these of a folder of sets")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only-one", action="store_true", help="leave out the twenty updates")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path, metavar="PAGE")
    args = parser.parse_args()
    results, missed = json.loads(args.json.read_text()) if args.json and args.json.exists() else {}, 0
    for folder in folders_of(args.folders, args.sets):
        runs = []
        for seed in range(args.seeds):
            with tempfile.TemporaryDirectory() as place:
                runs.append(measured(folder, args.threads, Path(place), seed, args.only_one))
        found = results[Path(folder).name] = mean(runs)
        print(f"{Path(folder).name} ({found['new_labels']:.0f} new labels, advice: {found.get('advice')})")
        for what, value, holds in bars(found):
            print(f"  {what:58}{value:>42}   holds: {'yes' if holds else 'no'}", flush=True)
            missed += not holds
        if args.json is not None:
            args.json.write_text(json.dumps(results, indent=1))
    if args.markdown is not None:
        put_table(args.markdown, results)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
