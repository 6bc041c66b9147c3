"""What a training will take, and refusing what is too large."""

import json

import numpy as np
import pytest
from cli_parts import run
from scipy import sparse

from blockxmc import LEML, BlockwiseClassifier, DiSMEC, TextClassifier
from blockxmc._core import memory, needs
from blockxmc._core.progress import thread_count
from blockxmc.classifier import lean_dismec
from blockxmc.data import load_demo, write_xc
from blockxmc.errors import BlockXMCError
from blockxmc.training import batches
from blockxmc.training import estimate as room
from blockxmc.training.settings import SETTINGS

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
    # Measured by bench/estimate.py and docs/results/peers.md: 4.3 s, 8.5 MB, 407 candidates, 0.17 GB beside the data.
    found = BlockwiseClassifier().estimate(demo.X, demo.Y)
    assert set(found) == KEYS
    assert 1 / 1.5 < found["train_seconds"] / 4.3 < 1.5
    assert 1 / 1.5 < found["model_mb"] / 8.5 < 1.5
    assert 1 / 1.3 < found["candidates"] / 407 < 1.3
    needed = needs.expected_bytes(needs.sizes_of(demo.X, demo.Y))
    assert 1 / 1.3 < needed / 174e6 < 1.3
    assert found["peak_memory_gb"] * 1e9 > needed


def test_more_of_anything_takes_more(demo):
    less = BlockwiseClassifier().estimate(demo.X[:5000], demo.Y[:5000])
    more = BlockwiseClassifier().estimate(demo.X, demo.Y)
    assert less["train_seconds"] < more["train_seconds"]
    assert less["model_mb"] < more["model_mb"]


def test_few_labels_are_all_candidates():
    X, Y = sparse.eye_array(20, format="csr"), sparse.eye_array(20, format="csr")
    assert BlockwiseClassifier().estimate(X, Y)["candidates"] == 20


