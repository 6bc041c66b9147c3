"""Many numbers at once: the table of an evaluation, precision by label frequency, scorers for scikit-learn."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.pipeline import Pipeline

from blockxmc.errors import BlockXMCError
from blockxmc.metrics.ranking import Ranking, Weighted, check_k, inverse_propensity_from_counts

PLAIN = {
    "P": Ranking.precision,
    "nDCG": Ranking.ndcg,
    "R": Ranking.recall,
    "F1": Ranking.f1,
    "coverage": Ranking.coverage,
}
WEIGHTED = {"PSP": Weighted.psp, "PSnDCG": Weighted.psndcg}


def evaluate(
    Y: Any,
    labels: Any,
    ks: Iterable[int] = (1, 3, 5),
    inverse_propensity: ArrayLike | None = None,
    percent: bool = False,
) -> dict[str, float]:
    """Every metric at every k, from one pass over the hits; PSP and PSnDCG where inverse propensities are given.

    ``percent`` gives points in 0..100. ``rows`` and ``rows_without_labels`` are numbers of rows in either case.

    >>> report = evaluate([[1, 0, 1], [0, 0, 0]], np.array([[2, 1], [0, 1]]), ks=(1, 2), percent=True)
    >>> report["P@1"], report["R@2"], report["rows_without_labels"]
    (50.0, 50.0, 1)
    """
    wanted = [check_k(k) for k in ks]
    ranking = Ranking.of(Y, labels, max(wanted, default=1))
    unit = 100.0 if percent else 1.0
    report: dict[str, float] = {}
    for name, metric in PLAIN.items():
        report.update({f"{name}@{k}": unit * metric(ranking, k) for k in wanted})
    if inverse_propensity is not None:
        weighted = ranking.weighted(inverse_propensity)
        for name, weighted_metric in WEIGHTED.items():
            report.update({f"{name}@{k}": unit * weighted_metric(weighted, k) for k in wanted})
    report["rows"] = int(ranking.n_true.size)
    report["rows_without_labels"] = int((ranking.n_true == 0).sum())
    return report


def precision_by_frequency(
    Y: Any, labels: Any, k: int, label_counts: ArrayLike, n_bins: int = 10
) -> dict[str, NDArray[Any]]:
    """Where the hits among the first k come from: bins of equally many labels, the most frequent in training first.

    For each bin: ``n_labels``, ``max_count`` and ``min_count`` (training frequency), ``occurrences`` in Y,
    ``precision`` (its part of P@k; the parts add up), ``share`` of P@k, and ``recall`` (hits / occurrences).

    >>> table = precision_by_frequency([[1, 1], [1, 0]], np.array([[0], [0]]), 1, label_counts=[9, 2], n_bins=2)
    >>> table["precision"].tolist(), table["recall"].tolist(), table["max_count"].tolist()
    ([1.0, 0.0], [1.0, 0.0], [9, 2])
    """
    k, n_bins = check_k(k), check_k(n_bins)
    ranking = Ranking.of(Y, labels, k)
    n, m = ranking.truth.shape
    counts = np.asarray(label_counts)
    if counts.shape != (m,):
        raise BlockXMCError(f"label counts have shape {counts.shape}, but Y has {m} labels")
    by_frequency = np.argsort(-counts.astype(np.int64), kind="stable")
    bins = np.array_split(by_frequency, n_bins)
    bin_of = np.empty(m, np.int64)
    bin_of[by_frequency] = np.repeat(np.arange(n_bins), [members.size for members in bins])
    hits = np.bincount(bin_of[ranking.labels[ranking.hits]], minlength=n_bins)
    occurrences = np.bincount(bin_of[ranking.truth.indices], minlength=n_bins)
    return {
        "n_labels": np.array([members.size for members in bins]),
        "max_count": np.array([counts[members].max(initial=0) for members in bins]),
        "min_count": np.array([counts[members[-1]] if members.size else 0 for members in bins]),
        "occurrences": occurrences,
        "precision": hits / max(k * n, 1),
        "share": hits / max(hits.sum(), 1),
        "recall": hits / np.maximum(occurrences, 1),
    }


@dataclass(frozen=True)
class TopKScorer:
    """A metric at k as scikit-learn calls it: ``scorer(estimator, X, Y)``; see :func:`scorer`."""

    name: str
    k: int
    a: float
    b: float

    def __call__(self, estimator: Any, X: Any, Y: Any) -> float:
        """The metric of the estimator's best k labels for X."""
        if isinstance(estimator, Pipeline):
            X, estimator = estimator[:-1].transform(X), estimator[-1]
        labels, _ = estimator.predict_topk(X, self.k)
        ranking = Ranking.of(estimator.targets_.encode_more(Y)[0], labels, self.k)
        if self.name in PLAIN:
            return PLAIN[self.name](ranking, self.k)
        weight = inverse_propensity_from_counts(estimator.label_counts_, estimator.n_train_rows_, self.a, self.b)
        return WEIGHTED[self.name](ranking.weighted(weight), self.k)


def scorer(metric: str, a: float = 0.55, b: float = 1.5) -> TopKScorer:
    """A scorer for ``GridSearchCV(scoring=...)`` and its kin, by name: P@1, nDCG@3, R@5, coverage@5, PSP@1, PSnDCG@5.

    Propensities (with parameters a and b) come from the estimator's own training labels. Labels that it has never
    seen, which can happen with lists of label names, are left out.

    >>> scorer("P@1")
    TopKScorer(name='P', k=1, a=0.55, b=1.5)
    """
    match = re.fullmatch(r"(\w+)@([1-9][0-9]*)", metric)
    if match is None or match[1] not in (*PLAIN, *WEIGHTED):
        known = ", ".join(f"{name}@k" for name in (*PLAIN, *WEIGHTED))
        raise BlockXMCError(f"unknown metric {metric!r}: choose one of {known} with k = 1, 2, ...")
    return TopKScorer(match[1], int(match[2]), a, b)
