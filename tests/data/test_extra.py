"""Columns beside words: what a function or a transformer makes of texts."""

import json
import pickle
import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from blockxmc import BlockwiseClassifier, TextClassifier, load
from blockxmc.cli import main
from blockxmc.data.extra import LEAST_VALUE, ExtendedVectorizer, Extra, large_values
from blockxmc.data.tfidf import TextVectorizer
from blockxmc.errors import BlockXMCError, ModelFormatError

LABELS = ["cat", "dog", "cow", "hen", "pig", "owl"]


def corpus(n=900, seed=0):
    """Texts that name a code; words say little, the code says the label."""
    rng = np.random.default_rng(seed)
    which = rng.integers(len(LABELS), size=n)
    hints = [LABELS[j] if rng.random() < 0.3 else "nothing" for j in which]
    texts = [f"text{rng.integers(40)} {hint} #{j}{rng.integers(10**6)}" for j, hint in zip(which, hints, strict=True)]
    return texts, [[LABELS[j]] for j in which]


def codes(texts):
    """A column per code: what stands behind the # of a text."""
    out = np.zeros((len(texts), len(LABELS)))
    for i, text in enumerate(texts):
        digit = text.split("#")[-1][:1]
        if digit.isdigit():
            out[i, int(digit) % len(LABELS)] = 3.0
    return out


TEXTS, Y = corpus()
NEW_TEXTS, NEW_Y = corpus(300, seed=1)


@pytest.fixture(scope="module")
def model():
    return TextClassifier(BlockwiseClassifier(n_jobs=1), extra=codes).fit(TEXTS, Y)


def test_columns_that_say_something_count(model):
    plain = TextClassifier(BlockwiseClassifier(n_jobs=1)).fit(TEXTS, Y)
    assert model.score(NEW_TEXTS, NEW_Y) > 0.95 > 0.8 > plain.score(NEW_TEXTS, NEW_Y)


def test_features_are_words_and_columns(model):
    found = model.vectorizer_.transform(NEW_TEXTS)
    words = TextVectorizer().fit(TEXTS).transform(NEW_TEXTS).toarray()
    assert_array_equal(found.toarray()[:, :-6], words)
    np.testing.assert_allclose(found.toarray()[:, -6:], codes(NEW_TEXTS), rtol=1e-6)
    assert len(model.vectorizer_.feature_names) == found.shape[1] == model.vectorizer_.n_features
    [why] = model.explain("text1 #25", k=1)
    assert (why.name, why.features[0].name) == ("cow", "codes 2")
    assert model.suggest("text1 #25", k=1) == model.suggest(["text1 #25"], k=1)[0]
    assert model.predict([]) == []


def test_a_stored_model_asks_for_its_function(model, tmp_path, capsys):
    model.save(tmp_path / "m")
    with pytest.raises(BlockXMCError, match=r"needs the 6 extra columns of 'codes'.*load\(path, extra="):
        load(tmp_path / "m")
    with pytest.raises(BlockXMCError, match="extra must be a function"):
        load(tmp_path / "m", extra="codes")
    again = load(tmp_path / "m", extra=codes)
    assert again.suggest(NEW_TEXTS) == model.suggest(NEW_TEXTS)
    assert clone(again).fit(TEXTS, Y).suggest(NEW_TEXTS[:9]) == model.suggest(NEW_TEXTS[:9])
    assert pickle.loads(pickle.dumps(model)).suggest(NEW_TEXTS) == model.suggest(NEW_TEXTS)
    again.save(tmp_path / "again")
    other = load(tmp_path / "again", extra=lambda texts: np.ones((len(texts), 7)))
    with pytest.raises(BlockXMCError, match="made 7 columns, but the model was trained on 6"):
        other.suggest("text1")
    with pytest.raises(SystemExit) as ended:
        main(["explain", str(tmp_path / "m"), "text1"])
    assert (ended.value.code, len(capsys.readouterr().err.splitlines())) == (2, 1)
    state = model.vectorizer_.state()
    for wrong in ({"width": 0}, {"width": "six"}, {"name": 3}):
        with pytest.raises(ModelFormatError):
            ExtendedVectorizer.from_state(state | {"extra": state["extra"] | wrong})


def test_a_stored_model_leaves_out_what_it_was_trained_without():
    columns = np.random.default_rng(0).normal(size=(2, 384)).astype(np.float32)
    model = ExtendedVectorizer.of(TextVectorizer().fit(["red apple"]), Extra("f", 384))
    state = model.state()
    again = ExtendedVectorizer.from_state(state).with_source(lambda texts: columns)
    assert (again.transform(["apple", "red"])[:, 2:] != large_values(columns)).nnz == 0


def test_a_transformer_is_fitted_on_the_training_texts():
    source = make_pipeline(TfidfVectorizer(token_pattern=r"#\d", min_df=1), TruncatedSVD(5, random_state=0))
    model = TextClassifier(BlockwiseClassifier(n_jobs=1), extra=source).fit(TEXTS, Y)
    assert model.vectorizer_.extra.width == 5
    assert not hasattr(source[1], "components_")
    assert model.score(NEW_TEXTS, NEW_Y) > 0.95
    two = clone(model).set_params(classifier__n_jobs=2).fit(TEXTS, Y)
    assert_array_equal(two.predict_topk(NEW_TEXTS)[1], model.predict_topk(NEW_TEXTS)[1])


