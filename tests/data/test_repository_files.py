"""Files of the Extreme Classification Repository, read as they are."""

import gzip
import json
import zipfile

import numpy as np
import pytest
from cli_parts import run
from helpers import blocky
from scipy import sparse

from blockxmc import DiSMEC
from blockxmc.data import read_data_dir
from blockxmc.errors import BlockXMCError
from blockxmc.metrics.report import measure


def matrix_lines(M):
    rows = [" ".join(f"{j}:{v:g}" for j, v in zip(M[[i]].indices, M[[i]].data, strict=True)) for i in range(M.shape[0])]
    return "\n".join([f"{M.shape[0]} {M.shape[1]}", *rows]) + "\n"


@pytest.fixture
def matrices(tmp_path):
    X, Y = blocky(n=90)
    Y = Y.tolil()
    Y[3] = 0  # a row without labels, an empty line in the file
    Y = sparse.csr_array(Y)
    folder = tmp_path / "LF-Tiny"
    folder.mkdir()
    for part, rows in (("trn", slice(0, 60)), ("tst", slice(60, 90))):
        (folder / f"{part}_X_Xf.txt").write_text(matrix_lines(sparse.csr_array(X[rows])))
        (folder / f"{part}_X_Y.txt").write_text(matrix_lines(sparse.csr_array(Y[rows])))
    return folder, X, Y


def test_pairs_of_matrices(matrices, capsys):
    folder, X, Y = matrices
    train, test = read_data_dir(folder)
    np.testing.assert_allclose(train.X.toarray(), X[:60].toarray(), rtol=1e-4)
    assert (train.Y.toarray() == Y[:60].toarray()).all()
    assert (test.Y.toarray() == Y[60:].toarray()).all()
    model = folder.parent / "model"
    assert run(capsys, "train", folder / "trn_X_Xf.txt", "--model", model)[0] == 0
    code, out, _ = run(capsys, "evaluate", model, folder / "tst_X_Xf.txt", "--json")
    assert code == 0
    assert json.loads(out)["rows"] == 30


def test_archives_are_read_without_unpacking(matrices, capsys):
    folder, X, _ = matrices
    archive = folder.parent / "tiny.zip"
    with zipfile.ZipFile(archive, "w") as out:
        for file in folder.iterdir():
            out.write(file, f"Inner/{file.name}")
    train, test = read_data_dir(archive)
    assert (train.n_rows, test.n_rows, train.n_features) == (60, 30, X.shape[1])
    code, out, _ = run(capsys, "stats", archive, "--json")
    assert (code, json.loads(out)["train_rows"]) == (0, 60)
    model = folder.parent / "model"
    assert run(capsys, "train", archive, "--model", model)[0] == 0
    code, out, _ = run(capsys, "evaluate", model, archive, "--json")
    assert (code, json.loads(out)["rows"]) == (0, 30)
    report = folder.parent / "out"
    assert run(capsys, "experiment", "table-data", archive, "--out", report)[0] == 0
    assert "| tiny | 60 | 30 |" in (report / "table-data.md").read_text()
    archive.write_bytes(archive.read_bytes()[:200])
    with pytest.raises(BlockXMCError, match="cannot be unpacked"):
        read_data_dir(archive)


def test_filtered_pairs_are_left_out_of_scoring(matrices):
    folder, _, Y = matrices
    model = DiSMEC().fit(*(getattr(read_data_dir(folder)[0], name) for name in "XY"))
    plain = read_data_dir(folder)[1]
    labels, _ = model.predict_topk(plain.X, 30)
    gone = [(0, labels[0, 0]), (0, labels[0, 2]), (7, int(Y[[67]].indices[0]))]
    (folder / "filter_labels_test.txt").write_text("".join(f"{row} {label}\n" for row, label in gone))
    test = read_data_dir(folder)[1]
    truth = plain.Y.toarray()
    for row, label in gone:
        truth[row, label] = 0
    assert (test.Y.toarray() == truth).all()
    hits = 0.0
    for row in range(30):
        first = [label for label in labels[row] if (row, label) not in gone][:5]
        hits += truth[row, first].sum()
    assert measure(model, test, time=False)["P@5"] == pytest.approx(100 * hits / 150)
    (folder / "filter_labels_test.txt").write_text("0 999\n")
    with pytest.raises(BlockXMCError, match=r"filter_labels_test.txt: line 1: row 0, label 999"):
        read_data_dir(folder)


def test_texts_with_numbers_of_labels_and_their_titles(tmp_path, capsys):
    folder = tmp_path / "LF-Texts"
    folder.mkdir()
    titles = ["red fruit", "green leaf", "red fruit"]

    def written(name, records):
        with gzip.open(folder / name, "wt") as out:
            out.writelines(json.dumps(record) + "\n" for record in records)

    written("lbl.json.gz", [{"uid": f"L{i}", "title": title} for i, title in enumerate(titles)])
    texts = [("apple", [0, 2]), ("cherry", [2]), ("basil", [1]), ("mint", [1]), ("apple pie", [0]), ("basil mint", [1])]
    records = [
        {"uid": str(i), "title": text, "content": "about it", "target_ind": own, "target_rel": [1.0] * len(own)}
        for i, (text, own) in enumerate(texts * 4)
    ]
    written("trn.json.gz", records)
    written("tst.json.gz", records[:6])
    (folder / "filter_labels_test.txt").write_text("0 2\n")
    train, test = read_data_dir(folder)
    assert sorted(train.label_names) == ["green leaf", "red fruit (L0)", "red fruit (L2)"]
    assert "about" in train.feature_names
    assert [test.label_names[j] for j in test.Y[[0]].indices] == ["red fruit (L0)"]
    assert test.left_out.nnz == 1
    code, _, err = run(capsys, "train", folder / "trn.json.gz", "--model", tmp_path / "model")
    assert code == 0, err
    code, out, _ = run(capsys, "evaluate", tmp_path / "model", folder / "tst.json.gz", "--json")
    assert (code, json.loads(out)["rows"]) == (0, 6)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("trn_X_Xf.txt", "60 60 3\n", r"line 1: .*not a header of two numbers"),
        ("trn_X_Y.txt", "59 30\n" + "\n" * 59, "has 59 rows, but"),
        ("trn_X_Xf.txt", "60 60\n0:x\n", "line 2: '0:x': the value is not a number"),
    ],
)
def test_what_does_not_fit_is_one_line(matrices, file, content, message):
    folder, *_ = matrices
    (folder / file).write_text(content)
    with pytest.raises(BlockXMCError, match=message):
        read_data_dir(folder)
    (folder / "trn_X_Y.txt").unlink()
    with pytest.raises(BlockXMCError, match=r"holds features only; put trn_X_Y.txt"):
        read_data_dir(folder)
