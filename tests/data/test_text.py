"""Text with label names."""

from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from blockxmc.data import TextVectorizer, from_texts, load_demo, read_dataset, read_text
from blockxmc.data.corpus import Fields, read_corpus
from blockxmc.data.label_lists import listed_names
from blockxmc.data.label_texts import clean_label_texts
from blockxmc.data.text import clean_rows
from blockxmc.errors import BlockXMCError, DataFormatError

ROWS = [("red apple pie", ["fruit", "cake"]), ("green leaf", ["plant"]), ("plain stone", [])]


def write(path: Path, text: str) -> Path:
    pack = {".gz": gzip.compress, ".xz": lzma.compress}.get(path.suffix, bytes)
    path.write_bytes(pack(text.encode()))
    return path


def jsonl(rows) -> str:
    return "".join(json.dumps({"text": text, "labels": labels}) + "\n" for text, labels in rows)


def quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"'


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", jsonl(ROWS)),
        ("a.txt", "\n" + jsonl(ROWS).replace("\n", "\r\n\r\n")),
        ("a.tsv", "".join(f"{text}\t{' '.join(labels)}\n" for text, labels in ROWS)),
        ("b.txt", "\ufeff" + "".join(f"{text}\t{' '.join(labels)}\n" for text, labels in ROWS)),
        ("a.csv", "id,text,labels\n" + "".join(f'1,"{text}",{";".join(labels)}\n' for text, labels in ROWS)),
        ("c.csv", "text,labels\n" + "".join(f'{text},"{labels}"\n' for text, labels in ROWS)),
        ("d.csv", "text\tlabel\n" + "".join(f"{text}\t{quoted(json.dumps(labels))}\n" for text, labels in ROWS)),
        ("b.csv", "subject_uris,text\n" + "".join(f"{' '.join(labels)},{text}\n" for text, labels in ROWS)),
        (
            "c.jsonl",
            "".join(
                json.dumps({"text": t, "subjects": [{"uri": x, "label": "?"} for x in ls]}) + "\n" for t, ls in ROWS
            ),
        ),
    ],
)
def test_every_format_reads_alike(name: str, content: str, suffix: str, tmp_path: Path) -> None:
    data = read_dataset(write(tmp_path / (name + suffix), content))
    want = from_texts([text for text, _ in ROWS], [labels for _, labels in ROWS])
    assert data.label_names == ["cake", "fruit", "plant"]
    assert data.digest == want.digest
    assert data.vectorizer is not None


@pytest.mark.parametrize("sign", [",", ";", "\t"])
def test_csv_of_spreadsheets(tmp_path: Path, sign: str) -> None:
    lines = [["nr", "text", "labels"], ["1", '"Käse; ""alt"", gut\n"', '"a;b, c"'], ["2", "Hunde", ""]]
    (tmp_path / "t.csv").write_text("\ufeff" + "".join(sign.join(line) + "\r\n" for line in lines), "utf-8", newline="")
    corpus = read_corpus(tmp_path / "t.csv")
    assert corpus.texts == ['Käse; "alt", gut\n', "Hunde"]
    assert corpus.labels == [["a", "b, c"], []]
    (tmp_path / "old.csv").write_bytes(f"text{sign}labels\r\nKäse{sign}a\r\n".encode("cp1252"))
    with pytest.raises(DataFormatError, match=r"line 2: not UTF-8.*iconv"):
        read_corpus(tmp_path / "old.csv")


