"""Names and descriptions of labels: what they teach labels with few rows or none."""

import gzip
import json
import sys

import numpy as np
import pandas as pd
import pytest
from helpers import blocky, catalogue
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize
from sklearn.tree import DecisionTreeClassifier

from blockxmc import BlockwiseClassifier, DiSMEC, TextClassifier, load
from blockxmc.data.label_texts import clean_label_texts, features_of_labels, read_label_texts
from blockxmc.data.tfidf import TextVectorizer
from blockxmc.errors import BlockXMCError, DataFormatError
from blockxmc.model.calibration import Calibration
from blockxmc.text import Suggestion, UntrainedSuggestion
from blockxmc.training.names import Names
from blockxmc.training.settings import SETTINGS
from blockxmc.training.untrained import shift_of

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
    assert (label, 0 < score <= 1) == ("ant", True)
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


def test_a_product_with_a_name_is_the_cosine_and_less_for_labels_with_rows():
    rng = np.random.default_rng(0)
    features = sparse.csr_array((rng.random((4, 6)) * (rng.random((4, 6)) < 0.6)).astype(np.float32))
    n = np.array([0, 1, 3, 99])
    X = sparse.csr_array(2 * normalize(rng.random((5, 6))).astype(np.float32))
    cosines = normalize(X.toarray()) @ normalize(features.toarray()).T
    own = Names(sparse.csr_array(normalize(features)), n, 2.0).vectors(np.array([2, 0]))
    np.testing.assert_allclose((X @ own.T).toarray(), (cosines / (1 + n) ** SETTINGS.name_decay)[:, [2, 0]], atol=1e-5)


def test_names_are_taken_where_held_out_rows_gain_and_only_there():
    texts, labels = catalogue()
    plain = BlockwiseClassifier(n_blocks=4, n_jobs=1)
    helped = TextClassifier(plain).fit(texts, labels)
    assert helped.names_teach_["weight"] > 0.3
    assert sum(helped.names_teach_[f"gained_P@{k}"] for k in (1, 3, 5)) > 0
    test, truth = catalogue(seed=1)
    without = TextClassifier(plain).fit(texts, labels, label_texts=None)
    assert without.names_teach_ is None
    assert helped.score(test, truth) > without.score(test, truth)
    # The same names, dealt out anew, say nothing of rows: the model is that without names.
    codes = {name: f"code{i}" for i, name in enumerate(sorted({name for row in labels for name in row}))}
    coded = [[codes[name] for name in row] for row in labels]
    auto, none = (TextClassifier(plain).fit(texts, coded, label_texts=way) for way in ("auto", None))
    assert auto.names_teach_ == {"weight": 0.0}
    for mine, theirs in zip(auto.predict_topk(texts, 5), none.predict_topk(texts, 5), strict=True):
        assert_array_equal(mine, theirs)


def test_held_out_rows_do_not_see_names_of_labels_that_they_alone_have(monkeypatch):
    """A planted case: such names would find what no name of a new row's label can, and P@k promised would be too good."""
    texts, labels = catalogue(planted=900)
    seen = {}
    known = Names.known_to

    def spy(self, shown):
        seen["names"], seen["shown"], seen["all"] = (out := known(self, shown)).rows, shown, self.positives
        return out

    monkeypatch.setattr(Names, "known_to", spy)
    model = TextClassifier(BlockwiseClassifier(n_blocks=4, n_jobs=1)).fit(texts, labels)
    shown = np.bincount(seen["shown"].indices, minlength=seen["all"].size)
    alone = (shown == 0) & (seen["all"] > 0)
    assert alone.sum() > 100
    assert not np.diff(seen["names"].indptr)[alone].any()
    assert np.diff(seen["names"].indptr)[shown > 0].all()
    test, truth = catalogue(seed=1)
    assert model.classifier_.cost_["expected_P@1"] < model.score(test, truth) + 0.05


def test_of_several_texts_of_a_label_each_is_as_near_as_alone():
    vectorizer = TextVectorizer().fit(["red apple", "green pear", "old car"])
    found = features_of_labels(vectorizer, {"a": ["red apple", "green pear"], "b": ["red apple"]}, "abc", 1)
    x = vectorizer.transform(["red apple", "green pear", "old car"])
    np.testing.assert_allclose((x @ found.T).toarray(), [[1, 1, 0], [1, 0, 0], [0, 0, 0]], atol=1e-6)
    twice = features_of_labels(vectorizer, {"a": ["red apple", "red car"]}, "a", 1).toarray()
    each = vectorizer.transform(["red apple", "red car"]).toarray()
    np.testing.assert_array_equal(twice[0], each.max(axis=0))


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
        ("cat", 'label_texts must be "auto"'),
        (7, 'label_texts must be "auto"'),
        ({"a": "x", " a ": "y"}, "is there twice"),
        ({"a": ["x", 3]}, "a list of it"),
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


@pytest.mark.parametrize("labels", [[[1], [2]] * 3, np.eye(2)[[0, 1] * 3]])
def test_names_that_are_no_text_cannot_teach(labels):
    texts = ["red apple", "green leaf"] * 3
    with pytest.raises(BlockXMCError, match='label_texts="names" needs labels that are text: give a dict'):
        TextClassifier().fit(texts, labels, label_texts="names")
    assert TextClassifier().fit(texts, labels).names_teach_ is None


