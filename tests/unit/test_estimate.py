"""What a training will take, and refusing what is too large."""

import json

import numpy as np
import pytest
from cli_parts import run
from scipy import sparse

from blockxmc import LEML, BlockwiseClassifier, DiSMEC, TextClassifier
from blockxmc._core import memory
from blockxmc.data import load_demo, write_xc
from blockxmc.errors import BlockXMCError
from blockxmc.training import estimate as room

KEYS = {"train_seconds", "peak_memory_gb", "model_mb", "candidates"}


@pytest.fixture(scope="module")
def demo():
    train, _ = load_demo()
    return train


@pytest.fixture(autouse=True)
def _same_machine(monkeypatch):
    """A machine as fast as the one on which the formulas were fitted."""
    monkeypatch.setattr(room, "calibration", lambda threads: room.CALIBRATION_SECONDS)


def test_the_bundled_set_takes_about_what_was_expected(demo):
    # Measured by bench/estimate.py and docs/results/peers.md: 4.3 s, 13.5 MB, 738 candidates, 0.17 GB beside the data.
    found = BlockwiseClassifier().estimate(demo.X, demo.Y)
    assert set(found) == KEYS
    assert 1 / 1.5 < found["train_seconds"] / 4.3 < 1.5
    assert 1 / 1.5 < found["model_mb"] / 13.5 < 1.5
    assert 1 / 1.5 < found["candidates"] / 738 < 1.5
    needed = memory.expected_bytes(*demo.X.shape, demo.Y.shape[1], demo.X.nnz, demo.Y.nnz)
    assert 1 / 1.3 < needed / 174e6 < 1.3
    assert found["peak_memory_gb"] * 1e9 > needed


def test_more_of_anything_takes_more(demo):
    less = BlockwiseClassifier().estimate(demo.X[:5000], demo.Y[:5000])
    more = BlockwiseClassifier().estimate(demo.X, demo.Y)
    both = BlockwiseClassifier(n_partitions=2).estimate(demo.X, demo.Y)
    assert less["train_seconds"] < more["train_seconds"] < both["train_seconds"]
    assert less["model_mb"] < more["model_mb"] < both["model_mb"]


def test_few_labels_are_all_candidates():
    X, Y = sparse.eye_array(20, format="csr"), sparse.eye_array(20, format="csr")
    assert BlockwiseClassifier().estimate(X, Y)["candidates"] == 20


def test_a_slower_machine_takes_longer(demo, monkeypatch):
    before = BlockwiseClassifier().estimate(demo.X, demo.Y)
    monkeypatch.setattr(room, "calibration", lambda threads: 3 * room.CALIBRATION_SECONDS)
    after = BlockwiseClassifier().estimate(demo.X, demo.Y)
    assert after["train_seconds"] == pytest.approx(3 * before["train_seconds"])


def test_other_trainings_have_no_estimate(demo):
    for clf in (BlockwiseClassifier.paper(), BlockwiseClassifier(LEML())):
        with pytest.raises(BlockXMCError, match="shared weights of DiSMEC"):
            clf.estimate(demo.X, demo.Y)
    with pytest.raises(BlockXMCError, match="no estimate for DiSMEC"):
        TextClassifier(DiSMEC()).estimate(["a cat", "a dog"], [["x"], ["y"]])


def test_a_training_over_the_limit_is_refused_with_what_would_fit(demo, monkeypatch):
    monkeypatch.setattr(memory, "used_memory", lambda: 10**8)
    per = memory.BESIDE_FILES
    needed = memory.expected_bytes(*demo.X.shape, demo.Y.shape[1], demo.X.nnz, demo.Y.nnz, per)
    with pytest.raises(BlockXMCError, match=rf"{(needed + 1e8) / 1e9:.2f} GB.*max_features=\d+") as caught:
        BlockwiseClassifier().fit(demo.X, demo.Y, max_memory_gb=(needed + 0.9e8) / 1e9)
    kept = int(str(caught.value).split("max_features=")[1].split(",")[0])
    counts = np.bincount(demo.X.indices, minlength=demo.n_features)
    frequent = np.sort(np.argsort(-counts, kind="stable")[:kept])
    memory.check_memory_limit(demo.X[:, frequent], demo.Y, (needed + 0.9e8) / 1e9, per)
    more = np.argsort(-counts, kind="stable")[: kept + 2]
    with pytest.raises(BlockXMCError):
        memory.check_memory_limit(demo.X[:, np.sort(more)], demo.Y, (needed + 0.9e8) / 1e9, per)
    with pytest.raises(BlockXMCError, match="rows would fit"):
        BlockwiseClassifier().fit(demo.X, demo.Y, max_memory_gb=0.13)
    with pytest.raises(BlockXMCError, match="before it begins"):
        BlockwiseClassifier().fit(demo.X, demo.Y, max_memory_gb=0.05)
    with pytest.raises(BlockXMCError, match="positive number"):
        BlockwiseClassifier().fit(demo.X, demo.Y, max_memory_gb=0)
    with pytest.raises(BlockXMCError, match="GB of memory"):
        TextClassifier().fit(["red apple", "green leaf"], [["a"], ["b"]], max_memory_gb=0.01)


def test_from_the_command_line(capsys, tmp_path):
    write_xc(tmp_path / "train.txt", np.eye(6), np.eye(6))
    (tmp_path / "train.csv").write_text("words,labels\nred apple,fruit\ngreen leaf,plant\n")
    for file, options in (("train.txt", []), ("train.csv", ["--text-field", "words", "--ngrams", 2])):
        code, out, _ = run(capsys, "estimate", tmp_path / file, "--json", *options)
        assert (code, set(json.loads(out))) == (0, KEYS)
        code, out, _ = run(capsys, "estimate", tmp_path / file, *options)
        assert "memory at the peak" in out
        code, _, err = run(capsys, "train", tmp_path / file, "--model", tmp_path / "m", "--max-memory", 0.01, *options)
        assert code == 2
        assert "more than the 0.01 allowed" in err
        assert not (tmp_path / "m").exists()
        assert run(capsys, "train", tmp_path / file, "--model", tmp_path / "m", "--max-memory", 64, *options)[0] == 0
        for old in (tmp_path / "m").iterdir():
            old.unlink()
        (tmp_path / "m").rmdir()


def test_calibration_is_a_short_training(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(room, "CALIBRATION_PATIENCE", 0.1)
    assert 0 < room.calibration.__wrapped__(1) < 10
