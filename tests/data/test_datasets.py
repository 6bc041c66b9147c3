"""Data sets in memory, as npz, and as folders."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from blockxmc.data import Dataset, make_synthetic, read_data_dir, read_dataset, read_npz, write_npz, write_xc
from blockxmc.errors import DataFormatError


@pytest.fixture
def small() -> tuple[Dataset, Dataset]:
    sizes = {"n_features": 60, "n_labels": 12, "labels_per_row": 2, "nnz_per_row": 8}
    return make_synthetic(n_train=40, n_test=15, **sizes)


def test_digest_is_of_the_content(small: tuple[Dataset, Dataset]) -> None:
    train, test = small
    wide = replace(train, X=sparse.csr_array(train.X, copy=True))
    wide.X.indptr = wide.X.indptr.astype(np.int64)
    assert wide.digest == train.digest
    assert train.digest != test.digest
    changed = train.X.copy()
    changed.data[0] += 1
    assert replace(train, X=changed).digest != train.digest
    taller = sparse.csr_array((train.X.data, train.X.indices, train.X.indptr), shape=(40, 61))
    assert replace(train, X=taller).digest != train.digest
    with pytest.raises(AttributeError):
        train.X = changed  # type: ignore[misc]


def test_parts_must_fit() -> None:
    with pytest.raises(DataFormatError, match="rows"):
        Dataset(sparse.csr_array((2, 1)), sparse.csr_array((3, 1)))
    with pytest.raises(DataFormatError, match="1 label names were given for 2 labels"):
        Dataset(sparse.csr_array((2, 1)), sparse.csr_array((2, 2)), label_names=["a"])


def test_npz_round_trip(small: tuple[Dataset, Dataset], tmp_path: Path) -> None:
    data = replace(small[0], label_names=[f"ü {j}" for j in range(12)], feature_names=[""] * 60)
    write_npz(tmp_path / "d.npz", data)
    back = read_dataset(tmp_path / "d.npz")
    assert back.digest == data.digest
    assert back.label_names == data.label_names
    assert back.feature_names == data.feature_names
    with pytest.raises(DataFormatError, match="spans lines"):
        write_npz(tmp_path / "d.npz", replace(data, label_names=["a\nb"] * 12))


@pytest.mark.parametrize(
    "damage",
    [
        {"X_indices": np.full(320, 99, np.int32)},
        {"X_indices": np.full(320, -1, np.int32)},
        {"X_indptr": np.zeros(41, np.int64)},
        {"X_indptr": np.arange(3, dtype=np.int64)},
        {"X_indptr": np.linspace(0, 1, 41)},
        {"X_data": np.full(320, np.nan, np.float32)},
        {"X_data": np.ones(320)},
        {"Y_shape": np.array([40, -3])},
        {"Y_shape": np.array([2**40, 12])},
        {"label_names": np.zeros(4)},
        {"label_names": np.frombuffer(b"\xff\n", np.uint8)},
        {"format": np.int64(99)},
        {"format": np.array(["x"])},
        {"Y_indices": None},
        {"X_data": None},
        {"X_data": np.array([{}], dtype=object)},
    ],
)
def test_damaged_npz_is_refused(damage: dict[str, object], small: tuple[Dataset, Dataset], tmp_path: Path) -> None:
    file = tmp_path / "d.npz"
    write_npz(file, small[0])
    with np.load(file) as archive:
        parts = {key: archive[key] for key in archive.files} | damage
    np.savez(file, **{key: value for key, value in parts.items() if value is not None})
    with pytest.raises(DataFormatError, match=r"d\.npz"):
        read_npz(file)


def test_not_npz_at_all(small: tuple[Dataset, Dataset], tmp_path: Path) -> None:
    file = tmp_path / "d.npz"
    write_npz(file, small[0])
    whole = file.read_bytes()
    for content in (b"", b"hello", whole[: len(whole) // 2], whole[:100] + b"x" * 300 + whole[400:]):
        file.write_bytes(content)
        with pytest.raises(DataFormatError):
            read_npz(file)
    write_npz(file, small[0])
    with np.load(file) as archive:
        parts = dict(archive)
    np.savez(file, **parts)  # stored: the headers of the arrays are plain
    whole = file.read_bytes()
    for place in [whole.index(b"'descr'") + i for i in range(40)]:
        file.write_bytes(whole[:place] + b"(" + whole[place + 1 :])
        with pytest.raises(DataFormatError):
            read_npz(file)
    with open(file, "wb") as out:
        np.save(out, np.ones(3))
    with pytest.raises(DataFormatError, match="single array"):
        read_npz(file)


@pytest.mark.parametrize(
    "names", [("train.txt", "test.txt"), ("Toy_train.txt", "toy_test.txt.gz"), ("train.txt.xz", "test.txt")]
)
def test_folder_of_xc_files(names: tuple[str, str], small: tuple[Dataset, Dataset], tmp_path: Path) -> None:
    for name, data in zip(names, small, strict=True):
        write_xc(tmp_path / name, data.X, data.Y)
    (tmp_path / "labels.txt").write_text("".join(f"l{j}\n" for j in range(12)))
    train, test = read_data_dir(tmp_path)
    assert (train.digest, test.digest) == (small[0].digest, small[1].digest)
    assert list(test.label_names or []) == [f"l{j}" for j in range(12)]


def test_folder_of_one_file_with_splits(small: tuple[Dataset, Dataset], tmp_path: Path) -> None:
    whole = small[0]
    write_xc(tmp_path / "Toy_data.txt", whole.X, whole.Y)
    order = np.random.default_rng(0).permutation(40)
    (tmp_path / "toy_trSplit.txt").write_text("".join(f"{i + 1} 7 9\r\n" for i in order[:30]))
    (tmp_path / "toy_tstSplit.txt").write_text("".join(f"  {i + 1}\n" for i in order[30:]) + "\n")
    train, test = read_data_dir(tmp_path)
    assert train.digest == whole.rows(order[:30]).digest
    assert test.digest == whole.rows(order[30:]).digest
    for bad in ("0", "41", "x", "-1", "1.5", "9" * 50):
        (tmp_path / "toy_tstSplit.txt").write_text(f"1\n{bad}\n")
        with pytest.raises(DataFormatError, match=r"line 2: .* is not a row number from 1 to 40"):
            read_data_dir(tmp_path)


def test_folder_without_headers_takes_the_wider_size(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("0 3:1\n")
    (tmp_path / "test.txt").write_text("2 1:1\n")
    train, test = read_data_dir(tmp_path)
    assert train.X.shape[1] == test.X.shape[1] == 4
    assert train.Y.shape[1] == test.Y.shape[1] == 3


def test_folder_of_text(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("red apple\tfruit\ngreen leaf\tplant\n")
    (tmp_path / "test.tsv").write_text("green apple\tfruit rock\n")
    train, test = read_data_dir(tmp_path)
    assert test.label_names == train.label_names == ["fruit", "plant"]
    assert test.unseen_labels == 1


def test_folder_refusals(small: tuple[Dataset, Dataset], tmp_path: Path) -> None:
    with pytest.raises(DataFormatError, match="no such folder"):
        read_data_dir(tmp_path / "none")
    with pytest.raises(DataFormatError, match="holds neither"):
        read_data_dir(tmp_path)
    write_npz(tmp_path / "train.npz", small[0])
    write_npz(tmp_path / "test.npz", make_synthetic(n_train=5, n_test=5, n_features=61, n_labels=12)[0])
    with pytest.raises(DataFormatError, match="61 features"):
        read_data_dir(tmp_path)
    (tmp_path / "test.npz").unlink()
    for name in ("a_train.txt", "b_train.txt"):
        (tmp_path / name).write_text("0 0:1\n")
    with pytest.raises(DataFormatError, match="more than one file"):
        read_data_dir(tmp_path)


@pytest.mark.data
def test_large_sets_have_their_stated_sizes() -> None:
    if "BLOCKXMC_DATA" not in os.environ:
        pytest.skip("set BLOCKXMC_DATA to a folder of data sets")
    train, test = read_data_dir(Path(os.environ["BLOCKXMC_DATA"]) / "gutenberg-lcsh")
    assert (train.n_rows, test.n_rows, train.n_features, train.n_labels) == (61_303, 15_326, 59_917, 13_916)
