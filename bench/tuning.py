"""Tuning lambda with weights reused along it beside refitting everything for each fold and lambda, in CPU seconds.

Rows are assigned anew at each lambda, or (once) at the smallest lambda alone, where one training serves all lambdas.
"""

import argparse
import time

import numpy as np
from planted import planted
from sklearn.base import clone
from sklearn.preprocessing import normalize

from blockxmc import LEML, BlockwiseClassifier, DiSMEC, NaiveBayes, Partitioner, metrics
from blockxmc._core.matrix import as_csr
from blockxmc.tuning import TrialOptions, tune_lambda

BASES = {"dismec": DiSMEC(), "naive-bayes": NaiveBayes(), "leml": LEML(rank=50)}


def naive(X, Y, base, result, folds, anew):
    """Mean P@k at each lambda of ``result``, with whole estimators fitted anew, their assessment of routing included."""
    n = X.shape[0]
    order = np.random.default_rng(0).permutation(n)
    table = []
    for fold in range(folds):
        held_out = np.sort(order[fold::folds])
        train = np.setdiff1d(np.arange(n), held_out)
        clone(base).fit(X[train], Y[train])
        scale = train.size / n
        part = Partitioner(result.n_blocks, lam=result.lams[0] * scale, n_jobs=1).fit(X[train], Y[train])
        rows = []
        for lam in result.lams:
            if anew and lam != result.lams[0]:
                part = Partitioner(init=part.assignment_, lam=lam * scale, n_jobs=1).fit(X[train], Y[train])
            fixed = Partitioner(init=part.assignment_, max_iter=0)
            model = BlockwiseClassifier.paper(clone(base), "auto", lam * scale, partitioner=fixed, n_jobs=1)
            labels, _ = model.fit(X[train], Y[train]).predict_topk(X[held_out], 5)
            rows.append([100 * metrics.precision_at_k(Y[held_out], labels, k) for k in result.ks])
        table.append(rows)
    return np.mean(table, axis=0)


def timed(run):
    start = time.process_time()
    value = run()
    return time.process_time() - start, value


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--labels", type=int, default=800)
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--folds", type=int, default=2)
    parser.add_argument("--bases", nargs="+", choices=BASES, default=list(BASES))
    args = parser.parse_args()
    X, Y = planted(args.rows, 5000, args.labels, topics=args.blocks * 4)
    X = as_csr(normalize(X))
    print(f"{args.rows} rows, {args.labels} labels, {args.blocks} blocks, {args.folds} folds; one thread")
    print(
        f"{'base':<12}{'assigned':>9}{'lambdas':>8}{'trainings':>11}{'naive':>7}{'reused':>8}{'CPU s':>8}{'naive':>8}"
        f"{'ratio':>7}{'gap, points':>13}"
    )
    for name, anew in ((name, anew) for name in args.bases for anew in (True, False)):
        base = BASES[name].set_params(n_jobs=1)
        trial = TrialOptions(n_jobs=1, max_rows=None, reassign=anew)
        options = {"n_blocks": args.blocks, "folds": args.folds, "options": trial}
        seconds, result = timed(lambda base=base, o=options: tune_lambda(X, Y, base, **o))
        slow, table = timed(lambda base=base, r=result, anew=anew: naive(X, Y, base, r, args.folds, anew))
        gap = np.abs(result.mean_precision - table).max()
        saving = result.saving
        print(
            f"{name:<12}{'anew' if anew else 'once':>9}{len(result.lams):>8}{saving['trainings']:>11.0f}"
            f"{saving['naive_trainings']:>7.0f}{saving['reused_pairs'] / max(saving['pairs'], 1):>8.1%}"
            f"{seconds:>8.2f}{slow:>8.2f}{slow / seconds:>7.1f}{gap:>13.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
