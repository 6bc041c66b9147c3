"""Folders of shards: the same numbers as read whole, in a stream; damage is found; nothing is copied."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from blockxmc.data import (
    Dataset,
    TextVectorizer,
    convert_to_shards,
    load_demo_texts,
    make_synthetic,
    read_data_dir,
    read_dataset,
    read_shards,
    read_xc,
    write_shards,
)
from blockxmc.data import _source as source
from blockxmc.data.corpus import Corpus, write_csv, write_jsonl
from blockxmc.data.npz import write_npz
from blockxmc.data.shards import ARRAYS, Names, ShardWriter, is_shards, parts_of, row_ranges, shard_ranges
from blockxmc.data.streams import Reading, convert_pair_to_shards
from blockxmc.errors import DataFormatError


@pytest.fixture
def data():
    train, _ = make_synthetic(n_train=300, n_test=5, n_features=60, n_labels=20, nnz_per_row=9, seed=3)
    return train


def same(a, b):
    for left, right in ((a.X, b.X), (a.Y, b.Y)):
        assert left.shape == right.shape
        for part in ("indptr", "indices", "data"):
            np.testing.assert_array_equal(getattr(left, part), getattr(right, part))
    assert a.digest == b.digest


@pytest.mark.parametrize("n_shards", [1, 3, 300, 1000])
def test_what_was_written_is_read(tmp_path, data, n_shards):
    write_shards(tmp_path / "s", data, n_shards=n_shards)
    found = read_dataset(tmp_path / "s")
    same(found, data)
    assert read_shards(tmp_path / "s", verify=True).digest == data.digest
    assert shard_ranges(tmp_path / "s") == row_ranges(300, n_shards)
    assert len(shard_ranges(tmp_path / "s")) == min(n_shards, 300)


def test_arrays_are_mapped_and_plain_npy(tmp_path, data):
    write_shards(tmp_path / "s", data, n_shards=2)
    found = read_shards(tmp_path / "s")
    assert not found.X.data.flags.writeable
    assert not found.X.data.flags.owndata
    for name, dtype in ARRAYS.items():
        assert np.load(tmp_path / "s" / f"{name}.npy", allow_pickle=False).dtype == np.dtype(dtype)
    np.testing.assert_array_equal(np.load(tmp_path / "s" / "X.data.npy"), data.X.data)


LINES = {
    "header": "5 9 4\n0,3 1:0.5 8:2\n\n2 3:1\n\n\n",
    "header that counts empty rows": "6 9 4\n0,3 1:0.5 8:2\n\n2 3:1\n\n\n\n",
    "no header": "0,3 1:0.5 8:2\n\n2 3:1\n\n\n",
    "no last line end": "0,3 8:2 1:0.5 1:1\n\n\n2,2 3:1",
}


@pytest.mark.parametrize("text", LINES.values(), ids=LINES)
@pytest.mark.parametrize("block", [8, 24, 1 << 20])
def test_xc_in_a_stream(tmp_path, monkeypatch, text, block):
    monkeypatch.setattr(source, "BLOCK_BYTES", block)
    (tmp_path / "t.txt").write_text(text)
    convert_to_shards(tmp_path / "t.txt", tmp_path / "s", 2)
    same(read_shards(tmp_path / "s"), read_xc(tmp_path / "t.txt"))


@pytest.mark.parametrize(
    "text", ["2 9 4\n0 1:1\n", "1 9 4\n0 1:1\n1 1:1\n", "0 1:1\n\n0 x\n", "1 9 4\n0 9:1\n", "\n\n"], ids=range(5)
)
def test_a_stream_is_refused_as_the_whole_is(tmp_path, monkeypatch, text):
    monkeypatch.setattr(source, "BLOCK_BYTES", 8)
    (tmp_path / "t.txt").write_text(text)
    with pytest.raises(DataFormatError) as whole:
        read_xc(tmp_path / "t.txt")
    with pytest.raises(DataFormatError) as streamed:
        convert_to_shards(tmp_path / "t.txt", tmp_path / "s", 2)
    assert str(streamed.value) == str(whole.value)
    assert not is_shards(tmp_path / "s")
    assert not list((tmp_path / "s").iterdir())


def texts():
    corpus = load_demo_texts()[0]
    return Corpus(corpus.texts[:400], corpus.labels[:400])


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_texts_in_two_passes(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr("blockxmc.data.words.BATCH", 64)
    monkeypatch.setattr("blockxmc.data.streams.BATCH", 50)
    file = tmp_path / f"t.{suffix}"
    write_jsonl(file, texts()) if suffix == "jsonl" else write_csv(file, texts())
    convert_to_shards(file, tmp_path / "s", 3)
    found, whole = read_shards(tmp_path / "s", verify=True), read_dataset(file)
    same(found, whole)
    assert list(found.label_names) == list(whole.label_names)
    assert found.feature_names == whole.feature_names
    assert found.vectorizer.has_words_of(whole.vectorizer)
    assert found.vectorizer.counts.in_texts.tolist() == whole.vectorizer.counts.in_texts.tolist()


def test_options_of_texts_and_most_features(tmp_path):
    write_jsonl(tmp_path / "t.jsonl", texts())
    options = {"ngram_range": (1, 2), "max_features": 150, "min_df": 2}
    convert_to_shards(tmp_path / "t.jsonl", tmp_path / "s", 3, Reading(vectorizer=TextVectorizer(**options)))
    same(read_shards(tmp_path / "s"), read_dataset(tmp_path / "t.jsonl", TextVectorizer(**options)))


def test_pairs_share_features_and_labels(tmp_path):
    corpus = texts()
    write_jsonl(tmp_path / "train.jsonl", Corpus(corpus.texts[:300], corpus.labels[:300]))
    write_jsonl(tmp_path / "test.jsonl", Corpus(corpus.texts[300:], corpus.labels[300:]))
    pair = tmp_path / "train.jsonl", tmp_path / "test.jsonl"
    convert_pair_to_shards(*pair, (tmp_path / "out" / "train", tmp_path / "out" / "test"), 2)
    for found, whole in zip(read_data_dir(tmp_path / "out"), read_data_dir(tmp_path), strict=True):
        same(found, whole)
        assert list(found.label_names) == list(whole.label_names)


def test_pairs_of_xc_have_the_wider_width(tmp_path):
    (tmp_path / "train.txt").write_text("0 0:1\n1 1:1\n")
    (tmp_path / "test.txt").write_text("4 7:1\n")
    folders = tmp_path / "out" / "train", tmp_path / "out" / "test"
    convert_pair_to_shards(tmp_path / "train.txt", tmp_path / "test.txt", folders, 1)
    assert [part.X.shape[1] for part in read_data_dir(tmp_path / "out")] == [8, 8]
    assert [part.Y.shape[1] for part in read_data_dir(tmp_path / "out")] == [5, 5]


def test_names(tmp_path, data):
    names = [f"label {j}" for j in range(data.n_labels)]
    features = [f"f{j}" for j in range(data.n_features)]
    write_shards(tmp_path / "s", Dataset(data.X, data.Y, features, names), n_shards=2)
    found = read_shards(tmp_path / "s")
    assert found.label_names == names
    assert found.feature_names == features
    with pytest.raises(DataFormatError, match="other names"):
        read_shards(tmp_path / "s", label_names=names[::-1])


def tiny(labels=None, features=None, n_labels=2):
    Y = sparse.csr_array(np.eye(2, n_labels, dtype=np.float32))
    return Dataset(sparse.csr_array(np.eye(2, dtype=np.float32)), Y, features, labels)


def test_names_of_fewer_labels_are_compared(tmp_path):
    write_shards(tmp_path / "s", tiny(["a", "b"]), n_shards=1)
    for names in (["x", "y", "z"], ["a"]):
        with pytest.raises(DataFormatError, match="other names"):
            read_shards(tmp_path / "s", n_labels=3, label_names=names)
    assert read_shards(tmp_path / "s", n_labels=3, label_names=["a", "b", "z"]).label_names == ["a", "b", "z"]


def converted(tmp_path, train, test):
    """Both data sets through npz files, and as shards."""
    write_npz(tmp_path / "train.npz", train)
    write_npz(tmp_path / "test.npz", test)
    folders = tmp_path / "out" / "train", tmp_path / "out" / "test"
    convert_pair_to_shards(tmp_path / "train.npz", tmp_path / "test.npz", folders, 1)
    return read_data_dir(tmp_path / "out")


@pytest.mark.parametrize(
    ("test", "told"),
    [
        (tiny(["b", "a"], ["f", "g"]), "labels have other names"),
        (tiny(["a", "b"], ["g", "f"]), "features have other names"),
        (tiny(["a", "b", "c"], ["f", "g"], 3), "has 2 features and 3 labels, but"),
        (tiny(["a"], ["f", "g"], 1), "has 2 features and 1 labels, but"),
    ],
    ids=["labels", "features", "wider", "narrower"],
)
def test_pairs_that_do_not_belong_together(tmp_path, test, told):
    with pytest.raises(DataFormatError, match=told) as caught:
        converted(tmp_path, tiny(["a", "b"], ["f", "g"]), test)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "out" / "train").iterdir())


@pytest.mark.parametrize("labels", [["a", "b"], None], ids=["named", "unnamed"])
def test_pairs_of_npz_keep_names(tmp_path, labels):
    for found in converted(tmp_path, tiny(["a", "b"], ["f", "g"]), tiny(labels)):
        assert (found.label_names, found.feature_names) == (["a", "b"], ["f", "g"])


def test_a_test_set_of_texts_needs_training_texts(tmp_path):
    (tmp_path / "train.txt").write_text("0 0:1\n1 1:1\n")
    write_jsonl(tmp_path / "test.jsonl", Corpus(["one two", "two three"], [["a"], ["b"]]))
    with pytest.raises(DataFormatError, match="holds texts, but"):
        convert_pair_to_shards(
            tmp_path / "train.txt", tmp_path / "test.jsonl", (tmp_path / "out" / "train", tmp_path / "out" / "test"), 1
        )


def test_names_of_a_pair_of_xc_are_those_of_both_files(tmp_path):
    (tmp_path / "train.txt").write_text("0 0:1\n1 1:1\n")
    (tmp_path / "test.txt").write_text("2 1:1\n")
    (tmp_path / "labels.txt").write_text("a\nb\nc\n")
    folders = tmp_path / "out" / "train", tmp_path / "out" / "test"
    convert_pair_to_shards(tmp_path / "train.txt", tmp_path / "test.txt", folders, 1)
    for found, whole in zip(read_data_dir(tmp_path / "out"), read_data_dir(tmp_path), strict=True):
        same(found, whole)
        assert found.label_names == whole.label_names == ["a", "b", "c"]


def test_more_columns_may_be_asked_for(tmp_path, data):
    write_shards(tmp_path / "s", data, n_shards=2)
    wide = read_dataset(tmp_path / "s", n_features=70, n_labels=25)
    assert (wide.n_features, wide.n_labels) == (70, 25)
    with pytest.raises(DataFormatError, match="more than the 59 asked for"):
        read_shards(tmp_path / "s", n_features=59)


def test_what_does_not_grow_keeps_its_names(tmp_path):
    write_shards(tmp_path / "s", tiny(["a", "b"], ["f", "g"]), n_shards=1)
    more_labels, more_features = read_shards(tmp_path / "s", n_labels=3), read_shards(tmp_path / "s", n_features=3)
    assert (more_labels.feature_names, more_labels.label_names) == (["f", "g"], None)
    assert (more_features.feature_names, more_features.label_names) == (None, ["a", "b"])
    write_jsonl(tmp_path / "texts.jsonl", Corpus(["one two", "two three"], [["a"], ["b"]]))
    convert_to_shards(tmp_path / "texts.jsonl", tmp_path / "texts", 1)
    assert read_shards(tmp_path / "texts", n_labels=9).vectorizer is not None


def test_a_pair_needs_two_folders(tmp_path):
    (tmp_path / "train.txt").write_text("0 0:1\n1 1:1\n")
    pair = tmp_path / "train.txt", tmp_path / "train.txt"
    with pytest.raises(DataFormatError, match="two data sets need two folders"):
        convert_pair_to_shards(*pair, (tmp_path / "out", tmp_path / "." / "out"), 1)
    assert not (tmp_path / "out").exists()


def rewritten(folder, **changes):
    """A manifest with other content, or without what is None, and the right checksum: what an attacker would write."""
    from blockxmc._core.results import ResultFolder

    content = ResultFolder(folder).get("shards") | changes
    ResultFolder(folder).put("shards", {key: value for key, value in content.items() if value is not None})


def corrupt(path, offset, new):
    content = bytearray(path.read_bytes())
    content[offset : offset + len(new)] = new
    path.write_bytes(content)


def shifted(path):
    """One more space in the header: a valid .npy file, whose numbers start at an odd place."""
    content = path.read_bytes()
    assert content[8:10] == (118).to_bytes(2, "little")
    path.write_bytes(content[:8] + (119).to_bytes(2, "little") + content[10:127] + b" \n" + content[128:])
    np.load(path)


@pytest.mark.parametrize("shards", [None, [{}], [{"begin": 0, "end": 300}]], ids=["none", "empty", "no checksums"])
def test_a_manifest_without_shards(tmp_path, data, shards):
    write_shards(tmp_path / "s", data, n_shards=1)
    rewritten(tmp_path / "s", shards=shards)
    with pytest.raises(DataFormatError, match="damaged"):
        read_shards(tmp_path / "s", verify=True)


@pytest.mark.parametrize("name", ARRAYS)
def test_a_flipped_bit_is_found(tmp_path, data, name):
    write_shards(tmp_path / "s", data, n_shards=4)
    path = tmp_path / "s" / f"{name}.npy"
    corrupt(path, path.stat().st_size - 4, bytes([path.read_bytes()[-4] ^ 1]))
    with pytest.raises(DataFormatError, match=r"damaged: .*; convert the data again"):
        read_shards(tmp_path / "s", verify=True)


DAMAGE = {
    "negative column": lambda s: corrupt(s / "X.indices.npy", 128, b"\xff\xff\xff\xff"),
    "large label": lambda s: corrupt(s / "Y.indices.npy", 128, b"\xff\xff\xff\x7f"),
    "pointers that fall": lambda s: corrupt(s / "X.indptr.npy", 128 + 8, b"\xff" * 8),
    "not a number": lambda s: corrupt(s / "X.data.npy", 128, b"\x00\x00\xc0\x7f"),
    "cut off": lambda s: (s / "X.data.npy").write_bytes((s / "X.data.npy").read_bytes()[:-1]),
    "missing": lambda s: (s / "Y.indptr.npy").unlink(),
    "no array": lambda s: (s / "X.data.npy").write_bytes(b"x" * 500),
    "manifest": lambda s: corrupt(s / "shards.json", 40, b"#"),
    "more rows": lambda s: rewritten(s, rows=301),
    "rows as text": lambda s: rewritten(s, rows="many"),
    "no sizes": lambda s: rewritten(s, files=None),
    "other format": lambda s: rewritten(s, shards_format=9),
    "huge width": lambda s: rewritten(s, features=2**31 - 1),
    "numbers that are not aligned": lambda s: shifted(s / "X.data.npy"),
}


STRANGE = {
    "missing": lambda path: None,
    "a folder": lambda path: path.mkdir(),
    "a pipe": os.mkfifo,
    "a link to an endless file": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to what was there": lambda path: path.symlink_to(path.with_suffix(".moved")),
}


@pytest.mark.parametrize("name", [*(f"{name}.npy" for name in ARRAYS), "labels.txt", "features.txt", "shards.json"])
@pytest.mark.parametrize("strange", STRANGE.values(), ids=STRANGE)
def test_links_and_what_is_no_file_are_refused(tmp_path, data, strange, name):
    names = Names([f"label {j}" for j in range(20)], [f"feature {j}" for j in range(60)])
    with ShardWriter(tmp_path) as writer:
        writer.add(next(parts_of(data)))
        writer.finish(2, 60, 20, names)
    path = tmp_path / name
    path.rename(path.with_suffix(".moved"))
    strange(path)
    for verify in (False, True):
        with pytest.raises(DataFormatError, match=name.replace(".", r"\.")) as caught:
            read_shards(tmp_path, verify=verify)
        assert "\n" not in str(caught.value)
        assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("place", range(0, 128, 3))
def test_a_changed_byte_in_a_header_is_one_line(tmp_path, data, place):
    write_shards(tmp_path / "s", data, n_shards=4)
    for byte in b"(\x00'9\xff":
        corrupt(tmp_path / "s" / "X.data.npy", place, bytes([byte]))
        with suppress(DataFormatError):  # a space may be another
            read_shards(tmp_path / "s")


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damage_is_one_line(tmp_path, data, damage):
    write_shards(tmp_path / "s", data, n_shards=4)
    damage(tmp_path / "s")
    with pytest.raises(DataFormatError) as caught:
        read_shards(tmp_path / "s")
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "s") in str(caught.value)


def test_ranges_must_cover_all_rows(tmp_path, data):
    write_shards(tmp_path / "s", data, n_shards=2)
    rewritten(tmp_path / "s", shards=[{"begin": 0, "end": 10}, {"begin": 20, "end": 300}])
    with pytest.raises(DataFormatError, match="belong to no shard"):
        shard_ranges(tmp_path / "s")


def test_folders_are_not_overwritten(tmp_path, data):
    write_shards(tmp_path / "s", data, n_shards=1)
    with pytest.raises(DataFormatError, match="holds shards already"):
        write_shards(tmp_path / "s", data, n_shards=1)
    (tmp_path / "s" / "shards.json").unlink()  # as a kill before the end leaves it
    write_shards(tmp_path / "s", data, n_shards=1)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    with pytest.raises(DataFormatError, match="not an empty folder"):
        write_shards(tmp_path / "other", data, n_shards=1)
    assert (tmp_path / "other" / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["labels.txt", "features.txt", "words.json", "download.part"])
def test_files_of_the_user_stay(tmp_path, data, name):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / name).write_text("mine")
    with pytest.raises(DataFormatError, match="not an empty folder"):
        write_shards(tmp_path / "s", data, n_shards=1)
    assert (tmp_path / "s" / name).read_text() == "mine"


def test_what_a_kill_has_left_is_removed(tmp_path):
    write_shards(tmp_path / "s", tiny(["a", "b"], ["f", "g"]), n_shards=1)
    (tmp_path / "s" / "shards.json").unlink()
    for name in ("words.json", "words.npy", ".words.npy-x1.part"):
        (tmp_path / "s" / name).write_text("left")
    write_shards(tmp_path / "s", tiny(), n_shards=1)
    assert {path.name for path in (tmp_path / "s").iterdir()} == {"shards.json", *(f"{name}.npy" for name in ARRAYS)}
    assert read_shards(tmp_path / "s", verify=True).label_names is None


def test_a_failure_removes_what_was_written_and_no_more(tmp_path):
    def failing():
        with ShardWriter(tmp_path / "s") as writer:
            (tmp_path / "s" / "features.txt").write_text("mine")
            for rows in parts_of(tiny()):
                writer.add(rows)
            writer.finish(1, 2, 2, Names(["a", "b\nc"]))

    with pytest.raises(DataFormatError):
        failing()
    assert [path.name for path in (tmp_path / "s").iterdir()] == ["features.txt"]


def test_no_rows(tmp_path):
    (tmp_path / "t.txt").write_text("0 4 4\n")
    with pytest.raises(DataFormatError, match="no rows"):
        convert_to_shards(tmp_path / "t.txt", tmp_path / "s", 2)


GROWTH = """
import sys
from memory_watch import peak_of
from blockxmc.data import convert_to_shards, streams, words
words.BATCH = streams.BATCH = 1000
print(peak_of(lambda: convert_to_shards(sys.argv[1], sys.argv[2], 4)))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_does_not_grow_with_the_file(tmp_path):
    """Anonymous memory: pages of mapped files are given back when they are needed elsewhere."""
    row = json.dumps({"text": " ".join(f"word{i}" for i in range(120)), "labels": ["a", "b"]}) + "\n"
    peaks = []
    for number, rows in enumerate((5_000, 40_000)):
        file = tmp_path / f"{number}.jsonl"
        file.write_text(row * rows)
        command = [sys.executable, "-c", GROWTH, str(file), str(tmp_path / str(number))]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])
        peaks.append(int(done.stdout))
    assert peaks[1] - peaks[0] < 35_000 * 120 * 8 / 4  # of the values and columns that the second file has more