def test_labels_beside_many_others_are_candidates_of_all_rows():
    """2,000 labels of ten rows each, and labels that come beside all of those: a hundred, or five of them."""
    rng = np.random.default_rng(0)
    own, row = np.arange(20_000) % 2000, np.arange(20_000)
    anywhere, at_home = 2000 + rng.integers(0, 100, 20_000), 2000 + own // 400
    expected = {}
    for name, beside in (("anywhere", anywhere), ("at home", at_home)):
        places = np.concatenate([row, row]), np.concatenate([own, beside])
        Y = sparse.csr_array((np.ones(40_000, np.float32), places), shape=(20_000, 2100))
        expected[name] = room.estimate(Y, Y, threads=1)["candidates"]
    assert expected["anywhere"] == pytest.approx(expected["at home"] + 95)


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
    needed = needs.expected_bytes(needs.sizes_of(demo.X, demo.Y, thread_count(None)))
    with pytest.raises(BlockXMCError, match=rf"{(needed + 1e8) / 1e9:.2f} GB.*max_features=\d+") as caught:
        BlockwiseClassifier().fit(demo.X, demo.Y, max_memory_gb=(needed + 0.9e8) / 1e9)
    kept = int(str(caught.value).split("max_features=")[1].split(",")[0])
    counts = np.bincount(demo.X.indices, minlength=demo.n_features)
    frequent = np.sort(np.argsort(-counts, kind="stable")[:kept])
    memory.check_memory_limit(demo.X[:, frequent], demo.Y, (needed + 0.9e8) / 1e9, threads=thread_count(None))
    more = np.argsort(-counts, kind="stable")[: kept + kept // 20]
    with pytest.raises(BlockXMCError):
        memory.check_memory_limit(demo.X[:, np.sort(more)], demo.Y, (needed + 0.9e8) / 1e9, threads=thread_count(None))
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


# What trainings of the default held at their peak beside their data, in MB, on one thread; sizes as sizes_of has them.
PEAKS = {
    "debian-small": ((15711, 17917, 6563, 649033, 69597, 815_166, 1.0), 153),
    "elife-keywords": ((15366, 32454, 9483, 2162646, 94265, 1_497_577, 1.0), 276),
    "citeulike-t-tags": ((20750, 19855, 18302, 394048, 204487, 1_842_585, 1.0), 193),
    "tate-subjects": ((47026, 12219, 14650, 771903, 289242, 1_120_466, 1.0), 297),
    "bibtex": ((4880, 1836, 159, 334250, 11616, 250_547, 1.0), 25),
    "delicious": ((12920, 500, 983, 239549, 246088, 446_327, 1.0), 122),
}


@pytest.mark.parametrize("name", PEAKS)
def test_memory_is_within_a_factor_of_1_3_on_every_set(name):
    sizes, found = PEAKS[name]
    assert 1 / 1.3 < needs.expected_bytes(needs.Sizes(*sizes)) / (found * 1e6) < 1.3


def test_memory_knows_the_settings_of_the_training():
    known = needs.LEAST_PAIRS, needs.LEAST_PAIRS_PER_ROW, needs.MOST_PAIRS, needs.CANDIDATES
    assert known == (SETTINGS.least_pairs, SETTINGS.least_pairs_per_row, SETTINGS.pairs_at_a_time, SETTINGS.candidates)
    held_out = needs.HELD_OUT_ONE_IN, needs.HELD_OUT_LEAST, needs.HELD_OUT_MOST
    assert held_out == (SETTINGS.held_out_one_in, SETTINGS.held_out_least, SETTINGS.held_out_most)
    assert (batches.SIDE_BY_SIDE, lean_dismec().prune) == (needs.SIDE_BY_SIDE, needs.PRUNE)


def test_sizes_know_weights_and_rows_that_teach(demo):
    X, Y = demo.X[:3000], demo.Y[:3000]
    sizes = needs.sizes_of(X, Y)
    assert sizes[:5] == (*X.shape, Y.shape[1], X.nnz, Y.nnz)
    weights = BlockwiseClassifier(keep_rows=True).fit(X, Y).kept_.labels.vectors.nnz
    assert 1 / 2 < sizes.weights / weights < 2
    one, four = (needs.sizes_of(demo.X, demo.Y, threads) for threads in (1, 4))
    assert one.taught < four.taught <= 4
    assert needs.expected_bytes(one) < needs.expected_bytes(four)


@pytest.mark.parametrize(("threads", "found"), [(1, 226e6), (8, 382e6)])
def test_few_labels_learn_from_all_rows(threads, found):
    """60,000 rows of 8 values, 600 labels with one positive a row each: the peaks were measured."""
    sizes = needs.Sizes(60_000, 4_000, 600, 479_581, 60_000, 190_753, float(threads), threads)
    assert 1 / 1.3 < needs.expected_bytes(sizes) / found < 1.3


@pytest.mark.parametrize(("n_features", "kept"), [(100, 50), (150, 75), (160, 80)])
def test_long_rows_keep_smaller_weights(n_features, kept):
    """Half of a row has values of 0.09, which are dropped with 100 features; the other half makes its length one."""
    half = n_features // 2
    row = np.repeat([0.09, np.sqrt(1 / half - 0.09**2)], half).astype(np.float32)
    one = sparse.csr_array(np.ones((1, 1), np.float32))
    assert needs.sizes_of(sparse.csr_array(row[None]), one).weights == kept


def test_memory_knows_of_rows_of_very_different_length(demo):
    X, Y = demo.X, demo.Y
    sizes = needs.sizes_of(X, Y)
    stretched = X.copy()
    stretched.data *= np.repeat(np.where(np.arange(X.shape[0]) % 20 == 0, 30, 1), np.diff(X.indptr)).astype(np.float32)
    uneven = needs.sizes_of(stretched, Y)
    assert (sizes.uneven, uneven.uneven) == (False, True)
    more = needs._solving(sizes._replace(uneven=True)) - needs._solving(sizes)
    assert more == pytest.approx(sizes.taught * 144 * X.shape[0])


def test_nothing_to_learn_from_needs_little():
    empty = sparse.csr_array((3, 4), dtype=np.float32)
    assert 0 <= needs.expected_bytes(needs.sizes_of(empty, empty)) < 1e6
    assert needs.expected_bytes(needs.sizes_of(empty[:0], empty[:0], 3)) < 1e6
