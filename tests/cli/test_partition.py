import json
import re
from pathlib import Path

import numpy as np
import pytest
from helpers import blocky

import blockxmc.data
from blockxmc.cli import main
from blockxmc.routing import Router


@pytest.fixture
def train(tmp_path):
    """40 rows in two groups that share nothing."""
    rng = np.random.default_rng(0)
    lines = ["40 8 6"]
    for i in range(40):
        g = i % 2
        labels = sorted({3 * g + int(j) for j in rng.integers(0, 3, 2)})
        features = sorted({4 * g + int(f) for f in rng.integers(0, 4, 3)})
        lines.append(",".join(map(str, labels)) + " " + " ".join(f"{f}:1.5" for f in features))
    path = tmp_path / "train.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def run(*args):
    """Exit code of a command."""
    with pytest.raises(SystemExit) as stop:
        main(["partition", *map(str, args)])
    return stop.value.code or 0


def test_writes_assignment_clusters_and_summary(train, tmp_path, capsys):
    out = tmp_path / "deep" / "out"
    assert run(train, "--out", out, "--blocks", 2, "--lam", 0.1, "--threads", 1, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((out / "summary.json").read_text())
    assignment = np.loadtxt(out / "assignment.txt", dtype=int)
    assert (assignment == assignment[:2][np.arange(40) % 2]).all()
    clusters = [list(map(int, line.split())) for line in (out / "label_clusters.txt").read_text().splitlines()]
    assert sorted(clusters) == [[0, 1, 2], [3, 4, 5]]
    assert printed["captured"] == 1
    assert {path.name for path in out.iterdir()} == {"assignment.txt", "label_clusters.txt", "summary.json"}
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_export_gives_each_block_as_xc(train, tmp_path):
    out = tmp_path / "out"
    assert run(train, "--out", out, "--blocks", 2, "--lam", 0.1, "--export") == 0
    whole = blockxmc.data.read_dataset(train)
    assignment = np.loadtxt(out / "assignment.txt", dtype=int)
    for block in (0, 1):
        part = blockxmc.data.read_dataset(out / f"block-{block}.txt")
        labels = np.loadtxt(out / f"block-{block}.labels.txt", dtype=int)
        rows = np.flatnonzero(assignment == block)
        np.testing.assert_array_equal(part.X.toarray(), whole.X[rows].toarray())
        np.testing.assert_array_equal(part.Y.toarray(), whole.Y[rows][:, labels].toarray())


def test_replaces_its_own_folder_only(train, tmp_path, capsys):
    out = tmp_path / "out"
    assert run(train, "--out", out, "--blocks", 2, "--export") == 0
    assert run(train, "--out", out, "--blocks", 1) == 0
    assert set((out / "assignment.txt").read_text().split()) == {"0"}
    assert not (out / "block-0.txt").exists()
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("precious")
    assert run(train, "--out", foreign) == 2
    assert run(train, "--out", train) == 2
    assert (foreign / "thesis.tex").read_text() == "precious"
    assert "not empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--blocks", "41"), "more than the 40 rows"),
        (("--blocks", "some"), "n_blocks must be"),
        (("--lam", "-1"), "lam must be"),
        (("--lam", "nan"), "lam must be"),
        (("--objective", "x"), "objective must be"),
        (("--init", "x"), "init must be"),
    ],
)
def test_bad_options_are_one_line_and_leave_nothing(train, tmp_path, capsys, option, message):
    assert run(train, "--out", tmp_path / "out", *option) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert [path.name for path in tmp_path.iterdir()] == ["train.txt"]