def test_labels_known_by_their_texts_go_with_columns():
    model = TextClassifier(BlockwiseClassifier(n_jobs=1), extra=codes).fit(TEXTS, Y, label_texts={"yak": "yaks graze"})
    assert model.suggest("yaks graze", k=1)[0].label == "yak"


def test_small_values_of_many_columns_are_left_out():
    columns = np.random.default_rng(0).normal(size=(20, 384)).astype(np.float32)
    kept = large_values(columns).toarray()
    usual = np.sqrt((columns**2).mean(axis=1, keepdims=True))
    assert_array_equal(kept, np.where(abs(columns) >= LEAST_VALUE * usual, columns, 0))
    assert 0.85 < (kept**2).sum() / (columns**2).sum() < 0.95
    few = columns[:, :20]
    assert_array_equal(large_values(few).toarray(), few)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (7, "extra must be a function"),
        (lambda texts: "many", "must make an array of numbers"),
        (lambda texts: np.ones(len(texts)), "an array of shape"),
        (lambda texts: np.ones((3, 2)), "an array of shape"),
        (lambda texts: np.full((len(texts), 2), np.nan), "not finite"),
    ],
)
def test_what_makes_no_columns_is_refused(source, message):
    with pytest.raises(BlockXMCError, match=message):
        TextClassifier(extra=source).fit(TEXTS, Y)


CODES = """
def codes(texts):
    digits = [text.split("#")[-1][:1] for text in texts]
    return [[3.0 * (digit.isdigit() and int(digit) % 6 == j) for j in range(6)] for digit in digits]

table = [1, 2]
"""


def run(capsys, *args):
    try:
        main([str(arg) for arg in args])
        code = 0
    except SystemExit as ended:
        code = ended.code
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with texts, and with a module that makes columns of them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_codes.py").write_text(CODES)
    for name, texts, labels in (("train", TEXTS, Y), ("new", NEW_TEXTS, NEW_Y)):
        rows = [json.dumps({"text": text, "labels": row}) for text, row in zip(texts, labels, strict=True)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
    yield tmp_path
    sys.modules.pop("own_codes", None)


def test_the_command_line_takes_a_function_by_name(model, folder, capsys):
    train = "train", "train.jsonl", "--model", "m", "--threads", 1, "--keep-rows"
    assert run(capsys, *train, "--extra", "own_codes.py:codes")[0] == 0
    trained = load("m", extra=codes)
    assert trained.vectorizer_.extra.width == 6
    code, out, err = run(capsys, "predict", "m", "new.jsonl", "--top-k", 2)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "--extra MODULE:FUNCTION" in err
    for named in ("own_codes:codes", folder / "own_codes.py:codes"):
        code, out, _ = run(capsys, "predict", "m", "new.jsonl", "--top-k", 2, "--extra", named)
        found = [json.loads(line)["labels"] for line in out.splitlines()]
        assert found == [[s.label for s in row] for row in trained.suggest(NEW_TEXTS, k=2)]
    code, out, _ = run(capsys, "evaluate", "m", "new.jsonl", "--json", "--extra", "own_codes:codes")
    assert json.loads(out)["P@1"] > 95
    code, out, _ = run(capsys, "explain", "m", "text1 #25", "--json", "--top-k", 1, "--extra", "own_codes:codes")
    assert json.loads(out)["labels"][0]["features"][0]["name"] == "codes 2"
    code, out, _ = run(capsys, "update", "m", "new.jsonl", "--json", "--extra", "own_codes:codes")
    assert json.loads(out)["rows"] == len(TEXTS) + len(NEW_TEXTS)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("codes", "give MODULE:FUNCTION"),
        ("no_such_module:codes", "cannot be imported: ModuleNotFoundError"),
        ("missing.py:codes", "no such file"),
        ("own_codes.py:other", "has no 'other'"),
        ("broken.py:codes", "cannot be run: ZeroDivisionError"),
        ("own_codes.py:table", "must be a function"),
    ],
)
def test_what_names_no_function_is_said_in_one_line(named, said, folder, capsys):
    (folder / "broken.py").write_text("1 / 0")
    code, _, err = run(capsys, "train", "train.jsonl", "--model", "m", "--extra", named)
    assert (code, len(err.splitlines())) == (2, 1)
    assert said in err
    assert not (folder / "m").exists()


def test_the_service_takes_a_function_by_name(model, folder):
    answers = pytest.importorskip("blockxmc.service.answers")
    from blockxmc.data.named import named_function
    from blockxmc.service.models import Models

    model.save("m")
    with pytest.raises(BlockXMCError, match="--extra MODULE:FUNCTION"):
        Models(["m"], print)
    models = Models(["m"], print, named_function("own_codes:codes"))
    for text in NEW_TEXTS[:20]:
        [found] = answers.suggest(models["m"], {"text": text, "k": 3})["results"]
        one_by_one = [(s["label"], s["score"]) for s in found["suggestions"]]
        assert one_by_one == [(s.label, round(s.score, 6)) for s in model.suggest(text, k=3)]


def test_features_of_one_text_are_those_of_many(model):
    X = model.vectorizer_.transform(NEW_TEXTS[:30])
    for row, text in enumerate(NEW_TEXTS[:30]):
        indices, values = model.vectorizer_.transform_one(text)
        assert_array_equal(indices, X[[row]].indices)
        assert_array_equal(values, X[[row]].data)
