"""How far what a training promises is from what new rows get.

    python bench/optimism.py DATA_DIR... [--seeds 3] [--out docs/results]

A seventh of the training rows (at most 6,000) is kept apart; test rows are not looked at. The default is trained on the
others. Three figures of P@1/3/5 and calibration error: "same rows" judges the held-out rows by what they have fitted
themselves, "other parts" judges each fifth of them by what the other four have fitted (what `train` prints), "new rows" is
the served model on the rows kept apart. Writes optimism.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from unittest.mock import patch

import numpy as np
from ablation import split

from blockxmc import BlockwiseClassifier, metrics
from blockxmc.training import fit as shared_fit

KS = (1, 3, 5)


def measure(train, new, seed):
    kept = {}

    def spy(seen, *args, **kwargs):
        fitted, expected = shared_fit_held_out(seen, *args, **kwargs)
        kept.update(seen=seen[fitted.top_p], fitted=fitted)
        return fitted, expected

    shared_fit_held_out = shared_fit.fit_held_out
    with patch.object(shared_fit, "fit_held_out", spy):
        clf = BlockwiseClassifier(random_state=seed).fit(*train)
    fitted, seen = kept["fitted"], kept["seen"]
    scores, right = seen.ranked(fitted.mix, fitted.reranker, 5, 1)
    listed = scores > -np.inf
    same = [100 * right[:, :k].sum() / right.shape[0] / k for k in KS]
    same_error = metrics.calibration_error(right[listed], fitted.calibration.probabilities(scores)[listed])
    labels, answered = clf.predict_topk(new[0], 5)
    hit = np.stack([np.asarray(new[1][np.arange(labels.shape[0]), labels[:, j]]).ravel() for j in range(5)], axis=1) > 0
    return {
        "same rows": [*same, same_error],
        "other parts": [*(100 * clf.cost_[f"expected_P@{k}"] for k in KS), clf.cost_["expected_calibration_error"]],
        "new rows": [
            *(100 * metrics.precision_at_k(new[1], labels, k) for k in KS),
            metrics.calibration_error(hit, answered),
        ],
        "held-out rows": right.shape[0],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    options = parser.parse_args()
    lines = ["# What a training promises, and what new rows get", "", " ".join(__doc__.split("\n\n")[2].split()), ""]
    lines += ["| data | rows | P@1 | P@3 | P@5 | calibration error |", "|---|---|---:|---:|---:|---:|"]
    for folder in options.folders:
        train, new = split(folder)
        found = [measure(train, new, seed) for seed in range(options.seeds)]
        for name in ("same rows", "other parts", "new rows"):
            *precision, error = np.mean([each[name] for each in found], axis=0)
            values = " | ".join(f"{value:.2f}" for value in precision)
            lines.append(f"| {folder.name} ({found[0]['held-out rows']} held out) | {name} | {values} | {error:.3f} |")
            print(lines[-1], flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "optimism.md").write_text("\n".join([*lines, "", f"Means of {options.seeds} seeds.", ""]))


if __name__ == "__main__":
    main()
