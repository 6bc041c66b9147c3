"""evaluate and explain on the command line."""

import json
import re

import numpy as np
import pytest
from cli_parts import run
from helpers import blocky

from blockxmc import load
from blockxmc.cli import main
from blockxmc.data import read_xc, write_xc
from blockxmc.metrics import precision_at_k


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("data")
    X, Y = blocky(n=500)
    Y = Y.tolil()
    Y[480:] = 0  # rows without labels
    write_xc(where / "train.txt", X[:400], Y[:400].tocsr())
    write_xc(where / "test.txt", X[400:], Y[400:].tocsr())
    write_xc(where / "wrong.txt", X[400:], Y[:100].tocsr())  # labels of other rows: hard to get right
    rows = [("Cats purr and sleep", ["cat"]), ("dogs bark and run", ["dog"]), ("cats and dogs play", ["cat", "dog"])]
    text = "".join(json.dumps({"text": words, "labels": labels}) + "\n" for words, labels in rows * 6)
    (where / "text.jsonl").write_text(text)
    for data, name, more in (("train.txt", "model", ["--blocks", "3"]), ("text.jsonl", "words", [])):
        with pytest.raises(SystemExit):
            main(["train", str(where / data), "--model", str(where / name), *more])
    return where


def test_precision_has_one_meaning_where_rows_have_no_labels(capsys, folder):
    code, out, _ = run(capsys, "evaluate", folder / "model", folder / "test.txt", "--json", "--at", "1,4")
    result = json.loads(out)
    assert (code, result["rows"], result["rows_without_labels"]) == (0, 100, 20)
    assert {"P@4", "F1@4", "F1", "F1_micro", "F1_macro", "calibration_error"} <= set(result)
    assert "P@3" not in result
    code, out, _ = run(capsys, "evaluate", folder / "model", folder / "test.txt", "--at", "1,4")
    numbers = {cells[0]: cells[1:] for cells in (re.split("  +", line.strip()) for line in out.splitlines())}
    assert code == 0
    assert float(numbers["P"][0]) == pytest.approx(result["P@1"], abs=0.01)
    assert result["P_labelled@1"] == pytest.approx(result["P@1"] / 0.8)
    labelled = float(numbers["P, rows with labels"][0])
    assert labelled == pytest.approx(result["P_labelled@1"], abs=0.01)
    assert labelled == pytest.approx(float(numbers["nDCG"][0]), abs=0.01)  # at 1 they are the same thing
    assert "20 rows have no labels" in out


def test_propensity_and_figure(capsys, folder, tmp_path):
    pytest.importorskip("matplotlib")
    figure = tmp_path / "reliability.png"
    first, second = (
        json.loads(run(capsys, "evaluate", folder / "model", folder / "wrong.txt", "--json", *more)[1])
        for more in (["--plot", figure], ["--propensity", "0.6,2.6"])
    )
    assert figure.stat().st_size > 10_000
    assert f"{first['calibration_error']:.4f}" in run(capsys, "evaluate", folder / "model", folder / "wrong.txt")[1]
    assert (second["propensity_a"], second["propensity_b"]) == (0.6, 2.6)
    assert any(first[f"PSP@{k}"] != second[f"PSP@{k}"] for k in (1, 3, 5))
    for command in (["evaluate", folder / "model", folder / "wrong.txt"], ["tune", folder / "train.txt"]):
        for wrong, told in ((tmp_path / "a.chart", ".png, .svg or .pdf"), (tmp_path / "no" / "a.png", "no folder")):
            code, out, err = run(capsys, *command, "--plot", wrong)
            assert (code, out, len(err.splitlines())) == (2, "", 1)
            assert told in err


@pytest.mark.parametrize("bad", [["--at", "0"], ["--at", "1,x"], ["--propensity", "1"], ["--propensity", "a,b"]])
def test_bad_options_are_one_line(capsys, folder, bad):
    code, _, err = run(capsys, "evaluate", folder / "model", folder / "test.txt", *bad)
    assert (code, len(err.splitlines())) == (2, 1)
    assert bad[0] in err