def test_csv_joins_text_columns_and_quoted_lines(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", 'Title,abstract,subject_uris\nblue sky,"far, and\nwide",<http://x/1> http://x/2\n')
    data = read_text(file)
    assert data.feature_names == ["and", "blue", "far", "sky", "wide"]
    assert data.label_names == ["http://x/1", "http://x/2"]


def test_names_in_angle_brackets_are_kept(tmp_path: Path) -> None:
    texts, labels = ["red apple", "green leaf"], [["<b>", "b"], ["<>", "<http://x/1>"]]
    uris = [["<b>", "b"], ["<>", "http://x/1"]]  # Annif's tables write URIs in brackets
    for name, content, want in (
        ("a.jsonl", jsonl(zip(texts, labels, strict=True)), labels),
        ("a.json", json.dumps([{"text": t, "labels": ls} for t, ls in zip(texts, labels, strict=True)]), labels),
        (
            "a.csv",
            "text,labels\n" + "".join(f"{t},{';'.join(ls)}\n" for t, ls in zip(texts, labels, strict=True)),
            labels,
        ),
        ("b.csv", "text,subject_uris\n" + f"{texts[0]},<b> b\n{texts[1]},<> <http://x/1>\n", uris),
        ("a.tsv", f"{texts[0]}\t<b> b\n{texts[1]}\t<> <http://x/1>\n", uris),
    ):
        assert read_corpus(write(tmp_path / name, content)).labels == want, name
    assert clean_rows(labels) == clean_rows(pd.Series(labels)) == clean_rows([str(row) for row in labels]) == labels
    data = from_texts(texts, labels)
    assert data.label_names == ["<>", "<b>", "<http://x/1>", "b"]
    assert clean_label_texts({"<b>": "bold", "b": "letter"}) == {"<b>": ["bold"], "b": ["letter"]}
    (tmp_path / "x.txt").write_text("2 2 3\n0,1 0:1\n2 1:1\n")
    (tmp_path / "labels.txt").write_text("<b>\nb\n<>\n")
    assert read_dataset(tmp_path / "x.txt").label_names == ["<b>", "b", "<>"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"text": "x y", "labels": []}\n{oops\n', "line 2: not JSON"),
        ("a.jsonl", '{"labels": []}\n', 'line 1: no "text"'),
        ("a.jsonl", "[1]\n", 'line 1: no "text"'),
        ("a.jsonl", '\n{"text": "x"}\n', 'line 2: no "labels"'),
        ("a.jsonl", '{"text": "x", "labels": "abc"}\n', 'line 1: "labels" must be a list'),
        ("a.jsonl", '{"text": "x", "labels": [1]}\n', 'line 1: "labels" must be a list'),
        ("a.jsonl", "\n\n", "no rows"),
        ("a.jsonl", "", "is empty"),
        ("a.jsonl", "[" * 100_000 + "\n", "line 1: not JSON"),
        ("a.tsv", "text\tfruit\nno tab here\n", "line 2: no tab"),
        ("a.csv", "name,labels\nx,y\n", "line 1: no text column"),
        ("a.csv", "text,other\nx,y\n", "line 1: no label column"),
        ("a.csv", "text,labels\nx,y\nx,y,z\n", "line 3: 3 fields"),
        ("a.csv", 'text,labels\n"x"y,z\n', "line 2: not CSV"),
        ("a.csv", 'text,labels\nx,y\n\n"a\nb",y\n"red,z\ny,z\n', "line 6: in the row.*quote opens.*ends in line 7"),
        ("a.csv", 'text,labels\nx,y\n"a\nb" c,y\n', r"line 4 \(of a row that begins in line 3\): not CSV"),
        ("a.csv", 'text,labels\n"a\nb",y,z\n', r"line 3 \(of a row that begins in line 2\): 3 fields"),
        ("a.tsv", "a\0b\tc\n", "line 1: holds a NUL"),
        ("a.jsonl", '{"text": "?!", "labels": []}\n', "nothing to learn"),
    ],
)
def test_bad_text_is_refused_by_line(name: str, content: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataFormatError, match=message) as caught:
        read_text(write(tmp_path / name, content))
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_not_utf8_and_truncated(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(b"good text\tx\nbad \xff\tx\n")
    with pytest.raises(DataFormatError, match="line 2: not UTF-8"):
        read_text(tmp_path / "a.tsv")
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(jsonl(ROWS * 200).encode())[:-30])
    with pytest.raises(DataFormatError, match="truncated or damaged"):
        read_text(tmp_path / "a.jsonl.gz")


def test_unseen_labels_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    train = from_texts([text for text, _ in ROWS], [labels for _, labels in ROWS])
    file = write(tmp_path / "t.jsonl", jsonl([("apple stone", ["fruit", "new", "newer"]), ("leaf", ["new"])]))
    test = read_text(file, train.vectorizer, train.label_names, verbose=1)
    assert test.unseen_labels == 3
    assert "3 label occurrences are unknown" in caplog.text
    assert test.Y.toarray().tolist() == [[0, 1, 0], [0, 0, 0]]
    assert test.X.shape[1] == train.X.shape[1]


def test_unlabelled_text_for_prediction(tmp_path: Path) -> None:
    train = from_texts([text for text, _ in ROWS], [labels for _, labels in ROWS])
    for name, text in (("a.jsonl", '{"text": "red leaf"}\n'), ("a.tsv", "red leaf\n"), ("a.csv", "text\nred leaf\n")):
        data = read_text(write(tmp_path / name, text), train.vectorizer, train.label_names, require_labels=False)
        assert data.X.nnz == 2
        assert data.Y.nnz == 0


def test_tfidf_is_scikit_learns() -> None:
    texts = [f"word{i % 7} thing{i % 11} word{i % 7} common rare{i}" for i in range(150)]
    ours = TextVectorizer().fit_transform(texts)
    theirs = TfidfVectorizer(sublinear_tf=True, min_df=2).fit_transform(texts)
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() < 1e-6


@pytest.mark.parametrize("options", [{}, {"ngram_range": (1, 2)}, {"min_df": 3, "max_features": 10}])
def test_state_round_trip_gives_the_same_bits(options: dict[str, int]) -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{j}" for j in rng.zipf(1.5, 30) % 50) for _ in range(200)]
    vectorizer = TextVectorizer(**options)
    trained = vectorizer.fit_transform(texts)
    state = vectorizer.state()
    json.dumps(state["params"])
    again = TextVectorizer.from_state(state).transform(texts)
    for a in (again, vectorizer.transform(texts)):
        assert np.array_equal(a.indices, trained.indices)
        assert np.array_equal(a.data.view(np.uint32), trained.data.view(np.uint32))


