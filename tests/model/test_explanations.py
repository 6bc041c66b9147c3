"""Explanations: parts add up to the score, ranks and fates are those of the answers, lost labels are traced."""

import json
from copy import copy
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from helpers import blocky
from scipy import sparse
from sklearn.base import clone
from sklearn.tree import DecisionTreeClassifier

from blockxmc import LEML, BlockwiseClassifier, DiSMEC, NaiveBayes, PDSparse, load
from blockxmc.baselines import CBMLC, LPSR
from blockxmc.errors import BlockXMCError
from blockxmc.model.explanations import Explanation


@cache
def with_reranker():
    X, Y = blocky(n=4000, n_labels=60, n_features=90, n_blocks=6)
    clf = BlockwiseClassifier(n_blocks=8, n_neighbors=7).fit(X, Y)
    assert clf.model_.reranker is not None
    assert clf.model_.neighbors is not None
    assert clf.model_.slope > 0
    return clf, X


def total(why):
    return why.constant + sum(part.part for part in why.features) + why.other_features + sum(why.terms.values())


MODELS = [
    BlockwiseClassifier(n_blocks=4),
    BlockwiseClassifier(n_blocks=4, weight_bits=8),
    BlockwiseClassifier(n_blocks=1),
    BlockwiseClassifier.paper(n_blocks=3, lam=0.1),
    BlockwiseClassifier.paper(NaiveBayes(), n_blocks=3, lam=0.1),
    BlockwiseClassifier(n_blocks=3, weights="per-block", route=2),
    CBMLC(n_blocks=2),
    DiSMEC(),
    LEML(rank=10),
    LPSR(n_blocks=2),
    NaiveBayes(),
    PDSparse(max_iter=10),
]


@pytest.mark.parametrize("estimator", MODELS, ids=lambda model: type(model).__name__)
def test_parts_add_up_to_the_score_in_every_linear_model(estimator):
    X, Y = blocky(n=300, n_labels=20)
    model = clone(estimator).set_params(n_jobs=1).fit(X, Y)
    raw = model
    if getattr(getattr(model, "model_", None), "calibration", None) is not None:
        raw = clone(estimator).set_params(n_jobs=1).fit(X, Y)
        raw.model_ = replace(raw.model_, calibration=None)
    for i in (0, 5, 17):
        labels, scores = raw.predict_topk(X[[i]], 20)
        explained = model.explain(X[[i]], k=20)
        assert [why.label for why in explained] == labels[labels >= 0].tolist()
        for rank, (why, score) in enumerate(zip(explained, scores[0], strict=False), 1):
            assert why.score == pytest.approx(score, abs=1e-4)
            assert total(why) == pytest.approx(score, abs=1e-4)
            assert why.rank == rank
            parts = [abs(part.part) for part in why.features]
            assert parts == sorted(parts, reverse=True)
            assert sorted(part.feature for part in why.features) == sorted(X[[i]].indices)


def test_parts_add_up_with_neighbors_reranker_and_calibration():
    clf, X = with_reranker()
    for i in range(0, 200, 20):
        labels, scores = clf.predict_topk(X[[i]], 60)
        found = labels[0][(labels[0] >= 0) & (scores[0] > 0)]
        explained = clf.explain(X[[i]], label=found, k=60)
        for rank, why in enumerate(explained, 1):
            assert total(why) == pytest.approx(why.score, abs=1e-4)
            assert why.probability == pytest.approx(scores[0, rank - 1], abs=1e-6)
            assert why.rank == rank
            assert set(why.terms) == {"probability of its blocks", "training rows like it", "reranker"}
            assert sum(block.probability for block in why.blocks) == pytest.approx(1.0, abs=1e-5)
            if any(near.has_label for near in why.neighbors):
                assert why.terms["training rows like it"] > 0
        assert explained[0].neighbors[0].row == i  # the row itself is a training row
        assert explained[0].neighbors[0].similarity == pytest.approx(1.0, abs=0.02)


