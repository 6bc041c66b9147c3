"""Texts and label names in, label names out."""

import json
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from blockxmc import BlockwiseClassifier, DiSMEC, TextClassifier, load
from blockxmc._core.base import NOT_SCORED
from blockxmc.data import from_texts
from blockxmc.data.tfidf import TextVectorizer
from blockxmc.errors import BlockXMCError, UpdateError
from blockxmc.model.sources import Source, Sources
from blockxmc.text import Suggestion

ANIMALS = {"cat": "cats purr sleep whiskers", "dog": "dogs bark run lead", "cow": "cows moo graze milk"}


def corpus(n=120, seed=0):
    rng = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(n):
        mine = sorted(rng.choice(list(ANIMALS), size=rng.integers(1, 3), replace=False).tolist())
        words = [word for name in mine for word in rng.choice(ANIMALS[name].split(), 3)] + ["and", "the"]
        texts.append(" ".join(rng.permutation(words)))
        labels.append(mine)
    return texts, labels


TEXTS, LABELS = corpus()


@pytest.fixture(scope="module")
def model():
    return TextClassifier(BlockwiseClassifier(n_jobs=1)).fit(TEXTS, LABELS)


def test_label_names_go_out(model):
    assert model.label_names_.tolist() == ["cat", "cow", "dog"]
    assert model.predict(["cats purr", "dogs bark and cows moo"]) == [["cat"], ["cow", "dog"]]
    suggested = model.suggest(["cats purr", "dogs"], k=2)
    assert [len(row) for row in suggested] == [2, 2]
    assert suggested[0][0] == Suggestion("cat", suggested[0][0].score)
    assert suggested[0][0].score >= suggested[0][1].score
    assert model.score(TEXTS, LABELS) > 0.9


def test_the_features_are_those_of_a_data_set(model):
    data = from_texts(TEXTS, LABELS)
    direct = BlockwiseClassifier(n_jobs=1).fit(data.X, data.Y)
    for mine, theirs in zip(model.predict_topk(TEXTS, 3), direct.predict_topk(data.X, 3), strict=True):
        assert_array_equal(mine, theirs)


def test_one_text_is_answered_like_one_of_a_list(model):
    text = "cats and dogs sleep"
    assert model.suggest(text) == model.suggest([text])[0]
    assert model.predict(text) == model.predict([text])[0]
    for one, many in zip(model.predict_topk(text, 2), model.predict_topk([text], 2), strict=True):
        assert_array_equal(one, many[0])
    assert model.predict([]) == model.suggest([]) == []
    assert model.predict_topk([], 2)[0].shape == (0, 2)
    assert model.predict_proba([]).shape == model.decision_function([]).shape == (0, 3)
    assert model.score(text, ["cat"]) == model.score(text, [["cat"]]) == model.score([text], [["cat"]])
    alone = TextClassifier(BlockwiseClassifier(n_jobs=1)).fit(text, ["cat", "dog"])
    assert sorted(alone.predict(text)) == ["cat", "dog"]
    for ask in (lambda: model.suggest([], k=-1), lambda: model.explain(text, k=0)):
        with pytest.raises(BlockXMCError, match="k must be a whole number"):
            ask()


def test_a_text_without_a_known_word_gets_no_label(model):
    assert model.suggest(["zebras", "", "cats purr"], k=1)[:2] == model.predict(["zebras", ""]) == [[], []]
    assert model.suggest("zebras") == []
    assert model.predict_topk("zebras", 1)[0].tolist() != [-1]  # what is most frequent, for those who want it


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, sparse.csr_matrix])
def test_a_model_of_a_matrix_answers_in_matrices_of_its_kind(form):
    names = sorted(ANIMALS)
    Y = form([[int(name in row) for name in names] for row in LABELS])
    clf = TextClassifier(BlockwiseClassifier(n_jobs=1)).fit(TEXTS, y=Y, label_names=names)
    found = clf.predict([*TEXTS[:9], "zebras"])
    assert type(found) is type(Y)
    dense = found if isinstance(found, np.ndarray) else found.toarray()
    of_lists = TextClassifier(BlockwiseClassifier(n_jobs=1)).fit(TEXTS, LABELS).predict(TEXTS[:9])
    assert [[name for name, has in zip(names, row, strict=True) if has] for row in dense] == [*of_lists, []]
    assert clf.suggest("cats purr", k=1)[0].label == "cat"


