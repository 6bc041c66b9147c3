"""The reranker: the kernel against NumPy, the fit against planted truth, and what does not change."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from helpers import blocky, gains_of_all
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse
from scipy.optimize import minimize

from blockxmc import BlockwiseClassifier, load
from blockxmc.errors import ModelFormatError
from blockxmc.model.reranker import N_TERMS, PRODUCTS, Reranker
from blockxmc.training import reranker
from blockxmc.training.candidates import log_positives_of
from blockxmc.training.settings import SETTINGS


def gain(look, terms):
    """What terms (... x N_TERMS) gain, as the formula says."""
    low, high, linear, products = np.split(look.curve.astype(np.float64), [4, 8, 12])
    t = np.clip(terms, low, high)
    return t @ linear + (t[..., PRODUCTS[0]] * t[..., PRODUCTS[1]]) @ products


def fit_reranker(*args):
    return reranker.fit_reranker(*args, SETTINGS, threads=1)


def random_look(rng, n_labels, first):
    curve = np.concatenate([-rng.random(4) * 3, rng.random(4) * 3, rng.normal(size=14)]).astype(np.float32)
    return Reranker(curve, rng.random(n_labels).astype(np.float32) * 5, first)


def neighbor_gains(model, X, candidates):
    """What each candidate (in the order of the matrix) gains from the row's neighbors."""
    if model.neighbors is None:
        return np.zeros(candidates.nnz, np.float32)
    gains = gains_of_all(model.neighbors, X, model.visited(X, 1), 1)
    rows = np.repeat(np.arange(X.shape[0]), np.diff(candidates.indptr))
    return gains[rows, candidates.indices]


@cache
def fitted_once():
    X, Y = blocky(n=500, n_labels=40)
    return X, Y, BlockwiseClassifier(n_blocks=6, route=3, n_neighbors=7).fit(X, Y)


@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(1, 12), st.sampled_from([0.0, 0.4]), st.booleans())
def test_the_first_labels_gain_what_the_formula_says_and_the_others_follow(seed, k, first, slope, with_neighbors):
    X, _, clf = fitted_once()
    rng = np.random.default_rng(seed)
    rows = sparse.csr_array(X[rng.permutation(X.shape[0])[:10]])
    blocks = replace(clf.model_, slope=slope, calibration=None, reranker=None)
    blocks = blocks if with_neighbors else replace(blocks, neighbors=None)
    look = random_look(rng, 40, first)
    own = replace(blocks, slope=0.0, neighbors=None).scores(rows, 1)
    log_weight = replace(blocks, slope=1.0, neighbors=None).scores(rows, 1).data - own.data
    scores, bonus = blocks.scores(rows, 1), neighbor_gains(blocks, rows, own)
    terms = np.stack([own.data, log_weight, bonus, look.log_positives[own.indices]], -1)
    expected = np.full((10, 40), -np.inf)
    for i, (a, b) in enumerate(zip(scores.indptr[:-1], scores.indptr[1:], strict=True)):
        order = a + np.lexsort((scores.indices[a:b], -scores.data[a:b]))
        anew = scores.data[order].astype(np.float64)
        anew[:first] += gain(look, terms[order[:first]])
        anew[first:] += anew[:first].min() - scores.data[order[:first]].min()
        expected[i, scores.indices[order]] = anew
    np.testing.assert_allclose(look.gains(terms), gain(look, terms), atol=1e-4)
    looked = replace(blocks, reranker=look)
    found = looked.scores(rows, 1)
    np.testing.assert_allclose(found.data, expected[np.isfinite(expected)], atol=1e-4)
    labels, best = looked.topk(rows, k, 2)
    there = labels >= 0
    assert_array_equal(there.sum(axis=1), np.minimum(np.isfinite(expected).sum(axis=1), k))
    assert_array_equal(best[there], found.toarray()[np.nonzero(there)[0], labels[there]])
    np.testing.assert_allclose(best[there], -np.sort(-expected, axis=1)[:, :k][there], atol=1e-4)
    for i in range(3):
        part = slice(*rows.indptr[i : i + 2])
        alone = looked.one(rows.indices[part], rows.data[part], k)
        assert_array_equal(alone[0], labels[i])
        assert_array_equal(alone[1], best[i])


def test_few_labels_are_the_first_of_many():
    X, _, clf = fitted_once()
    blocks = replace(clf.model_, reranker=random_look(np.random.default_rng(1), 40, 8))
    few, many = blocks.topk(X, 3, 1)[0], blocks.topk(X, 20, 1)[0]
    assert_array_equal(few, many[:, :3])


def planted(n=2000, seed=0):
    """Scores that mislead for frequent labels: there the second term counts twice as much, and the first not at all."""
    rng = np.random.default_rng(seed)
    terms = rng.normal(size=(n, 12, N_TERMS)).astype(np.float32)
    terms[..., 3] = np.where(rng.random((n, 12)) < 0.5, 1.0, 3.0)
    scores = (terms[..., 0] + terms[..., 1]).astype(np.float32)
    truth = np.where(terms[..., 3] > 2, 2 * terms[..., 1], terms[..., 0])
    right = truth + 0.3 * rng.normal(size=truth.shape) > np.sort(truth, axis=1)[:, -3:-2]
    return terms, scores, right, truth


def precision(order, right, k):
    return np.take_along_axis(right, order[:, :k], 1).mean()


def test_the_fit_finds_what_a_sum_cannot_say():
    terms, scores, right, _ = planted()
    look = fit_reranker(terms, scores, right, np.zeros(5, np.float32))
    assert look is not None
    assert look.first == SETTINGS.reranked
    terms, scores, right, truth = planted(seed=1)
    first = np.argsort(-scores, axis=1)[:, : look.first]
    take = lambda values: np.take_along_axis(values, first, 1)  # noqa: E731
    again = take(scores) + gain(look, np.take_along_axis(terms, first[..., None], 1))
    before, after, best = (
        precision(np.argsort(-s, axis=1), take(right), 1) for s in (take(scores), again, take(truth))
    )
    assert after > before + 0.6 * (best - before)


