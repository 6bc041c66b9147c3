"""Names and descriptions of labels: what they teach labels with few rows or none."""

import json

import numpy as np
import pandas as pd
import pytest
from helpers import blocky
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize
from sklearn.tree import DecisionTreeClassifier

from blockxmc import BlockwiseClassifier, DiSMEC, TextClassifier, load
from blockxmc.data.label_texts import clean_label_texts, read_label_texts
from blockxmc.data.tfidf import TextVectorizer
from blockxmc.errors import BlockXMCError, DataFormatError
from blockxmc.linear.vectors import LabelVectors
from blockxmc.text import Suggestion, UntrainedSuggestion
from blockxmc.training.label_features import LabelFeatures
from blockxmc.training.settings import SETTINGS

ANIMALS = ["cat", "dog", "cow", "hen", "pig", "owl", "fox", "bee", "ant", "eel"]


def farm(n=600, seed=0):
    """Texts about animals: three words of each of theirs, and noise; the last two animals are in no text."""
    rng = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(n):
        mine = rng.choice(ANIMALS[:-2], size=rng.integers(1, 3), replace=False).tolist()
        words = [f"{name}{rng.integers(20)}" for name in mine for _ in range(3)] + [f"noise{rng.integers(50)}"]
        texts.append(" ".join(words))
        labels.append(sorted(mine))
    return texts, labels


def about(name):
    return " ".join(f"{name}{i}" for i in range(20))


TEXTS, LABELS = farm()


@pytest.fixture(scope="module")
def model():
    return TextClassifier(BlockwiseClassifier(n_blocks=3, n_jobs=1)).fit(
        TEXTS, LABELS, label_texts={name: about(name) for name in ANIMALS}
    )


def test_labels_without_a_training_row_are_suggested_and_marked(model):
    assert model.label_names_.tolist() == [*sorted(ANIMALS[:-2]), "ant", "eel"]
    assert model.classifier_.label_counts_[-2:].tolist() == [0, 0]
    first = model.suggest(["ant1 ant5 ant7", "eel3 eel4", "cat1 cat2"], k=1)
    assert [row[0].label for row in first] == ["ant", "eel", "cat"]
    assert [row[0].trained for row in first] == [False, False, True]
    assert [type(row[0]) for row in first] == [UntrainedSuggestion, UntrainedSuggestion, Suggestion]
    label, score = first[0][0]
    assert (label, 0.5 < score <= 1) == ("ant", True)
    [why] = model.explain("ant1 ant5", label="ant")
    assert why.fate.endswith("no training row has it")
    assert why.score == pytest.approx(
        why.constant + sum(f.part for f in why.features) + sum(why.terms.values()), abs=1e-4
    )
    assert "no training row" not in model.explain("cat1 cat2", k=1)[0].fate


def test_a_saved_model_knows_them(model, tmp_path):
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    for text in ("ant1 ant5 ant7", "cat1 dog2 noise3"):
        assert again.suggest(text) == model.suggest(text)
        assert [s.trained for s in again.suggest(text)] == [s.trained for s in model.suggest(text)]


def test_results_do_not_depend_on_threads(model):
    two = TextClassifier(BlockwiseClassifier(n_blocks=3, n_jobs=2)).fit(
        TEXTS, LABELS, label_texts={name: about(name) for name in ANIMALS}
    )
    for mine, theirs in zip(model.predict_topk(TEXTS, 5), two.predict_topk(TEXTS, 5), strict=True):
        assert_array_equal(mine, theirs)


def test_weights_gain_a_share_of_the_features_that_falls_with_rows():
    rng = np.random.default_rng(0)
    features = sparse.csr_array((rng.random((4, 6)) * (rng.random((4, 6)) < 0.6)).astype(np.float32))
    vectors = LabelVectors(sparse.csr_array(rng.random((4, 6)).astype(np.float32)), rng.random(4).astype(np.float32))
    n = np.array([0, 1, 3, 99])
    some = np.array([2, 0])
    few = LabelVectors(sparse.csr_array(vectors.vectors[some]), vectors.bias[some])
    own = LabelFeatures(features, n, SETTINGS, length=2.0)
    X = sparse.csr_array(2 * normalize(rng.random((5, 6))).astype(np.float32))
    cosines = normalize(X.toarray()) @ normalize(features.toarray()).T
    wanted = vectors.scores(X) + SETTINGS.label_feature_weight / (1 + n) * cosines
    np.testing.assert_allclose(own.added_to(vectors, np.arange(4), 1).scores(X), wanted, atol=1e-5)
    np.testing.assert_allclose(own.added_to(few, some, 1).scores(X), wanted[:, some], atol=1e-5)