@pytest.mark.parametrize("scoring", ["average_precision", "roc_auc", "f1_samples", "accuracy"])
def test_scikit_learns_scorers(scoring):
    Y = np.array([[int(name in row) for name in sorted(ANIMALS)] for row in LABELS])
    classifier = BlockwiseClassifier(n_jobs=1, n_blocks=2)
    for model in (TextClassifier(classifier), make_pipeline(TfidfVectorizer(), classifier)):
        scores = cross_val_score(model, TEXTS, Y, scoring=scoring, cv=2, error_score="raise")
        assert (scores > 0.9).all()


def test_labels_that_are_no_candidates_have_finite_scores():
    X, Y = np.eye(8, dtype=np.float32).repeat(8, axis=0), np.eye(8, dtype=int).repeat(8, axis=0)
    clf = BlockwiseClassifier.paper(DiSMEC(), n_blocks=4, lam=0.1, n_jobs=1).fit(X, Y)
    scores = clf.decision_function(X)
    assert (scores == NOT_SCORED).any()
    assert np.isfinite(scores).all()
    assert_array_equal(scores > 0, clf.predict(X) > 0)


def test_names_of_features(model):
    assert model.get_feature_names_out().tolist() == model.vectorizer_.feature_names


def test_labels_of_a_score_go_with_its_texts(model):
    with pytest.raises(BlockXMCError, match="120 texts but 119 lists"):
        model.score(TEXTS, LABELS[:-1])
    with pytest.raises(BlockXMCError, match="X has 120 rows but y has 119"):
        model.classifier_.score(model.vectorizer_.transform(TEXTS), LABELS[:-1])


def test_texts_are_read_once():
    plain = TextClassifier(BlockwiseClassifier(n_jobs=1)).fit(TEXTS, LABELS, label_texts={"hen": "hens cluck"})
    other = TextClassifier(BlockwiseClassifier(n_jobs=1)).fit(
        iter(TEXTS), iter(LABELS), label_texts={"hen": "hens cluck"}
    )
    assert other.suggest(TEXTS) == plain.suggest(TEXTS)
    lengths = TextClassifier(BlockwiseClassifier(n_jobs=1), extra=lambda texts: [[len(text)] for text in texts])
    assert lengths.fit(iter(TEXTS), iter(LABELS)).suggest(TEXTS) == lengths.fit(TEXTS, LABELS).suggest(TEXTS)


def test_a_threshold_leaves_out_what_scores_lower(model):
    every = model.suggest("cats purr", k=3)
    cut = every[1].score
    assert model.suggest("cats purr", k=3, threshold=cut) == [s for s in every if s.score > cut]
    assert [s.label for s in model.suggest("cats purr", k=3, threshold="f1")] == model.predict("cats purr")
    for wrong in ("high", float("nan")):
        with pytest.raises(BlockXMCError, match="threshold must be"):
            model.suggest("cats purr", threshold=wrong)
        with pytest.raises(BlockXMCError, match="threshold must be"):
            BlockwiseClassifier(threshold=wrong).fit([[1.0]], [["a"]])


def test_reasons_are_words_and_add_up(model):
    [why] = model.explain("cats purr", k=1)
    assert (why.name, why.rank) == ("cat", 1)
    assert {part.name for part in why.features} == {"cats", "purr"}
    assert why.probability == pytest.approx(model.suggest("cats purr", k=1)[0].score)
    total = why.constant + sum(part.part for part in why.features) + sum(why.terms.values())
    assert total == pytest.approx(why.score, abs=1e-4)
    assert "cats" in str(why)
    [lost] = model.explain("cats purr", label="dog", k=1)
    assert (lost.name, lost.rank > 1) == ("dog", True)
    with pytest.raises(BlockXMCError, match="bird"):
        model.explain("cats purr", label="bird")


