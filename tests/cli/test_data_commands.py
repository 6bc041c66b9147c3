"""blockxmc stats and blockxmc convert."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from blockxmc.cli import main
from blockxmc.data import make_synthetic, read_dataset, read_text, write_xc


def run(*args: object) -> int:
    with pytest.raises(SystemExit) as caught:
        main([str(arg) for arg in args])
    return int(caught.value.code or 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    train, test = make_synthetic(n_train=50, n_test=20, n_features=80, n_labels=10, labels_per_row=2, nnz_per_row=9)
    write_xc(tmp_path / "train.txt", train.X, train.Y)
    write_xc(tmp_path / "test.txt", test.X, test.Y)
    return tmp_path


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    file = tmp_path / "c.tsv"
    file.write_text("red apple\tfruit cake\ngreen leaf\tplant\n")
    return file


def test_stats_of_a_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("stats", folder, "--json") == 0
    figures = json.loads(capsys.readouterr().out)
    train = read_dataset(folder / "train.txt")
    assert (figures["train_rows"], figures["test_rows"], figures["features"], figures["labels"]) == (50, 20, 80, 10)
    assert figures["samples_per_label"] == train.Y.nnz / 10
    assert figures["labels_per_sample"] == train.Y.nnz / 50
    assert figures["nnz_per_row"] == train.X.nnz / 50
    assert figures["label_frequency_percentiles"]["100"] == train.Y.sum(axis=0).max()
    assert run("stats", folder) == 0
    table = capsys.readouterr().out
    for word in (folder.name[:20], "ASpL", "ALpS", "80", "percentiles", "rows without labels"):
        assert word in table


def test_stats_of_a_file(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("stats", corpus, "--json") == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["labels"] == 3
    assert figures["test_rows"] is None
    assert run("stats", corpus) == 0
    (tmp_path / "bad.txt").write_text("1 2 3\n0 9:1\n")
    capsys.readouterr()
    assert run("stats", tmp_path / "bad.txt") == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "bad.txt: line 2: " in told
    assert run("stats", tmp_path / "missing.txt") == 2


@pytest.mark.parametrize("middle", ["a.npz", "a.xc.gz", "a.txt.xz", "a.svm"])
def test_convert_features_there_and_back(middle: str, folder: Path) -> None:
    out = folder / "sub"
    out.mkdir()
    assert run("convert", folder / "train.txt", out / middle) == 0
    assert run("convert", out / middle, out / "back.txt") == 0
    assert (out / "back.txt").read_bytes() == (folder / "train.txt").read_bytes()


def test_convert_text(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    out.mkdir()
    assert run("convert", corpus, out / "c.jsonl.xz") == 0
    assert read_text(out / "c.jsonl.xz").digest == read_text(corpus).digest
    assert run("convert", out / "c.jsonl.xz", out / "c.txt") == 0
    data = read_dataset(out / "c.txt")
    assert data.label_names == ["cake", "fruit", "plant"]
    assert data.feature_names == ["apple", "green", "leaf", "red"]
    assert data.digest == read_text(corpus).digest
    assert run("convert", corpus, out / "c.npz") == 0
    assert read_dataset(out / "c.npz").label_names == data.label_names
    capsys.readouterr()
    for source, target, words in (
        (out / "c.txt", out / "d.jsonl", "not text"),
        (out / "c.npz", out / "d.jsonl.gz", "not text"),
        (corpus, out / "d.what", "must name the format"),
        (corpus, out / "d.npz.gz", "must name the format"),
        (out / "c.txt", out / "c.txt", "same file"),
    ):
        assert run("convert", source, target) == 2
        told = capsys.readouterr().err
        assert words in told
        assert told.count("\n") == 1
    assert not list(out.glob("d.*"))


def test_convert_a_folder_of_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts, out = tmp_path / "texts", tmp_path / "out"
    texts.mkdir()
    (texts / "train.tsv").write_text("red apple\tfruit\ngreen leaf\tplant\nred leaf\tplant fruit\n")
    (texts / "test.tsv").write_text("green apple\tplant fruit\n")
    assert run("convert", texts, out) == 0
    train, test = read_dataset(out / "train.txt"), read_dataset(out / "test.txt")
    assert train.X.shape[1] == test.X.shape[1]
    assert train.label_names == test.label_names == ["fruit", "plant"]
    assert test.Y.sum() == 2
    assert run("convert", texts, out) == 2
    assert "not an empty folder" in capsys.readouterr().err


def test_convert_keeps_the_names_of_other_files(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    assert run("convert", corpus, out / "train.txt") == 0
    names = (out / "labels.txt").read_text()
    other = tmp_path / "other.tsv"
    other.write_text("blue sky\tweather\n")
    assert run("convert", other, out / "test.txt") == 2
    assert "names other labels already" in capsys.readouterr().err
    assert (out / "labels.txt").read_text() == names
    assert not (out / "test.txt").exists()
    assert run("convert", corpus, out / "again.txt") == 0
