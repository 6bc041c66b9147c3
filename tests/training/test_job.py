"""Kept results and the jobs made of them: whole or absent, found when damaged, refused by name when of another job."""

import errno
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from helpers import same_bits
from scipy import sparse

from blockxmc import BlockwiseClassifier, DiSMEC
from blockxmc._core import files
from blockxmc._core.progress import Reporter
from blockxmc._core.results import DamagedError, ResultFolder
from blockxmc.errors import BlockXMCError
from blockxmc.training.job import opened, parameters

EVERYTHING = {
    "whole": 3,
    "real": 0.1 + 0.2,
    "none": None,
    "infinite": float("-inf"),
    "nested": [{"name": "Grüße", "flag": True}, (1, 2.5)],
    "array": np.arange(6, dtype=np.int16).reshape(2, 3),
    "empty": np.zeros((0, 4), np.float32),
    "csr": sparse.csr_array(np.eye(3, dtype=np.float32)),
    "csc": sparse.csc_array(np.tri(3, dtype=np.float32)),
    "scalar": np.float32(0.1),
}


def refuse(folder, identity, words):
    with pytest.raises(BlockXMCError, match=re.escape(words)), opened(folder, identity):
        pass


class Said(Reporter):
    def __init__(self):
        self.lines = []

    def say(self, text):
        self.lines.append(text)


# ---- kept results ----
def test_a_result_comes_back_bit_by_bit(tmp_path):
    kept = ResultFolder(tmp_path / "new" / "folder")
    kept.put("all of it", EVERYTHING)
    assert same_bits(kept.get("all of it"), EVERYTHING)
    assert sorted(path.name for path in kept.folder.iterdir()) == ["all-of-it.json", "all-of-it.npy"]


