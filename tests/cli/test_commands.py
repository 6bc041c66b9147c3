import json
import os
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest
from helpers import blocky

from blockxmc.cli import main
from blockxmc.data import make_synthetic, write_xc
from blockxmc.model.routed import RoutedModel


def run(capsys, *args):
    """Exit code, stdout and stderr of a command."""
    with pytest.raises(SystemExit) as caught:
        main([str(arg) for arg in args])
    out, err = capsys.readouterr()
    return caught.value.code or 0, out, err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("data")
    X, Y = blocky(n=300)
    write_xc(where / "train.txt", X[:240], Y[:240])
    write_xc(where / "test.txt", X[240:], Y[240:])
    rows = [
        ("cats purr and sleep", ["cat"]),
        ("dogs bark and run", ["dog"]),
        ("cats and dogs play", ["cat", "dog"]),
    ] * 6
    text = "".join(json.dumps({"text": words, "labels": labels}) + "\n" for words, labels in rows)
    (where / "text.jsonl").write_text(text)
    return where


@pytest.fixture(scope="module")
def model(folder):
    options = ["--blocks", "3", "--lam", "0.3", "--param", "n_neighbors=10"]
    with pytest.raises(SystemExit):
        main(["train", str(folder / "train.txt"), "--model", str(folder / "model"), *options])
    return folder / "model"


def test_train_evaluate_predict_inspect(capsys, folder, model):
    code, out, _ = run(capsys, "evaluate", model, folder / "test.txt", "--json")
    result = json.loads(out)
    assert code == 0
    assert result["P@1"] > 60
    wanted = "nDCG@3 R@5 PSP@1 candidates products speedup speedup_paper speedup_flops batch_us one_us"
    for key in wanted.split():
        assert result[key] >= 0
    code, out, _ = run(capsys, "predict", model, folder / "test.txt", "--top-k", 2)
    lines = out.splitlines()
    assert (code, len(lines)) == (0, 60)
    pairs = [pair.split(":") for pair in lines[0].split()]
    assert len(pairs) == 2
    assert float(pairs[0][1]) >= float(pairs[1][1])
    code, out, _ = run(capsys, "inspect", model, "--verify", "--json")
    assert code == 0
    assert json.loads(out)["partition"]["blocks"] == 3
    code, out, _ = run(capsys, "inspect", model)
    assert "blocks" in out


def test_training_ends_with_a_short_table(capsys, folder, tmp_path, monkeypatch):
    train = ["train", folder / "train.txt", "--model", tmp_path / "m", "--blocks", 3, "--lam", 0.3]
    code, out, _ = run(capsys, *train)
    assert code == 0
    for words in ("rows it learned from", "240", "labels it can suggest", "30", "MB", "training time"):
        assert words in out
    assert len(out.splitlines()) < 16
    assert "speedup" not in out
    assert "speedup flops" in run(capsys, *train, "--verbose")[1]
    result = json.loads(run(capsys, *train, "--json")[1])
    assert ("remark" in result) == (result["speedup"] < 1)


@pytest.mark.parametrize(("speedup", "said"), [(0.8, True), (1.2, False)])
def test_the_summary_shows_what_to_expect_and_when_blocks_do_not_pay(
    capsys, folder, tmp_path, monkeypatch, speedup, said
):
    measured = RoutedModel.cost

    def cost(self, *args):
        expected = {"expected_P@1": 0.81234, "expected_P@3": 0.5, "expected_P@5": 0.25}
        return measured(self, *args) | expected | {"speedup": speedup, "products": 45.0}

    monkeypatch.setattr(RoutedModel, "cost", cost)
    _, out, _ = run(capsys, "train", folder / "train.txt", "--model", tmp_path / "m", "--blocks", 3, "--lam", 0.3)
    assert "81 % of the time" in out
    assert ("--system full" in out) == said


def test_inspect_says_whether_rows_lie_in_the_model(capsys, folder, model, tmp_path):
    about = json.loads(run(capsys, "inspect", model, "--json")[1])["about"]
    assert (about["rows kept in the model"], about["neighbors asked"]) == (240, 10)
    assert about["rows whose block is kept"] == 240
    without = ["--model", tmp_path / "bare", "--blocks", "3", "--lam", "0.3", "--param", "n_neighbors=0"]
    assert run(capsys, "train", folder / "train.txt", *without)[0] == 0
    bare = run(capsys, "inspect", tmp_path / "bare")[1]
    assert "rows kept" not in bare
    assert "rows whose block is kept" in bare


@pytest.mark.parametrize("form", ["xc", "jsonl", "tsv"])
def test_prediction_formats_and_files(capsys, folder, model, form, tmp_path):
    code, out, _ = run(capsys, "predict", model, folder / "test.txt", "--format", form, "--out", tmp_path / "out")
    assert (code, out) == (0, "")
    first = (tmp_path / "out").read_text().splitlines()[0]
    if form == "jsonl":
        assert len(json.loads(first)["labels"]) == 5
    elif form == "tsv":
        assert first.split("\t")[:2] == ["0", "1"]
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("system", ["bp", "full", "cbmlc", "lpsr", "lf", "fastxml"])
def test_every_system_from_the_command_line(capsys, folder, system, tmp_path):
    code, _, err = run(capsys, "train", folder / "train.txt", "--model", tmp_path / "m", "--system", system)
    assert (code, err) == (0, "")
    code, out, _ = run(capsys, "evaluate", tmp_path / "m", folder / "test.txt", "--json")
    assert code == 0
    assert json.loads(out)["P@1"] > 30


