"""A training that is killed goes on where it was, and ends in the same bits as one that was not."""

import os
import random
import resource
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from cli_parts import run
from helpers import blocky, same_bits
from sklearn.ensemble import RandomForestClassifier

from blockxmc import (
    LEML,
    BlockwiseClassifier,
    DiSMEC,
    NaiveBayes,
    Partitioner,
    PDSparse,
    PPDSparse,
    TextClassifier,
    load,
)
from blockxmc._core.results import ResultFolder
from blockxmc.data import write_xc
from blockxmc.errors import BlockXMCError
from blockxmc.training import settings


class Killed(BaseException):
    """Like a kill, no code is prepared for it."""


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    """Several batches of labels on data that is small."""
    few = settings.Settings(least_pairs=1, least_pairs_per_row=0, most_batches=3)
    monkeypatch.setattr(settings, "SETTINGS", few)


def data(n=600, n_labels=50):
    return blocky(n=n, n_labels=n_labels, n_blocks=5)


def kill_after(monkeypatch, number):
    """End the process, so to speak, when this many results are on the disk."""
    put, done = ResultFolder.put, []

    def put_or_die(self, name, result):
        if len(done) == number:
            raise Killed
        put(self, name, result)
        done.append(name)

    monkeypatch.setattr(ResultFolder, "put", put_or_die)


WAYS = {
    "default": lambda: BlockwiseClassifier(n_blocks=8),
    "open": lambda: BlockwiseClassifier(),
    "rows kept": lambda: BlockwiseClassifier(n_blocks=8, keep_rows=True),
    "own partition": lambda: BlockwiseClassifier(partitioner=Partitioner(n_blocks=4, lam=0.1)),
    "dual": lambda: BlockwiseClassifier(PPDSparse(), n_blocks=4),
    "counts": lambda: BlockwiseClassifier(NaiveBayes(), n_blocks=4, lam=0.1),
    "paper": lambda: BlockwiseClassifier.paper(DiSMEC(), n_blocks=4, lam=0.1),
    "paper, lambda open": lambda: BlockwiseClassifier.paper(DiSMEC(), n_blocks=4),
    "coupled": lambda: BlockwiseClassifier.paper(PDSparse(), n_blocks=3, lam=0.1),
    "low rank": lambda: BlockwiseClassifier.paper(LEML(rank=5), n_blocks=3, lam=0.1),
    "global": lambda: BlockwiseClassifier(DiSMEC(), n_blocks=4, lam=0.1, weights="global"),
}


@pytest.mark.parametrize("way", WAYS)
def test_killed_after_any_stage(monkeypatch, tmp_path, way):
    X, Y = data()
    whole = WAYS[way]().fit(X, Y)._state()
    clf, kills = None, 0
    while clf is None:
        with monkeypatch.context() as patch, suppress(Killed):
            kill_after(patch, 1)  # one stage more in every run
            kills += 1
            clf = WAYS[way]().fit(X, Y, work=tmp_path)
    assert kills > 4
    assert clf.went_on_from_
    assert same_bits(clf._state(), whole)


def test_stages_are_not_computed_twice(monkeypatch, tmp_path):
    X, Y = data()
    BlockwiseClassifier(n_blocks=8).fit(X, Y, work=tmp_path)
    for name in ("fit", "blocks"):
        monkeypatch.setattr(f"blockxmc.routing.Router.{name}", None)
    monkeypatch.setattr(DiSMEC, "_train", None)
    monkeypatch.setattr(Partitioner, "_fit", None)
    again = BlockwiseClassifier(n_blocks=8).fit(X, Y, work=tmp_path)
    assert again.went_on_from_ == "partition, router, routes, labels, held-out rows, labels again"


