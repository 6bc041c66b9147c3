"""Sizes that rows do not support, or that memory does not hold, are refused before anything large is allocated."""

import resource

import numpy as np
import pytest
from helpers import blocky
from scipy import sparse

from blockxmc import BlockwiseClassifier, DiSMEC
from blockxmc._core import memory
from blockxmc.data import Dataset, read_npz, read_xc, write_npz
from blockxmc.errors import BlockXMCError, DataFormatError

HUGE = 2**31 - 1


def peak_megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def widened(matrix, width):
    return sparse.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=(matrix.shape[0], width))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"1 {HUGE} {HUGE}\n0 3:1\n", "the header says 2,147,483,647 features, but the rows use only the first 4"),
        (f"1 4 {HUGE}\n0 3:1\n", "the header says 2,147,483,647 labels, but the rows use only the first 1"),
        (f"0 {HUGE - 1}:1\n1 0:1\n", "the largest index says 2,147,483,647 features, but the rows hold only 2 in all"),
        (f"{HUGE - 1} 0:1\n", "the largest index says 2,147,483,647 labels, but the rows hold only 1 in all"),
    ],
)
def test_an_xc_file_of_two_lines_cannot_claim_billions(text, message, tmp_path):
    (tmp_path / "two.txt").write_text(text)
    before = peak_megabytes()
    with pytest.raises(DataFormatError, match=message) as caught:
        read_xc(tmp_path / "two.txt")
    assert str(caught.value).startswith(f"{tmp_path / 'two.txt'}: ")
    assert "GB of memory" in str(caught.value)
    assert peak_megabytes() - before < 100


def test_a_plausible_header_keeps_its_shape(tmp_path):
    (tmp_path / "one.txt").write_text("1 135909 670091\n5 17:1\n")
    data = read_xc(tmp_path / "one.txt")
    assert (data.X.shape, data.Y.shape) == ((1, 135909), (1, 670091))


def test_sizes_the_caller_gives_need_no_support(tmp_path):
    (tmp_path / "one.txt").write_text("0 3:1\n")
    assert read_xc(tmp_path / "one.txt", n_features=HUGE, n_labels=2).X.shape == (1, HUGE)


def test_an_npz_archive_cannot_claim_billions(tmp_path):
    X, Y = blocky(n=20)
    write_npz(tmp_path / "wide.npz", Dataset(widened(X, HUGE), Y))
    with pytest.raises(DataFormatError, match="its shape says 2,147,483,647 features"):
        read_npz(tmp_path / "wide.npz")


def test_an_npz_array_cannot_claim_more_than_is_stored(tmp_path):
    import zipfile

    X, Y = blocky(n=20)
    write_npz(tmp_path / "good.npz", Dataset(X, Y))
    with zipfile.ZipFile(tmp_path / "good.npz") as good, zipfile.ZipFile(tmp_path / "bad.npz", "w") as bad:
        for name in good.namelist():
            content = good.read(name)
            if name == "X_data.npy":
                shape = content[content.index(b"(") : content.index(b")")]
                content = content.replace(shape + b"), }" + b" " * 12, b"(999999999999,), }".ljust(len(shape) + 16))
                assert b"999999999999" in content
            bad.writestr(name, content)
    with pytest.raises(DataFormatError, match=r"bad\.npz"):
        read_npz(tmp_path / "bad.npz")


def test_an_archive_larger_than_the_memory_is_refused(tmp_path, monkeypatch):
    X, Y = blocky(n=20)
    write_npz(tmp_path / "d.npz", Dataset(X, Y))
    monkeypatch.setattr(memory, "MAX_MEMORY", 1000)
    with pytest.raises(DataFormatError, match=r"d\.npz: unpacks to"):
        read_npz(tmp_path / "d.npz")


@pytest.mark.parametrize("estimator", [DiSMEC(), BlockwiseClassifier()], ids=["DiSMEC", "BP"])
@pytest.mark.parametrize("wide", ["X", "Y"])
def test_fit_refuses_what_would_fill_the_memory(estimator, wide, monkeypatch):
    X, Y = blocky(n=40)
    monkeypatch.setattr(memory, "MAX_MEMORY", 10**9)
    before = peak_megabytes()
    with pytest.raises(BlockXMCError, match="leave unused"):
        estimator.fit(*((widened(X, HUGE), Y) if wide == "X" else (X, widened(Y, HUGE))))
    assert peak_megabytes() - before < 100


def test_free_memory_is_known_and_positive():
    assert memory.free_memory() > 2**20
    assert memory.training_bytes(0, 10, 10) < memory.training_bytes(0, 10, 1)


@pytest.mark.parametrize("value", [1e30, -1e30, 1e300])
def test_values_that_overflow_are_refused(value):
    X, Y = blocky(n=40)
    X = X.astype(np.float64)
    X.data[3] = value
    with pytest.raises(BlockXMCError, match=r"rescale|infinity"):
        BlockwiseClassifier().fit(X, Y)
    model = DiSMEC().fit(blocky(n=40)[0], Y)
    with pytest.raises(BlockXMCError, match=r"rescale|infinity"):
        model.predict_topk(X)
    X.data[3] = 1e14
    model.predict_topk(X.astype(np.float32))
