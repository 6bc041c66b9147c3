"""Reading and writing XC text."""

from __future__ import annotations

import contextlib
import gzip
import io
import lzma
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from xc_reference import compare

from blockxmc import _kernels
from blockxmc._core.progress import Reporter
from blockxmc.data import _source, make_synthetic, read_dataset, read_names, read_xc, write_names, write_xc
from blockxmc.errors import BlockXMCError, DataFormatError

NASTY = sorted((Path(__file__).parent.parent / "data" / "nasty").glob("*.txt"))


@pytest.mark.parametrize("file", NASTY, ids=lambda file: file.stem)
@pytest.mark.parametrize("threads", [1, 3])
def test_nasty_files_like_the_reference(file: Path, threads: int, tmp_path: Path) -> None:
    outcome = compare(lambda path: read_xc(path, n_jobs=threads), tmp_path / "f.txt", file.read_bytes())
    assert (outcome != "read") == file.name.startswith("bad-")


@pytest.mark.parametrize("file", NASTY, ids=lambda file: file.stem)
@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_compressed_files_are_read_alike(file: Path, pack, tmp_path: Path) -> None:
    plain, packed = tmp_path / "f.txt", tmp_path / "packed"
    plain.write_bytes(file.read_bytes())
    packed.write_bytes(pack(file.read_bytes()))
    if file.name.startswith("bad-"):
        told = []
        for path in (plain, packed):
            with pytest.raises(DataFormatError) as caught:
                read_xc(path)
            told.append(str(caught.value).split(": ", 1)[1].removeprefix("the archive "))
        assert told[0] == told[1]
    else:
        assert read_xc(packed).digest == read_xc(plain).digest


def many_rows(n: int) -> list[bytes]:
    return [b"%d,%d %d:0.%d %d:1" % (i % 7, 7 + i % 5, i % 50, i % 997 + 1, 50 + i % 40) for i in range(n)]


@pytest.mark.parametrize("bad_rows", [[41_234], [39_999, 40_000], [5, 49_000]])
def test_first_bad_line_is_reported_for_any_thread_count(
    bad_rows: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_source, "BLOCK_BYTES", 300_000)
    rows = many_rows(50_000)
    for i in bad_rows:
        rows[i] = b"1 3:oops"
    file = tmp_path / "bad.txt"
    file.write_bytes(b"\n".join([b"50000 90 12", *rows, b""]))
    for threads in (1, 2, 5):
        with pytest.raises(DataFormatError, match=f"line {bad_rows[0] + 2}: "):
            read_xc(file, n_jobs=threads)


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_many_blocks_and_threads_give_one_result(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, _ = make_synthetic(n_train=3000, n_test=1, n_features=500, n_labels=80, labels_per_row=3, nnz_per_row=20)
    file = tmp_path / f"some.txt{suffix}"
    write_xc(file, train.X, train.Y, n_jobs=2)
    assert read_xc(file, n_jobs=1).digest == train.digest
    monkeypatch.setattr(_source, "BLOCK_BYTES", 1000)
    assert read_xc(file, n_jobs=3).digest == train.digest


def test_lines_longer_than_a_block_and_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_source, "BLOCK_BYTES", 64)
    monkeypatch.setattr(_source, "MAX_LINE_BYTES", 1000)
    long_row = b"0 " + b" ".join(b"%d:1" % j for j in range(150))
    assert 700 < len(long_row) <= 1000
    file = tmp_path / "long.txt"
    file.write_bytes(b"1 1:1\n" + long_row + b"\n1 2:1\n" + long_row)
    packed = tmp_path / "long.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    for path in (file, packed):
        assert np.diff(read_xc(path).X.indptr).tolist() == [1, 150, 1, 150]
    file.write_bytes(b"1 1:1\n" * 30 + long_row + long_row + b"\n1 2:1\n")
    packed.write_bytes(gzip.compress(file.read_bytes()))
    for path in (file, packed):
        with pytest.raises(DataFormatError, match="line 31: longer than"):
            read_xc(path)