def test_threads_may_change_between_runs(monkeypatch, tmp_path):
    X, Y = data()
    with monkeypatch.context() as patch:
        kill_after(patch, 5)
        with pytest.raises(Killed):
            BlockwiseClassifier(n_blocks=8, n_jobs=1).fit(X, Y, work=tmp_path)
    one, other = BlockwiseClassifier(n_blocks=8, n_jobs=2), BlockwiseClassifier(n_blocks=8)
    labels, scores = one.fit(X, Y, work=tmp_path).predict_topk(X)
    assert same_bits((labels, scores), other.fit(X, Y).predict_topk(X))


def test_damage_is_made_good(tmp_path):
    X, Y = data()
    whole = BlockwiseClassifier(n_blocks=8).fit(X, Y, work=tmp_path)._state()
    rng = random.Random(0)
    for path in sorted(tmp_path.iterdir()):
        if path.suffix in (".json", ".npy"):
            content = bytearray(path.read_bytes())
            content[rng.randrange(len(content))] ^= 1 + rng.randrange(255)
            path.write_bytes(content[: rng.choice([len(content), len(content) // 2])])
    clf = BlockwiseClassifier(n_blocks=8).fit(X, Y, work=tmp_path)
    assert clf.went_on_from_ == ""
    assert same_bits(clf._state(), whole)


def test_other_data_and_settings_are_refused_by_name(tmp_path):
    X, Y = data()
    BlockwiseClassifier(DiSMEC(C=1.0), n_blocks=8).fit(X, Y, work=tmp_path)
    for clf, words in (
        (BlockwiseClassifier(DiSMEC(C=2.0), n_blocks=8), r"base__C was 1\.0, now 2\.0"),
        (BlockwiseClassifier(DiSMEC(), n_blocks=9), "n_blocks was 8, now 9"),
        (BlockwiseClassifier(DiSMEC(), n_blocks=8, random_state=1), "random_state was 0, now 1"),
        (BlockwiseClassifier(NaiveBayes(), n_blocks=8), "base was DiSMEC, now NaiveBayes"),
    ):
        with pytest.raises(BlockXMCError, match=words):
            clf.fit(X, Y, work=tmp_path)
    other = X.copy()
    other.data[3] *= 2
    same_again = BlockwiseClassifier(DiSMEC(), n_blocks=8)
    with pytest.raises(BlockXMCError, match=r"data was [0-9a-f]+, now [0-9a-f]+;"):
        same_again.fit(other, Y, work=tmp_path)
    with pytest.raises(BlockXMCError, match="rows was 600, now 599"):
        same_again.fit(X[:-1], Y[:-1], work=tmp_path)
    with pytest.raises(BlockXMCError, match=r"sample_weight was not set, now [0-9a-f]+;"):
        same_again.fit(X, Y, np.ones(600), work=tmp_path)
    with pytest.raises(BlockXMCError, match=r"label_features was not set, now [0-9a-f]+;"):
        same_again.fit(X, Y, label_features=np.ones((50, 60)), work=tmp_path)
    assert same_again.fit(X, Y, work=tmp_path).went_on_from_


def test_what_cannot_be_written_as_arrays_is_refused(tmp_path):
    X, Y = data(n=80, n_labels=8)
    for way in (BlockwiseClassifier, BlockwiseClassifier.paper):
        clf = way(RandomForestClassifier(2), n_blocks=2, lam=0.1)
        with pytest.raises(BlockXMCError, match="cannot be kept without a pickle: leave work out"):
            clf.fit(X, Y, work=tmp_path / way.__name__)


def texts(n=300):
    rng = np.random.default_rng(0)
    names = np.array([f"topic {i}" for i in range(12)])
    labels = [sorted(rng.choice(12, size=2, replace=False).tolist()) for _ in range(n)]
    return [" ".join(f"word{3 * i + rng.integers(3)}" for i in row for _ in range(4)) for row in labels], [
        names[row].tolist() for row in labels
    ]


def test_texts(monkeypatch, tmp_path):
    given = texts()
    whole = TextClassifier(BlockwiseClassifier(n_blocks=4)).fit(*given)
    with monkeypatch.context() as patch:
        kill_after(patch, 4)
        with pytest.raises(Killed):
            TextClassifier(BlockwiseClassifier(n_blocks=4)).fit(*given, work=tmp_path)
    clf = TextClassifier(BlockwiseClassifier(n_blocks=4)).fit(*given, work=tmp_path)
    assert clf.classifier_.went_on_from_
    assert same_bits(clf.classifier_._state(), whole.classifier_._state())
    with pytest.raises(BlockXMCError, match="features was 39, now"):
        TextClassifier(BlockwiseClassifier(n_blocks=4), ngram_range=(1, 2)).fit(*given, work=tmp_path)


def test_a_classifier_without_stages_says_so(tmp_path):
    with pytest.raises(BlockXMCError, match="DiSMEC takes no work: use BlockwiseClassifier"):
        TextClassifier(DiSMEC()).fit(*texts(), work=tmp_path)


# ---- real processes ----
KILLED = """
import sys
import numpy as np
from helpers import blocky
from blockxmc import BlockwiseClassifier
X, Y = blocky(n=4000, n_labels=302, n_features=300, n_blocks=20)
BlockwiseClassifier(n_jobs=1).fit(X, Y, work=sys.argv[1]).save(sys.argv[2])
"""


def test_sigkill_at_random_moments(tmp_path):
    rng, kills = random.Random(0), 0
    train = [sys.executable, "-c", KILLED]
    start = time.monotonic()
    subprocess.run([*train, tmp_path / "a", tmp_path / "whole"], check=True, cwd=Path(__file__).parents[1])
    longest = time.monotonic() - start
    while kills < 12:
        process = subprocess.Popen([*train, tmp_path / "b", tmp_path / "model"], cwd=Path(__file__).parents[1])
        try:
            assert process.wait(timeout=rng.uniform(0.05, 0.3) * longest) == 0
            break
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
    else:
        subprocess.run([*train, tmp_path / "b", tmp_path / "model"], check=True, cwd=Path(__file__).parents[1])
    assert kills
    assert same_bits(*(load(tmp_path / name)._state() for name in ("model", "whole")))


def test_a_full_disk_is_one_line_and_the_same_command_goes_on(tmp_path, capsys):
    write_xc(tmp_path / "train.txt", *data(n=1500))
    train = ["train", tmp_path / "train.txt", "--blocks", 16, "--threads", 1, "--model"]
    assert run(capsys, *train, tmp_path / "whole", "--work", tmp_path / "all")[0] == 0
    too_much = max(path.stat().st_size for path in (tmp_path / "all").iterdir())
    kept = ["--work", tmp_path / "work"]

    def few_bytes():
        resource.setrlimit(resource.RLIMIT_FSIZE, (too_much - 1, too_much - 1))

    command = [sys.executable, "-m", "blockxmc", *map(str, [*train, tmp_path / "model", *kept])]
    full = subprocess.run(command, capture_output=True, text=True, preexec_fn=few_bytes)
    assert full.returncode == 2
    assert len(full.stderr.splitlines()) == 1
    assert "could not be kept: File too large; finished stages are kept" in full.stderr
    assert not (tmp_path / "model").exists()
    assert not [name for name in os.listdir(tmp_path / "work") if name.endswith(".part")]
    code, out, _ = run(capsys, *train, tmp_path / "model", *kept)
    assert code == 0
    assert "went on from: " in out
    X, _ = data(n=1500)
    assert same_bits(*(load(tmp_path / name).predict_topk(X) for name in ("model", "whole")))


def test_systems_without_stages_refuse_work(tmp_path, capsys):
    code, _, err = run(
        capsys, "train", "none.txt", "--model", tmp_path, "--system", "fastxml", "--work", tmp_path / "w"
    )
    assert code == 2
    assert "--work has no meaning for --system fastxml" in err