def test_vectorizer_refuses_nonsense() -> None:
    with pytest.raises(BlockXMCError, match="call fit"):
        TextVectorizer().transform(["x"])
    state = TextVectorizer().fit(["red apple"]).state()
    with pytest.raises(BlockXMCError, match="idf"):
        TextVectorizer.from_state(state | {"idf": np.ones(1)})
    with pytest.raises(BlockXMCError, match="2 texts but 1"):
        from_texts(["a b", "c d"], [["x"]])
    with pytest.raises(BlockXMCError, match="not unique"):
        from_texts(["aa bb"], [["x"]], label_names=["x", "x"])


def test_the_bundled_set() -> None:
    train, test = load_demo()
    assert (train.n_rows, test.n_rows, train.n_labels) == (15_711, 3_635, 6_563)
    assert 4.3 < train.labels_per_row < 4.5
    assert train.X.shape[1] == test.X.shape[1]
    lengths = np.sqrt(train.X.multiply(train.X).sum(axis=1))
    assert np.allclose(lengths[np.diff(train.X.indptr) > 0], 1, atol=1e-5)


def test_a_header_in_tsv_is_refused_rather_than_learned(tmp_path):
    (tmp_path / "c.tsv").write_text("text\tlabels\nred apple\tfruit\n")
    with pytest.raises(DataFormatError, match="header"):
        read_text(tmp_path / "c.tsv")


LISTS = {
    '["a", "b"]': ["a", "b"],
    "['a', 'b']": ["a", "b"],
    "['a' 'b']": ["a", "b"],  # of NumPy
    '["a, b; c", "d"]': ["a, b; c", "d"],
    """ ["it's", 'say "x"', 'back\\\\slash'] """: ["it's", 'say "x"', "back\\slash"],
    r"['caf\xe9', '\u00e9']": ["caf\xe9", "\xe9"],
    "['a',]": ["a"],
    "[1, 2]": ["1", "2"],
    "[]": [],
    "[ ]": [],
    "[a, b]": None,
    "a; b": None,
    "[true]": None,
    "[1.5]": None,
    "[['a']]": None,
    "['a'b']": None,
    "['a', __import__('os')]": None,
    r"['\Uffffffff']": None,
    "[" * 100_000 + "]" * 100_000: None,
    "[" + "9" * 10_000 + "]": None,
}


@pytest.mark.parametrize("cell", LISTS, ids=lambda cell: cell[:20])
def test_lists_as_programs_write_them(cell: str) -> None:
    assert listed_names(cell) == LISTS[cell]


@pytest.mark.parametrize("names", [["a", "b c"], ["it's", 'a "b"', "both ' and \""], ["\n\t\\", "\x00\u2028é"], []])
@pytest.mark.parametrize("written", [str, json.dumps, lambda names: json.dumps(names, ensure_ascii=False)])
def test_a_list_that_was_written_is_read(names: list[str], written: Any) -> None:
    assert listed_names(written(names)) == names


def test_lists_beside_names_are_refused_unless_a_separator_is_named(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "text,labels\nred,\ngreen,['a']\nblue,b\n")
    with pytest.raises(DataFormatError, match=r"a.csv: line 4: labels of earlier lines are lists, but here stands 'b'"):
        read_corpus(file)
    assert read_corpus(file, fields=Fields(separator=";")).labels == [[], ["['a']"], ["b"]]
    assert read_corpus(file, require_labels=False).texts == ["red", "green", "blue"]


def test_names_before_lists_are_refused_and_empty_lists_tell_nothing(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", 'text,labels\nred,a;b\ngreen,"[""x"", ""y""]"\n')
    with pytest.raises(DataFormatError, match="line 3: labels of earlier lines are names without brackets"):
        read_corpus(file)
    file = write(tmp_path / "b.csv", "text,labels\nred,[]\ngreen,a;b\nblue,[]\n")
    assert read_corpus(file).labels == [[], ["a", "b"], []]
    file = write(tmp_path / "c.csv", "text,labels\nred,a;b\ngreen,[2020]\n")
    assert read_corpus(file).labels == [["a", "b"], ["[2020]"]]


@pytest.mark.parametrize("line", ['{"text": "red", "labels": ["\\ud800"]}', '{"text": "red", "labels": ["a\\udfff "]}'])
def test_half_characters_are_no_labels(tmp_path: Path, line: str) -> None:
    file = write(tmp_path / "a.jsonl", '{"text": "blue", "labels": []}\n' + line + "\n")
    with pytest.raises(DataFormatError, match=r"a\.jsonl: line 2: the label .* half a character"):
        read_corpus(file)
    with pytest.raises(DataFormatError, match=r"row 1 of the labels: the label .* half a character"):
        clean_rows([["a"], ["b\ud800"]])


def test_lists_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = write(tmp_path / "a.csv", "text,labels\nred,['a']\ngreen,['b']\n")
    assert read_corpus(file, verbose=1).labels == [["a"], ["b"]]
    assert caplog.text.count("labels are written as lists, like ['a']") == 1
