"""Texts on the command line: fields, ids, JSON arrays, options of features, and answers as lines come."""

import gzip
import io
import json
import re
import subprocess
import sys

import numpy as np
import pytest
from cli_parts import run

from blockxmc import TextClassifier, load
from blockxmc._core.base import XMCEstimator
from blockxmc.cli import main
from blockxmc.cli._text_options import note_on_uncut

ROWS = [("cats purr and sleep", ["cat"]), ("dogs bark and run", ["dog"]), ("cats and dogs play", ["cat", "dog"])] * 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("texts")
    rows = [{"text": text, "labels": labels} for text, labels in ROWS]
    (where / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(SystemExit):
        main(["train", str(where / "train.jsonl"), "--model", str(where / "model")])
    return where


FILES = {
    "a.json": json.dumps([{"text": text, "labels": labels} for text, labels in ROWS], indent=1),
    "b.json": "".join(json.dumps({"text": text, "labels": labels}) + "\n" for text, labels in ROWS),
    "c.jsonl": "".join(json.dumps({"head": t, "body": None, "tags": "|".join(ls)}) + "\n" for t, ls in ROWS),
    "d.csv": "Body,Head,tags\n" + "".join(f",{text},{' | '.join(labels)}|\n" for text, labels in ROWS),
    "e.tsv": "".join(f"{text}\t{'|'.join(labels)}\n" for text, labels in ROWS),
}
FIELDS = ["--text-field", "head", "--text-field", "body", "--label-field", "tags", "--label-separator", "|"]


@pytest.mark.parametrize("name", FILES)
def test_every_file_trains_the_same_model(name, capsys, folder, tmp_path):
    (tmp_path / name).write_text(FILES[name])
    options = FIELDS if name[0] in "cd" else (FIELDS[-2:] if name[0] == "e" else [])
    code, _, err = run(capsys, "train", tmp_path / name, "--model", tmp_path / "m", *options)
    assert code == 0
    assert re.fullmatch(r"note: 15 .*\n", err)  # rows that are there twice
    texts = [text for text, _ in ROWS[:3]]
    assert load(tmp_path / "m").suggest(texts) == load(folder / "model").suggest(texts)


@pytest.mark.parametrize("name", ["c.jsonl", "d.csv"])
def test_evaluate_reads_the_same_fields(name, capsys, folder, tmp_path):
    (tmp_path / name).write_text(FILES[name])
    usual, named = (
        json.loads(run(capsys, "evaluate", folder / "model", *args, "--json")[1])
        for args in ([folder / "train.jsonl"], [tmp_path / name, *FIELDS])
    )
    assert (named["P@1"], named["F1"], named["rows"]) == (usual["P@1"], usual["F1"], 18)
    code, _, err = run(capsys, "evaluate", folder / "model", tmp_path / name)
    assert (code, len(err.splitlines())) == (2, 1)


def test_evaluate_refuses_fields_of_features(capsys, tmp_path):
    (tmp_path / "train.txt").write_text("4 2 2\n0 0:1\n1 1:1\n0 0:1\n1 1:1\n")
    assert run(capsys, "train", tmp_path / "train.txt", "--model", tmp_path / "m")[0] == 0
    code, _, err = run(capsys, "evaluate", tmp_path / "m", tmp_path / "train.txt", "--label-field", "x")
    assert code == 2
    assert "--label-field is for texts" in err


def test_ids_come_back(capsys, folder, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"id": 7, "text": "cats purr"}\n{"text": "dogs bark"}\n')
    lines = run(capsys, "predict", folder / "model", tmp_path / "a.jsonl", "--top-k", 1)[1].splitlines()
    assert [json.loads(line).get("id") for line in lines] == [7, None]
    (tmp_path / "b.csv").write_text("key,words\nA 1,cats purr\n")
    fields = ["--id-field", "key", "--text-field", "words"]
    code, out, _ = run(capsys, "predict", folder / "model", tmp_path / "b.csv", "--format", "tsv", *fields)
    assert (code, out.split("\t")[:3]) == (0, ["A 1", "1", "cat"])
    code, out, _ = run(capsys, "predict", folder / "model", tmp_path / "b.csv", "--top-k", 1, *fields)
    assert json.loads(out)["id"] == "A 1"


BAD = {
    "unknown column": ("a.csv", "text,labels\nx y,z\n", ["--text-field", "body"], "no column 'body'"),
    "unknown field": ("a.jsonl", '{"text": "x"}\n', ["--text-field", "body"], 'no "body"'),
    "fields of tsv": ("a.tsv", "red apple\tfruit\n", ["--label-field", "x"], "TSV"),
    "joined labels": ("a.jsonl", '{"text": "xx", "labels": "a;b"}\n', [], "--label-separator"),
    "text is a number": ("a.jsonl", '{"text": 3, "labels": []}\n', [], "line 1: no text"),
    "array of numbers": ("a.json", "[1, 2]", [], "element 1"),
    "half an array": ("a.json", '[{"text": "x"},', [], "not JSON"),
    "options of texts": ("a.txt", "1 2 2\n0 0:1\n", ["--ngrams", "2"], "--ngrams is for texts"),
    "fields of features": ("a.txt", "1 2 2\n0 0:1\n", ["--text-field", "x"], "--text-field is for texts"),
    "analyzer": ("a.tsv", "red apple\tfruit\n", ["--analyzer", "letters"], "analyzer must be one of"),
    "no stop words": ("a.tsv", "red apple\tfruit\n", ["--stop-words", "nowhere.txt"], "nowhere.txt"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_fields_are_one_line(case, capsys, tmp_path):
    name, content, options, message = BAD[case]
    (tmp_path / name).write_text(content)
    code, _, err = run(capsys, "train", tmp_path / name, "--model", tmp_path / "m", *options)
    assert code == 2
    assert message in err
    assert len(err.splitlines()) == 1


def test_options_of_features_reach_the_model(capsys, folder, tmp_path):
    (tmp_path / "stop.txt").write_text("and\nthe\n")
    options = ["--ngrams", 2, "--min-df", 2, "--max-features", 9, "--stop-words", tmp_path / "stop.txt"]
    assert run(capsys, "train", folder / "train.jsonl", "--model", tmp_path / "m", *options)[0] == 0
    model = load(tmp_path / "m")
    assert (model.ngram_range, model.min_df, model.max_features) == ((1, 2), 2, 9)
    assert model.stop_words == ("and", "the")
    assert "cats purr" in model.vectorizer_.feature_names
    assert "and" not in model.vectorizer_.feature_names
    train = ["train", folder / "train.jsonl", "--model", tmp_path / "c", "--analyzer", "char_wb", "--ngrams", 3]
    assert run(capsys, *train)[0] == 0
    assert " ca" in load(tmp_path / "c").vectorizer_.feature_names


def start(*args):
    command = [sys.executable, "-m", "blockxmc", *map(str, args)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.parametrize(
    ("header", "options", "told"),
    [
        ("text,labels", [], None),
        ("id;labels;title", [], None),
        ("words,tags", ["--text-field", "words", "--label-field", "tags"], None),
        ("words,tags", [], "the header of a CSV must hold text and labels, or --text-field and --label-field say"),
        ("words,tags", ["--text-field", "text"], "no column 'text'"),
    ],
)
def test_a_csv_comes_through_a_pipe(capsys, tmp_path, monkeypatch, header, options, told):
    sign = ";" if ";" in header else ","
    columns = header.split(sign)
    cells = {"id": "7", "text": "cats purr", "title": "cats purr", "words": "cats purr", "labels": "cat", "tags": "cat"}
    lines = [header, *[sign.join(cells[name] for name in columns)] * 4, *[sign.join("abc"[: len(columns)])] * 4]
    piped = io.TextIOWrapper(io.BytesIO("\n".join(lines).encode() + b"\n"))
    monkeypatch.setattr(sys, "stdin", piped)
    code, _, err = run(capsys, "train", "-", "--model", tmp_path / "m", *options)
    if told is None:
        assert (code, load(tmp_path / "m").suggest("cats purr", k=1)[0].label) == (0, "cat")
    else:
        assert (code, err.count("\n")) == (2, 1)
        assert told in err


def ask(process, line):
    """Write one line and wait for its answer, while the pipe stays open."""
    process.stdin.write(line + "\n")
    process.stdin.flush()
    return process.stdout.readline()


def test_texts_are_answered_as_they_come(folder):
    with start("predict", folder / "model", "-", "--top-k", "1") as process:
        assert json.loads(ask(process, '{"text": "cats purr", "id": 1}')) | {"scores": []} == {
            "id": 1,
            "labels": ["cat"],
            "scores": [],
        }
        assert json.loads(ask(process, '{"text": "dogs bark"}'))["labels"] == ["dog"]
        out, err = process.communicate('{"text": "cats sleep"}\nnot json\n{"text": "dogs bark"}\n')
    assert (json.loads(out)["labels"], process.returncode) == (["cat"], 2)  # what came before it is answered
    assert "standard input: line 4: not JSON" in err


def test_lines_and_answers_can_be_counted_off(folder):
    """A text may begin with a bracket, and an empty line is an empty text."""
    with start("predict", folder / "model", "-", "--top-k", "1") as process:
        out, _ = process.communicate("[1] cats purr\n\n{dogs} bark\n\n")
    assert [json.loads(line)["labels"] for line in out.splitlines()][::2] == [["cat"], ["dog"]]
    assert (len(out.splitlines()), process.returncode) == (3, 0)


def test_named_fields_say_that_the_first_line_of_a_pipe_is_a_header(folder, tmp_path):
    fields = ["--text-field", "head", "--id-field", "key", "--top-k", "1"]
    for sign in ",;\t":
        with start("predict", folder / "model", "-", *fields) as process:
            out, err = process.communicate(f"key{sign}head\n7{sign}cats purr\n")
        assert (process.returncode, err, json.loads(out)["id"], json.loads(out)["labels"]) == (0, "", "7", ["cat"])
    (tmp_path / "rows").write_text("key,head\n7,dogs bark\n")
    with start("explain", folder / "model", tmp_path / "rows", *fields) as process:
        assert "dog (label 1): suggested" in process.communicate()[0]


def test_pipes_are_converted_and_explained(folder, tmp_path):
    for command, done in (
        ("convert {} out.jsonl && cat out.jsonl", '"text": "cats'),
        ("explain model {}", "cat (label 0)"),
    ):
        line = f"cat {folder}/train.jsonl | (exec 9<&0; {sys.executable} -m blockxmc {command.format('/dev/fd/9')})"
        model = line.replace(" model ", f" {folder}/model ")
        out = subprocess.run(["bash", "-c", model], capture_output=True, text=True, check=True, cwd=tmp_path).stdout
        assert done in out


def test_a_name_of_no_file_is_told(capsys, folder):
    code, _, err = run(capsys, "explain", folder / "model", "cats.csv")
    assert (code, err.splitlines()[0]) == (0, "note: there is no file cats.csv: it is explained as a text")


def test_labels_that_are_not_asked_for_may_look_like_anything(capsys, folder, tmp_path):
    for labels in ('"cat|dog"', "7", "null", '{"a": 1}'):
        (tmp_path / "a.jsonl").write_text(f'{{"text": "cats purr", "labels": {labels}}}\n')
        code, out, err = run(capsys, "predict", folder / "model", tmp_path / "a.jsonl", "--top-k", 1)
        assert (code, err, json.loads(out)["labels"]) == (0, "", ["cat"])


def test_rows_of_a_file_are_explained_in_their_words(capsys, folder, tmp_path):
    (tmp_path / "a.csv").write_text("key,head,body\nA 1,cats,purr\nB 2,dogs,bark\n")
    options = ["--text-field", "head", "--text-field", "body", "--id-field", "key", "--top-k", 1]
    code, out, _ = run(capsys, "explain", folder / "model", tmp_path / "a.csv", *options, "--json")
    found = json.loads(out)
    assert (code, [row["id"] for row in found], [row["text"] for row in found]) == (
        0,
        ["A 1", "B 2"],
        ["cats purr", "dogs bark"],
    )
    assert [row["labels"][0]["name"] for row in found] == ["cat", "dog"]
    code, out, _ = run(capsys, "explain", folder / "model", tmp_path / "a.csv", *options, "--rank-by", "propensity")
    assert code == 0
    assert out.splitlines()[:2] == ["id A 1", "cats purr"]


def test_fields_of_a_folder(capsys, tmp_path):
    for name in ("train", "test"):
        (tmp_path / "in" / f"{name}.csv").parent.mkdir(exist_ok=True)
        (tmp_path / "in" / f"{name}.csv").write_text(FILES["d.csv"])
    code, out, _ = run(capsys, "stats", tmp_path / "in", *FIELDS, "--json")
    assert (code, json.loads(out)["labels"], json.loads(out)["test_rows"]) == (0, 2, 18)
    assert run(capsys, "convert", tmp_path / "in", tmp_path / "out", *FIELDS)[0] == 0
    assert (tmp_path / "out" / "labels.txt").read_text().split() == ["cat", "dog"]
    for command in (["stats"], ["convert"]):
        target = [tmp_path / "again"] if command == ["convert"] else []
        code, _, err = run(capsys, *command, tmp_path / "out", *target, *FIELDS)
        assert (code, "--text-field is for texts" in err) == (2, True)


def test_features_are_answered_as_they_come(capsys, tmp_path):
    rows = "".join(f"{i % 3} {i % 3}:1 {3 + i % 2}:0.5\n" for i in range(60))
    (tmp_path / "train.txt").write_text(f"60 5 3\n{rows}")
    assert run(capsys, "train", tmp_path / "train.txt", "--model", tmp_path / "m")[0] == 0
    whole = run(capsys, "predict", tmp_path / "m", tmp_path / "train.txt", "--top-k", 2)[1].splitlines()
    with start("predict", tmp_path / "m", "-", "--top-k", 2) as process:
        answers = [ask(process, line).rstrip("\n") for line in rows.splitlines()[:3]]
        out, _ = process.communicate("\n" + rows.splitlines()[3] + "\n\n\n")
    assert answers == whole[:3]
    assert out.splitlines()[1:] == [whole[3]]  # an empty line between rows is a row without features
    for text, message in (("1 9:1\n", "line 1:"), ("0 0:1\n1 x\n", "line 2:"), ("3 5 3\n0 0:1\n", "only 1 follow")):
        with start("predict", tmp_path / "m", "-") as process:
            assert message in process.communicate(text)[1]
        assert process.returncode == 2


@pytest.mark.parametrize("batch", [1, 2, 1000])
def test_batches_and_packed_input_give_the_same_answers(batch, capsys, folder, tmp_path):
    (tmp_path / "test.jsonl.gz").write_bytes(gzip.compress((folder / "train.jsonl").read_bytes()))
    wanted = run(capsys, "predict", folder / "model", folder / "train.jsonl")[1]
    assert run(capsys, "predict", folder / "model", tmp_path / "test.jsonl.gz", "--batch", batch)[1] == wanted
    with open(tmp_path / "test.jsonl.gz", "rb") as packed:
        command = [sys.executable, "-m", "blockxmc", "predict", str(folder / "model"), "-", "--batch", str(batch)]
        done = subprocess.run(command, stdin=packed, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, wanted)


def test_nothing_on_standard_input_is_bad_input(folder):
    done = subprocess.run(
        [sys.executable, "-m", "blockxmc", "predict", str(folder / "model"), "-"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "no rows" in done.stderr


def test_a_threshold_and_lists_of_labels_reach_the_model(capsys, folder, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("cats purr and sleep\n")
    scores = json.loads(run(capsys, "predict", folder / "model", tmp_path / "a.txt")[1])["scores"]
    cut = ["--threshold", np.mean(scores)]
    assert len(json.loads(run(capsys, "predict", folder / "model", tmp_path / "a.txt", *cut)[1])["scores"]) == 1
    seen = {}
    plain = XMCEstimator.predict_topk

    def noting(self, X, k=5, **limits):
        seen.update(limits)
        return plain(self, X, k)

    monkeypatch.setattr(XMCEstimator, "predict_topk", noting)
    (tmp_path / "allow.txt").write_text("dog\nunheard\n")
    (tmp_path / "deny.txt").write_text("<cat>\n")  # as in training data, where the brackets of URIs are left out
    limits = ["--allow", tmp_path / "allow.txt", "--deny", tmp_path / "deny.txt"]
    code, _, err = run(capsys, "predict", folder / "model", tmp_path / "a.txt", *limits)
    assert (code, seen["allow"].tolist(), seen["deny"].tolist()) == (0, [False, True], [True, False])
    assert "does not know 1 of the 2 labels" in err
    (tmp_path / "allow.txt").write_text("unheard\n")
    code, _, err = run(capsys, "predict", folder / "model", tmp_path / "a.txt", *limits)
    assert code == 2
    assert "lists no label of the model" in err.splitlines()[-1]


def test_inspect_and_evaluate_open_a_text_model(capsys, folder):
    about = json.loads(run(capsys, "inspect", folder / "model", "--verify", "--json")[1])["about"]
    assert (about["estimator"], about["classifier"]) == ("TextClassifier", "BlockwiseClassifier")
    code, out, _ = run(capsys, "evaluate", folder / "model", folder / "train.jsonl", "--json")
    assert (code, json.loads(out)["P@1"]) == (0, 100.0)
    assert isinstance(load(folder / "model"), TextClassifier)


def test_train_and_test_are_converted_with_one_vocabulary(capsys, tmp_path):
    (tmp_path / "a.csv").write_text("words,tags\n" + "".join(f"{text},{'|'.join(ls)}\n" for text, ls in ROWS))
    (tmp_path / "b.csv").write_text("words,tags\ncats bark loudly,dog|cow\n")
    fields = ["--text-field", "words", "--label-field", "tags", "--label-separator", "|"]
    code, _, _ = run(capsys, "convert", tmp_path / "a.csv", tmp_path / "out", "--test", tmp_path / "b.csv", *fields)
    assert code == 0
    features = (tmp_path / "out" / "features.txt").read_text().split()
    row = (tmp_path / "out" / "test.txt").read_text().splitlines()[1].split()
    assert row[0] == "1"
    assert sorted(features[int(pair.split(":")[0])] for pair in row[1:]) == ["bark", "cats"]
    assert run(capsys, "convert", tmp_path / "a.csv", tmp_path / "a.jsonl", *fields)[0] == 0
    first = json.loads((tmp_path / "a.jsonl").read_text().splitlines()[0])
    assert first == {"text": ROWS[0][0], "labels": ROWS[0][1]}
    code, _, err = run(capsys, "convert", tmp_path / "out", tmp_path / "b", "--test", tmp_path / "b.csv")
    assert (code, "--test goes with a file" in err) == (2, True)


def test_label_texts_of_a_file(capsys, folder, tmp_path):
    (tmp_path / "labels.tsv").write_text("cow\tcows moo\ncat\tcats\n")
    train = ["train", folder / "train.jsonl", "--model", tmp_path / "m", "--label-texts"]
    assert run(capsys, *train, tmp_path / "labels.tsv")[0] == 0
    (tmp_path / "new.jsonl").write_text('{"text": "cows moo"}\n')
    code, out, _ = run(capsys, "predict", tmp_path / "m", tmp_path / "new.jsonl", "--top-k", 1)
    assert (code, json.loads(out)["labels"], json.loads(out)["untrained"]) == (0, ["cow"], ["cow"])
    assert "untrained" not in run(capsys, "predict", tmp_path / "m", folder / "train.jsonl", "--top-k", 1)[1]
    code, out, _ = run(capsys, "explain", tmp_path / "m", "cows moo", "--top-k", 1)
    assert (code, "no training row has it" in out) == (0, True)
    texts, labels = zip(*ROWS, strict=True)
    python = TextClassifier().fit(texts, labels, label_texts={"cow": "cows moo", "cat": "cats"})
    assert load(tmp_path / "m").suggest("cows and cats") == python.suggest("cows and cats")
    (tmp_path / "bad.json").write_text("[]")
    code, _, err = run(capsys, *train[:3], tmp_path / "none", "--label-texts", tmp_path / "bad.json")
    assert (code, "bad.json" in err.splitlines()[-1], (tmp_path / "none").exists()) == (2, True, False)
    (tmp_path / "train.txt").write_text("4 2 2\n0 0:1\n1 1:1\n0 0:1\n1 1:1\n")
    args = ["train", tmp_path / "train.txt", "--model", tmp_path / "none", "--label-texts", tmp_path / "labels.tsv"]
    code, _, err = run(capsys, *args)
    assert code == 2
    assert "--label-texts is for texts" in err


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([["a|b"], ["b|c"], ["c"], []], '"|" cuts'),
        ([["a, b"], ["c, d"]], '"," cuts'),
        ([['["a", "b"]'], ['["c"]']], "look like lists"),
        ([["a,b"], ["c"], ["d"]], None),
        ([["a,b", "c"], ["c,d", "a"]], None),
        ([[], []], None),
    ],
)
def test_labels_that_look_like_several_are_told(rows, said):
    note = note_on_uncut(rows)
    assert note is None if said is None else said in note


def test_training_tells_of_labels_that_are_not_cut(capsys, tmp_path):
    (tmp_path / "a.csv").write_text("text,labels\n" + "red apple,a|b\ngreen pear,b|c\n" * 5)
    code, _, err = run(capsys, "train", tmp_path / "a.csv", "--model", tmp_path / "model")
    assert (code, err.count("--label-separator")) == (0, 1)
    code, _, err = run(capsys, "train", tmp_path / "a.csv", "--model", tmp_path / "cut", "--label-separator", "|")
    assert (code, err.count("--label-separator")) == (0, 0)
