"""What people trip over who use the commands for the first time."""

import gzip
import json
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from cli_parts import run

from blockxmc.data import make_synthetic, read_text, write_xc
from blockxmc.data.corpus import read_corpus

ROWS = [("apple pear plum", "fruit"), ("ship wave sail", "sea"), ("pear harbour", "fruit;sea"), ("stone", "")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Books in a CSV with columns of the usual names, a model of them, and a model of features."""
    where = tmp_path_factory.mktemp("newcomers")
    lines = [f"{i},{text},,{labels}\n" for i, (text, labels) in enumerate(ROWS * 5)]
    (where / "books.csv").write_text("id,title,abstract,subjects\n" + "".join(lines))
    data, _ = make_synthetic(n_train=240, n_test=1, n_features=80, n_labels=8, labels_per_row=2.0)
    write_xc(where / "rows.txt", data.X, data.Y)
    from blockxmc.cli import main

    for name, file in (("books", "books.csv"), ("rows", "rows.txt")):
        with pytest.raises(SystemExit):
            main(["train", str(where / file), "--model", str(where / name), "--keep-rows"])
    return where


def test_train_says_which_columns_it_took_and_how_many_rows_have_no_labels(capsys, folder, tmp_path):
    code, _, err = run(capsys, "train", folder / "books.csv", "--model", tmp_path / "m")
    assert code == 0
    assert err.splitlines() == [
        "note: text is title + abstract; labels are subjects, cut at ';'; id is id",
        "note: 5 of 20 rows have no labels: they only teach what labels are not",
        "note: 16 of 20 rows stand there before, with the same text and labels",
    ]
    (tmp_path / "plain.csv").write_text("text,labels\napple pear,b\n ,c\n")
    _, _, err = run(capsys, "train", tmp_path / "plain.csv", "--model", tmp_path / "m")
    assert err == "note: 1 of 2 texts are empty\n"  # the documented columns need no word
    named = ["--text-field", "title", "--label-field", "subjects"]
    _, _, err = run(capsys, "train", folder / "books.csv", "--model", tmp_path / "m", *named)
    assert err.startswith("note: 5 of 20 rows have no labels: they only teach what labels are not\n")


def test_rows_of_features_without_labels_are_told(capsys, tmp_path):
    (tmp_path / "rows.txt").write_text("4 3 2\n0 0:1\n1 1:1\n 2:1\n0 0:1 2:1\n")
    code, _, err = run(capsys, "train", tmp_path / "rows.txt", "--model", tmp_path / "m")
    assert (code, err) == (0, "note: 1 of 4 rows have no labels: they only teach what labels are not\n")


@pytest.mark.parametrize(
    ("header", "name"),
    [("text,labels,text", "text"), ("text,labels,Labels", "labels"), ("id,text,labels,id", "id")],
)
def test_two_columns_of_one_name_are_refused(capsys, tmp_path, header, name):
    (tmp_path / "twice.csv").write_text(f"{header}\n{','.join('abcd'[: header.count(',') + 1])}\n")
    code, _, err = run(capsys, "train", tmp_path / "twice.csv", "--model", tmp_path / "m")
    assert code == 2
    assert f"line 1: several columns are called '{name}'; rename all but one" in err


def test_tune_and_stats_take_the_columns_that_train_takes(capsys, tmp_path):
    rows = "".join(f"{text}|{labels.replace(';', '+')}\n" for text, labels in ROWS * 10).replace("|", ";")
    (tmp_path / "odd.csv").write_text("Titel;Schlagwörter\n" + rows)
    named = ["--text-field", "titel", "--label-field", "schlagwörter", "--label-separator", "+"]
    code, out, _ = run(capsys, "stats", tmp_path / "odd.csv", *named, "--json")
    assert (code, json.loads(out)["labels"]) == (0, 2)
    code, out, _ = run(capsys, "tune", tmp_path / "odd.csv", *named, "--folds", "2", "--lams", "0.1,1", "--json")
    assert code == 0
    assert all(
        line.startswith(shlex.join(["blockxmc", "train", str(tmp_path / "odd.csv"), *named]))
        for line in json.loads(out)["train"].values()
    )


def test_names_of_columns_are_shown_as_they_are(capsys, tmp_path):
    (tmp_path / "odd.csv").write_text("Titel;Schlagwörter\na;b\n")
    _, _, err = run(capsys, "train", tmp_path / "odd.csv", "--model", tmp_path / "m")
    assert err.endswith("or say which it is by --text-field (found 'titel, schlagwörter')\n")


def test_a_model_of_one_block_does_not_speak_of_captured(capsys, folder):
    _, out, _ = run(capsys, "inspect", folder / "books")
    assert "one block" in out
    assert "all of them are scored for every row" in out
    assert "captured %" not in out
    assert "as given" not in out
    assert "given start" not in out
    _, out, _ = run(capsys, "inspect", folder / "books", "--json")
    assert json.loads(out)["partition"]["captured %"] == 100


def test_inspect_says_how_blocks_and_lambda_were_chosen(capsys, folder, tmp_path):
    run(capsys, "train", folder / "rows.txt", "--model", tmp_path / "m", "--blocks", "3", "--lam", "0.5")
    _, out, _ = run(capsys, "inspect", tmp_path / "m", "--json")
    assert "(set by n_blocks; 3 at the start); lam 0.5 (set by lam)" in json.loads(out)["partition"]["choice"]
    run(capsys, "train", folder / "rows.txt", "--model", tmp_path / "m", "--blocks", "cost")
    _, out, _ = run(capsys, "inspect", tmp_path / "m", "--json")
    said = json.loads(out)["partition"]["choice"]
    assert "(the fewest vector products for a row" in said
    assert "given" not in said


@pytest.mark.parametrize("command", ["predict", "evaluate"])
@pytest.mark.parametrize("text", ["apple pie\n", "“Äpfel” und Birnen\n", "id,title,subjects\n1,a,b\n"])
def test_texts_for_a_model_of_features(capsys, monkeypatch, folder, tmp_path, command, text):
    (tmp_path / "in").write_text(text)
    with open(tmp_path / "in") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        code, _, err = run(capsys, command, folder / "rows", "-")
    told = "holds text (JSONL, JSON, TSV or CSV), but the model was trained on features (XC text or npz)"
    assert (code, err) == (2, f"error: standard input: {told}\n")


def test_numbers_of_rows_that_the_model_has_not(capsys, folder, tmp_path):
    (tmp_path / "rows").write_text("3\n20\n")
    code, _, err = run(capsys, "update", folder / "books", "--forget", tmp_path / "rows", "--out", tmp_path / "m")
    told = f"error: {tmp_path / 'rows'}:2: the model has no row 20: its rows have the numbers 0 to 19\n"
    assert (code, err) == (2, told)
    (tmp_path / "rows").write_text("\n")
    code, _, err = run(capsys, "update", folder / "books", "--forget", tmp_path / "rows", "--out", tmp_path / "m")
    assert (code, err) == (2, f"error: {tmp_path / 'rows'}: holds no row numbers; give one a line, from 0\n")
    (tmp_path / "rows").write_text("3\n")
    code, out, _ = run(capsys, "update", folder / "books", "--forget", tmp_path / "rows", "--out", tmp_path / "m")
    assert code == 0
    assert "Rows behind forgotten ones have moved up: their numbers are new." in out


def test_a_folder_that_cannot_be_written_is_found_before_the_work(capsys, monkeypatch, folder, tmp_path):
    from blockxmc import TextClassifier

    def never(*_, **__):
        raise AssertionError("trained before the folder was tried")

    monkeypatch.setattr(TextClassifier, "fit", never)
    (tmp_path / "file").write_text("")
    code, _, err = run(capsys, "train", folder / "books.csv", "--model", tmp_path / "file" / "model")
    assert (code, err.count("\n")) == (2, 1)
    assert f"{tmp_path / 'file' / 'model'}: nothing can be written there: {tmp_path / 'file'}: Not a directory" in err
    code, out, err = run(capsys, "partition", folder / "books.csv", "--out", tmp_path / "file" / "blocks")
    assert (code, out, "nothing can be written there" in err) == (2, "", True)
    figure = tmp_path / "file" / "figure.png"
    code, out, err = run(capsys, "evaluate", folder / "books", folder / "books.csv", "--plot", figure)
    assert (code, out, "nothing can be written there" in err) == (2, "", True)


def test_an_empty_text_and_one_without_a_known_word(capsys, folder):
    for text in ("", " \n"):
        code, _, err = run(capsys, "explain", folder / "books", text)
        assert (code, err) == (2, "error: the text is empty; give words, or a file with rows\n")
    code, out, err = run(capsys, "explain", folder / "books", "zebra", "--top-k", "1")
    assert code == 0
    assert err == "note: the model knows no word of this text; these are its guesses without any\n"
    assert "rank 1 of 2" in out


def test_every_name_that_commands_print_is_explained(capsys, folder, tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text()
    _, out, _ = run(capsys, "train", folder / "rows.txt", "--model", tmp_path / "m", "--json")
    sizes = {"model", "system", "estimator", "features", "blocks", "lam", "remark", "model_mb", "takes_text"}
    names = {name for name in json.loads(out) if name not in sizes and not name.endswith("_seconds")}
    _, out, _ = run(capsys, "evaluate", folder / "books", folder / "books.csv", "--json")
    names |= set(json.loads(out))
    shown = {re.sub(r"@\d+$", "@k", name) for name in names}
    assert {"P_labelled@k", "threads_us", "expected_P@k"} <= shown
    assert [name for name in sorted(shown) if name not in page] == []


def test_what_an_interrupted_experiment_keeps_is_said(capsys, monkeypatch, tmp_path):
    from blockxmc.paper import experiments

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(experiments, "run", interrupted)
    code, _, err = run(capsys, "experiment", "table-data", tmp_path, "--out", tmp_path / "report")
    assert code == 130
    assert (
        err.splitlines()[0] == f"finished cells are kept in {tmp_path / 'report' / 'cells'}: the same command goes on"
    )


def test_what_an_interrupted_tuning_keeps_is_said(capsys, monkeypatch, folder, tmp_path):
    from blockxmc.cli import tune

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(tune, "_tune_lambda", interrupted)
    for options, told in (([], []), (["--work", tmp_path / "w"], [f"finished trials are kept in {tmp_path / 'w'}"])):
        code, _, err = run(capsys, "tune", folder / "rows.txt", "--weights", "per-block", *options)
        assert code == 130
        lines = [line for line in err.splitlines() if "kept" in line]
        assert lines == [f"{line}: the same command goes on" for line in told]


@pytest.mark.parametrize("command", ["train", "tune", "predict", "evaluate"])
def test_an_empty_name_of_a_working_folder_is_refused(capsys, monkeypatch, folder, tmp_path, command):
    monkeypatch.chdir(tmp_path)
    rest = {"train": [folder / "rows.txt", "--model", "m"], "tune": [folder / "rows.txt"]}
    on_cluster = [folder / "rows", folder / "rows.txt", "--scheduler", "tcp://127.0.0.1:1"]
    code, out, err = run(capsys, command, *rest.get(command, on_cluster), "--work", "")
    assert (code, out, err) == (2, "", "error: --work needs the name of a folder, got an empty one\n")
    assert not any(tmp_path.iterdir())


def test_a_report_below_a_file_is_refused_before_anything_is_computed(capsys, monkeypatch, tmp_path):
    from blockxmc.paper import experiments

    monkeypatch.setattr(experiments, "run", lambda *_, **__: pytest.fail("it has begun"))
    (tmp_path / "file").write_text("")
    code, _, err = run(capsys, "experiment", "table-data", tmp_path, "--out", tmp_path / "file" / "report")
    assert (code, err.count("\n")) == (2, 1)
    assert "nothing can be written there" in err


MESSY = """id,text,labels
r1,Cats &amp; dogs purr,Cats;dogs
r2,"cats, loudly",cats
r2,"cats, loudly",cats
r3,dogs bark,Dogs ; dogs
r4,stone,R&amp;D
"""


def test_what_people_type_is_told_of_and_folded(capsys, tmp_path):
    (tmp_path / "mess.csv").write_text(MESSY)
    alike = '4 of 6 label names differ from another only in case or spaces, like "Cats" and "cats"; "Dogs" and "dogs"'
    html = [
        "note: 1 of 5 rows stand there before, with the same text and labels",
        "note: 1 of 5 texts hold HTML like &amp;: html.unescape in Python makes them characters",
        'note: 1 of {} label names hold HTML, like "R&amp": html.unescape in Python makes them characters',
    ]
    _, _, err = run(capsys, "train", tmp_path / "mess.csv", "--model", tmp_path / "m")
    assert err.splitlines() == [f"note: {alike}; --fold-labels makes them one", *html[:2], html[2].format(6)]
    code, out, err = run(capsys, "train", tmp_path / "mess.csv", "--model", tmp_path / "m", "--fold-labels", "--json")
    assert (code, json.loads(out)["labels"]) == (0, 4)
    assert f"note: {alike}: each group is taken for one" in err
    _, out, err = run(capsys, "stats", tmp_path / "mess.csv", "--json")
    assert json.loads(out)["labels"] == 6
    assert sorted(err.splitlines()) == sorted([f"note: {alike}", *html[:2], html[2].format(6)])
    folded = ["train", tmp_path / "mess.csv", "--model", tmp_path / "m", "--fold-labels", "--keep-rows"]
    assert run(capsys, *folded)[0] == 0
    (tmp_path / "new.csv").write_text("text,labels\ncats meow,CATS\n")
    assert "unknown to the model" in run(capsys, "evaluate", tmp_path / "m", tmp_path / "mess.csv")[2]
    code, _, err = run(capsys, "evaluate", tmp_path / "m", tmp_path / "mess.csv", "--fold-labels", "--json")
    assert (code, err) == (0, "")
    code, out, _ = run(capsys, "update", tmp_path / "m", tmp_path / "new.csv", "--fold-labels", "--json")
    assert (code, json.loads(out)["labels"]) == (0, 4)


def test_labels_of_nearly_this_name_are_offered(capsys, folder):
    code, _, err = run(capsys, "explain", folder / "books", "apple", "--label", "Fruits")
    assert code == 2
    assert err.endswith("which the model does not know; did you mean 'fruit'?\n")
    assert "labels are spelled as in training" in run(capsys, "explain", folder / "books", "apple", "--label", "xyz")[2]


def test_a_spreadsheet_is_read_like_the_csv_of_it(capsys, tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in [["id", "text", "labels"], [7, "apple pear", "fruit"], [None] * 3, [8.0, "ship; sea", "sea;fruit"]]:
        book.active.append(row)
    book.save(tmp_path / "books.xlsx")
    corpus = read_corpus(tmp_path / "books.xlsx")
    assert (corpus.texts, corpus.labels) == (["apple pear", "ship; sea"], [["fruit"], ["sea", "fruit"]])
    assert corpus.ids == ["7", "8"]
    (tmp_path / "renamed.csv").write_bytes((tmp_path / "books.xlsx").read_bytes())
    assert read_corpus(tmp_path / "renamed.csv") == corpus
    assert run(capsys, "train", tmp_path / "books.xlsx", "--model", tmp_path / "m")[0] == 0
    code, out, _ = run(capsys, "predict", tmp_path / "m", tmp_path / "books.xlsx")
    assert (code, [json.loads(line)["id"] for line in out.splitlines()]) == (0, ["7", "8"])
    piped = f"cat {tmp_path}/books.xlsx | {sys.executable} -m blockxmc predict {tmp_path}/m -"
    assert subprocess.run(piped, shell=True, capture_output=True, text=True, check=True).stdout == out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xd0\xcf\x11\xe0 old", "old kind (.xls); save the sheet as CSV UTF-8"),
        (b"PK\x03\x04 cut", "the archive is damaged"),
        ("notes.ods", "is a zip archive, not text; unpack it, or, if it is a spreadsheet, save the sheet as CSV UTF-8"),
        ("xl/workbook.xml", "the spreadsheet cannot be read"),
    ],
)
def test_other_spreadsheets_are_refused_in_one_line(capsys, tmp_path, content, said):
    file = tmp_path / "books.csv"
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(content, "no workbook")
    code, _, err = run(capsys, "train", file, "--model", tmp_path / "m")
    assert (code, err.count("\n")) == (2, 1)
    assert said in err


def test_without_openpyxl_the_extra_is_named(capsys, tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "books.xlsx", "w") as archive:
        archive.writestr("xl/workbook.xml", "")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    code, _, err = run(capsys, "stats", tmp_path / "books.xlsx")
    assert (code, "pip install 'blockxmc[excel]'" in err) == (2, True)


@pytest.mark.parametrize("names", [("fruit", "sea"), ("fruit; fresh", "[2020]")])
def test_predictions_as_csv_go_back_into_training(capsys, tmp_path, names):
    fruit, sea = names
    rows = [("apple, pear\nplum", [fruit]), ("ship wave", [sea]), ('pear "harbour"', [fruit, sea])] * 8
    lines = [{"id": f"b{i}", "text": text, "labels": labels} for i, (text, labels) in enumerate(rows)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*lines, {"text": "", "labels": []}]))
    assert run(capsys, "train", tmp_path / "a.jsonl", "--model", tmp_path / "m")[0] == 0
    code, _, err = run(
        capsys,
        "predict",
        tmp_path / "m",
        tmp_path / "a.jsonl",
        "--out",
        tmp_path / "s.csv",
        "--bom",
        "--threshold",
        "f1",
    )
    assert (code, err) == (0, "note: the model knows no word of 1 texts; they get no labels\n")
    assert (tmp_path / "s.csv").read_bytes().startswith(b"\xef\xbb\xbfid,text,labels\n")
    again = read_corpus(tmp_path / "s.csv")
    assert again.texts == [*(text for text, _ in rows), ""]
    assert [sorted(row) for row in again.labels] == [*(labels for _, labels in map(sort_labels, rows)), []]
    assert run(capsys, "train", tmp_path / "s.csv", "--model", tmp_path / "m2")[0] == 0
    assert sorted(read_text(tmp_path / "s.csv").label_names) == sorted(names)


def sort_labels(row):
    return row[0], sorted(row[1])


def test_the_ending_of_the_file_chooses_the_format(capsys, folder, tmp_path):
    for ending, first in (("tsv", "0\t1\t"), ("csv.gz", "id,text"), ("jsonl", '{"id"'), ("txt", '{"id"')):
        out = tmp_path / f"out.{ending}"
        assert run(capsys, "predict", folder / "books", folder / "books.csv", "--out", out)[0] == 0
        content = gzip.decompress(out.read_bytes()) if ending.endswith("gz") else out.read_bytes()
        assert content.decode().startswith(first)


def test_train_ends_in_plain_words_and_with_what_to_try(capsys, folder, tmp_path):
    _, out, _ = run(capsys, "train", folder / "books.csv", "--model", tmp_path / "m")
    assert "labels it can suggest" in out
    assert not {"blocks", "candidates", "features"} & set(out.split())
    assert out.endswith(f"blockxmc serve {tmp_path / 'm'} for a page in the browser\n")
    _, out, err = run(capsys, "train", folder / "books.csv", "--model", tmp_path / "m", "--verbose")
    assert "candidate recall" in out
    assert "on held-out rows" in err


def test_rows_are_called_as_their_file_calls_them(tmp_path):
    (tmp_path / "a.csv").write_text('text,labels\n"two\nlines",a\n\nafter a blank row,b\n')
    assert read_corpus(tmp_path / "a.csv").names == ["row 2", "row 4"]  # as a spreadsheet counts
    (tmp_path / "b.csv").write_text("id,text,labels\nb7,one,a\n,two,b\n")
    assert read_corpus(tmp_path / "b.csv").names == ["b7", "row 3"]
    (tmp_path / "c.jsonl").write_text('{"text": "one", "labels": []}\n\n{"id": 5, "text": "two", "labels": []}\n')
    assert read_corpus(tmp_path / "c.jsonl").names == ["line 1", "5"]
    (tmp_path / "d.tsv").write_text("one\ta\n\ntwo\tb\n")
    assert read_corpus(tmp_path / "d.tsv").names == ["line 1", "line 3"]