def test_answers_ranked_by_propensity_are_those_of_python(capsys, folder):
    model, data = load(folder / "model"), read_xc(folder / "test.txt")
    usual, rare = (model.set_params(rank_by=by).predict_topk(data.X, 3) for by in ("probability", "propensity"))
    assert (usual[0] != rare[0]).any()
    code, out, _ = run(
        capsys, "predict", folder / "model", folder / "test.txt", "--rank-by", "propensity", "--top-k", 3
    )
    found = [[int(pair.split(":")[0]) for pair in line.split()] for line in out.splitlines()]
    assert (code, found) == (0, [[j for j in row if j >= 0] for row in rare[0].tolist()])
    by = {}
    for how in ("probability", "propensity"):
        code, out, _ = run(capsys, "evaluate", folder / "model", folder / "test.txt", "--json", "--rank-by", how)
        by[how] = json.loads(out)
    assert by["propensity"]["P@3"] == pytest.approx(100 * precision_at_k(data.Y, rare[0], 3))
    assert by["probability"]["P@3"] == pytest.approx(100 * precision_at_k(data.Y, usual[0], 3))
    assert by["propensity"]["PSP@1"] != by["probability"]["PSP@1"]
    # Label sets and probabilities do not depend on the order of answers.
    for key in ("F1", "calibration_error", "probabilities_per_hit"):
        assert by["propensity"][key] == by["probability"][key]


def test_an_order_of_answers_that_cannot_be_had_is_one_line(capsys, folder, tmp_path):
    assert run(capsys, "train", folder / "train.txt", "--model", tmp_path / "m", "--system", "full")[0] == 0
    for args, message in (
        ((folder / "model", "--rank-by", "luck"), "probability or propensity"),
        ((tmp_path / "m", "--rank-by", "propensity"), "margins"),
        ((folder / "model", "--rank-by", "propensity", "--threshold", "f1"), "is a probability"),
    ):
        code, _, err = run(capsys, "predict", args[0], folder / "test.txt", *args[1:])
        assert (code, len(err.splitlines())) == (2, 1)
        assert message in err


def test_a_text_is_explained_by_its_words(capsys, folder):
    code, out, _ = run(capsys, "explain", folder / "words", "Cats purr loudly", "--json", "--top-k", 1)
    [why] = json.loads(out)["labels"]
    assert (code, why["name"], why["rank"]) == (0, "cat", 1)
    assert {part["name"] for part in why["features"]} == {"cats", "purr"}
    parts = [part["part"] for part in why["features"]]
    assert sum(parts) + why["constant"] + sum(why["terms"].values()) == pytest.approx(why["score"], abs=1e-4)
    code, out, _ = run(capsys, "explain", folder / "words", "Cats purr loudly", "--label", "dog", "--top-k", 1)
    assert code == 0
    assert "dog (label 1): scored low: rank 2 of 2" in out


def test_a_text_longer_than_any_path_is_explained(capsys, folder):
    for text in ("Cats purr loudly. " * 60, "Cats purr\0"):
        code, out, _ = run(capsys, "explain", folder / "words", text, "--json", "--top-k", 1)
        assert (code, json.loads(out)["labels"][0]["name"]) == (0, "cat")
    code, _, err = run(capsys, "explain", folder / "model", "x" * 1000)
    assert (code, len(err.splitlines())) == (2, 1)


def test_rows_of_a_file_are_explained(capsys, folder):
    code, out, _ = run(capsys, "explain", folder / "model", folder / "test.txt", "--label", 3, "--json")
    found = json.loads(out)
    assert (code, len(found)) == (0, 100)
    assert all(row["labels"][0]["label"] == 3 for row in found)


def test_what_cannot_be_explained_is_one_line(capsys, folder):
    for args in (["words", "cats", "--label", "bird"], ["model", "no such file"], ["model", folder / "text.jsonl"]):
        code, _, err = run(capsys, "explain", folder / args[0], *args[1:])
        assert (code, len(err.splitlines())) == (2, 1), err


def test_words_are_highlighted_on_a_terminal():
    from blockxmc.cli.explain import _highlighted
    from blockxmc.model.explanations import Explanation, Feature

    parts = [Feature(0, "cats", 1.0, 0.5), Feature(1, "play well", 1.0, -0.2), Feature(2, "ca", 1.0, 0.1)]
    why = Explanation(0, "cat", "", 1, 1, 0.4, 0.5, 0.0, parts, {}, [], [])
    spans = [(span.start, span.end, str(span.style)) for span in _highlighted("Cats play well", why).spans]
    assert spans == [(0, 4, "bold green"), (5, 14, "red")]
    assert np.isfinite(why.score)
