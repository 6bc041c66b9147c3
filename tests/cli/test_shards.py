"""Every command reads shards, and finds what it finds in the file that they were made of."""

import json

import numpy as np
import pytest
from cli_parts import run

from blockxmc.data import load_demo_texts, make_synthetic, read_data_dir, write_npz, write_xc
from blockxmc.data.corpus import Corpus, write_jsonl


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The same rows as XC text and as shards, and the same texts as JSONL and as shards."""
    folder = tmp_path_factory.mktemp("data")
    train, test = make_synthetic(n_train=300, n_test=40, n_features=80, n_labels=12, labels_per_row=2, nnz_per_row=9)
    for name, data in (("train", train), ("test", test)):
        write_xc(folder / f"{name}.txt", data.X, data.Y)
    corpus = load_demo_texts()[0]
    for name, some in (("t-train", slice(0, 300)), ("t-test", slice(300, 340))):
        write_jsonl(folder / f"{name}.jsonl", Corpus(corpus.texts[some], corpus.labels[some]))
    return folder


@pytest.fixture(autouse=True)
def made(folder, capsys):
    if not (folder / "x").exists():
        assert (
            run(capsys, "convert", folder / "train.txt", folder / "x", "--test", folder / "test.txt", "--shards", 3)[0]
            == 0
        )
        texts = folder / "t-train.jsonl", folder / "t", "--test", folder / "t-test.jsonl", "--shards", 2
        assert run(capsys, "convert", *texts)[0] == 0


def answers(capsys, folder, *args):
    code, out, err = run(capsys, *args)
    assert code == 0, err
    return out


@pytest.mark.parametrize("kind", ["features", "texts"])
def test_train_predict_evaluate_explain(folder, capsys, tmp_path, kind):
    names = {"features": ("train.txt", "test.txt", "x"), "texts": ("t-train.jsonl", "t-test.jsonl", "t")}[kind]
    whole, shards = [folder / name for name in names[:2]], [folder / names[2] / name for name in ("train", "test")]
    for number, (train, test) in enumerate((whole, shards)):
        # Shards are features: nothing is left of texts that names could be compared with.
        plain = [] if kind == "features" or number else ["--label-texts", "none"]
        answers(capsys, folder, "train", train, "--model", tmp_path / f"m{number}", "--threads", 1, *plain)
        assert (
            run(capsys, "predict", tmp_path / f"m{number}", test, "--out", tmp_path / f"a{number}", "--format", "xc")[0]
            == 0
        )
    assert (tmp_path / "a0").read_bytes() == (tmp_path / "a1").read_bytes()
    found = [
        json.loads(answers(capsys, folder, "evaluate", tmp_path / "m1", test, "--json"))
        for test in (whole[1], shards[1])
    ]
    assert found[0]["P@1"] == found[1]["P@1"]
    assert "label" in answers(capsys, folder, "explain", tmp_path / "m1", shards[1], "--json")
    assert (
        answers(capsys, folder, "predict", tmp_path / "m1", whole[1], "--format", "xc") == (tmp_path / "a1").read_text()
    )


def test_stats_inspect_estimate_partition_tune(folder, capsys, tmp_path):
    for one, other in ((folder / "train.txt", folder / "x" / "train"), (folder, folder / "x")):
        told = [json.loads(answers(capsys, folder, "stats", path, "--json")) for path in (one, other)]
        assert next({**each, "data": ""} for each in told) == [{**each, "data": ""} for each in told][1]
    about = json.loads(answers(capsys, folder, "inspect", folder / "x" / "train", "--verify", "--json"))
    assert (about["rows"], about["shards"], about["checksums"]) == (300, 3, "all right")
    assert "shards" in answers(capsys, folder, "inspect", folder / "x" / "train")
    assert json.loads(answers(capsys, folder, "estimate", folder / "x" / "train", "--json"))["candidates"] > 0
    for number, path in enumerate((folder / "train.txt", folder / "x" / "train")):
        answers(capsys, folder, "partition", path, "--out", tmp_path / str(number), "--blocks", 3, "--lam", 0.1)
    files = sorted(
        path.name for path in (tmp_path / "0").iterdir() if path.suffix == ".npy" or "assignment" in path.name
    )
    assert files
    assert all((tmp_path / "0" / name).read_bytes() == (tmp_path / "1" / name).read_bytes() for name in files)
    tuned = "--folds", 2, "--json"
    assert json.loads(answers(capsys, folder, "tune", folder / "x" / "train", *tuned))


def test_shards_become_other_formats_again(folder, capsys, tmp_path):
    assert run(capsys, "convert", folder / "x" / "train", tmp_path / "again.txt")[0] == 0
    assert (tmp_path / "again.txt").read_bytes() == (folder / "train.txt").read_bytes()
    assert run(capsys, "convert", folder / "x", tmp_path / "y", "--shards", 2)[0] == 0
    for a, b in zip(read_data_dir(tmp_path / "y"), read_data_dir(folder / "x"), strict=True):
        assert a.digest == b.digest
    write_npz(tmp_path / "z.npz", read_data_dir(folder / "x")[0])
    assert run(capsys, "convert", tmp_path / "z.npz", tmp_path / "z", "--shards", 2)[0] == 0


def test_refusals_are_one_line(folder, capsys, tmp_path):
    assert run(capsys, "train", folder / "t" / "train", "--model", tmp_path / "m")[0] == 0
    other = "convert", folder / "t-test.jsonl", tmp_path / "alone", "--shards", 1
    assert run(capsys, *other)[0] == 0
    for args in (
        ("predict", tmp_path / "m", tmp_path / "alone"),
        ("predict", tmp_path / "m", folder / "x" / "test"),
        ("update", tmp_path / "m", folder / "t" / "test"),
        other,
        ("convert", folder / "train.txt", tmp_path / "m", "--shards", 2),
    ):
        code, _, err = run(capsys, *args)
        assert (code, err.count("\n")) == (2, 1), (args, err)


def test_names_come_out(folder, capsys, tmp_path):
    assert run(capsys, "train", folder / "t" / "train", "--model", tmp_path / "m")[0] == 0
    lines = answers(capsys, folder, "predict", tmp_path / "m", folder / "t" / "test", "--top-k", 2).splitlines()
    names = set(np.ravel([json.loads(line)["labels"] for line in lines]))
    assert names <= {name for row in load_demo_texts()[0].labels for name in row}