def test_the_largest_parts_are_listed_and_the_others_are_one_number():
    clf, X = with_reranker()
    row = X[[20]]
    n = row.indices.size
    whole = clf.explain(row, label=np.arange(60), k=3)
    for most in (0, 2, n, n + 1):
        for why, cut in zip(whole, clf.explain(row, label=np.arange(60), k=3, most_features=most), strict=True):
            assert cut.features == why.features[:most]
            assert len(cut.features) + cut.n_other_features == len(why.features)
            assert total(cut) == pytest.approx(total(why), abs=1e-6)
    assert f"{n - 2} other features" in str(clf.explain(row, k=1, most_features=2)[0])
    with pytest.raises(BlockXMCError, match="most_features must be"):
        clf.explain(row, most_features=-1)


def test_features_are_scored_a_few_at_a_time(monkeypatch):
    clf, X = with_reranker()
    together = clf.explain(X[[3]], k=8)
    monkeypatch.setattr(f"{Explanation.__module__}._CELLS", 50)
    assert clf.explain(X[[3]], k=8) == together


def test_a_label_that_was_not_suggested_says_where_it_was_lost():
    clf, X = with_reranker()
    fates = set()
    for i in range(60):
        for why in clf.explain(X[[i]], label=np.arange(60), k=3):
            fates.add(why.fate.split(":")[0])
            if why.fate.startswith("not in a visited block"):
                assert why.score is why.rank is why.probability is None
                assert not any(block.has_label for block in why.blocks)
                assert why.label not in clf.predict_topk(X[[i]], 8)[0]
            elif why.fate.startswith("cut by the reranker"):
                assert why.rank_before_reranker <= 3 < why.rank
            else:
                assert (why.rank <= 3) == why.fate.startswith("suggested")
    assert fates == {"suggested", "scored low", "cut by the reranker", "not in a visited block"}


def test_answers_ranked_by_propensity_are_explained_in_their_order():
    fitted, X = with_reranker()
    clf = copy(fitted).set_params(rank_by="propensity")
    clf.label_counts_ = np.where(np.arange(60) % 2, 1, 500)
    fates = set()
    for i in range(60):
        assert [why.label for why in clf.explain(X[[i]], k=3)] == clf.predict_topk(X[[i]], 3)[0][0].tolist()
        for why in clf.explain(X[[i]], label=np.arange(60), k=3):
            fates.add(why.fate.split(":")[0])
            assert why.rank is None or (why.rank <= 3) == why.fate.startswith("suggested")
    assert "behind rarer labels" in fates


def test_names_tables_and_plain_values(tmp_path):
    X = [[1.0, 0, 0.2], [0.9, 0.1, 0], [0, 1.0, 0], [0.1, 0.9, 0]]
    clf = DiSMEC().fit(X, [["red", "warm"], ["red"], ["blue"], ["blue", "cold"]])
    clf.save(tmp_path / "model")
    [why] = load(tmp_path / "model").explain([1.0, 0.0, 0.5], label="red", feature_names=["sun", "sea", "sky"])
    assert (why.name, why.rank) == ("red", 1)
    assert why.features[0].name == "sun"
    text = str(why)
    assert text.splitlines()[0].startswith("red (label 2): suggested")
    assert "sun" in text
    assert "sea" not in text
    again = json.loads(json.dumps(why.to_dict()))
    assert again["features"][0] == {"feature": 0, "name": "sun", "value": 1.0, "part": why.features[0].part}


def test_what_cannot_be_explained_is_refused():
    X, Y = blocky(n=120, n_labels=14)
    clf = DiSMEC().fit(X, Y)
    with pytest.raises(BlockXMCError, match="one row at a time"):
        clf.explain(X[:2])
    with pytest.raises(BlockXMCError, match="does not know"):
        clf.explain(X[[0]], label=14)
    tree = BlockwiseClassifier(DecisionTreeClassifier(max_depth=2, random_state=0), n_blocks=2, lam=0.1).fit(X, Y)
    with pytest.raises(BlockXMCError, match="not linear"):
        tree.explain(X[[0]])
    empty = sparse.csr_array((1, X.shape[1]), dtype=np.float32)
    assert all(why.features == [] for why in clf.explain(empty))