def test_truncated_and_misnamed_archives(tmp_path: Path) -> None:
    text = b"\n".join([b"500 90 12", *many_rows(500), b""])
    for pack, name in ((gzip.compress, "a.gz"), (lzma.compress, "a.xz")):
        whole = pack(text)
        (tmp_path / name).write_bytes(whole[: len(whole) // 2])
        with pytest.raises(DataFormatError, match="truncated or damaged"):
            read_xc(tmp_path / name)
        (tmp_path / name).write_bytes(text)
        with pytest.raises(DataFormatError, match="has the name of a"):
            read_xc(tmp_path / name)


def test_sizes_from_arguments(tmp_path: Path) -> None:
    file = tmp_path / "plain.txt"
    file.write_text("0,2 5:1\n1 0:1\n")
    assert read_xc(file).X.shape == (2, 6)
    data = read_xc(file, n_features=10, n_labels=4)
    assert (data.n_features, data.n_labels) == (10, 4)
    with pytest.raises(DataFormatError, match=r"line 1: '5:1': a feature index is out of range \(5 features"):
        read_xc(file, n_features=5)
    with pytest.raises(DataFormatError, match="not between"):
        read_xc(file, n_labels=2**31)
    file.write_text("1 3 3\n0 0:1\n")
    assert read_xc(file, n_features=7).n_features == 7
    with pytest.raises(DataFormatError, match="the header says n_features = 3"):
        read_xc(file, n_features=2)


def test_names_beside_the_file(tmp_path: Path) -> None:
    file = tmp_path / "train.txt"
    file.write_text("1 2 2\n0 0:1\n")
    (tmp_path / "labels.txt").write_text("ä\nb\r\n", encoding="utf-8")
    (tmp_path / "features.txt").write_text("x\ny\n")
    data = read_xc(file)
    assert data.label_names == ["ä", "b"]
    assert data.feature_names == ["x", "y"]
    assert read_xc(file, label_names=["p", "q"]).label_names == ["p", "q"]
    (tmp_path / "labels.txt").write_text("a\n")
    with pytest.raises(DataFormatError, match=r"labels.txt: holds 1 names, but .* has 2 labels"):
        read_xc(file)


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_write_round_trip_is_exact(suffix: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 4000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    values = bits[np.isfinite(bits) & (bits != 0)][:3600]
    X = sparse.random_array((300, 200), density=0.06, rng=rng, dtype=np.float32).tocsr()
    X.data = values[: X.nnz]
    Y = (sparse.random_array((300, 40), density=0.05, rng=rng) > 0).astype(np.float32)
    file = tmp_path / f"out.txt{suffix}"
    write_xc(file, X, Y)
    back = read_xc(file)
    X.sort_indices()
    assert np.array_equal(back.X.data.view(np.uint32), X.data.view(np.uint32))
    assert (back.X != X).nnz == 0
    assert (sparse.csr_array(Y) != back.Y).nnz == 0
    assert [entry.name for entry in tmp_path.iterdir()] == [file.name]


def test_write_edges(tmp_path: Path) -> None:
    file = tmp_path / "edge.txt"
    for X, Y in (
        (sparse.csr_array((0, 3)), sparse.csr_array((0, 2))),
        (sparse.csr_array((3, 0)), sparse.csr_array((3, 0))),
        (sparse.csr_array((2, 2)), sparse.csr_array([[0, 1], [0, 0]])),
    ):
        write_xc(file, X, Y)
        back = read_xc(file)
        assert (back.X.shape, back.Y.shape) == (X.shape, Y.shape)
        assert np.array_equal(back.Y.toarray(), Y.toarray())


def test_a_refused_write_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "kept.txt"
    file.write_text("old")
    with pytest.raises(DataFormatError, match="NaN"):
        write_xc(file, [[np.nan]], [[1]])
    with pytest.raises(BlockXMCError, match="0-1"):
        write_xc(file, [[1.0]], [[2]])
    with pytest.raises(DataFormatError, match="rows"):
        write_xc(file, [[1.0]], [[1], [0]])
    with contextlib.suppress(RuntimeError), _source.write_atomic(file) as out:
        out.write(b"half")
        raise RuntimeError
    assert file.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_kernels_refuse_what_would_read_out_of_bounds() -> None:
    with pytest.raises(ValueError, match="sizes"):
        _kernels.XcParser(-1, 5)
    parser = _kernels.XcParser(5, 5)
    with pytest.raises(TypeError):
        parser.feed(np.zeros(3, np.int64), 1)
    assert parser.feed(np.frombuffer(b"1 2:3\n\n", np.uint8), 1)[0] == 0
    with pytest.raises(ValueError, match="empty rows"):
        parser.finish(0)
    assert parser.finish(1)[1].tolist() == [2]
    with pytest.raises(ValueError, match="finished"):
        parser.feed(np.frombuffer(b"1\n", np.uint8), 1)
    one, none = np.array([0, 1]), np.empty(0, np.int32)
    with pytest.raises(ValueError, match="row pointers"):
        _kernels.format_xc(one, none, np.empty(0, np.float32), np.array([0, 0]), none, 1)
    with pytest.raises(ValueError, match="number of rows"):
        _kernels.format_xc(np.array([0]), none, np.empty(0, np.float32), np.array([0, 0]), none, 1)


def test_folders_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(DataFormatError, match="is a folder"):
        read_xc(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_xc(tmp_path / "none.txt")


@pytest.mark.parametrize(
    ("content", "names"),
    [(b"0 0:1\n1 1:1\n", None), (b'{"text": "red apple", "labels": ["x", "y"]}', ["x", "y"])],
)
def test_standard_input(content: bytes, names: list[str] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    data = read_dataset("-")
    assert data.n_labels == 2
    assert data.label_names == names


def test_a_slow_read_shows_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[str, int | None, int]] = []

    class Recorder(Reporter):
        @contextlib.contextmanager
        def phase(self, title: str, total: int | None = None):
            class Phase:
                def update(self, done: int) -> None:
                    shown.append((title, total, done))

            yield Phase()

    monkeypatch.setattr(_source, "reporter_for", lambda verbose: Recorder())
    file = tmp_path / "slow.txt"
    file.write_bytes(b"\n".join(many_rows(100)))
    read_xc(file, verbose=1)
    assert shown == []  # quick
    monkeypatch.setattr(_source, "SHOW_AFTER_SECONDS", -1.0)
    read_xc(file)
    assert shown == []  # silent unless asked
    read_xc(file, verbose=1)
    assert shown == [("reading slow.txt", file.stat().st_size, file.stat().st_size)]


def test_names_must_be_text_on_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataFormatError, match="spans lines"):
        write_names(tmp_path / "n.txt", ["a", "b\nc"])
    (tmp_path / "n.txt").write_bytes(b"ok\n\xff\n")
    with pytest.raises(DataFormatError, match="line 2: not UTF-8"):
        read_names(tmp_path / "n.txt")
    write_names(tmp_path / "n.txt", ["a", "", "ü"])
    assert read_names(tmp_path / "n.txt") == ["a", "", "ü"]
