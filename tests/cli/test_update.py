"""blockxmc update: texts and features, new labels, forgetting, other targets, and what is refused."""

import json

import numpy as np
import pytest
from cli_parts import run
from helpers import blocky
from numpy.testing import assert_array_equal

from blockxmc import load
from blockxmc.data import write_xc

TEXTS = [("cats purr and sleep", ["cat"]), ("dogs bark and run", ["dog"]), ("cats and dogs play", ["cat", "dog"])] * 6


def jsonl(path, rows):
    path.write_text("".join(json.dumps({"text": text, "labels": labels}) + "\n" for text, labels in rows))
    return path


@pytest.fixture
def texts(tmp_path, capsys):
    train = jsonl(tmp_path / "train.jsonl", TEXTS)
    assert run(capsys, "train", train, "--model", tmp_path / "model", "--keep-rows")[0] == 0
    return tmp_path


def test_new_texts_bring_new_words_and_labels(texts, capsys):
    new = jsonl(texts / "new.jsonl", [("cows moo", ["cow"]), ("cows graze", ["cow"])])
    code, out, _ = run(capsys, "update", texts / "model", new, "--json")
    result = json.loads(out)
    assert (code, result["rows"], result["labels"]) == (0, 20, 3)
    assert result["done"][0]["new_labels"] == 1
    assert result["done"][0]["new_features"] == 3
    clf = load(texts / "model")
    assert clf.suggest("cows", k=1)[0].label == "cow"
    code, out, _ = run(capsys, "inspect", texts / "model")
    assert code == 0
    assert "history" in out
    assert "whole rows kept for updates" in out


def test_another_target_leaves_the_model_alone(texts, capsys):
    before = (texts / "model" / "manifest.json").read_bytes()
    new = jsonl(texts / "new.jsonl", [("cows moo", ["cow"])])
    code, out, _ = run(capsys, "update", texts / "model", new, "--out", texts / "other")
    assert code == 0
    assert "rows learnt" in out
    assert (texts / "model" / "manifest.json").read_bytes() == before
    assert load(texts / "other").label_names_.tolist() == ["cat", "dog", "cow"]


def test_rows_are_forgotten_by_number(texts, capsys):
    (texts / "gone.txt").write_text("0\n3\n\n")
    code, out, _ = run(capsys, "update", texts / "model", "--forget", texts / "gone.txt")
    assert code == 0
    assert "rows forgotten" in out
    assert load(texts / "model").classifier_.n_train_rows_ == len(TEXTS) - 2


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "nothing to do"),
        (["--forget", "bad.txt"], "is no row number"),
        (["--forget", "long.txt"], "the model has no row 9999"),
        (["--forget", "far.txt"], "has no row 18: its rows have the numbers 0 to 17"),
        (["missing.jsonl"], "missing.jsonl"),
        (["train.txt"], "trained on text"),
    ],
)
def test_bad_input_is_one_line_and_changes_nothing(texts, capsys, args, said):
    (texts / "bad.txt").write_text("1\nx\n")
    (texts / "far.txt").write_text("18\n")
    (texts / "long.txt").write_text("9" * 5000 + "\n")
    X, Y = blocky(n=10)
    write_xc(texts / "train.txt", X, Y)
    before = (texts / "model" / "manifest.json").read_bytes()
    paths = [arg if arg.startswith("--") else texts / arg for arg in args]
    code, _, err = run(capsys, "update", texts / "model", *paths)
    assert code == 2
    assert said in err
    assert err.count("\n") == 1
    assert (texts / "model" / "manifest.json").read_bytes() == before


def test_a_model_without_rows_says_how_to_get_there(tmp_path, capsys):
    train = jsonl(tmp_path / "train.jsonl", TEXTS)
    run(capsys, "train", train, "--model", tmp_path / "model")
    code, _, err = run(capsys, "update", tmp_path / "model", train)
    assert code == 2
    assert "--keep-rows" in err
    run(capsys, "train", train, "--model", tmp_path / "full", "--system", "full")
    code, _, err = run(capsys, "update", tmp_path / "full", train)
    assert code == 2
    assert "cannot be updated" in err


def test_features_and_numbered_labels(tmp_path, capsys):
    X, Y = blocky(n=300)
    write_xc(tmp_path / "train.txt", X[:280], Y[:280])
    write_xc(tmp_path / "new.txt", X[280:], Y[280:])
    assert run(capsys, "train", tmp_path / "train.txt", "--model", tmp_path / "model", "--keep-rows")[0] == 0
    assert run(capsys, "update", tmp_path / "model", tmp_path / "new.txt")[0] == 0
    clf = load(tmp_path / "model")
    assert_array_equal(clf.label_counts_, np.bincount(Y.indices, minlength=Y.shape[1]))
