"""Probabilities: the kernel against NumPy, the fit against planted curves, and what they are worth on new rows."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import blocky
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.metrics import f1_score
from storage_models import tamper

from blockxmc import BlockwiseClassifier, _kernels, load, metrics
from blockxmc._core import base
from blockxmc.errors import BlockXMCError
from blockxmc.model import weighed
from blockxmc.model.calibration import RANK_KNOTS, Calibration
from blockxmc.training.calibration import MOST_OTHERS, SIZES, UNCALIBRATED, best_cut, fit_calibration


def twin(curve, score, rank, eighth):
    """The formula, for one label of a row whose eighth label has this score."""
    if score < _kernels.UNLISTED / 2:
        return 0.0
    z, low = curve.shift + curve.slopes[0] * (min(score, -1) + 1) + curve.others * min(max(eighth, -1), 1), -1.0
    for slope, high in zip(curve.slopes[1:], (-0.5, 0.0, 1.0, np.inf), strict=True):
        z += slope * max(min(score, high) - low, 0)
        low = high
    for fall, start, end in zip(curve.falls, RANK_KNOTS, (*RANK_KNOTS[1:], np.inf), strict=True):
        z -= fall * max(np.log(min(rank, end) / start), 0)
    return expit(z)


def random_curve(rng):
    return Calibration(rng.normal(), tuple(rng.random(5) * 3), tuple(rng.random(4)), rng.normal())


@given(st.integers(0, 10_000), st.integers(1, 3))
def test_kernel_and_table_say_what_the_formula_says(seed, threads):
    rng = np.random.default_rng(seed)
    curve = random_curve(rng)
    scores = -np.sort(-rng.normal(scale=2, size=(4, 60)).round(1).astype(np.float32), axis=1)
    scores[0, 55:], scores[1, 50:] = _kernels.UNLISTED, -np.inf
    expected = np.array([[twin(curve, s, r, row[7]) for r, s in enumerate(row, 1)] for row in scores])
    assert_allclose(curve.probabilities(scores), expected, atol=1e-9)
    labels = np.tile(np.arange(60), (4, 1))
    best = (labels.copy(), scores.copy())
    curve.apply_topk(best)
    assert_allclose(best[1], expected, atol=1e-6)
    assert (np.diff(best[1], axis=1) <= 0).all()
    # The same scores as candidates in another order of labels, ties to the lower label.
    order = rng.permutation(60)
    matrix = sparse.csr_array((scores[:, order].ravel(), np.tile(np.arange(60, dtype=np.int32), 4), np.arange(5) * 60))
    ranked = np.lexsort((np.tile(np.arange(60), (4, 1)), -scores[:, order]), axis=1)
    curve.apply(matrix, threads)
    assert_allclose(np.take_along_axis(matrix.toarray(), ranked, 1), expected, atol=1e-6)


def test_equal_probabilities_put_the_lower_label_first_and_padding_stays():
    labels = np.array([[7, 3, 5, 2], [4, -1, -1, -1]])
    scores = np.array([[900, 800, 700, -1], [0.5] + [-np.inf] * 3], np.float32)
    UNCALIBRATED.apply_topk((labels, scores))
    assert labels.tolist() == [[3, 5, 7, 2], [4, -1, -1, -1]]
    assert_allclose(scores[1, 0], expit(1.0), rtol=1e-6)
    assert scores[0, 1] == scores[0, 2] == 1
    assert np.isneginf(scores[1, 1:]).all()
    with pytest.raises(ValueError, match="rows, k"):
        _kernels.calibrate_topk(labels, scores[:1], np.ones(11))
    for bad in (np.ones(9), -np.ones(11), np.full(11, np.nan)):
        with pytest.raises(ValueError, match="calibration"):
            _kernels.calibrate_topk(labels, scores, bad)


def test_an_eighth_label_that_hardly_varies_counts_nothing():
    rng = np.random.default_rng(0)
    scores = -np.sort(-rng.normal(size=(300, 12)).astype(np.float32), axis=1)
    right = rng.random(scores.shape) < expit(2 * scores - 1)
    scores[:, 7:] = -5  # below the bounds
    assert fit_calibration(scores, right, threads=1).others == 0
    scores[0, 7], right[0] = -0.999, True
    assert abs(fit_calibration(scores, right, threads=1).others) <= MOST_OTHERS


def test_logistic_weights_are_where_the_loss_is_least():
    rng = np.random.default_rng(0)
    features, right = rng.normal(size=(20_000, 4)), rng.random(20_000)
    right = right < expit(features @ [1.0, -0.5, 0.02, 2.0] - 1)
    counts, start = rng.random(20_000), np.zeros(5)
    counts /= counts.sum()
    lower = np.array([-np.inf, 0.0, 0.1, 0.1, -np.inf])  # two of which hold

    def loss(w):
        z = w[0] + features @ w[1:]
        slope = counts * (expit(z) - right)
        value = counts @ (np.logaddexp(0, z) - right * z) + 1e-7 * w @ w
        return value, np.concatenate([[slope.sum()], features.T @ slope]) + 2e-7 * w

    args = features, right.view(np.uint8), counts, start, lower, 1e-7, 1e-11
    found = _kernels.logistic_weights(*args, 1)
    bounds = [(low, None) for low in lower]
    best = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-15, "gtol": 1e-9})
    assert_allclose(found, best.x, atol=1e-4)
    assert (found[2:4] == 0.1).all()
    assert loss(found)[0] <= best.fun + 1e-10
    for threads in (2, 3, 7):
        assert_array_equal(_kernels.logistic_weights(*args, threads), found)
    with pytest.raises(ValueError, match="one number per weight"):
        _kernels.logistic_weights(*args[:3], start[1:], *args[4:], 1)


def test_the_fit_finds_a_planted_curve():
    rng = np.random.default_rng(0)
    planted = Calibration(-1.0, (3.0, 1.0, 2.0, 0.5, 1.5), (1.0, 0.2, 0.7, 0.4), -0.8)
    scores = rng.normal(scale=1.2, size=(12_000, 60)) + rng.normal(-1.5, 1, size=(12_000, 1))  # rows differ
    scores = -np.sort(-scores.astype(np.float32), axis=1)
    scores[:, 58:] = -np.inf
    right = rng.random(scores.shape) < planted.probabilities(scores)
    found = fit_calibration(scores, right, threads=1)
    assert_allclose(found.probabilities(scores), planted.probabilities(scores), atol=0.03)
    assert abs(found.others - planted.others) < 0.2
    assert fit_calibration(scores, np.zeros_like(right), threads=1) == UNCALIBRATED


def test_few_answers_are_the_first_of_many():
    X, Y = blocky(n=600, n_labels=20)
    clf = BlockwiseClassifier(n_blocks=3).fit(X, Y)
    curve = replace(clf.model_.calibration, others=-0.5)
    clf.model_ = replace(clf.model_, calibration=curve)
    labels, p = clf.predict_topk(X, 12)
    for k in (1, 5):
        found = clf.predict_topk(X, k)
        assert_array_equal(found[0], labels[:, :k])
        assert_array_equal(found[1], p[:, :k])
    one = clf.predict_one(X[[0]].indices, X[[0]].data, 3)
    assert_array_equal(one[1], p[0, :3])
    rows = np.repeat(np.arange(X.shape[0])[:, None], 5, 1)
    assert_array_equal(clf.predict_proba(X).toarray()[rows, labels[:, :5]], p[:, :5])


def test_labels_in_order_never_become_equal():
    """Scores that say nothing: the curve rises all the same."""
    rng = np.random.default_rng(0)
    scores = -np.sort(-rng.normal(size=(500, 8)).astype(np.float32), axis=1)
    found = fit_calibration(scores, rng.random(scores.shape) < 0.3, threads=1)
    assert min(found.slopes) >= 0.05 * (1 - 1e-9)


def test_chances_that_rise_with_the_rank_are_not_followed():
    rng = np.random.default_rng(0)
    scores = -np.sort(-rng.normal(size=(500, 8)).astype(np.float32), axis=1)
    right = rng.random(scores.shape) < np.linspace(0.1, 0.9, 8)
    assert (np.diff(fit_calibration(scores, right, threads=1).probabilities(scores), axis=1) <= 1e-12).all()


@given(st.integers(0, 10_000))
def test_the_cut_is_the_best_of_all(seed):
    rng = np.random.default_rng(seed)
    p = -np.sort(-rng.random((6, 5)).round(1), axis=1)
    right = rng.random((6, 5)) < p
    n_true = right.sum(axis=1) + rng.integers(2, size=6)
    cut = best_cut(p, right, n_true)
    some = n_true > 0
    mean_f1 = lambda kept: np.mean((2 * (right & kept).sum(1) / np.maximum(kept.sum(1) + n_true, 1))[some])  # noqa: E731
    if not right[some].any():
        return
    first = np.arange(5) == 0
    every = [mean_f1((p > t) | first) for t in [-1, *np.unique(p), 1]]
    assert_allclose([cut.f1, mean_f1((p > cut.threshold) | first)], max(every))
    strict = best_cut(p, right, n_true, keep_first=False)
    every = [mean_f1(p > t) for t in [-1, *np.unique(p)]]
    assert_allclose([strict.f1, mean_f1(p > strict.threshold)], max(every))
    p = -np.sort(-rng.random((6, 5)), axis=1)  # without ties
    cut = best_cut(p, right, n_true)
    by_size = [mean_f1(best_sets(p, size)) for size in SIZES]
    assert_allclose([cut.f1_by_size, mean_f1(best_sets(p, cut.size))], max(by_size))
    counts = [mean_f1(np.tile(np.arange(5) < k, (6, 1))) for k in range(1, 6)]
    assert_allclose(counts[cut.n_labels - 1], max(counts))


def split_blocky(**options):
    X, Y = blocky(n=6000, n_labels=60, n_features=90, n_blocks=6)
    clf = BlockwiseClassifier(n_blocks=8, **options).fit(X[:4000], Y[:4000])
    return clf, X[4000:], Y[4000:]


def test_probabilities_hold_on_new_rows_at_every_rank_and_in_total():
    clf, X, Y = split_blocky()
    labels, p = clf.predict_topk(X, 5)
    right = (np.take_along_axis(Y.toarray(), labels, axis=1) > 0) & (labels >= 0)
    p = np.where(labels >= 0, p, 0.0)
    assert metrics.calibration_error(right[labels >= 0], p[labels >= 0]) < 0.04
    assert_allclose(p.sum(axis=0), right.sum(axis=0), rtol=0.15, atol=40)
    chances = clf.predict_proba(X)
    assert sparse.issparse(chances)
    assert chances.sum() == pytest.approx(Y.multiply(chances > 0).sum(), rel=0.1)
    assert_array_equal(chances.toarray(), clf.decision_function(X).toarray())


def best_sets(p, size):
    """Of each row the first labels whose expected F1 is best, by trying every number of them."""
    sets = np.zeros(p.shape, bool)
    for row, chances in enumerate(p.astype(np.float64)):
        order = np.argsort(-chances, kind="stable")
        f1 = [chances[order[:k]].sum() / (k + size) for k in range(1, np.count_nonzero(chances) + 1)]
        sets[row, order[: int(np.argmax(f1)) + 1]] = True
    return sets


def test_predict_cuts_where_the_mean_f1_is_best(tmp_path, monkeypatch):
    clf, X, Y = split_blocky()
    scores = clf.predict_proba(X).toarray()
    f1 = {t: f1_score(Y.toarray(), scores > t, average="samples", zero_division=0) for t in np.arange(0.05, 1, 0.05)}
    found = f1_score(Y.toarray(), clf.predict(X).toarray(), average="samples", zero_division=0)
    assert found > max(f1.values()) - 0.01
    assert abs(found - clf.cost_["expected_F1"]) < 0.03
    assert_array_equal(clf.predict(X).toarray(), best_sets(scores, clf.f1_size_))
    monkeypatch.setattr(base, "FEW_LABELS", 2)  # rows with more labels are looked at again
    assert_array_equal(clf.predict(X).toarray(), best_sets(scores, clf.f1_size_))
    assert_array_equal(clf.set_params(threshold=0.3).predict(X).toarray(), scores > 0.3)
    clf.set_params(threshold="top-k").save(tmp_path / "model")
    sizes = np.diff(load(tmp_path / "model").predict(X).indptr)
    assert set(sizes) == {clf.f1_labels_}
    for bad in ("best", None, True, "0.3"):
        with pytest.raises(BlockXMCError, match="threshold must be"):
            clf.set_params(threshold=bad).predict(X)


@pytest.mark.parametrize("dense", [False, True])
def test_with_one_threshold_for_all_rows_the_first_label_of_rows_below_it_stays(tmp_path, dense):
    X, Y = blocky(n=600, n_labels=20)
    clf = BlockwiseClassifier(n_blocks=3).fit(X, Y.toarray().astype(int) if dense else Y)
    clf.model_ = replace(clf.model_, calibration=UNCALIBRATED)  # what is fitted is sure of every row
    scores = np.asarray(clf.predict_proba(X) if dense else clf.predict_proba(X).toarray())
    clf.f1_threshold_ = float(np.median(scores.max(axis=1)))
    clf.save(tmp_path / "old")
    tamper(tmp_path / "old", lambda manifest: manifest["state"].update(f1_size=0.0))
    old = load(tmp_path / "old")
    above = scores > clf.f1_threshold_
    below = np.flatnonzero(~above.any(axis=1) & scores.any(axis=1))
    assert 0 < below.size < X.shape[0]
    expected = above.copy()
    expected[below, scores[below].argmax(axis=1)] = True
    found = old.predict(X)
    assert_array_equal(found == 1 if dense else found.toarray() == 1, expected)
    if dense:
        assert_array_equal(old.decision_function(X) > 0, expected)
    assert old.f1_least(scores) == clf.f1_threshold_  # suggestions were cut at the threshold alone


def test_margins_are_no_probabilities():
    X, Y = blocky(n=100, n_labels=14)
    paper = BlockwiseClassifier.paper(n_blocks=2, lam=0.1).fit(X, Y)
    with pytest.raises(BlockXMCError, match="margins"):
        paper.predict_proba(X)
    with pytest.raises(BlockXMCError, match="top-k"):
        paper.set_params(threshold="top-k").predict(X)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_chances_of_classes_add_up(n_classes):
    X, Y = blocky(n=300, n_labels=20)
    classes = np.asarray(Y[:, 2:].argmax(axis=1)).ravel() % n_classes
    clf = BlockwiseClassifier(n_blocks=2).fit(X, classes)
    p = clf.predict_proba(X)
    assert_allclose(p.sum(axis=1), 1.0)
    assert_array_equal(clf.classes_[p.argmax(axis=1)], clf.predict(X))


@pytest.mark.parametrize("few", [1, 64])
def test_ranking_by_propensity_is_that_of_the_expected_gain(monkeypatch, few):
    monkeypatch.setattr(weighed, "FEW_LABELS", few)
    clf, X, Y = split_blocky()
    sets, p = clf.predict(X), clf.predict_proba(X).toarray()
    before = clf.predict_topk(X, 5)[0]
    worth = metrics.inverse_propensity_from_counts(clf.label_counts_, clf.n_train_rows_)
    gain = np.where(p > 0, p * worth.astype(np.float32), 0)
    labels, scores = clf.set_params(rank_by="propensity").predict_topk(X, 5)
    expected = -np.sort(-gain, axis=1)[:, :5]
    assert_allclose(np.maximum(scores, 0), expected, atol=1e-6)
    there = labels >= 0
    assert_allclose(gain[np.nonzero(there)[0], labels[there]], scores[there], atol=1e-6)
    assert metrics.psp_at_k(Y, labels, 5, worth) >= metrics.psp_at_k(Y, before, 5, worth) - 1e-9
    assert_allclose(clf.decision_function(X).toarray(), gain, atol=1e-6)
    assert_array_equal(clf.predict(X).toarray(), sets.toarray())
    assert_array_equal(clf.predict_proba(X).toarray(), p)
    at = slice(X.indptr[7], X.indptr[8])
    assert_array_equal(clf.predict_one(X.indices[at], X.data[at], 5)[0], labels[7])
    with pytest.raises(BlockXMCError, match="rank_by must be"):
        clf.set_params(rank_by="rarity").predict_topk(X)
    paper = BlockwiseClassifier.paper(n_blocks=2, lam=0.1, rank_by="propensity").fit(X[:50], Y[:50])
    with pytest.raises(BlockXMCError, match="needs probabilities"):
        paper.predict_topk(X)


def test_dense_decisions_are_positive_where_labels_are_predicted():
    X, Y = blocky(n=600, n_labels=20)
    for threshold in ("f1", 0.4, 0.9):
        clf = BlockwiseClassifier(n_blocks=3, threshold=threshold).fit(X, Y.toarray().astype(int))
        clf.f1_size_ = 0.01  # most rows have one label
        assert_array_equal(clf.decision_function(X) > 0, clf.predict(X) == 1)


def test_labels_far_behind_add_up_to_their_hits():
    """Wrong labels are sampled there, right ones are not: the curve must not be bent by that, at any width."""
    rng = np.random.default_rng(0)
    for width in (34, 700):
        scores = -np.sort(-rng.normal(scale=0.7, size=(600, width)).astype(np.float32), axis=1)
        right = rng.random(scores.shape) < 0.5 / np.arange(1, width + 1)
        found = fit_calibration(scores, right, threads=1).probabilities(scores)
        assert_allclose(found.sum(), right.sum(), rtol=0.03)
        assert_allclose(found[:, 32:].sum(), right[:, 32:].sum(), rtol=0.15)
