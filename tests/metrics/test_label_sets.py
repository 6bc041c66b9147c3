"""F1 metrics against scikit-learn, and label sets that are cut without looking at all labels."""

import numpy as np
import pytest
from helpers import blocky
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.metrics import f1_score

from blockxmc import DiSMEC, NaiveBayes, metrics
from blockxmc._core import base
from blockxmc.baselines import FastXML
from blockxmc.data import Dataset
from blockxmc.errors import BlockXMCError
from blockxmc.metrics.report import measure


@given(st.integers(0, 10_000))
def test_f1_is_that_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    Y, guess = (rng.random((8, 6)) < rng.random() for _ in range(2))
    some = Y.any(axis=1)
    expected = f1_score(Y[some], guess[some], average="samples", zero_division=0) if some.any() else 0
    assert metrics.f1_samples(Y, guess) == pytest.approx(expected)
    for average, found in (("micro", metrics.f1_micro), ("macro", metrics.f1_macro)):
        expected = f1_score(Y, guess, average=average, zero_division=0)
        assert found(Y, sparse.csr_array(guess)) == pytest.approx(expected)


@given(st.integers(0, 10_000), st.integers(1, 7))
def test_f1_at_k_is_that_of_the_first_k_as_a_set(seed, k):
    rng = np.random.default_rng(seed)
    Y = rng.random((8, 6)) < 0.4
    labels = np.argsort(rng.random((8, 6)), axis=1)
    labels[rng.random((8, 6)).argsort(axis=1) < rng.integers(3)] = -1
    guess = np.zeros((8, 7), bool)
    np.put_along_axis(guess, labels[:, :k], True, axis=1)
    found = metrics.f1_at_k(Y, labels, k)
    assert found == pytest.approx(metrics.f1_samples(Y, guess[:, :6]))
    assert metrics.evaluate(Y, labels, ks=(k,))[f"F1@{k}"] == found


def test_predictions_of_another_shape_are_refused():
    with pytest.raises(BlockXMCError, match="shape"):
        metrics.f1_micro(np.eye(3), np.eye(2))


@pytest.mark.parametrize("model", [DiSMEC(), NaiveBayes(), FastXML(n_trees=3)])
@pytest.mark.parametrize("threshold", [None, -2.0, -1e9])
def test_label_sets_are_all_labels_above_the_threshold(model, threshold, monkeypatch):
    """Few labels are looked at first: rows that have more are looked at again."""
    X, Y = blocky(n=120, n_labels=30)
    monkeypatch.setattr(base, "FEW_LABELS", 2)
    model = model.fit(X, Y)
    monkeypatch.setattr(model, "_threshold", model._threshold if threshold is None else threshold, raising=False)
    scores = model.decision_function(X)
    expected = np.zeros(Y.shape, int)
    rows = np.repeat(np.arange(120), np.diff(scores.indptr))
    expected[rows, scores.indices] = scores.data > model._threshold
    assert_array_equal(model.predict(X).toarray(), expected)


def test_a_report_has_f1_and_what_probabilities_are_worth():
    X, Y = blocky(n=300, n_labels=20)
    model = DiSMEC().fit(X[:200], Y[:200])
    data = Dataset(X=X[200:], Y=Y[200:])
    report = measure(model, data, ks=(2, 7), time=False)
    assert report["F1"] == pytest.approx(100 * metrics.f1_samples(Y[200:], model.predict(X[200:])))
    assert {"P@2", "F1@7", "PSP@7"} <= set(report)
    assert "calibration_error" not in report
