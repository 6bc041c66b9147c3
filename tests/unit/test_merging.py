"""What a label's score is made of, and how that is chosen."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import blocky
from scipy import sparse
from sklearn.preprocessing import normalize

from blockxmc import BlockwiseClassifier, metrics
from blockxmc.serving.neighbors import Neighbors
from blockxmc.serving.reranker import Reranker
from blockxmc.training.shared import fit as shared_fit
from blockxmc.training.shared import mix as merging
from blockxmc.training.shared.labels import MEAN_PRUNE
from blockxmc.training.shared.mix import Mix


def test_mixes_that_rank_alike_count_alike(monkeypatch):
    X, Y = blocky(n=400, n_labels=30)
    blocks = replace(BlockwiseClassifier(n_blocks=5, route=2).fit(X, Y).model_, calibration=None)
    monkeypatch.setattr(merging._Candidates, "precision", lambda seen, mix: np.full(3, 0.5))
    mix, _ = merging.fit_merging(blocks, blocks.scorer, Y, X, Y, 1)
    assert mix.slope == pytest.approx(np.mean(merging.SLOPES))
    assert mix.stretch == pytest.approx(np.mean(merging.STRETCHES))
    assert mix.likeness == pytest.approx(np.mean(merging.LIKENESSES))


def test_served_scores_are_the_mix_of_margin_rarity_likeness_and_blocks(monkeypatch):
    X, Y = blocky(n=400, n_labels=30)
    X = sparse.csr_array(normalize(X)).astype(np.float32)
    mix = Mix(slope=0.3, stretch=1.5, likeness=0.7)
    monkeypatch.setattr(merging, "_mix", lambda candidates, nearest=0.0: mix)
    monkeypatch.setattr(shared_fit, "LOST", 1.0)
    kept = {}
    train = shared_fit.train_shared
    monkeypatch.setattr(shared_fit, "train_shared", lambda *a, **k: kept.setdefault("weights", train(*a, **k)))
    clf = BlockwiseClassifier(n_blocks=4, route=2).fit(X, Y)
    plain = kept["weights"].weights.scores(X)
    means = normalize((Y.T @ X).toarray())
    means[(abs(means) < MEAN_PRUNE) & (kept["weights"].weights.coef.toarray().T == 0)] = 0
    count = Y.sum(axis=0)
    expected = (plain + 1) * (1 + 1.5 / np.maximum(count, 1) ** 0.25) - 1 + 0.7 * (X @ means.T)
    # What the blocks add is the router's: it is left to the tests of scoring, which serve the mixed weights.
    alone = clf.model_.scorer.scores(X, None).toarray()
    assert clf.model_.slope == 0.3
    np.testing.assert_allclose(alone[:, count > 0], expected[:, count > 0], rtol=2e-2, atol=2e-2)  # half precision


def test_rows_whose_rare_labels_are_held_back_ask_for_stretch():
    """Margins of the rare label are half of what they should be: only a stretch ranks it first where it is right."""
    margin = np.tile(np.array([[-0.3, -0.2], [-0.9, -0.3]], np.float32), (50, 1))
    right = np.tile(np.array([[True, False], [False, True]]), (50, 1))
    rarity = np.tile(np.array([[1.0, 0.1]], np.float32), (100, 1))
    nothing = np.zeros_like(margin)
    seen = merging._Candidates(merging._Terms(margin, rarity, nothing, nothing, nothing, nothing), right)
    assert seen.precision(Mix(stretch=2.0))[0] > seen.precision(Mix())[0]
    assert merging._mix(seen).stretch > 0.5


def test_precision_of_a_mix_is_that_of_its_ranking():
    rng = np.random.default_rng(0)
    parts = [rng.random((40, 7), np.float32) for _ in range(6)]
    terms = merging._Terms(*parts)
    right = rng.random((40, 7)) < 0.3
    mix = Mix(0.4, 1.2, 0.6, 0.8)
    scores = (parts[0] + 1) * (1 + 1.2 * parts[1]) - 1 + 0.6 * parts[2] + 0.4 * parts[3] + 0.8 * parts[4]
    np.testing.assert_allclose(terms.scores(mix), scores, rtol=1e-5)
    order = np.argsort(-scores, axis=1)
    expected = [metrics.precision_at_k(sparse.csr_array(right), order, k) for k in (1, 3, 5)]
    found = merging._Candidates(terms, right).precision(mix)
    np.testing.assert_allclose(found, expected)


def test_hits_after_a_reranker_are_those_of_its_order():
    rng = np.random.default_rng(0)
    terms = merging._Terms(*(rng.random((40, 12), np.float32) for _ in range(6)))
    right = rng.random((40, 12)) < 0.3
    mix, curve = Mix(0.4, 1.2, 0.6, 0.8), np.concatenate([np.zeros(4), np.ones(4), rng.normal(size=14) * 3])
    look = Reranker(curve.astype(np.float32), np.zeros(1, np.float32), 6)
    scores = terms.scores(mix)
    anew = scores + look.gains(terms.looked_at(mix))
    anew[np.argsort(np.argsort(-scores, axis=1), axis=1) >= 6] = -np.inf
    seen = merging._Candidates(terms, right)
    expected = [metrics.precision_at_k(sparse.csr_array(right), np.argsort(-anew, axis=1), k) for k in (1, 3, 5)]
    np.testing.assert_allclose(seen.hits(mix, look).mean(axis=0), expected)
    assert (seen.hits(mix, look) != seen.hits(mix)).any()


@pytest.mark.parametrize(("lost", "expected"), [(-0.1, 1.0), (0.019, 1.0), (0.021, 0.0), (0.2, 0.0)])
def test_neighbors_count_unless_they_mislead(monkeypatch, lost, expected):
    X, Y = blocky(n=400, n_labels=30)
    blocks = replace(BlockwiseClassifier(n_blocks=5, route=2, n_neighbors=3).fit(X, Y).model_, calibration=None)
    blocks = replace(blocks, neighbors=Neighbors.pack(X, Y, np.arange(400) % 5, blocks.scorer.n_blocks, count=3))
    # Every second row gains as much as the next one loses, and a little is lost on top.
    swing = np.where(np.arange(400) % 2, 0.2, -0.2)[:, None]
    hits = lambda seen, mix, look=None: np.full((400, 3), 0.5) + (swing - lost) * (mix.nearest > 0)  # noqa: E731
    monkeypatch.setattr(merging._Candidates, "hits", hits)
    mix, _ = merging.fit_merging(blocks, blocks.scorer, Y, X, Y, 1)
    assert mix.nearest == expected


@pytest.mark.parametrize(
    ("right", "expected"),
    [
        ((0.4, 0.5, 0.6, 0.7, 0.8), 0.9),
        ((0.8, 0.7, 0.6, 0.5, 0.4), 0.5),
        ((0.6, 0.65, 0.7, 0.71, 0.72), 0.7),
        ((0.71, 0.72, 0.7, 0.6, 0.5), 0.7),
    ],
)
def test_rows_visit_the_usual_share_unless_another_is_clearly_better(monkeypatch, right, expected):
    """So many of a hundred rows have a right label first, others than at other shares in every tenth row."""
    X, Y = blocky(n=100, n_labels=30)
    Y = sparse.csr_array(np.tile(np.arange(30) == 7, (100, 1)))
    blocks = replace(BlockwiseClassifier(n_blocks=5).fit(*blocky(n=400, n_labels=30)).model_, top_p=0.7)

    def topk(self, X, k, threads):
        number = merging.TOP_PS.index(self.top_p)
        labels = np.where(np.arange(100) < 100 * right[number] - 10, 7, 3)
        labels[90:] = np.where(np.arange(10) % 2 == number % 2, 7, 3)
        return np.column_stack([labels, np.full((100, 4), -1)]), None

    monkeypatch.setattr(merging.RoutedModel, "topk", topk)
    assert merging.fit_top_p(blocks, X, Y, 1) == expected


def test_a_share_that_is_asked_for_is_kept():
    X, Y = blocky(n=400, n_labels=30)
    assert BlockwiseClassifier(n_blocks=5, route=0.65).fit(X, Y).model_.top_p == 0.65
    assert BlockwiseClassifier(n_blocks=5).fit(X, Y).model_.top_p in merging.TOP_PS