def test_a_label_with_few_rows_is_listed_where_its_features_are_sent():
    X, Y = blocky(n=600, n_labels=30)
    counts = np.bincount(Y.indices, minlength=30)
    bare = sparse.csr_array(Y @ sparse.diags_array((np.arange(30) != 4).astype(np.float32)))
    bare.eliminate_zeros()
    # The features of label 4 are those of its rows, which it has lost; other labels have none.
    rows = np.flatnonzero(Y[:, [4]].toarray().ravel())
    features = np.zeros((30, X.shape[1]), np.float32)
    features[4] = X[rows].toarray().mean(axis=0)
    clf = BlockwiseClassifier(n_blocks=5)
    without = clf.fit(X, bare)
    assert 4 not in np.concatenate(without.model_.scorer.label_clusters)
    with_them = BlockwiseClassifier(n_blocks=5).fit(X, bare, label_features=features)
    holding = [block for block, ids in enumerate(with_them.model_.scorer.label_clusters) if 4 in ids]
    assert len(holding) == 1
    found = with_them.predict_topk(X[rows], 5)[0]
    assert (found == 4).any(axis=1).mean() > 0.5
    assert counts[4] > 20
    others = np.delete(np.arange(600), rows)
    assert abs(with_them.score(X[others], Y[others]) - without.score(X[others], Y[others])) < 0.02


def test_names_speak_for_themselves():
    texts, labels = ["red apple pie", "green leaf tea"] * 4, [["apple"], ["leaf"]] * 4
    model = TextClassifier().fit(texts, labels, label_texts=["pie", "apple", "leaf"])
    assert model.suggest("pie", k=3)[-1].label != "pie"
    assert {s.label for s in model.suggest("pie", k=3)} == {"apple", "leaf", "pie"}


def test_columns_of_a_matrix_get_texts_and_new_columns():
    texts, Y = ["cats purr", "dogs bark"] * 3, pd.DataFrame([[1, 0], [0, 1]] * 3, columns=["cat", "dog"])
    model = TextClassifier().fit(texts, Y, label_texts=pd.Series({"dog": "dogs", "cow": "cows moo"}))
    assert model.label_names_.tolist() == ["cat", "dog", "cow"]
    assert model.suggest("cows moo", k=1)[0].label == "cow"


def test_words_of_labels_are_learnt_and_texts_say_how_rare_words_are():
    texts, more = ["red apple", "red leaf", "apple pie red"], ["cider apple", "cider red red"]
    learnt = TextVectorizer(min_df=2)
    found = learnt.fit_transform(texts, more=more)
    assert learnt.feature_names == ["apple", "cider", "red"]
    assert found.shape == (5, 3)
    same = TfidfVectorizer(vocabulary=learnt.feature_names, sublinear_tf=True, token_pattern=r"(?u)\b\w\w+\b")
    wanted = same.fit(texts).transform(texts + more).toarray()
    np.testing.assert_allclose(found.toarray(), wanted, atol=1e-6)
    assert_array_equal(found[:3].toarray(), learnt.transform(texts).toarray())
    alone, none = TextVectorizer().fit(texts), TextVectorizer().fit(texts, more=[])
    assert_array_equal(alone.idf, none.idf)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("cat", "label_texts must be a dict"),
        (7, "label_texts must be a dict"),
        ({"cat": None}, "must be text"),
        ({"cat": " "}, "holds no text"),
        ([], "holds no text"),
        ({7: "seven"}, "all text, or all whole numbers"),
    ],
)
def test_wrong_label_texts_are_refused(given, message):
    with pytest.raises(BlockXMCError, match=message):
        TextClassifier().fit(["red apple", "leaf"], [["a"], ["b"]], label_texts=given)


def test_what_cannot_take_them_says_so():
    texts, labels = ["red apple", "green leaf"] * 3, [["a"], ["b"]] * 3
    with pytest.raises(BlockXMCError, match="DiSMEC takes no label_texts: use BlockwiseClassifier"):
        TextClassifier(DiSMEC()).fit(texts, labels, label_texts=["a"])
    with pytest.raises(BlockXMCError, match="BlockwiseClassifier takes no n_blocks; parameters"):
        TextClassifier().fit(texts, labels, n_blocks=3)
    with pytest.raises(BlockXMCError, match='needs weights="shared"'):
        TextClassifier(BlockwiseClassifier.paper(n_blocks=1, lam=0.0)).fit(texts, labels, label_texts=["a apple"])
    with pytest.raises(BlockXMCError, match="linear base"):
        TextClassifier(BlockwiseClassifier(DecisionTreeClassifier())).fit(texts, labels, label_texts=["apple"])
    X, Y = blocky(n=100, n_labels=8)
    for wrong in (np.ones((7, X.shape[1])), np.ones((8, 3)), "names", np.full((8, X.shape[1]), np.nan)):
        with pytest.raises(BlockXMCError, match=r"label_features must|values"):
            BlockwiseClassifier().fit(X, Y, label_features=wrong)


def test_files_of_label_texts(tmp_path):
    (tmp_path / "a.tsv").write_text("cow\tcows moo\n\n dog \n<http://x/1>\tone\n<b>\tbold\n")
    assert read_label_texts(tmp_path / "a.tsv") == {
        "cow": "cows moo",
        "dog": " dog ",
        "http://x/1": "one",
        "<b>": "bold",
    }
    (tmp_path / "a.json").write_text(json.dumps({"cow": "cows\nmoo"}))
    assert read_label_texts(tmp_path / "a.json") == {"cow": "cows\nmoo"}
    for name, content in (
        ("b.json", "[1"),
        ("c.json", "[]"),
        ("d.json", '{"cow": 3}'),
        ("e.tsv", "a\tx\na\ty\n"),
        ("f.tsv", ""),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(DataFormatError, match=name):
            read_label_texts(tmp_path / name)
    assert clean_label_texts({3: "three"}) == {3: "three"}