def test_a_score_that_is_right_already_stays_nearly_as_it_is():
    rng = np.random.default_rng(3)
    terms = rng.normal(size=(1500, 10, N_TERMS)).astype(np.float32)
    scores = terms[..., :3].sum(axis=-1)
    right = rng.random(scores.shape) < 1 / (1 + np.exp(-SETTINGS.reranker_score_weight * (scores - 3)))
    look = fit_reranker(terms, scores, right, np.zeros(5, np.float32))
    assert look is not None
    gains = gain(look, terms)
    assert (gains - gains.mean()).std() < 0.1 * scores.std()


def test_candidates_that_are_not_there_teach_nothing():
    terms, scores, right, _ = planted()
    scores[:, ::3] = -np.inf
    wild = terms.copy()
    wild[:, ::3] = 1e6
    one, other = (fit_reranker(t, scores, right, np.zeros(5, np.float32)) for t in (terms, wild))
    assert one is not None
    assert other is not None
    np.testing.assert_allclose(one.curve, other.curve, rtol=1e-6)


def test_a_term_that_never_varies_has_no_weight():
    terms, scores, right, _ = planted()
    terms[..., 2] = 0
    look = fit_reranker(terms, scores, right, np.zeros(5, np.float32))
    assert look is not None
    assert np.isfinite(look.curve).all()
    moved = terms.copy()
    moved[..., 2] = 7  # beyond the bounds
    np.testing.assert_allclose(gain(look, moved), gain(look, terms))


def test_too_few_rows_teach_nothing():
    terms, scores, right, _ = planted(SETTINGS.reranker_least_rows - 1)
    assert fit_reranker(terms, scores, right, np.zeros(5, np.float32)) is None
    # ... and rows whose candidates are all right or all wrong do not count.
    terms, scores, right, _ = planted()
    assert fit_reranker(terms, scores, np.zeros_like(right), np.zeros(5, np.float32)) is None


def test_the_weights_are_where_the_loss_is_least():
    terms, scores, right, _ = planted(60)
    features = np.concatenate([terms, scores[..., None]], axis=-1).astype(np.float64)
    there = np.random.default_rng(0).random(right.shape) < 0.8
    telling = (right & there).any(axis=1) & (~right & there).any(axis=1)
    features, right, there = features[telling], right[telling], there[telling]
    usual = np.array([0.0] * N_TERMS + [SETTINGS.reranker_score_weight])

    def loss(w):  # in so many words
        total = SETTINGS.reranker_pull * ((w - usual) ** 2).sum()
        for f, r, t in zip(features, right, there, strict=True):
            s = f @ w
            each = [np.log1p(np.exp(s[t & ~r] - s[j]).sum()) for j in np.flatnonzero(t & r)]
            total += sum(each) / np.sqrt(len(each)) / telling.sum()
        return total

    found = reranker.order_of(features, right, there, SETTINGS, 1)
    bounds = [(None, None)] * N_TERMS + [(1.0, None)]
    best = minimize(loss, found + 0.1, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-12})
    assert loss(found) < loss(usual)
    assert loss(found) <= best.fun + 1e-9
    np.testing.assert_allclose(found, best.x, atol=2e-3)
    for threads in (2, 3, 7):
        assert_array_equal(reranker.order_of(features, right, there, SETTINGS, threads), found)


def test_models_with_enough_rows_look_twice_and_keep_it(tmp_path):
    X, Y = blocky(n=4000, n_labels=60, n_features=90, n_blocks=6)
    clf = BlockwiseClassifier(n_blocks=8).fit(X, Y)
    look = clf.model_.reranker
    assert look is not None
    assert_array_equal(look.log_positives, log_positives_of(np.bincount(Y.indices, minlength=60), SETTINGS))
    assert clf.model_.nbytes > replace(clf.model_, reranker=None).nbytes
    clf.save(tmp_path / "model")
    back = load(tmp_path / "model")
    for ours, theirs in zip(clf.predict_topk(X, 5), back.predict_topk(X, 5), strict=True):
        assert_array_equal(ours, theirs)
    again = BlockwiseClassifier(n_blocks=8, n_jobs=2).fit(X, Y)
    assert_array_equal(again.model_.reranker.curve, look.curve)
    assert BlockwiseClassifier(n_blocks=8).fit(X[:600], Y[:600]).model_.reranker is None


def test_damaged_looks_are_refused():
    state = random_look(np.random.default_rng(0), 5, 8).state()
    for name, wrong in (
        ("curve", state["curve"][:-1].copy()),
        ("curve", np.full(22, np.nan, np.float32)),
        ("curve", np.concatenate([state["curve"][4:8], state["curve"][:4], state["curve"][8:]])),
        ("log_positives", np.full(5, np.inf, np.float32)),
        ("first", 0),
    ):
        with pytest.raises(ModelFormatError):
            _ = Reranker.from_state(state | {name: wrong}).kernel
    for damaged in ({}, state | {"curve": state["curve"].astype(np.float64)}, state | {"first": None}):
        with pytest.raises(ModelFormatError):
            Reranker.from_state(damaged)


def test_a_look_must_know_the_labels():
    X, _, clf = fitted_once()
    blocks = replace(clf.model_, reranker=random_look(np.random.default_rng(0), 39, 8))
    with pytest.raises(ValueError, match="must know the scorer's labels"):
        blocks.topk(X, 5, 1)