def test_allowed_labels_are_the_best_among_them(model):
    text = "cats purr and cows moo"
    every = model.suggest(text, k=3)
    assert model.suggest(text, k=1, deny=[every[0].label]) == every[1:2]
    assert model.suggest(text, k=3, allow=["dog", "cow"]) == [s for s in every if s.label != "cat"]
    assert model.suggest([text], k=3, allow=["dog"], threshold=1.0) == [[]]
    ids, _ = model.predict_topk([text], k=3, allow=["dog"])
    assert ids.tolist() == [[2, -1, -1]]
    for wrong in ("bird", ["bird"]):
        with pytest.raises(BlockXMCError, match="bird"):
            model.suggest(text, allow=[wrong])


def test_probabilities_are_those_of_suggestions(model):
    found = model.predict_proba(["cats purr", "dogs bark"])
    assert found.shape == (2, 3)
    for i, row in enumerate(model.suggest(["cats purr", "dogs bark"], k=3)):
        for label, score in row:
            assert found[i, model.label_names_.tolist().index(label)] == pytest.approx(score)
    high = clone(model).set_params(classifier__threshold=0.999999).fit(TEXTS, LABELS)
    assert high.predict("cats purr") == []


FORMS = {
    "arrays": (np.array(TEXTS), np.array([set(row) for row in LABELS], dtype=object)),
    "objects": (np.array(TEXTS, dtype=object), [tuple(row) for row in LABELS]),
    "series": (pd.Series(TEXTS, index=range(7, 127)), pd.Series(LABELS, index=range(7, 127))),
    "string series": (pd.Series(TEXTS, dtype="string"), pd.Series(LABELS)),
    "lists as text": (TEXTS, pd.Series([str(row) for row in LABELS])),
    "untidy": (tuple(TEXTS), [[f" {name} " for name in row] + ["", " "] for row in LABELS]),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_texts_and_labels_trains_the_same_model(form, model):
    texts, labels = FORMS[form]
    other = TextClassifier(BlockwiseClassifier(n_jobs=1)).fit(texts, labels)
    assert other.label_names_.tolist() == model.label_names_.tolist()
    assert_array_equal(other.predict_topk(texts, 3)[1], model.predict_topk(TEXTS, 3)[1])
    assert other.score(texts, labels) == model.score(TEXTS, LABELS)


def test_a_matrix_has_named_columns(model):
    Y = from_texts(TEXTS, LABELS).Y
    names = ["cat", "cow", "dog"]
    matrices = {"names": sparse.csr_matrix(Y), "array": Y.toarray(), "frame": pd.DataFrame(Y.toarray(), columns=names)}
    for form, matrix in matrices.items():
        given = None if form == "frame" else names
        other = TextClassifier(BlockwiseClassifier(n_jobs=1)).fit(TEXTS, matrix, label_names=given)
        found = other.suggest(TEXTS, threshold="f1")
        assert [sorted(s.label for s in row) for row in found] == model.predict(TEXTS)
        assert other.score(TEXTS, matrix) == model.score(TEXTS, LABELS)
    numbered = TextClassifier(BlockwiseClassifier(n_jobs=1)).fit(TEXTS, Y)
    assert numbered.predict("cats purr").toarray().tolist() == [1, 0, 0]
    assert type(numbered.suggest("cats purr", k=1)[0].label) is int
    mixed = pd.DataFrame(Y.toarray(), columns=names).astype({"cat": bool, "cow": int})
    of_mixed = TextClassifier(BlockwiseClassifier(n_jobs=1)).fit(TEXTS, mixed)
    assert of_mixed.suggest(TEXTS) == model.suggest(TEXTS)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "b"], "2 different label names for 3 columns"),
        ([0.5, 0.7, 1.0], "must be all text, or all whole numbers.*found 0.5"),
        ([1, "a", 2], "found 'a'"),
        ([("a", "b"), ("a", "c"), ("b", "c")], "found \\('a', 'b'\\)"),
        ([2**70, 1, 2], "64 bits"),
    ],
)
def test_wrong_names_of_columns_are_one_line(names, message):
    Y = from_texts(TEXTS, LABELS).Y.toarray()
    with pytest.raises(BlockXMCError, match=message):
        TextClassifier().fit(TEXTS, Y, label_names=names)
    if len(names) == 3:
        with pytest.raises(BlockXMCError, match=message):
            TextClassifier().fit(TEXTS, pd.DataFrame(Y).set_axis(pd.Index(names, dtype=object), axis=1))