@pytest.mark.parametrize("base", ["dismec", "pd-sparse", "ppd-sparse", "leml", "naive-bayes"])
@pytest.mark.parametrize("more", [["--paper"], ["--weights", "global"]])
def test_every_base_from_the_command_line(capsys, folder, base, more, tmp_path):
    options = ["--base", base, "--blocks", 3, "--lam", 0.3, *more, "--json"]
    code, out, err = run(capsys, "train", folder / "train.txt", "--model", tmp_path / "m", *options)
    assert (code, err) == (0, "")
    assert json.loads(out)["blocks"] == 3
    code, out, _ = run(capsys, "evaluate", tmp_path / "m", folder / "test.txt", "--json")
    assert json.loads(out)["P@1"] > 30


def test_text_in_label_names_out(capsys, folder, tmp_path, monkeypatch):
    code, _, _ = run(capsys, "train", folder / "text.jsonl", "--model", tmp_path / "m")
    assert code == 0
    code, out, _ = run(capsys, "predict", tmp_path / "m", folder / "text.jsonl", "--top-k", 1)
    assert json.loads(out.splitlines()[0])["labels"] == ["cat"]
    (tmp_path / "new.jsonl").write_text('{"text": "a dog barks, dogs run"}\n{"text": "unheard words only"}\n')
    code, out, _ = run(capsys, "predict", tmp_path / "m", tmp_path / "new.jsonl", "--top-k", 1)
    assert code == 0
    assert json.loads(out.splitlines()[0])["labels"] == ["dog"]
    piped = subprocess.run(
        [sys.executable, "-m", "blockxmc", "predict", str(tmp_path / "m"), "-", "--format", "tsv"],
        input='{"text": "cats purr"}\n', capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert piped.returncode == 0, piped.stderr
    assert piped.stdout.splitlines()[0].split("\t")[2] == "cat"


def test_parameters_by_name(capsys, folder, tmp_path):
    train = ["train", folder / "train.txt", "--model", tmp_path / "m", "--blocks", 2]
    code, _, _ = run(capsys, *train, "--param", "base__C=0.5")
    assert code == 0
    code, _, err = run(capsys, *train, "--param", "base__D=0.5")
    assert code == 2
    assert "base__C" in err


def test_plain_lines_on_standard_input_and_unknown_labels(capsys, folder, tmp_path):
    assert run(capsys, "train", folder / "text.jsonl", "--model", tmp_path / "m")[0] == 0
    command = [sys.executable, "-m", "blockxmc", "predict", str(tmp_path / "m"), "-", "--top-k", "1"]
    piped = subprocess.run(command, input="dogs bark\n", capture_output=True, text=True, check=False)
    assert (piped.returncode, json.loads(piped.stdout)["labels"]) == (0, ["dog"])
    (tmp_path / "odd.jsonl").write_text('{"text": "cats purr", "labels": ["cat", "yak"]}\n')
    code, _, err = run(capsys, "evaluate", tmp_path / "m", tmp_path / "odd.jsonl")
    assert code == 0
    assert "1 labels of rows are unknown" in err
    (tmp_path / "strange.jsonl").write_text('{"text": "cats purr", "labels": ["yak"]}\n')
    code, _, err = run(capsys, "evaluate", tmp_path / "m", tmp_path / "strange.jsonl")
    assert code == 2
    assert "no row has a label that the model knows" in err
    before = (tmp_path / "odd.jsonl").read_text()
    code, _, err = run(capsys, "predict", tmp_path / "m", tmp_path / "odd.jsonl", "--out", tmp_path / "odd.jsonl")
    assert (code, (tmp_path / "odd.jsonl").read_text()) == (2, before)


def test_block_words_and_one_block(capsys, folder, model, tmp_path):
    for word in ("paper", "cost"):
        code, out, err = run(
            capsys, "train", folder / "train.txt", "--model", tmp_path / word, "--blocks", word, "--json"
        )
        assert (code, err) == (0, "")
        assert json.loads(out)["rows"] == 240
    code, out, _ = run(capsys, "inspect", model, "--block", 0, "--json")
    assert len(json.loads(out)["labels"]) == len(json.loads(out)["training_rows"]) > 0


def test_label_names_file(capsys, folder, tmp_path):
    (tmp_path / "names.txt").write_text("".join(f"label {j}\n" for j in range(30)))
    named = ["train", folder / "train.txt", "--model", tmp_path / "m", "--label-names", tmp_path / "names.txt"]
    assert run(capsys, *named)[0] == 0
    _, out, _ = run(capsys, "predict", tmp_path / "m", folder / "test.txt")
    assert json.loads(out.splitlines()[0])["labels"][0].startswith("label ")


BAD = {
    "text for features": (["predict", "{dir}/model", "{dir}/text.jsonl"], "trained on features"),
    "names for text": (
        ["train", "{dir}/text.jsonl", "--model", "{tmp}/m", "--label-names", "{tmp}/empty.txt"],
        "names",
    ),
    "seed": (["train", "{dir}/train.txt", "--model", "{tmp}/m", "--param", "base__C=abc"], "number"),
    "paper and weights": (
        ["train", "{dir}/train.txt", "--model", "{tmp}/m", "--paper", "--weights", "global"],
        "--paper",
    ),
    "ignored base": (
        ["train", "{dir}/train.txt", "--model", "{tmp}/m", "--system", "fastxml", "--base", "leml"],
        "--base",
    ),
    "missing file": (["train", "{dir}/nothing.txt", "--model", "{tmp}/m"], "nothing.txt"),
    "empty file": (["train", "{tmp}/empty.txt", "--model", "{tmp}/m"], "empty"),
    "nan": (["train", "{tmp}/nan.txt", "--model", "{tmp}/m"], "nan"),
    "no labels": (["train", "{tmp}/unlabelled.txt", "--model", "{tmp}/m"], "label"),
    "too many blocks": (["train", "{dir}/train.txt", "--model", "{tmp}/m", "--blocks", "100000"], "rows"),
    "blocks": (["train", "{dir}/train.txt", "--model", "{tmp}/m", "--blocks", "many"], "--blocks"),
    "system": (["train", "{dir}/train.txt", "--model", "{tmp}/m", "--system", "svm"], "--system"),
    "base": (["train", "{dir}/train.txt", "--model", "{tmp}/m", "--base", "svm"], "--base"),
    "meaningless": (["train", "{dir}/train.txt", "--model", "{tmp}/m", "--system", "full", "--lam", "1"], "--lam"),
    "someone's folder": (["train", "{dir}/train.txt", "--model", "{tmp}/mine"], "mine"),
    "no model": (["predict", "{tmp}/mine", "{dir}/test.txt"], "mine"),
    "wrong width": (["evaluate", "{dir}/model", "{tmp}/wide.txt"], "60"),
    "damaged": (["predict", "{tmp}/damaged", "{dir}/test.txt"], "damaged"),
    "format": (["predict", "{dir}/model", "{dir}/test.txt", "--format", "pdf"], "--format"),
    "block": (["inspect", "{dir}/model", "--block", "99"], "99"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_exit_code_2(capsys, folder, model, case, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "nan.txt").write_text("1 2 2\n0 0:nan\n")
    (tmp_path / "unlabelled.txt").write_text("2 2 2\n 0:1\n 1:1\n")
    (tmp_path / "wide.txt").write_text("1 70 30\n0 69:1\n")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("precious")
    (tmp_path / "damaged").mkdir()
    for file in model.iterdir():
        (tmp_path / "damaged" / file.name).write_bytes(file.read_bytes()[: -10 if file.suffix == ".npy" else None])
    args, expected = BAD[case]
    code, out, err = run(capsys, *(arg.format(dir=folder, tmp=tmp_path) for arg in args))
    assert code == 2
    assert out == ""
    assert expected in err
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "m").exists()
    assert (tmp_path / "mine" / "thesis.tex").exists()


def test_a_full_disk_leaves_the_old_model(capsys, folder, model, monkeypatch):
    before = {file.name: file.read_bytes() for file in model.iterdir()}

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device", str(model))

    monkeypatch.setattr(np.lib.format, "write_array", full)
    code, _, err = run(capsys, "train", folder / "train.txt", "--model", model)
    assert code == 2
    assert "No space left" in err
    assert {file.name: file.read_bytes() for file in model.iterdir()} == before
    assert sorted(file.name for file in folder.iterdir()) == ["model", "test.txt", "text.jsonl", "train.txt"]


def test_interrupt_exits_130_and_leaves_nothing(tmp_path):
    data, _ = make_synthetic(n_train=60000, n_test=1, n_features=5000, n_labels=4000, labels_per_row=5.0)
    write_xc(tmp_path / "train.txt", data.X, data.Y)
    train = ["train", str(tmp_path / "train.txt"), "--model", str(tmp_path / "m"), "--system", "full"]
    # Shells start background jobs with SIGINT ignored, and children inherit that: the one tested here must listen.
    listening = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, "-m", "blockxmc", *train], stderr=subprocess.PIPE, text=True, preexec_fn=listening
    )
    time.sleep(4)
    assert process.poll() is None, "the training was too short to be interrupted"
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "interrupted: nothing half-written was left behind"
    assert "Traceback" not in err
    assert sorted(file.name for file in tmp_path.iterdir()) == ["train.txt"]


def test_help_is_quick_and_light():
    code = (
        "import sys, time\nfrom blockxmc.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "assert not {'sklearn', 'numpy'} & set(sys.modules)\n"
        "assert time.process_time() < 2"  # 0.4 s where nothing else runs
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "train" in done.stdout


def test_version(capsys):
    code, out, _ = run(capsys, "--version")
    assert code == 0
    assert out.startswith("blockxmc 0.")
