"""Large arrays in files where memory is limited: the same bits, within the limit, and nothing left behind."""

import resource
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse

from blockxmc import BlockwiseClassifier, DiSMEC, _kernels
from blockxmc._core import memory, needs
from blockxmc._core.matrix import copy_rows
from blockxmc._core.progress import thread_count
from blockxmc.data import Dataset, write_npz
from blockxmc.distributed.worker import Training
from blockxmc.errors import BlockXMCError
from blockxmc.training import candidates

MEBI = 2**20


@pytest.fixture(scope="module")
def data():
    """Wide rows, so that arrays per feature are large enough to be counted, and 40 labels that two features tell."""
    rng = np.random.default_rng(0)
    Y = sparse.csr_array((np.ones(600, np.float32), (np.arange(600), np.arange(600) % 40)), shape=(600, 40))
    words = sparse.random_array((600, 40_000), density=0.01, format="csr", dtype=np.float32, rng=rng)
    told = sparse.csr_array((np.ones(600, np.float32), (np.arange(600), np.arange(600) % 40)), shape=(600, 40_000))
    X = sparse.csr_array(words + told)
    X.sort_indices()
    return X, Y


@pytest.fixture
def limited(tmp_path):
    """Sets a limit, which ends with the test."""
    yield lambda budget: _kernels.limit_scratch(str(tmp_path), budget)
    _kernels.limit_scratch("", 0)


def test_rows_are_copied_as_scipy_takes_them(data):
    X, _ = data
    rows = np.array([599, 0, 7, 7])
    found = copy_rows(X, rows)
    assert (found != X[rows]).nnz == 0
    assert_array_equal(found.indptr, X[rows].indptr)
    assert copy_rows(X, np.zeros(0, np.int64)).shape == (0, X.shape[1])
    many = np.arange(5000) % 600
    assert (copy_rows(X, many, 3) != X[many]).nnz == 0
    for wrong in (-1, 600):
        with pytest.raises(ValueError, match="out of range"):
            copy_rows(X, np.array([wrong]))


def test_arrays_beyond_the_budget_lie_in_files_that_have_no_name(data, limited, tmp_path):
    X, _ = data
    many = np.tile(np.arange(600), 4)  # 4 MiB of columns and as many of values
    before = _kernels.held_scratch()[0]
    limited(before + 5 * MEBI)
    copy = copy_rows(X, many)
    in_memory, most, in_files = _kernels.held_scratch()
    assert before < in_memory <= most <= before + 5 * MEBI
    assert in_files >= MEBI
    assert list(tmp_path.iterdir()) == []
    assert (copy != X[many]).nnz == 0
    del copy
    assert _kernels.held_scratch()[0] == before
    assert _kernels.held_scratch()[2] == 0


@pytest.mark.parametrize("estimator", [DiSMEC(n_jobs=2), BlockwiseClassifier(n_blocks=4, n_jobs=2)])
def test_a_limit_changes_where_arrays_lie_and_nothing_else(data, limited, estimator):
    X, Y = data
    before = _kernels.held_scratch()[0]
    free = estimator.fit(X, Y).predict_topk(X, 5)
    limited(before)
    bounded = estimator.fit(X, Y).predict_topk(X, 5)
    assert _kernels.held_scratch()[1] <= before
    for found, expected in zip(bounded, free, strict=True):
        assert found.tobytes() == expected.tobytes()


def test_tables_of_held_out_rows_are_made_some_rows_at_a_time(data, monkeypatch):
    X, Y = data
    clf = BlockwiseClassifier(n_blocks=4, n_jobs=1)
    sizes, tables = [], candidates.HeldOut._tables
    whole = clf.fit(X, Y)
    kept = whole.predict_topk(X, 5), whole.predict_proba(X).data, whole.cost_

    def watched(self, X, Y, found, *args):
        sizes.append(found[0].shape)
        return tables(self, X, Y, found, *args)

    monkeypatch.setattr(candidates.HeldOut, "_tables", watched)
    monkeypatch.setattr(candidates, "CANDIDATES_AT_A_TIME", 1000)
    parts = clf.fit(X, Y)
    many = [n_rows for n_rows, few in sizes if few == 40]
    assert (len(many), sum(many), max(many)) == (5, 120, 25)  # a fifth of the rows, with all 40 labels of each
    for mine, theirs in zip(parts.predict_topk(X, 5), kept[0], strict=True):
        assert_array_equal(mine, theirs)
    assert_array_equal(parts.predict_proba(X).data, kept[1])
    assert parts.cost_ == kept[2]