def test_router_and_test_rows_are_exported(train, tmp_path, capsys):
    out = tmp_path / "out"
    assert run(train, "--out", out, "--blocks", 2, "--lam", 0.1, "--export", "--test", train, "--threads", 1) == 0
    whole = blockxmc.data.read_dataset(train)
    lines = (out / "router.txt").read_text().splitlines()
    weights, bias = np.zeros((whole.n_features, len(lines))), np.zeros(len(lines))
    for block, line in enumerate(lines):
        first, *pairs = line.split()
        bias[block] = float(first)
        for pair in pairs:
            feature, weight = pair.split(":")
            weights[int(feature), block] = float(weight)
    blocks = np.loadtxt(out / "test_assignment.txt", dtype=int)
    np.testing.assert_array_equal(blocks, (whole.X @ weights + bias).argmax(axis=1))
    router = Router().fit(whole.X, np.loadtxt(out / "assignment.txt", dtype=int), n_blocks=2)
    np.testing.assert_array_equal(blocks, router.blocks(whole.X, 1)[:, 0])
    for block in (0, 1):
        rows = np.loadtxt(out / f"test-{block}.rows.txt", dtype=int)
        labels = np.loadtxt(out / f"block-{block}.labels.txt", dtype=int)
        part = blockxmc.data.read_dataset(out / f"test-{block}.txt")
        np.testing.assert_array_equal(rows, np.flatnonzero(blocks == block))
        np.testing.assert_array_equal(part.Y.toarray(), whole.Y[rows][:, labels].toarray())
    assert run(train, "--out", out, "--blocks", 1, "--export", "--test", train) == 0
    assert (out / "router.txt").read_text() == "0.0\n"
    assert run(train, "--out", out, "--test", train) == 2
    assert "--test goes with --export" in capsys.readouterr().err


def test_text_is_exported_by_the_words_of_the_training_rows(tmp_path):
    texts = [("red apple sweet", "fruit"), ("green apple", "fruit"), ("fast car", "car"), ("red fast car", "car")] * 5
    lines = [json.dumps({"text": text, "labels": [label]}) for text, label in texts]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    (tmp_path / "test.jsonl").write_text('{"text": "sweet unknown apple", "labels": ["fruit"]}\n')
    options = ("--blocks", 2, "--lam", 0.1, "--export", "--test", tmp_path / "test.jsonl")
    assert run(tmp_path / "train.jsonl", "--out", tmp_path / "out", *options) == 0
    assert len((tmp_path / "out" / "test_assignment.txt").read_text().split()) == 1


def test_fields_of_texts_are_named(tmp_path, capsys):
    rows = [("red apple sweet", "fruit|food"), ("fast car", "car")] * 6
    (tmp_path / "train.csv").write_text("words,tags\n" + "".join(f"{text},{labels}\n" for text, labels in rows))
    (tmp_path / "test.csv").write_text("words,tags\nsweet apple,fruit\n")
    named = ("--text-field", "words", "--label-field", "tags", "--label-separator", "|")
    options = ("--out", tmp_path / "out", "--blocks", 2, "--lam", 0.1, "--export", "--test", tmp_path / "test.csv")
    assert run(tmp_path / "train.csv", *options, *named) == 0
    clusters = (tmp_path / "out" / "label_clusters.txt").read_text().split()
    assert {int(label) for cluster in clusters for label in cluster.split(",")} == {0, 1, 2}
    assert len((tmp_path / "out" / "test_assignment.txt").read_text().split()) == 1
    blockxmc.data.write_xc(tmp_path / "train.txt", np.eye(4), np.eye(4))
    capsys.readouterr()
    assert run(tmp_path / "train.txt", "--out", tmp_path / "xc", *named) == 2
    assert "--text-field is for texts" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:Label not")  # a label that every row of a block has
def test_the_example_with_a_foreign_classifier_runs(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "howto" / "other-programs.md").read_text()
    command = re.search(r"blockxmc (partition .*)", page)[1].split()
    code = re.search(r"```python\n(.*?)```", page, re.S)[1]
    X, Y = blocky(n=400)
    monkeypatch.chdir(tmp_path)
    blockxmc.data.write_xc(tmp_path / "train.txt", X[:300], Y[:300])
    blockxmc.data.write_xc(tmp_path / "test.txt", X[300:], Y[300:])
    assert run(*command[1:]) == 0
    known = {}
    exec(compile(code, "other-programs.md", "exec"), known)
    first = known["first"]
    assert sorted(first) == list(range(100))
    right = np.mean([Y[300 + row, label] > 0 for row, label in first.items()])
    assert right > 0.6
