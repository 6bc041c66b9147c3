"""What probabilities, label sets and rankings by propensity are worth on test rows; F1 beside other systems.

    python bench/label_sets.py DATA_DIR... [--small 6000] [--most 40000] [--random] [--out docs/results]
    python bench/label_sets.py DATA_DIR --peers [--omikuji PYTHON]

Every set is trained on `--small` random rows and on all (at most `--most`); its test rows (at most 6,000) judge. With
`--random`, a random sixth of the training rows (at most 6,000) judges instead, and is not trained on: rows that are split
like the held-out rows on which probabilities are fitted. With `--peers`, the mean F1 per row of the default, of omikuji
(Bonsai, three trees) and of scikit-learn's one-vs-rest logistic regression. The peers are cut at the global threshold that
is best for a tenth of the training rows, which they have not seen; once strictly, and once so that every row keeps its
first label. Lines of results are kept in label_sets.json; a line that is there is not computed again (remove the file to
begin anew). Writes label_sets.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import normalize

from blockxmc import BlockwiseClassifier, metrics
from blockxmc._core.matrix import take_rows
from blockxmc.data import Dataset, read_data_dir, write_xc
from blockxmc.metrics.report import suggestions
from blockxmc.training.calibration import best_cut

JUDGES = 6000
# Rows of a label in one-vs-rest logistic regression, at least: it takes a tenth of a second for each label.
LOGISTIC_ROWS = 5


def read(folder, most, rng, *, random=False):
    train, test = read_data_dir(folder)
    rows = rng.permutation(train.X.shape[0])
    if random:
        n = min(JUDGES, rows.size // 6)
        return *part(train, rows[n : n + most]), *part(train, rows[:n])
    rows = rows[:most]
    judges = rng.permutation(test.X.shape[0])[:JUDGES]
    return *part(train, rows), *part(test, judges)


def part(data, rows):
    rows = np.sort(rows)
    return sparse.csr_array(normalize(take_rows(data.X, rows))), take_rows(data.Y, rows)


def floor_by_chance(p, n_draws=20):
    """The calibration error that these probabilities would show by chance if each were true: the mean of so many draws."""
    rng = np.random.default_rng(0)
    return float(np.mean([metrics.calibration_error(rng.random(p.size) < p, p) for _ in range(n_draws)]))


def measure(X, Y, new_X, new_Y):
    start = time.process_time()
    clf = BlockwiseClassifier(n_jobs=1).fit(X, Y)
    seconds = time.process_time() - start
    right, p = suggestions(clf, Dataset(X=new_X, Y=new_Y))
    chances = clf.predict_proba(new_X)
    worth = metrics.inverse_propensity_from_counts(clf.label_counts_, clf.n_train_rows_)
    answers = {name: clf.set_params(rank_by=name).predict_topk(new_X, 5)[0] for name in ("probability", "propensity")}
    return {
        "rows": X.shape[0],
        "labels_per_row": [Y.nnz / Y.shape[0], new_Y.nnz / new_Y.shape[0]],
        "cpu_seconds": seconds,
        "calibration_error": metrics.calibration_error(right, p),
        "calibration_floor": floor_by_chance(p),
        "sum_of_5": float(p.sum() / max(right.sum(), 1)),
        "sum_of_all": float(chances.sum() / max(new_Y.multiply(chances > 0).sum(), 1)),
        "f1": metrics.f1_samples(new_Y, clf.predict(new_X)),
        "f1_promised": clf.cost_.get("expected_F1", 0.0),
        **{f"P@{k} {name}": metrics.precision_at_k(new_Y, a, k) for name, a in answers.items() for k in (1, 5)},
        **{f"PSP@5 {name}": metrics.psp_at_k(new_Y, a, 5, worth) for name, a in answers.items()},
    }


# ---- peers ----
def cut_f1(answers, Y, new_answers, new_Y):
    """Mean F1 of new rows, cut at the threshold that is best for the rows Y; answers are labels and scores, best first."""
    labels, scores = answers
    hits = metrics.ranking.Ranking.of(Y, labels, labels.shape[1]).hits
    p, result = np.where(labels >= 0, scores, 0.0).astype(np.float64), {}
    for name, keep_first in (("f1", False), ("f1_first_kept", True)):
        cut = best_cut(p, hits, np.diff(Y.indptr), keep_first=keep_first)
        kept = new_answers[1] > cut.threshold
        kept[:, 0] |= keep_first
        rows, at = np.nonzero(kept & (new_answers[0] >= 0))
        chosen = sparse.csr_array((np.ones(rows.size), (rows, new_answers[0][rows, at])), shape=new_Y.shape)
        result |= {name: metrics.f1_samples(new_Y, chosen), name.replace("f1", "threshold"): cut.threshold}
    return result


def omikuji_answers(python, X, Y, rows):
    with tempfile.TemporaryDirectory() as folder:
        write_xc(Path(folder, "train.txt"), X, Y)
        np.savez(Path(folder, "rows.npz"), indptr=rows.indptr, indices=rows.indices, data=rows.data)
        worker = Path(__file__).parent / "peer_workers" / "scores_omikuji.py"
        files = [str(Path(folder, name)) for name in ("train.txt", "rows.npz", "out.npz")]
        subprocess.run([python, str(worker), *files, "1"], check=True)
        found = np.load(files[2])
        return found["labels"], found["scores"]


def logistic_answers(X, Y, rows, top=100):
    logistic = LogisticRegression(solver="liblinear", dual=True, C=10.0, tol=1e-2, max_iter=200)
    model = OneVsRestClassifier(logistic).fit(X.astype(np.float64), Y)
    found = []
    for start in range(0, rows.shape[0], 500):
        p = model.predict_proba(rows[start : start + 500])
        labels = np.argsort(-p, axis=1, kind="stable")[:, :top]
        found.append((labels, np.take_along_axis(p, labels, 1)))
    return np.concatenate([labels for labels, _ in found]), np.concatenate([scores for _, scores in found])


def peer(system, python, X, Y, new_X, new_Y):
    if system == "blockxmc":
        clf = BlockwiseClassifier(n_jobs=1).fit(X, Y)
        found = metrics.f1_samples(new_Y, clf.predict(new_X))
        cut = clf.f1_threshold_
        chosen = clf.set_params(threshold=cut).predict(new_X)
        labels, rows = clf.predict_topk(new_X, 1)[0][:, 0], np.arange(new_X.shape[0])
        first = sparse.csr_array((np.ones(rows.size), (rows, labels)), shape=new_Y.shape)
        strict, kept = (metrics.f1_samples(new_Y, sets) for sets in (chosen, chosen.maximum(first)))
        return {"f1": strict, "f1_first_kept": kept, "threshold_first_kept": cut, "f1_by_row": found}
    some = np.arange(X.shape[0]) % 10 == 0
    tuning_X, tuning_Y = X[some], Y[some]
    least = 1 if system == "omikuji" else LOGISTIC_ROWS
    shown = np.flatnonzero(np.bincount(Y[~some].indices, minlength=Y.shape[1]) >= least)
    shown_Y = sparse.csr_array(Y[~some][:, shown])
    both = sparse.vstack([tuning_X, new_X], format="csr")
    if system == "omikuji":
        labels, scores = omikuji_answers(python, X[~some], shown_Y, both)
    else:
        labels, scores = logistic_answers(X[~some], shown_Y, both)
    labels = np.where(labels >= 0, shown[np.maximum(labels, 0)], -1)
    n = tuning_X.shape[0]
    return cut_f1((labels[:n], scores[:n]), tuning_Y, (labels[n:], scores[n:]), new_Y)


# ---- results ----
def table(kept):
    lines = ["# Probabilities, label sets and rankings by propensity", ""]
    lines += [
        "Measured by `bench/label_sets.py` on test rows (at most 6,000 of a set), or, where it says so, on random rows of",
        "the training file that were not trained on. Calibration error: of the first five suggestions of each row, sorted",
        "by probability and cut into ten parts of equal numbers. Floor by chance: the error that the same probabilities",
        "would show on as many rows if every one of them were true (mean of 20 draws). Sums:",
        "probabilities over hits, of the first five and of all candidates. Labels per row: of rows that are trained on,",
        "and of rows that judge. Test rows are not quite like training rows: they have no label that these lack, and those",
        "of debian-small are of other source packages, without the near-duplicates of most training rows. Held-out",
        "rows, on which probabilities are fitted, are like training rows.",
        "",
    ]
    titles = [
        "data",
        "training rows",
        "labels per row",
        "calibration error",
        "floor by chance",
        "sum of 5",
        "sum of all",
    ]
    lines += [f"| {' | '.join([*titles, 'F1', 'F1 promised'])} |"]
    lines += ["|---|---:|---|---:|---:|---:|---:|---:|---:|"]
    sets = {name: row for name, row in kept.items() if "calibration_error" in row}
    for name, row in sets.items():
        numbers = [" / ".join(f"{value:.2f}" for value in row["labels_per_row"])]
        numbers += [f"{row['calibration_error']:.3f}"]
        numbers += [f"{row['calibration_floor']:.3f}" if "calibration_floor" in row else ""]
        numbers += [*(f"{row[key]:.2f}" for key in ("sum_of_5", "sum_of_all"))]
        numbers += [f"{100 * row[key]:.1f}" if key in row else "" for key in ("f1", "f1_promised")]
        judged = ", random rows" if name.endswith("random") else ""
        lines.append(f"| {name.split()[0]}{judged} | {row['rows']:,} | {' | '.join(numbers)} |")
    lines += [
        "",
        "One split is one draw: on five other splits of elife-keywords (6,000 random rows, seeds 1 to 5) the error is",
        "0.013 to 0.018, with a floor of 0.009 to 0.010. Sums are uncertain where few suggestions are right: the 1,000",
        "held-out rows on which 40,000 rows of commit-files-xl are fitted have about 320 hits among their first five, so",
        "that chance alone moves the sum by 6 % (one standard deviation).",
        "",
        "A threshold for each label instead of one for all does not gain (`bench/label_thresholds.py`).",
    ]
    lines += ["", "`rank_by`: by probability, and by probability times inverse propensity.", ""]
    lines += ["| data | training rows | P@1 | P@5 | PSP@5 | P@1 propensity | P@5 propensity | PSP@5 propensity |"]
    lines += ["|---|---:|---:|---:|---:|---:|---:|---:|"]
    for name, row in sets.items():
        keys = [f"{metric} {by}" for by in ("probability", "propensity") for metric in ("P@1", "P@5", "PSP@5")]
        if not name.endswith("random"):
            found = " | ".join(f"{100 * row[key]:.1f}" for key in keys)
            lines.append(f"| {name.split()[0]} | {row['rows']:,} | {found} |")
    peers = {name: row for name, row in kept.items() if "calibration_error" not in row}
    if peers:
        lines += [
            "",
            "Mean F1 per row. The peers are trained on nine tenths of the training rows; the last tenth tunes",
            f"their threshold. Logistic regression has no label of fewer than {LOGISTIC_ROWS} rows.",
            "",
            "| data and system | cut at a threshold | first label kept | best for each row |",
            "|---|---:|---:|---:|",
        ]
        for name, row in peers.items():
            by_row = f"{100 * row['f1_by_row']:.1f}" if "f1_by_row" in row else ""
            lines.append(f"| {name} | {100 * row['f1']:.1f} | {100 * row['f1_first_kept']:.1f} | {by_row} |")
    return "\n".join(lines) + "\n"


def kept_rows(kept, folder, options):
    """How many rows the training for the smaller number had."""
    name = f"{folder.name} {options.small}" + (" random" if options.random else "")
    return kept[name]["rows"] if name in kept else options.small


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--small", type=int, default=6000)
    parser.add_argument("--most", type=int, default=40_000)
    parser.add_argument("--random", action="store_true", help="judge by training rows that are left out")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--omikuji", help="a Python that has omikuji")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    options = parser.parse_args()
    file = options.out / "label_sets.json"
    for folder in options.folders:
        systems = ["blockxmc", "one-vs-rest logistic regression", *(["omikuji"] if options.omikuji else [])]
        for what in systems if options.peers else (options.small, options.most):
            kept = json.loads(file.read_text()) if file.exists() else {}
            name = f"{folder.name} {what}" + (" random" if options.random else "")
            if name in kept or (what == options.most and kept_rows(kept, folder, options) < options.small):
                continue  # it is there, or was trained on all rows for the smaller number
            most = options.most if options.peers else what
            data = read(folder, most, np.random.default_rng(0), random=options.random)
            result = peer(what, options.omikuji, *data) if options.peers else measure(*data)
            kept = (json.loads(file.read_text()) if file.exists() else {}) | {name: result}
            print(name, {key: np.round(value, 4).tolist() for key, value in result.items()}, flush=True)
            file.write_text(json.dumps(kept, indent=1) + "\n")
            file.with_suffix(".md").write_text(table(kept))


if __name__ == "__main__":
    main()