def test_max_memory_bounds_what_is_held(data, tmp_path, monkeypatch):
    X, Y = data
    monkeypatch.setattr(memory, "used_memory", lambda: 0)
    asked = []
    limit = _kernels.limit_scratch
    monkeypatch.setattr(_kernels, "limit_scratch", lambda *args: (asked.append(args), limit(*args)))
    needed = needs.expected_bytes(needs.sizes_of(X, Y, thread_count(None)), in_files=True)
    work = tmp_path / "work"
    BlockwiseClassifier(n_blocks=4).fit(X, Y, max_memory_gb=(needed + 3 * MEBI) / 1e9, work=work)
    assert asked == [(str(work), pytest.approx(3 * MEBI, abs=1)), ("", 0)]
    del asked[:]
    BlockwiseClassifier(n_blocks=4).fit(X, Y, max_memory_gb=100)
    assert asked == []  # there is room for all


def test_workers_of_a_cluster_keep_to_the_limit_too(data, tmp_path, monkeypatch):
    X, Y = data
    write_npz(tmp_path / "train.npz", Dataset(X, Y))
    estimator, work = BlockwiseClassifier(n_blocks=4, random_state=0), tmp_path / "work"
    estimator.fit(X, Y, work=work)
    monkeypatch.setattr(memory, "used_memory", lambda: 0)
    most = (needs.expected_bytes(needs.sizes_of(X, Y), in_files=True) + 3 * MEBI) / 1e9
    found = []
    for limit in (None, most):
        parts = Training(estimator, tmp_path / "train.npz", work, limit).checked()("labels")
        asked, real = [], _kernels.limit_scratch
        with monkeypatch.context() as patch:
            patch.setattr(_kernels, "limit_scratch", lambda *args, a=asked, r=real: (a.append(args), r(*args)))
            done = parts.keep((3, 9), "one")
        assert asked == ([] if limit is None else [(str(work), pytest.approx(3 * MEBI, abs=1)), ("", 0)])
        found.append(done.digest)
        parts.job.kept.path(done.name).unlink()
    assert found[0] == found[1]
    with pytest.raises(BlockXMCError, match="more than the"):
        Training(estimator, tmp_path / "train.npz", work, most / 100).checked()


def test_scratch_files_lie_in_the_work_folder_whatever_holds_it(data, tmp_path, monkeypatch):
    X, Y = data
    asked = []
    monkeypatch.setattr(memory, "used_memory", lambda: 0)
    monkeypatch.setattr(_kernels, "limit_scratch", lambda *args: asked.append(args[0]))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for work in (None, str(tmp_path / "a"), SimpleNamespace(folder=tmp_path / "b")):
        with memory.within_memory(X, Y, 1e-3, work):
            pass
    assert asked == [str(tmp_path), "", str(tmp_path / "a"), "", str(tmp_path / "b"), ""]


def test_a_full_disk_is_said_in_one_line(data, tmp_path, monkeypatch):
    X, Y = data
    monkeypatch.setattr(memory, "used_memory", lambda: 0)
    needed = needs.expected_bytes(needs.sizes_of(X, Y, thread_count(None)), in_files=True)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MEBI // 2, before[1]))
    try:
        with pytest.raises(BlockXMCError, match=r"no room for scratch files: .*TMPDIR"):
            BlockwiseClassifier(n_blocks=4).fit(X, Y, max_memory_gb=needed / 1e9)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_limits_of_trainings_side_by_side(data, tmp_path, monkeypatch):
    X, Y = data
    asked = []
    monkeypatch.setattr(memory, "used_memory", lambda: 0)
    monkeypatch.setattr(_kernels, "limit_scratch", lambda *args: asked.append(args[0]))
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    first = memory.within_memory(X, Y, 1e-3, a)
    first.__enter__()
    with memory.within_memory(X, Y, 1e-3, b):
        pass
    assert asked == [a, a, a]  # the one that goes on keeps its limit
    first.__exit__(None, None, None)
    assert asked[-1] == ""


def test_a_folder_that_cannot_be_made_is_said_in_one_line(data, tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "used_memory", lambda: 0)
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(BlockXMCError, match="cannot hold scratch files"),
        memory.within_memory(*data, 1e-3, tmp_path / "file"),
    ):
        pass
