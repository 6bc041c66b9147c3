"""Would thresholds of its own for every label give better label sets than one for all?

    python bench/label_thresholds.py DATA_DIR... [--out docs/results]

The default is trained on at most 20,000 rows. As many test rows as a training holds out (a twentieth of its rows, at least
512) choose thresholds; at most 6,000 others judge. "Global" is one threshold for the best mean F1 of rows. "Shifted by s"
multiplies the probabilities of a label by (hits + s) / (sum of probabilities + s), which is a threshold of its own that
is pulled to the global one, and cuts all at the best one. "Label's F1, s" is the threshold of the label's own best F1, in a
geometric mean with the global one that counts like s positives. Writes label_thresholds.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.preprocessing import normalize

from blockxmc import BlockwiseClassifier
from blockxmc._core.matrix import take_rows
from blockxmc.data import read_data_dir
from blockxmc.metrics.ranking import Ranking
from blockxmc.metrics.sets import LabelSets
from blockxmc.training.calibration import best_cut

OWN_FILE = "Writes label_thresholds.md.\n"
TRAINED, JUDGES, LOOKED_AT = 20_000, 6000, 64
SHIFTS, PULLS = (1, 3, 10, 30, 100), (5, 20)


class Answers:
    """The first labels of some rows with their probabilities, and what is true."""

    def __init__(self, labels, p, Y):
        self.labels, self.p, self.Y = labels, np.where(labels >= 0, p, 0.0).astype(np.float64), Y
        self.right = Ranking.of(Y, labels, labels.shape[1]).hits
        self.n_true = np.diff(Y.indptr)

    def of_rows(self, rows):
        return Answers(self.labels[rows], self.p[rows], take_rows(self.Y, rows))

    def times(self, factors):
        """Probabilities times a factor per label."""
        return self.p * factors[np.maximum(self.labels, 0)]

    def threshold(self, p):
        order = np.argsort(-p, axis=1, kind="stable")
        ranked = np.take_along_axis(p, order, 1), np.take_along_axis(self.right, order, 1)
        return best_cut(*ranked, self.n_true).threshold

    def f1(self, p, threshold):
        """F1 of rows, of pairs and of labels, where every row keeps its first label."""
        chosen = p > threshold
        chosen[np.arange(p.shape[0]), p.argmax(axis=1)] = True
        rows, at = np.nonzero(chosen & (self.labels >= 0))
        ones = np.ones(rows.size, np.float32)
        sets = LabelSets.of(self.Y, sparse.csr_array((ones, (rows, self.labels[rows, at])), shape=self.Y.shape))
        return [100 * value for value in (sets.f1_samples(), sets.f1_micro(), sets.f1_macro())]


def shifts(seen, pull):
    """What multiplies the probabilities of each label."""
    there, m = seen.labels >= 0, seen.Y.shape[1]
    hits, expected = (
        np.bincount(seen.labels[there], weights=part[there], minlength=m) for part in (seen.right, seen.p)
    )
    return (hits + pull) / (expected + pull)


def own_thresholds(seen, usual, pull):
    """The threshold of each label's best F1, pulled to the usual one."""
    positives = np.bincount(seen.Y.indices, minlength=seen.Y.shape[1])
    out = np.full(positives.size, usual)
    for label in np.flatnonzero(positives):
        at = seen.labels == label
        order = np.argsort(-seen.p[at], kind="stable")
        p, hits = np.append(seen.p[at][order], 0.0), np.cumsum(seen.right[at][order])
        if not hits.size or not hits[-1]:
            continue
        best = int(np.argmax(2 * hits / (np.arange(1, hits.size + 1) + positives[label])))
        own = max((p[best] + p[best + 1]) / 2, 1e-3)
        n = positives[label]
        out[label] = np.exp((n * np.log(own) + pull * np.log(usual)) / (n + pull))
    return out


def measure(folder):
    """F1 of rows, pairs and labels by way of choosing thresholds."""
    train, test = read_data_dir(folder)
    rng = np.random.default_rng(0)
    rows, new = rng.permutation(train.n_rows)[:TRAINED], rng.permutation(test.n_rows)[: JUDGES + TRAINED // 20]
    X, Y = sparse.csr_array(normalize(take_rows(train.X, rows))), take_rows(train.Y, rows)
    clf = BlockwiseClassifier().fit(X, Y)
    few = min(LOOKED_AT, Y.shape[1])
    answers = Answers(*clf.predict_topk(normalize(take_rows(test.X, new)), few), take_rows(test.Y, new))
    n_choose = max(512, X.shape[0] // 20)
    seen, judges = answers.of_rows(np.arange(n_choose)), answers.of_rows(np.arange(n_choose, new.size))
    usual = seen.threshold(seen.p)
    found = {"global": judges.f1(judges.p, usual)}
    for pull in SHIFTS:
        factors = shifts(seen, pull)
        found[f"shifted by {pull}"] = judges.f1(judges.times(factors), seen.threshold(seen.times(factors)))
    for pull in PULLS:
        factors = usual / own_thresholds(seen, usual, pull)
        found[f"label's F1, {pull}"] = judges.f1(judges.times(factors), usual)
    return found


def page(results):
    """The table of each mean F1, and what it comes to."""
    ways = list(next(iter(results.values())))
    gains = {way: [found[way][0] - found["global"][0] for found in results.values()] for way in ways[1:]}
    best = max(gains, key=lambda way: np.mean(gains[way]))
    span = f"{min(gains[best]):+.2f} to {max(gains[best]):+.2f}, {np.mean(gains[best]):+.2f} on average"
    lines = ["# Thresholds of labels", "", *__doc__.split("\n\n")[2].removesuffix(OWN_FILE).strip().splitlines(), ""]
    lines += [f'Against one threshold for all, the best way ("{best}") changes the mean F1 of rows by {span}.', ""]
    for at, of in enumerate(('rows (what `threshold="f1"` maximises)', "all pairs together", "labels")):
        lines += [f"Mean F1 of {of}:", "", "| data | " + " | ".join(ways) + " |", "|---" + "|---:" * len(ways) + "|"]
        for name, found in results.items():
            lines.append(f"| {name} | " + " | ".join(f"{found[way][at]:.2f}" for way in ways) + " |")
        lines.append("")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    results = {}
    for folder in options.folders:
        results[folder.name] = measure(folder)
        for way, values in results[folder.name].items():
            print(folder.name, way, *(f"{value:.2f}" for value in values), flush=True)
    text = page(results)
    if options.out is not None:
        (options.out / "label_thresholds.md").write_text(text)


if __name__ == "__main__":
    main()
