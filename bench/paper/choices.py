"""Defaults that had to be chosen, compared on rows held out of the training set (a fifth; test rows are never read).

usage: python bench/paper/choices.py leml|filters|naive-bayes|all DATA_DIR...      (each holds train.txt in XC format)

Prints Markdown tables: precision in points, training CPU seconds on one thread. Rows have unit length, but for naive
Bayes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from scipy import sparse

from blockxmc import LEML, DiSMEC, NaiveBayes, metrics
from blockxmc._core.matrix import unit_rows
from blockxmc.baselines import CBMLC, LabelFilters
from blockxmc.data import read_xc

Parts = tuple[sparse.csr_array, sparse.csr_array, sparse.csr_array, sparse.csr_array]
Line = tuple[str, float, np.ndarray, str]


def precision(Y: sparse.csr_array, labels: np.ndarray) -> str:
    return " / ".join(f"{100 * metrics.precision_at_k(Y, labels, k):.2f}" for k in (1, 3, 5))


def fitted(model, X: sparse.csr_array, Y: sparse.csr_array):
    start = time.process_time()
    model.set_params(n_jobs=1).fit(X, Y)
    return time.process_time() - start, model


def leml(parts: Parts) -> Iterator[Line]:
    X, Y, X_held, _ = parts
    settings = [{"lam": lam} for lam in (0.1, 0.3, 1.0, 3.0)]
    settings += [{"lam": 1.0, "bias": 0.0}, {"lam": 1.0, "init": "random"}, {"lam": 1.0, "n_iter": 1}]
    for where, wrap in (("all rows", lambda base: base), ("8 k-means blocks", lambda base: CBMLC(base, n_blocks=8))):
        for options in settings:
            seconds, model = fitted(wrap(LEML(**options)), X, Y)
            yield f"LEML({_written(options)}), {where}", seconds, model.predict_topk(X_held, 5)[0], ""


def filters(parts: Parts) -> Iterator[Line]:
    X, Y, X_held, Y_held = parts
    seconds, base = fitted(DiSMEC(), X, Y)
    yield "DiSMEC, no filter", seconds, base.predict_topk(X_held, 5)[0], f"{Y.shape[1]} | 100.0"
    scores = base._scores(X_held).toarray()
    steps = int(np.clip(6 * X.shape[0], 20_000, 1_000_000))
    settings = [{"C1": C1, "C2": C2} for C1, C2 in ((5, 10), (20, 10), (80, 10), (20, 1), (20, 100))]
    settings += [{"C1": 20, "C2": 10, "n_steps": steps // 3}, {"C1": 20, "C2": 10, "n_steps": steps * 3}]
    settings.append({"C1": 20, "C2": 10, "bounds": "quantile"})
    for options in settings:
        seconds, model = fitted(LabelFilters(NaiveBayes(), **options), X, Y)  # the base is put in its place below
        passed = model.filters_.candidates(X_held)
        kept = np.where(passed.toarray() > 0, scores, -np.inf)
        best = np.argsort(-kept, axis=1, kind="stable")[:, :5]
        best[np.isneginf(np.take_along_axis(kept, best, axis=1))] = -1
        found = 100 * passed.multiply(Y_held).sum() / max(Y_held.nnz, 1)
        yield f"filters({_written(options)})", seconds, best, f"{passed.nnz / X_held.shape[0]:.0f} | {found:.1f}"


def naive_bayes(parts: Parts) -> Iterator[Line]:
    X, Y, X_held, _ = parts
    for alpha in (0.1, 0.5, 1.0, 2.0):
        seconds, model = fitted(NaiveBayes(alpha=alpha), X, Y)
        yield f"NaiveBayes(alpha={alpha})", seconds, model.predict_topk(X_held, 5)[0], ""
    if X.shape[1] * Y.shape[1] > 5e6:  # the others need dense counts
        return
    for alpha in (0.1, 0.5, 1.0, 2.0):
        for name, scores in other_naive_bayes(X, Y, X_held, alpha):
            yield f"{name}, alpha={alpha}", 0.0, np.argsort(-scores, axis=1, kind="stable")[:, :5], ""


def other_naive_bayes(
    X: sparse.csr_array, Y: sparse.csr_array, X_held: sparse.csr_array, alpha: float
) -> Iterator[tuple[str, np.ndarray]]:
    """Other members of the family, from dense counts."""
    n, size = X.shape[0], np.asarray(Y.sum(axis=0), float)
    prior, log_odds = np.log((size + 0.5) / n), np.log((size + 0.5) / (n - size + 0.5))
    mass, total = (Y.T @ X).toarray().astype(float), np.asarray(X.sum(axis=0), float)
    yield "multinomial, one model of all labels", prior + X_held @ _log_shares(mass, alpha).T
    yield "complement", X_held @ -_log_shares(total - mass, alpha).T
    seen = sparse.csr_array(X > 0, dtype=float)
    inside, everywhere = (Y.T @ seen).toarray(), np.asarray(seen.sum(axis=0))
    p = (inside + alpha) / (size[:, None] + 2 * alpha)
    q = (everywhere - inside + alpha) / (n - size[:, None] + 2 * alpha)
    weights = np.log(p / (1 - p)) - np.log(q / (1 - q))
    absent = np.log((1 - p) / (1 - q)).sum(axis=1)
    yield (
        "Bernoulli, one label against the rest",
        log_odds + absent + sparse.csr_array(X_held > 0, dtype=float) @ weights.T,
    )


def _log_shares(mass: np.ndarray, alpha: float) -> np.ndarray:
    return np.log((mass + alpha) / (mass + alpha).sum(axis=1, keepdims=True))


TOPICS: dict[str, tuple[Callable[[Parts], Iterator[Line]], bool, str]] = {
    "leml": (leml, True, ""),
    "filters": (filters, True, "Candidates | % of labels found"),
    "naive-bayes": (naive_bayes, False, ""),
}


def _written(options: dict[str, object]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items())


def main() -> None:
    topics = list(TOPICS) if sys.argv[1] == "all" else [sys.argv[1]]
    for topic in topics:
        if len(topics) > 1:
            print(f"\n## {topic}\n")
        print_table(*TOPICS[topic])


def print_table(compare: Callable[[Parts], Iterator[Line]], normalise: bool, more: str) -> None:
    heads = ["Data", "Setting", "P@1 / 3 / 5", "Training CPU s", *([more] if more else [])]
    print("| " + " | ".join(heads) + " |")
    print("|---" * (len(heads) + more.count("|")) + "|")
    for folder in map(Path, sys.argv[2:]):
        data = read_xc(folder / "train.txt")
        X = unit_rows(data.X) if normalise else data.X
        order = np.random.default_rng(1).permutation(X.shape[0])
        held, seen = np.sort(order[: X.shape[0] // 5]), np.sort(order[X.shape[0] // 5 :])
        Y_held = data.Y[held]
        for name, seconds, labels, extra in compare((X[seen], data.Y[seen], X[held], Y_held)):
            cells = [folder.name, name, precision(Y_held, labels), f"{seconds:.1f}", *([extra] if extra else [])]
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