def test_the_same_result_is_the_same_files(tmp_path):
    for folder in ("a", "b"):
        ResultFolder(tmp_path / folder).put("x", EVERYTHING)
    for name in ("x.json", "x.npy"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.parametrize("name", ["x.json", "x.npy"])
def test_every_damaged_byte_is_found(tmp_path, name):
    kept = ResultFolder(tmp_path)
    kept.put("x", {"array": np.arange(3.0), "value": 1.5})
    whole = (tmp_path / name).read_bytes()
    for at in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[at] ^= 0x15
        (tmp_path / name).write_bytes(damaged)
        with pytest.raises(DamagedError):
            kept.get("x")
    for content in (b"", whole[:-1], b"[]", b"null"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DamagedError):
            kept.get("x")
    (tmp_path / name).unlink()
    if name == "x.json":
        assert kept.get("x") is None
    else:
        with pytest.raises(DamagedError):
            kept.get("x")


@pytest.mark.parametrize("value", [object(), {1: 2}, {"$array": 0}, np.array(["a"]), np.array([{}], dtype=object)])
def test_what_is_no_data_is_not_kept(tmp_path, value):
    with pytest.raises(BlockXMCError, match="cannot be kept"):
        ResultFolder(tmp_path).put("x", value)
    assert not list(tmp_path.iterdir())


# ---- stages ----
def test_a_stage_is_computed_once(tmp_path):
    calls = []

    def compute(value):
        calls.append(value)
        return value

    for _ in range(2):
        with opened(tmp_path, {"data": 1}) as job:
            assert job.stage("first", lambda: compute(10)) == 10
            assert job.within("model 2:").stage("first", lambda: compute(20)) == 20
            reused = job.reused
    assert calls == [10, 20]
    assert reused == "first, model 2: first"


def test_without_a_folder_nothing_is_kept():
    with opened(None, {}) as job:
        assert [job.stage("x", lambda: 1), job.stage("x", lambda: 2)] == [1, 2]
        assert job.reused == ""


@pytest.mark.parametrize("name", ["x.json", "x.npy"])
def test_a_damaged_stage_is_made_again(tmp_path, name):
    with opened(tmp_path, {}) as job:
        job.stage("x", lambda: np.arange(5))
    content = bytearray((tmp_path / name).read_bytes())
    content[-3] ^= 1
    (tmp_path / name).write_bytes(content)
    said = Said()
    with opened(tmp_path, {}, said) as job:
        assert job.stage("x", lambda: np.arange(7)).size == 7
    assert len(said.lines) == 1
    assert "x.json is damaged" in said.lines[0]
    with opened(tmp_path, {}) as job:
        assert job.stage("x", lambda: None).size == 7


def test_another_job_is_refused_by_name(tmp_path):
    with opened(tmp_path, {"data": "a", "C": 1.0, "lam": "auto"}) as job:
        job.stage("x", lambda: 1)
    refuse(tmp_path, {"data": "a", "C": 2.0, "lam": "auto"}, "another job: C was 1.0, now 2.0; give another folder")
    refuse(tmp_path, {"data": "a", "C": 1.0, "route": 1}, "lam was auto, now not set; route was not set, now 1")


def test_another_version_is_refused(tmp_path, monkeypatch):
    with opened(tmp_path, {}):
        pass
    monkeypatch.setattr("blockxmc.training.job.__version__", "99.0")
    refuse(tmp_path, {}, ", now 99.0")


def test_a_damaged_job_file_does_not_let_stages_of_another_job_in(tmp_path):
    with opened(tmp_path, {"data": "a"}) as job:
        job.stage("x", lambda: 1)
    (tmp_path / "job.json").write_text("{")
    with opened(tmp_path, {"data": "b"}) as job:
        assert job.stage("x", lambda: 2) == 2
    (tmp_path / "job.json").write_text("{")
    with opened(tmp_path, {"data": "b"}) as job:
        assert job.stage("x", lambda: 3) == 2


def test_a_folder_of_somebody_else_is_refused(tmp_path):
    (tmp_path / "diary.json").write_text("{}")
    refuse(tmp_path, {}, "holds 'diary.json', which is no part of a job")
    refuse(tmp_path / "diary.json", {}, "is a file")
    refuse(tmp_path / "diary.json" / "deeper", {}, "is a file")


def test_what_a_kill_left_half_written_is_removed(tmp_path):
    (tmp_path / ".x.json-abc.part").write_text("half")
    with opened(tmp_path, {}):
        assert sorted(path.name for path in tmp_path.iterdir()) == ["job.json", "lock"]


def test_one_process_at_a_time(tmp_path):
    code = f"""
from blockxmc.training.job import opened
with opened({str(tmp_path)!r}, {{}}):
    print("open", flush=True)
    input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "open\n"
        refuse(tmp_path, {}, "is in use by another process")
        other.kill()  # the lock goes with its owner
    with opened(tmp_path, {}):
        pass


# ---- a full disk ----
def test_a_full_disk_leaves_what_is_finished(tmp_path, monkeypatch):
    def full(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with opened(tmp_path, {}) as job:
        job.stage("x", lambda: np.arange(3))
        with monkeypatch.context() as patch:
            patch.setattr(files, "flush_to_disk", full)
            with pytest.raises(
                BlockXMCError, match="y could not be kept: No space left on device; finished stages are kept"
            ):
                job.stage("y", lambda: np.arange(3))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.json", "lock", "x.json", "x.npy"]
    with opened(tmp_path, {}) as job:
        assert job.stage("x", lambda: None).size == 3
        assert job.stage("y", lambda: np.arange(4)).size == 4


# ---- what a job is ----
def test_parameters_without_influence_do_not_count():
    one, other = (
        BlockwiseClassifier(DiSMEC(n_jobs=1), n_jobs=1),
        BlockwiseClassifier(DiSMEC(verbose=1), n_jobs=2, verbose=1),
    )
    assert parameters(one) == parameters(other)
    assert parameters(one) != parameters(BlockwiseClassifier(DiSMEC(C=3.0)))


@pytest.mark.parametrize("state", [None, np.random.RandomState(0), np.random.default_rng(0)])
def test_a_seed_that_is_not_the_same_twice_is_refused(tmp_path, state):
    with pytest.raises(BlockXMCError, match="random_state must be a whole number where work is kept"):
        BlockwiseClassifier(random_state=state).fit([[1.0]], [["a"]], work=tmp_path / "work")


def test_the_job_file_can_be_read(tmp_path):
    with opened(tmp_path, {"data": "a", "C": 1.0}):
        pass
    found = json.loads((tmp_path / "job.json").read_text())["result"]
    assert found["C"] == "1.0"
    assert {"blockxmc", "code", "data"} < set(found)
