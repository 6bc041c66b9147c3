"""What a label's score is made of, and how that is chosen on held-out rows."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import blocky
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.preprocessing import normalize

from blockxmc import BlockwiseClassifier, _kernels, metrics
from blockxmc._core.matrix import pattern_args, without_rows
from blockxmc.model.reranker import Reranker
from blockxmc.training import fit, settings
from blockxmc.training import mix as mixing
from blockxmc.training.candidates import Candidates, Mix, Terms, best_first
from blockxmc.training.fit import Training
from blockxmc.training.held_out import held_out_rows
from blockxmc.training.labels import LabelTrainer
from blockxmc.training.mix import Fitter, names_gain
from blockxmc.training.settings import SETTINGS


def candidates_of(terms, right):
    return Candidates(terms, right, right.sum(axis=1), np.tile(np.arange(right.shape[1]), (right.shape[0], 1)))


def fitter(terms, right, **changed):
    seen = candidates_of(terms, right)
    return Fitter(seen, np.zeros(1, np.float32), replace(SETTINGS, **changed), threads=1)


def random_candidates(rng, n=40, few=12):
    terms, right = Terms(*(rng.random((n, few), np.float32) for _ in range(6))), rng.random((n, few)) < 0.3
    return candidates_of(terms, right)


def test_mixes_that_rank_alike_count_alike():
    nothing = np.zeros((30, 4), np.float32)
    mix = fitter(Terms(*[nothing] * 6), np.ones((30, 4), bool)).mix(0.0)
    assert mix.slope == pytest.approx(np.mean(SETTINGS.slopes))
    assert mix.centroid == pytest.approx(np.mean(SETTINGS.centroid_weights))


def test_served_scores_are_the_mix_of_margin_centroid_and_blocks(monkeypatch):
    X, Y = blocky(n=400, n_labels=30)
    X = sparse.csr_array(normalize(X)).astype(np.float32)
    mix = Mix(slope=0.3, centroid=0.7)
    monkeypatch.setattr(Fitter, "mix", lambda self, neighbors: mix)
    monkeypatch.setattr(settings, "SETTINGS", replace(SETTINGS, lost=1.0))
    kept = {}
    train = LabelTrainer.train
    monkeypatch.setattr(LabelTrainer, "train", lambda *a: kept.setdefault("weights", train(*a)))
    clf = BlockwiseClassifier(n_blocks=4, route=2).fit(X, Y)
    weights = kept["weights"][0]
    centroids = normalize((Y.T @ X).toarray())
    centroids[(abs(centroids) < SETTINGS.centroid_prune) & (weights.vectors.toarray() == 0)] = 0
    count = Y.sum(axis=0)
    expected = weights.scores(X) + 0.7 * (X @ centroids.T)
    # What the blocks add is the router's: it is left to the tests of scoring, which serve the mixed weights.
    alone = clf.model_.scorer.scores(X, None).toarray()
    assert clf.model_.slope == 0.3
    np.testing.assert_allclose(alone[:, count > 0], expected[:, count > 0], rtol=2e-2, atol=2e-2)  # bfloat16


@pytest.mark.parametrize("route", ["auto", 2])
@pytest.mark.parametrize("rows", [600, 4000])  # with a reranker, and without
def test_tables_of_candidates_say_what_the_model_answers(route, rows, monkeypatch):
    """The oracle: a model packed from mixed weights answers the held-out rows as the tables rank them."""
    X, Y = blocky(n=rows, n_labels=60, n_features=90, n_blocks=6)
    monkeypatch.setattr(settings, "SETTINGS", replace(SETTINGS, lost=1.0, candidates=60))
    held_out, seen = held_out_rows(Y, 0), {}
    shown = without_rows(Y, held_out)
    found, mixed, neighbors = mixing.fit_held_out, Training.mixed, Training._neighbors
    # The model lists labels that held-out rows alone brought in, too.
    cover = fit.cover_all_labels
    monkeypatch.setattr(fit, "cover_all_labels", lambda _, *known: cover(Y, *known))

    def spy(candidates, *args, **options):
        seen["candidates"] = candidates
        seen["fitted"] = found(candidates, *args, **options)
        return seen["fitted"]

    # Centroids and neighbors of the rows that the trial model knows.
    monkeypatch.setattr(fit, "fit_held_out", spy)
    monkeypatch.setattr(Training, "mixed", lambda self, *how: mixed(replace(self, Y=shown), *how))
    monkeypatch.setattr(Training, "_neighbors", lambda self, model, among: neighbors(self, model, ~held_out))
    clf = BlockwiseClassifier(n_blocks=8, route=route, weight_bits=32).fit(X, Y)
    assert (clf.model_.reranker is None) == (rows == 600)
    fitted, _ = seen["fitted"]
    model = replace(clf.model_, calibration=None)
    scores = model.topk(sparse.csr_array(X[held_out]), 10, 1)[1]
    scores = np.where(scores < -1e5, -np.inf, scores)  # frequent labels that no visited block lists
    ranked = seen["candidates"].ranked(fitted.mix, fitted.reranker, 10, 1)[0]
    close = np.isclose(ranked, scores, atol=0.02) | (ranked == scores)  # neighbors are kept in bfloat16
    assert close.mean() > 0.98


def test_labels_that_are_mixed_a_few_at_a_time_are_the_same(monkeypatch):
    X, Y = blocky(n=600, n_labels=30)
    at_once = BlockwiseClassifier(n_blocks=8).fit(X, Y)
    monkeypatch.setattr("blockxmc.training.fit.MIXED_AT_A_TIME", 7)
    monkeypatch.setattr("blockxmc.training.blocks._LABELS_AT_A_TIME", 7)
    a_few = BlockwiseClassifier(n_blocks=8).fit(X, Y)
    for found, wanted in zip(a_few.predict_topk(X, 5), at_once.predict_topk(X, 5), strict=True):
        assert_array_equal(found, wanted)


def test_rows_that_are_like_the_names_of_their_labels_ask_for_names():
    """The margin knows nothing of the label whose name is in the row: only the name ranks it first where it is right."""
    margin = np.tile(np.array([[-0.9, -0.5], [-0.9, -0.5]], np.float32), (50, 1))
    right = np.tile(np.array([[True, False], [False, True]]), (50, 1))
    name = np.where(right, np.float32([0.5, 0.1]), np.float32([0.1, 0.1]))
    nothing = np.zeros_like(margin)
    for own, tells in ((name, True), (name[::-1].copy(), False)):
        plain = fitter(Terms(margin, own.astype(np.float32), nothing, nothing, nothing, nothing), right, least_name=0.0)
        found, gained = names_gain(plain)
        assert (found.mix(0.0).name > 0.5) == tells
        assert (gained.get("names_gained_P@1", 0) > 0.2) == tells
        assert names_gain(fitter(plain.candidates.terms, right))[0].mix(0.0).name >= 0.5  # wanted in any case
    assert names_gain(fitter(Terms(*[nothing] * 6), right))[1] == {}  # no label has a name


def test_precision_of_a_mix_is_that_of_its_ranking():
    seen = random_candidates(np.random.default_rng(0))
    t, mix = seen.terms, Mix(0.4, 1.2, 0.6, 0.8)
    scores = t.margin + 1.2 * t.name + 0.6 * t.centroid + 0.4 * t.block + 0.8 * t.neighbors
    order = np.argsort(-scores, axis=1)
    expected = [metrics.precision_at_k(sparse.csr_array(seen.right), order, k) for k in (1, 3, 5)]
    np.testing.assert_allclose(seen.hits(mix, threads=1).mean(axis=0), expected)
    mixes = np.array([[0.4, 1.2, 0.6, 0.8], [0.0, 0.0, 0.0, 0.0], [0.8, 0.5, 1.0, 0.0]], np.float32)
    for threads in (1, 2, 3, 7):
        each = [seen.hits(Mix(*weights.tolist()), threads=1).mean(axis=1) for weights in mixes]
        np.testing.assert_allclose(seen.hits_of(mixes, threads), each)
        np.testing.assert_array_equal(seen.hits_of(mixes, threads), seen.hits_of(mixes, 1))


@pytest.mark.parametrize("threads", [1, 3])
def test_blocks_that_list_a_label_and_rows_that_have_it(threads):
    rng = np.random.default_rng(0)
    lists, Y = rng.random((30, 8)) < 0.3, rng.random((50, 30)) < 0.2
    visited = np.array([rng.permutation(8)[:3] for _ in range(50)], np.int32)
    visited[rng.random(visited.shape) < 0.2] = -1
    weights, labels = rng.random(visited.shape).astype(np.float32), rng.integers(-1, 30, (50, 7))
    total, right = np.empty(labels.shape, np.float32), np.empty(labels.shape, np.uint8)
    pattern = pattern_args(sparse.csr_array(lists))
    _kernels.block_weights(*pattern, 8, visited, weights, labels, total, threads)
    _kernels.right_labels(*pattern_args(sparse.csr_array(Y)), 30, labels, right, threads)
    for (i, j), label in np.ndenumerate(labels):
        own = sum(w for block, w in zip(visited[i], weights[i], strict=True) if block >= 0 and lists[label, block])
        assert total[i, j] == pytest.approx(0 if label < 0 else own)
        assert right[i, j] == (label >= 0 and Y[i, label])
    with pytest.raises(ValueError, match="label numbers"):
        _kernels.right_labels(*pattern, 8, labels[:30], right[:30], threads)
    with pytest.raises(ValueError, match="block numbers"):
        _kernels.block_weights(*pattern, 8, visited + 5, weights, labels, total, threads)


def test_the_best_come_first_and_equal_ones_stay_in_order():
    scores = np.random.default_rng(0).integers(0, 9, (50, 40)).astype(np.float32)
    scores[::3, 5:9] = -np.inf
    for threads in (1, 2, 3, 7):
        np.testing.assert_array_equal(best_first(scores, threads), np.argsort(-scores, axis=1, kind="stable"))


def shown_to_reranker(terms, mix):
    """The oracle of the kernel: rows x candidates x N_TERMS."""
    own = terms.margin + np.float32(mix.name) * terms.name + np.float32(mix.centroid) * terms.centroid
    return np.stack([own, terms.block, np.float32(mix.neighbors) * terms.neighbors, terms.log_positives], axis=-1)


def scores_of(terms, mix):
    own, block, neighbors, _ = np.moveaxis(shown_to_reranker(terms, mix), -1, 0)
    return own + np.float32(mix.slope) * block + neighbors


@pytest.mark.parametrize(("keep", "shown"), [(1, 1), (5, 3), (12, 12), (12, 0), (40, 40)])
def test_the_best_candidates_are_those_of_a_stable_sort(keep, shown):
    rng = np.random.default_rng(keep)
    seen = random_candidates(rng, few=12)
    odd = np.array([-np.inf, np.nan, 0.0, -0.0], np.float32)
    margin = np.where(rng.random((40, 12)) < 0.6, np.float32(rng.integers(0, 3)), rng.choice(odd, (40, 12)))
    seen = replace(
        seen, terms=replace(seen.terms, margin=margin.astype(np.float32), name=np.zeros((40, 12), np.float32))
    )
    mix = Mix(0.4, 1.2, 0.0, 0.8)
    scores = scores_of(seen.terms, mix)
    order = np.argsort(-np.where(np.isnan(scores), -np.inf, scores), axis=1, kind="stable")[:, :keep]
    for threads in (1, 3):
        best = seen.best(mix, keep, shown, threads)
        np.testing.assert_array_equal(best.places, order[:, :shown])
        np.testing.assert_array_equal(best.scores, np.take_along_axis(scores, order, 1))
        np.testing.assert_array_equal(best.right, np.take_along_axis(seen.right, order, 1))
        terms = np.take_along_axis(shown_to_reranker(seen.terms, mix), order[:, :shown, None], 1)
        np.testing.assert_array_equal(best.terms, terms)


def test_hits_after_a_reranker_are_those_of_its_order():
    rng = np.random.default_rng(0)
    seen = random_candidates(rng)
    mix, curve = Mix(0.4, 1.2, 0.6, 0.8), np.concatenate([np.zeros(4), np.ones(4), rng.normal(size=14) * 3])
    reranker = Reranker(curve.astype(np.float32), np.zeros(1, np.float32), 6)
    scores = scores_of(seen.terms, mix)
    again = scores + reranker.gains(shown_to_reranker(seen.terms, mix))
    again[np.argsort(np.argsort(-scores, axis=1), axis=1) >= 6] = -np.inf
    order = np.argsort(-again, axis=1)
    expected = [metrics.precision_at_k(sparse.csr_array(seen.right), order, k) for k in (1, 3, 5)]
    np.testing.assert_allclose(seen.hits(mix, reranker, threads=1).mean(axis=0), expected)
    assert (seen.hits(mix, reranker, threads=1) != seen.hits(mix, threads=1)).any()
    found, _ = seen.ranked(mix, reranker, 12, 1)
    assert (np.diff(found, axis=1) <= 1e-6).all()  # scores fall, also behind those that were reranked


def test_labels_that_are_no_candidates_come_last_and_are_never_right():
    seen = random_candidates(np.random.default_rng(1), few=6)
    terms = replace(seen.terms, margin=np.where(np.arange(6) < 2, seen.terms.margin, -np.inf).astype(np.float32))
    reranker = Reranker(np.concatenate([np.zeros(4), np.ones(18)]).astype(np.float32), np.zeros(1, np.float32), 4)
    for used in (None, reranker):
        scores, right = candidates_of(terms, np.ones((40, 6), bool)).ranked(Mix(), used, 6, 1)
        assert np.isfinite(scores[:, :2]).all()
        assert np.isneginf(scores[:, 2:]).all()
        assert_array_equal(right, np.tile(np.arange(6) < 2, (40, 1)))


@pytest.mark.parametrize(("lost", "expected"), [(-0.1, 1.0), (0.019, 1.0), (0.021, 0.0), (0.2, 0.0)])
def test_neighbors_count_unless_they_mislead(monkeypatch, lost, expected):
    seen = random_candidates(np.random.default_rng(0), n=400)
    # Every second row gains as much as the next one loses, and a little is lost on top.
    swing = np.where(np.arange(400) % 2, 0.2, -0.2)[:, None]
    hits = lambda self, mix, *_, **how: 0.5 + np.tile((swing - lost)[: self.n_rows], 3) * (mix.neighbors > 0)  # noqa: E731
    monkeypatch.setattr(Candidates, "hits", hits)
    found, _ = mixing.fit_held_out(seen, np.zeros(12, np.float32), SETTINGS, routed=False, threads=1)
    assert found.mix.neighbors == expected


def test_a_share_that_is_asked_for_is_kept():
    X, Y = blocky(n=400, n_labels=30)
    assert BlockwiseClassifier(n_blocks=5, route=0.65).fit(X, Y).model_.top_p == 0.65
    assert BlockwiseClassifier(n_blocks=5).fit(X, Y).model_.top_p == SETTINGS.top_p


def test_what_is_promised_holds_on_new_rows():
    X, Y = blocky(n=6000, n_labels=60, n_features=90, n_blocks=6)
    clf = BlockwiseClassifier(n_blocks=8).fit(X[:4000], Y[:4000])
    labels, scores = clf.predict_topk(X[4000:], 5)
    for k in (1, 3, 5):
        found = metrics.precision_at_k(Y[4000:], labels, k)
        assert abs(found - clf.cost_[f"expected_P@{k}"]) < 0.03
    right, there = np.take_along_axis(Y[4000:].toarray(), labels, axis=1) > 0, labels >= 0
    assert abs(metrics.calibration_error(right[there], scores[there]) - clf.cost_["expected_calibration_error"]) < 0.03