def test_files_of_label_texts(tmp_path):
    (tmp_path / "a.tsv").write_text("cow\tcows moo\tcattle\n\n dog \n<http://x/1>\tone\n<b>\tbold\n")
    assert read_label_texts(tmp_path / "a.tsv") == {
        "cow": ["cows moo", "cattle"],
        "dog": [" dog "],
        "http://x/1": ["one"],
        "<b>": ["bold"],
    }
    (tmp_path / "a.json").write_text(json.dumps({"cow": "cows\nmoo"}))
    assert read_label_texts(tmp_path / "a.json") == {"cow": ["cows\nmoo"]}
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
    assert clean_label_texts({3: "three"}) == {3: ["three"]}


TURTLE = """
@prefix skos: <http://www.w3.org/2004/02/skos/core#> . @prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix x: <http://x/> .
x:1 a skos:Concept ; skos:prefLabel "cattle"@en, "Rinder"@de ; skos:altLabel "cows"@en, "moo \\"beasts\\"" ;
    skos:hiddenLabel "catle"@en .
x:2 skos:prefLabel "goats"@en .
x:3 skos:prefLabel "dodos"@en ; owl:deprecated true .
"""


def test_thesauri(tmp_path):
    rdflib = pytest.importorskip("rdflib", reason="needs the extra 'skos'")
    (tmp_path / "a.ttl").write_text(TURTLE)
    graph = rdflib.Graph().parse(data=TURTLE, format="turtle")
    graph.serialize(tmp_path / "a.rdf", format="xml")
    (tmp_path / "a.ttl.gz").write_bytes(gzip.compress(TURTLE.encode()))
    cattle = ["Rinder", "cattle", 'moo "beasts"', "catle", "cows"]
    for name in ("a.ttl", "a.rdf", "a.ttl.gz"):
        by_uri = read_label_texts(tmp_path / name, ["http://x/2", "cattle"])
        assert by_uri == {"http://x/1": cattle, "http://x/2": ["goats"]}
    assert read_label_texts(tmp_path / "a.ttl", ["cattle"]) == {"cattle": cattle, "goats": ["goats"]}
    assert list(read_label_texts(tmp_path / "a.ttl")) == ["Rinder", "goats"]
    for name, content in (("b.ttl", "x:1 ?"), ("c.ttl", ""), ("d.rdf", "<rdf"), ("e.jsonld", "[")):
        (tmp_path / name).write_text(content)
        with pytest.raises(DataFormatError, match=name) as error:
            read_label_texts(tmp_path / name)
        assert "\n" not in str(error.value)


def test_without_the_reader_a_thesaurus_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "rdflib", None)
    (tmp_path / "a.ttl").write_text(TURTLE)
    with pytest.raises(DataFormatError, match=r"pip install 'blockxmc\[skos\]'"):
        read_label_texts(tmp_path / "a.ttl")


def test_labels_without_rows_are_set_back_until_their_probabilities_hold():
    rng = np.random.default_rng(0)
    scores = -np.sort(-rng.normal(size=(2000, 20)).astype(np.float32), axis=1)
    untrained = rng.random(scores.shape) < 0.3
    right = (
        rng.random(scores.shape) < 1 / (1 + np.exp(-scores))
    ) & ~untrained  # one in a hundred of the others is right
    right |= untrained & (rng.random(scores.shape) < 0.01)
    shift = shift_of(scores, untrained, right, Calibration.of_score(scale=1.0))
    chances = 1 / (1 + np.exp(-(scores[untrained] + shift)))
    assert chances.sum() == pytest.approx(right[untrained].sum(), rel=0.02)
    assert shift < -2


def test_a_vocabulary_of_which_most_labels_have_no_row_does_no_harm():
    texts, labels = catalogue(n=2500)
    plain = BlockwiseClassifier(n_blocks=4, n_jobs=1)
    strange = {f"strange{i} topic{i}": f"strange{i} topic{i}" for i in range(600)}
    known = {name: name for row in labels for name in row}
    seen = TextClassifier(plain).fit(texts, labels, label_texts="names")
    whole = TextClassifier(plain).fit(texts, labels, label_texts=known | strange)
    test, truth = catalogue(seed=1)
    assert whole.score(test, truth) > seen.score(test, truth) - 0.02
    asked = whole.suggest(["strange7 topic7"], k=1, allow=list(strange))[0][0]
    assert (asked.label, asked.trained) == ("strange7 topic7", False)
    first = [row[0] for row in whole.suggest(test, k=1)]
    assert np.mean([not best.trained for best in first]) < 0.02


def test_an_explanation_says_that_a_label_came_by_its_name():
    texts, labels = catalogue()
    model = TextClassifier(BlockwiseClassifier(n_blocks=4, n_jobs=1)).fit(texts, labels, label_texts="names")
    [why] = model.explain("topic3 noise5", label="topic3 science")
    assert "; the text shares `topic3` with the name" in why.fate
    [other] = model.explain("topic4 noise5", label="topic3 science")
    assert "shares" not in other.fate


def test_an_update_learns_names_of_new_labels_too(tmp_path):
    texts, labels = catalogue()
    model = TextClassifier(BlockwiseClassifier(n_blocks=4, n_jobs=1, keep_rows=True)).fit(
        texts, labels, label_texts="names"
    )
    model.update(["topic3 novelty", "novelty noise1"], [["novelty science"], ["novelty science"]])
    names = model.classifier_.names_
    assert names.shape == (model.label_names_.size, model.vectorizer_.n_features)
    model.save(tmp_path / "m")
    assert load(tmp_path / "m").suggest("novelty", k=1) == model.suggest("novelty", k=1)
    assert model.suggest("novelty", k=1)[0].label == "novelty science"
    model.forget([0])
    assert model.classifier_.n_train_rows_ == len(texts) + 1