def test_labels_that_label_names_lacks_are_refused():
    with pytest.raises(BlockXMCError, match="not among label_names"):
        TextClassifier().fit(TEXTS, LABELS, label_names=["cat", "dog"])


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        (["a cat", None], [["x"], ["y"]], "text 1 is None"),
        (["a cat", float("nan")], [["x"], ["y"]], "text 1 is nan"),
        (pd.Series(["a cat", None], dtype="string"), [["x"], ["y"]], "text 1 is <NA>.*fillna"),
        (["a cat", np.zeros(2)], [["x"], ["y"]], "text 1 is array"),
        (["a cat", "a dog"], [["x"], pd.NA], "row 1 of the labels is <NA>.*fillna"),
        (["a cat", "a dog"], [["x"], ["y", pd.NA]], "row 1 of Y holds <NA>"),
        (["a cat", "a dog"], [[2**70], [1]], "whole numbers of 64 bits"),
        (["a cat", "a dog"], np.array([[1, np.nan], [0, 1]]), "0 and 1 only, and holds nan"),
        (["a cat", "a dog"], ["x;y", "y"], r"row 0 of the labels is 'x;y'; give a list.*str.split"),
        (["a cat", "a dog"], ["['x']", "y"], r"row 0 of the labels is \"\['x'\]\""),
        (["a cat", "a dog"], [["x"], None], "row 1 of the labels is None"),
        (["a cat", "a dog"], "xy", "labels must be a matrix or a list"),
        (["a cat", "a dog"], [["x"]], "2 texts but 1 lists"),
        (pd.DataFrame({"text": ["a"]}), [["x"]], "texts must be a list.*DataFrame"),
        (7, [["x"]], "texts must be a list.*int"),
        (["?", "!"], [["x"], ["y"]], "nothing to learn"),
    ],
)
def test_bad_input_is_one_line(texts, labels, message):
    with pytest.raises(BlockXMCError, match=message) as caught:
        TextClassifier().fit(texts, labels)
    assert "\n" not in str(caught.value)


def test_bad_parameters_are_one_line():
    for wrong in (
        {"analyzer": "letters"},
        {"ngram_range": (2, 1)},
        {"ngram_range": 2},
        {"min_df": 0},
        {"min_df": True},
        {"max_features": 0},
        {"stop_words": "german"},
        {"stop_words": [1]},
        {"stop_words": ["a"], "analyzer": "char"},
        {"lowercase": "no"},
    ):
        with pytest.raises(BlockXMCError, match=next(iter(wrong))):
            TextClassifier(**wrong).fit(TEXTS, LABELS)
    with pytest.raises(BlockXMCError, match="BlockwiseClassifier"):
        TextClassifier(LogisticRegression()).fit(TEXTS, LABELS)


OPTIONS = {"analyzer": "char_wb", "ngram_range": (2, 3), "min_df": 3, "max_features": 40, "lowercase": False}


@pytest.mark.parametrize("options", [{}, OPTIONS, {"stop_words": ["and", "the"]}, {"stop_words": "english"}])
def test_a_saved_model_is_the_same_model(options, tmp_path):
    fitted = TextClassifier(DiSMEC(n_jobs=1), **options).fit(TEXTS, LABELS)
    fitted.save(tmp_path / "m")
    for other in (load(tmp_path / "m"), pickle.loads(pickle.dumps(fitted))):
        assert isinstance(other, TextClassifier)
        assert other.suggest(TEXTS) == fitted.suggest(TEXTS)
        again = clone(other).fit(TEXTS, LABELS)
        assert again.suggest(TEXTS) == fitted.suggest(TEXTS)
        assert {name: other.get_params()[name] for name in OPTIONS} == {
            name: fitted.get_params()[name] for name in OPTIONS
        }
        other.save(tmp_path / "again")


