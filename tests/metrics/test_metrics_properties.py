"""Metrics against a plain Python twin on random input, and the invariances they must have."""

from __future__ import annotations

from math import log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from blockxmc import metrics


@st.composite
def rankings(draw):
    """Truth (sets), ranked labels (lists without duplicates), number of labels, k, inverse propensities."""
    m = draw(st.integers(1, 7))
    n = draw(st.integers(1, 6))
    ids = st.integers(0, m - 1)
    truth = draw(st.lists(st.sets(ids), min_size=n, max_size=n))
    ranked = draw(st.lists(st.lists(ids, unique=True, max_size=m), min_size=n, max_size=n))
    weights = draw(st.lists(st.floats(1.0, 50.0), min_size=m, max_size=m))
    return truth, ranked, m, draw(st.integers(1, 8)), weights


def arrays(truth, ranked, m):
    Y = np.zeros((len(truth), m))
    labels = np.full((len(truth), max(map(len, ranked))), -1)
    for i, (true, row) in enumerate(zip(truth, ranked, strict=True)):
        Y[i, list(true)] = 1
        labels[i, : len(row)] = row
    return sparse.csr_array(Y), labels


def mean(values):
    return sum(values) / len(values) if values else 0.0


def naive(truth, ranked, m, k, weight):
    """Every metric, one row after the other."""
    rows = [(true, [label in true for label in row[:k]], row[:k]) for true, row in zip(truth, ranked, strict=True)]
    some = [(true, hits, row) for true, hits, row in rows if true]

    def dcg(gains):
        return sum(gain / log2(rank + 2) for rank, gain in enumerate(gains))

    def ideal(true):
        return dcg([1] * min(k, len(true)))

    def best(true):
        return sorted((weight[label] for label in true), reverse=True)[:k]

    gains = [[weight[label] * hit for label, hit in zip(row, hits, strict=True)] for _, hits, row in some]
    psp = sum(map(sum, gains)), sum(sum(best(true)) for true, _, _ in some)
    psndcg = (
        sum(dcg(gain) / ideal(true) for gain, (true, _, _) in zip(gains, some, strict=True)),
        sum(dcg(best(true)) / ideal(true) for true, _, _ in some),
    )
    return {
        f"P@{k}": mean([sum(hits) / k for _, hits, _ in rows]),
        f"R@{k}": mean([sum(hits) / len(true) for true, hits, _ in some]),
        f"nDCG@{k}": mean([dcg(hits) / ideal(true) for true, hits, _ in some]),
        f"F1@{k}": mean([2 * sum(hits) / (len(row) + len(true)) for true, hits, row in some]),
        f"coverage@{k}": len({label for true, _, row in rows for label in row if label in true}) / m,
        f"PSP@{k}": psp[0] / psp[1] if psp[1] else 0.0,
        f"PSnDCG@{k}": psndcg[0] / psndcg[1] if psndcg[1] else 0.0,
        "rows": len(rows),
        "rows_without_labels": len(rows) - len(some),
    }


@given(rankings())
def test_equals_the_naive_twin(case):
    truth, ranked, m, k, weight = case
    Y, labels = arrays(truth, ranked, m)
    assert metrics.evaluate(Y, labels, [k], weight) == pytest.approx(naive(truth, ranked, m, k, weight), abs=1e-12)


@given(rankings())
def test_labels_and_scores_in_the_same_order_agree(case):
    truth, ranked, m, k, weight = case
    Y, labels = arrays(truth, ranked, m)
    rows, ranks = np.nonzero(labels >= 0)
    scores = sparse.csr_array((1.0 - ranks, (rows, labels[rows, ranks])), shape=Y.shape)
    assert metrics.evaluate(Y, labels, [1, k], weight) == metrics.evaluate(Y, scores, [1, k], weight)


@given(rankings(), st.randoms(use_true_random=False))
def test_order_of_rows_and_names_of_labels_do_not_matter(case, random):
    truth, ranked, m, k, weight = case
    Y, labels = arrays(truth, ranked, m)
    rows, rename = list(range(len(truth))), list(range(m))
    random.shuffle(rows)
    random.shuffle(rename)
    old = np.argsort(rename)
    other_labels = np.append(rename, -1)[labels][rows]
    other = metrics.evaluate(Y.toarray()[rows][:, old], other_labels, [k], np.array(weight)[old])
    assert other == pytest.approx(metrics.evaluate(Y, labels, [k], weight), abs=1e-12)


@given(rankings())
def test_bounds_and_monotonicity(case):
    truth, ranked, m, _, weight = case
    Y, labels = arrays(truth, ranked, m)
    report = metrics.evaluate(Y, labels, range(1, m + 2), weight)
    for name in ("P", "R", "nDCG", "F1", "coverage", "PSP", "PSnDCG"):
        values = np.array([report[f"{name}@{k}"] for k in range(1, m + 2)])
        assert (values >= 0).all()
        assert (values <= 1 + 1e-12).all()
        if name in ("R", "coverage"):
            assert (np.diff(values) >= 0).all()
    stored = sparse.csr_array(
        (np.ones((labels >= 0).sum()), (np.nonzero(labels >= 0)[0], labels[labels >= 0])), shape=Y.shape
    )
    assert metrics.candidate_recall(Y, stored) == pytest.approx(report[f"R@{m}"], abs=1e-12)
    for k in range(1, m + 1):
        assert report[f"P@{k}"] <= metrics.precision_ceiling(Y, stored, k) + 1e-12


@settings(max_examples=50)
@given(rankings())
def test_truth_ranked_by_weight_is_perfect(case):
    truth, _, m, k, weight = case
    best = [sorted(true, key=lambda label: -weight[label]) for true in truth]
    Y, labels = arrays(truth, best, m)
    report = metrics.evaluate(Y, labels, [k], weight)
    expected = 1.0 if any(truth) else 0.0
    assert report[f"nDCG@{k}"] == expected
    assert report[f"PSP@{k}"] == pytest.approx(expected)
    assert report[f"PSnDCG@{k}"] == pytest.approx(expected)
    assert metrics.recall_at_k(Y, labels, m) == expected