def test_the_command_line_trains_the_same_model(tmp_path, model):
    rows = [json.dumps({"text": text, "labels": row}) for text, row in zip(TEXTS, LABELS, strict=True)]
    (tmp_path / "train.jsonl").write_text("\n".join(rows) + "\n")
    command = [sys.executable, "-m", "blockxmc", "train", "train.jsonl", "--model", "m", "--threads", "1"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    trained = load(tmp_path / "m")
    assert isinstance(trained, TextClassifier)
    assert trained.suggest(TEXTS) == model.suggest(TEXTS)
    assert trained.predict(TEXTS) == model.predict(TEXTS)


def test_scikit_learn_can_search_its_parameters():
    search = GridSearchCV(
        TextClassifier(DiSMEC(n_jobs=1)), {"ngram_range": [(1, 1), (1, 2)], "classifier__C": [0.1, 1.0]}, cv=2
    )
    search.fit(TEXTS, LABELS)
    assert search.best_score_ > 0.8
    assert search.predict(["cats purr"]) == [["cat"]]
    assert cross_val_score(TextClassifier(), pd.Series(TEXTS), pd.Series(LABELS), cv=2).min() > 0.5


def test_a_search_hands_weights_to_the_rows_they_belong_to():
    # Two in three texts have wrong labels, and no weight.
    wrong = np.arange(len(TEXTS)) % 3 > 0
    other = {"cat": "dog", "dog": "cow", "cow": "cat"}
    labels = [[other[name] for name in row] if out else row for row, out in zip(LABELS, wrong, strict=True)]
    grid = {"classifier__base__C": [0.1, 1.0], "min_df": [1, 2]}
    scores = []
    for weight in (None, 1.0 - wrong):
        search = GridSearchCV(TextClassifier(BlockwiseClassifier(DiSMEC(), n_blocks=1, n_jobs=1)), grid, cv=2)
        search.fit(np.array(TEXTS), pd.Series(labels), sample_weight=weight)
        scores.append(search.best_estimator_.score(TEXTS, LABELS))
    assert scores[0] < 0.7
    assert scores[1] > 0.95


# ---- updates ----
def test_words_of_updates_become_features_and_known_ones_keep_their_idf():
    vectorizer = TextVectorizer(min_df=2).fit(["red apple", "red pear", "green pear"])
    assert vectorizer.feature_names == ["pear", "red"]
    first, X = vectorizer.extended(["plum wine", "red"])
    assert first.feature_names == ["pear", "red"]
    assert X.shape == (2, 2)
    second, X = first.extended(["plum jam"])  # the second text with plum, over two updates
    assert second.feature_names == ["pear", "red", "plum"]
    assert X.toarray().tolist() == [[0, 0, 1]]
    np.testing.assert_array_equal(second.idf[:2], vectorizer.idf)
    assert second.idf[2] == np.float32(np.log(7 / 3) + 1)
    assert second.counts.in_texts.tolist() == [2, 3, 2]
    again = TextVectorizer.from_state(second.state())
    for counts in (second.counts, again.counts):  # plum is a feature now, but the features of the fourth text lack it
        assert {word: rows.tolist() for word, rows in counts.before.items()} == {"wine": [3], "plum": [3], "jam": [5]}
    np.testing.assert_array_equal(again.transform(["plum pear"]).toarray(), second.transform(["plum pear"]).toarray())


def test_no_words_are_added_beyond_the_most():
    vectorizer = TextVectorizer(min_df=1, max_features=3).fit(["red apple"])
    assert vectorizer.extended(["plum wine wine", "wine"])[0].feature_names == ["apple", "red", "wine"]


def test_texts_are_learnt_and_forgotten(tmp_path):
    clf = TextClassifier(BlockwiseClassifier(keep_rows=True)).fit(TEXTS, LABELS)
    n_words = clf.vectorizer_.n_features
    clf.update(["zebras graze", "zebras run"], [["zebra"], ["zebra"]])
    assert clf.vectorizer_.n_features > n_words
    assert clf.suggest("zebras", k=1)[0].label == "zebra"
    clf.save(tmp_path / "model")
    again = load(tmp_path / "model").update("zebras sleep", ["zebra"])
    assert again.classifier_.label_counts_[-1] == 3
    again.forget(np.arange(len(TEXTS), len(TEXTS) + 3))
    assert again.classifier_.label_counts_[-1] == 0
    with pytest.raises(UpdateError, match="keep_rows"):
        TextClassifier().fit(TEXTS, LABELS).update(["x"], [["y"]])
    with pytest.raises(UpdateError, match="cannot be updated"):
        TextClassifier(DiSMEC()).fit(TEXTS, LABELS).update(["x"], [["y"]])


def contents(folder):
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


@pytest.mark.parametrize("min_df", [1, 2])
def test_words_of_forgotten_texts_leave_the_files(min_df, tmp_path):
    clf = TextClassifier(BlockwiseClassifier(keep_rows=True), min_df=min_df).fit(TEXTS, LABELS)
    clf.classifier_.sources_ = Sources.of([Source(None, text) for text in TEXTS], whole=True)  # as with neighbors
    clf.save(tmp_path)
    known = contents(tmp_path)
    for text in ("cats of jane.doe", "cats of jane and john", "cats of john"):  # jane is a feature from the second on
        clf.update([text], [["cat"]])
    clf.save(tmp_path)
    assert all(word in contents(tmp_path) for word in (b"jane", b"doe", b"john"))
    assert "jane" in clf.classifier_.sources_[len(TEXTS)].text
    clf.forget([len(TEXTS) + 1])
    clf = pickle.loads(pickle.dumps(clf))
    clf.save(tmp_path)
    assert all(word in contents(tmp_path) for word in (b"jane", b"doe", b"john"))
    clf = load(tmp_path).forget([len(TEXTS)])
    clf.save(tmp_path)
    assert b"jane" not in contents(tmp_path)
    assert b"doe" not in contents(tmp_path)
    assert b"john" in contents(tmp_path)
    assert not any("jane" in clf.classifier_.sources_[row].text for row in range(clf.classifier_.n_train_rows_))
    clf.forget([len(TEXTS)]).save(tmp_path)
    assert not any(word in contents(tmp_path) for word in (b"jane", b"doe", b"john"))
    assert clf.vectorizer_.counts.n_texts == len(TEXTS)
    assert len(contents(tmp_path)) < 2 * len(known)
    clf.update(["cats of jane"], [["cat"]])
    assert ("jane" in clf.vectorizer_.feature_names) == (min_df == 1)  # it is counted from the beginning


def test_counts_of_words_are_those_of_the_texts_that_are_left(tmp_path):
    rng = np.random.default_rng(3)
    words = [f"w{i}" for i in range(40)]

    def some(n):
        return [" ".join(rng.choice(words, 4)) for _ in range(n)], [["a"] if i % 2 else ["b"] for i in range(n)]

    texts, labels = some(12)
    clf = TextClassifier(BlockwiseClassifier(keep_rows=True, n_blocks=2, n_jobs=1), min_df=2).fit(texts, labels)
    fitted = set(clf.vectorizer_.feature_names)
    since = len(texts)  # words that were too rare in the texts of the fit were never counted there
    for turn in range(12):
        if turn % 3 == 2:
            gone = np.sort(rng.choice(len(texts), 4, replace=False))
            clf.forget(gone)
            texts, since = [text for i, text in enumerate(texts) if i not in gone], since - (gone < since).sum()
        else:
            more = some(4)
            clf.update(*more)
            texts += more[0]
        counts = clf.vectorizer_.counts
        holders = {w: [i for i, text in enumerate(texts) if w in text.split()] for w in words}
        known = {name: j for j, name in enumerate(clf.vectorizer_.feature_names)}
        assert counts.n_texts == len(texts)
        fitted &= known.keys()
        for word in words:
            rows = [i for i in holders[word] if i >= since or word in fitted]
            if word in known:
                assert counts.in_texts[known[word]] == len(rows) > 0
            else:
                assert counts.before.get(word, np.zeros(0)).tolist() == rows
        if turn % 4 == 3:
            clf.save(tmp_path)
            clf = load(tmp_path)


def test_rows_that_come_and_go_without_their_texts(tmp_path):
    clf = TextClassifier(BlockwiseClassifier(keep_rows=True), min_df=2).fit(TEXTS, LABELS)
    classifier = clf.classifier_
    classifier.update(sparse.csr_array((1, classifier.n_features_in_), dtype=np.float32), [["cat"]])
    clf.update(["cats of jane", "cats of doe"], [["cat"]] * 2).forget([len(TEXTS)])
    clf.save(tmp_path)
    clf = load(tmp_path)
    assert {word: rows.tolist() for word, rows in clf.vectorizer_.counts.before.items() if word != "of"} == {
        "jane": [len(TEXTS)],
        "doe": [len(TEXTS) + 1],
    }
    clf.classifier_.forget([0, len(TEXTS)])  # nobody says which words they had
    clf.forget([0]).update(["cats of jim"], [["cat"]]).save(tmp_path)
    assert list(load(tmp_path).vectorizer_.counts.before) == ["jim"]
    assert b"doe" not in contents(tmp_path)


class Meanwhile(list):
    """A list of allowed labels; while it is read, the model learns another."""

    def __init__(self, names, learn):
        super().__init__(names)
        self.learn = learn

    def __iter__(self):
        self.learn()
        return super().__iter__()


def test_an_answer_is_of_one_version():
    clf = TextClassifier(BlockwiseClassifier(keep_rows=True, n_jobs=1), min_df=1).fit(TEXTS, LABELS)
    before = clf.suggest("zebras purr", k=3)
    allowed = Meanwhile(["cat", "dog", "cow"], lambda: clf.update(["zebras graze"] * 9, [["ape"]] * 9))
    assert clf.suggest("zebras purr", k=3, allow=allowed) == before
    assert clf.suggest("zebras purr", k=3) != before


def test_threads_that_update_one_model_lose_no_rows():
    clf = TextClassifier(BlockwiseClassifier(keep_rows=True, n_jobs=1), min_df=1).fit(TEXTS, LABELS)

    def learn(name):
        for i in range(6):
            clf.update([f"{name}{i} purr"], [[name]])
            assert any(found.label == name for found in clf.suggest(f"{name}{i}", k=9))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(learn, ["ape", "bee", "cod"]))
    assert clf.classifier_.n_train_rows_ == len(TEXTS) + 18
    assert clf.vectorizer_.counts.n_texts == len(TEXTS) + 18
    counts = dict(zip(clf.label_names_.tolist(), clf.classifier_.label_counts_.tolist(), strict=True))
    assert [counts[name] for name in ("ape", "bee", "cod")] == [6, 6, 6]
    assert all(f"{name}{i}" in clf.vectorizer_.feature_names for name in ("ape", "bee", "cod") for i in range(6))
    for other in (deepcopy(clf), pickle.loads(pickle.dumps(clf)), clone(clf).fit(TEXTS, LABELS)):
        other.update(["ape7 purr"], [["ape"]])
    assert clf.classifier_.n_train_rows_ == len(TEXTS) + 18


def test_an_update_after_blocks_have_gone(tmp_path):
    texts, labels = ["cats purr", "dogs bark", "cats sleep", "dogs run"], [["cat"], ["dog"]] * 2
    clf = TextClassifier(BlockwiseClassifier(keep_rows=True, n_blocks=2)).fit(texts, labels).forget([1, 3])
    clf.save(tmp_path)
    for model in (clf, load(tmp_path)):
        model.update(["cats moo", "cows moo"], [["cat"], ["cow"]]).forget([0]).update(["cows graze"], [["cow"]])
        assert model.suggest("cows graze", k=1)[0].label == "cow"


def test_forgetting_with_extra_columns_drops_words():
    def lengths(texts):
        return np.array([[len(text), 1.0] for text in texts])

    clf = TextClassifier(BlockwiseClassifier(keep_rows=True), extra=lengths, min_df=1)
    clf.fit([*TEXTS, "cats of jane"], [*LABELS, ["cat"]])
    assert "jane" in clf.vectorizer_.feature_names
    clf.update(["cats of jane"], [["cat"]]).forget([len(TEXTS)])
    assert "jane" in clf.vectorizer_.feature_names
    clf.forget([len(TEXTS)])
    assert "jane" not in clf.vectorizer_.feature_names


def test_a_model_with_extra_columns_is_updated_without_new_words():
    def lengths(texts):
        return np.array([[len(text), 1.0] for text in texts])

    clf = TextClassifier(BlockwiseClassifier(keep_rows=True), extra=lengths).fit(TEXTS, LABELS)
    n_features = clf.vectorizer_.n_features
    clf.update(["zebras moo", "zebras bark"], [["zebra"], ["zebra"]])
    assert clf.vectorizer_.n_features == n_features == clf.classifier_.n_features_in_
    assert clf.classifier_.label_counts_[-1] == 2
