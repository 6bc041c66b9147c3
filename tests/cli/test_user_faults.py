"""Pipes, odd file names, closed streams, signals and impossible data: one clear line each, and nobody's file is touched."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from helpers import blocky

from blockxmc.cli import main
from blockxmc.data import make_synthetic, write_xc

TEXT = '{"text": "cats purr", "labels": ["cat"]}\n{"text": "dogs bark", "labels": ["dog"]}\n'


def run(capsys, *args):
    """Exit code, stdout and stderr of a command."""
    with pytest.raises(SystemExit) as caught:
        main([str(arg) for arg in args])
    out, err = capsys.readouterr()
    return caught.value.code or 0, out, err


def start(*args, **options):
    """A command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "blockxmc", *map(str, args)], text=True, check=False, timeout=120, **options
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of features, a model of text, and test data for each."""
    where = tmp_path_factory.mktemp("faults")
    X, Y = blocky(n=120)
    write_xc(where / "train.txt", X[:100], Y[:100])
    write_xc(where / "test.txt", X[100:], Y[100:])
    (where / "text.jsonl").write_text(TEXT * 6)
    for data, model in (("train.txt", "model"), ("text.jsonl", "text-model")):
        with pytest.raises(SystemExit):
            main(["train", str(where / data), "--model", str(where / model)])
    return where


def test_a_file_called_stdin_is_left_alone(capsys, folder, tmp_path):
    (tmp_path / "stdin").write_text("cats purr\n")
    code, out, _ = run(capsys, "predict", folder / "text-model", tmp_path / "stdin", "--top-k", 1)
    assert (code, json.loads(out)["labels"]) == (0, ["cat"])
    assert [file.name for file in tmp_path.iterdir()] == ["stdin"]


def test_a_file_of_plain_lines_for_a_model_of_text(capsys, folder, tmp_path):
    (tmp_path / "lines.txt").write_text("dogs bark\ncats purr\n")
    code, out, _ = run(capsys, "predict", folder / "text-model", tmp_path / "lines.txt", "--top-k", 1)
    assert (code, [json.loads(line)["labels"] for line in out.splitlines()]) == (0, [["dog"], ["cat"]])


@pytest.mark.parametrize("command", ["predict", "evaluate", "train"])
def test_named_pipes(capsys, folder, tmp_path, command):
    os.mkfifo(tmp_path / "pipe")
    content = (folder / "test.txt").read_bytes()
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=[content])
    writer.start()
    places = (
        [tmp_path / "pipe", "--model", tmp_path / "m"] if command == "train" else [folder / "model", tmp_path / "pipe"]
    )
    code, out, err = run(capsys, command, *places)
    writer.join()
    assert (code, err) == (0, "")
    if command == "predict":
        assert out == run(capsys, "predict", folder / "model", folder / "test.txt")[1]


def test_process_substitution_and_standard_input(folder):
    test = folder / "test.txt"
    expected = start("predict", folder / "model", test, capture_output=True).stdout
    assert len(expected.splitlines()) == 20
    reader, writer = os.pipe()
    os.write(writer, test.read_bytes())
    os.close(writer)
    done = start("predict", folder / "model", f"/dev/fd/{reader}", capture_output=True, pass_fds=[reader])
    assert (done.returncode, done.stdout) == (0, expected)
    done = start("predict", folder / "model", "-", capture_output=True, input=test.read_text())
    assert (done.returncode, done.stdout) == (0, expected)
    done = start("predict", folder / "model", "-", capture_output=True, input="what is this\n")
    assert done.returncode == 2
    assert done.stderr.startswith("error: standard input: holds text (JSONL, JSON, TSV or CSV), but the model was")
    done = start("predict", folder / "model", "-", capture_output=True, input="1 0:x\n")
    assert done.returncode == 2
    assert done.stderr.startswith("error: standard input: line 1: ")


def test_out_touches_no_other_file(capsys, folder, tmp_path):
    (tmp_path / "out.part").write_text("mine")
    (tmp_path / "real").write_text("old")
    (tmp_path / "real").chmod(0o600)
    (tmp_path / "link").symlink_to("real")
    for name in ("out", "link"):
        assert run(capsys, "predict", folder / "model", folder / "test.txt", "--out", tmp_path / name)[0] == 0
    assert (tmp_path / "out.part").read_text() == "mine"
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == (tmp_path / "out").read_text()
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o600
    assert sorted(file.name for file in tmp_path.iterdir()) == ["link", "out", "out.part", "real"]


def test_out_to_a_pipe_a_folder_and_nowhere(capsys, folder, tmp_path):
    """A pipe of our own stands for all devices: a defect here would replace a real one, such as /dev/null, by a file."""
    os.mkfifo(tmp_path / "pipe")
    read = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()), daemon=True)
    reader.start()
    assert run(capsys, "predict", folder / "model", folder / "test.txt", "--out", tmp_path / "pipe")[0] == 0
    assert (tmp_path / "pipe").is_fifo()
    reader.join(timeout=30)
    assert len(read[0].splitlines()) == 20
    for place, words in ((tmp_path, "is a folder"), (tmp_path / "no" / "out", "there is no folder")):
        code, out, err = run(capsys, "predict", folder / "model", folder / "test.txt", "--out", place)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert words in err


@pytest.mark.parametrize("stream", [0, 1, 2])
def test_closed_streams(folder, stream):
    data = "-" if stream == 0 else folder / "test.txt"
    done = start("predict", folder / "model", data, capture_output=True, preexec_fn=partial(os.close, stream))
    assert "Traceback" not in done.stderr
    if stream == 2:
        assert (done.returncode, len(done.stdout.splitlines())) == (0, 20)
    else:
        assert (done.returncode, done.stdout) == (2, "")
        assert f"standard {('input', 'output')[stream]} is closed" in done.stderr


def test_a_full_disk_at_standard_output(folder):
    with open("/dev/full", "w") as full:
        for command in (["predict", folder / "model", folder / "test.txt"], ["stats", folder / "test.txt"]):
            done = start(*command, stdout=full, stderr=subprocess.PIPE)
            assert (done.returncode, done.stderr) == (2, "error: No space left on device\n")


def test_far_more_labels_than_there_are(capsys, folder):
    code, out, _ = run(capsys, "predict", folder / "model", folder / "test.txt", "--top-k", 2**31 - 1)
    assert (code, len(out.splitlines())) == (0, 20)


BAD = {
    "no rows at all": ("0 0 0\n", [], "holds no rows"),
    "no features": ("1 0 1\n0\n", [], "0 feature"),
    "no labels": ("1 1 0\n 0:1\n", [], "label"),
    "billions of features": ("1 2147483647 5\n0 3:1\n", [], "the rows use only the first 4"),
    "billions of labels": ("1 5 2147483647\n0 3:1\n", [], "the rows use only the first 1"),
    "too large to square": ("2 2 2\n0 0:1e30\n1 1:1\n", [], "rescale"),
    "negative seed": ("2 2 2\n0 0:1\n1 1:1\n", ["--param", "random_state=-5"], "random_state must be"),
    "fractional seed": ("2 2 2\n0 0:1\n1 1:1\n", ["--param", "random_state=0.5"], "random_state must be"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("system", ["bp", "full"])
def test_impossible_training_data(capsys, tmp_path, case, system):
    text, options, words = BAD[case]
    (tmp_path / "train.txt").write_text(text)
    arguments = ["train", tmp_path / "train.txt", "--model", tmp_path / "m", "--system", system, *options]
    code, out, err = run(capsys, *arguments)
    if system == "full" and case == "no labels":
        return  # a model without labels answers nothing, which is correct
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert words in err
    assert not (tmp_path / "m").exists()


def test_partition_refuses_the_same_files(capsys, tmp_path):
    for text, words in (("0 0 0\n", "holds no rows"), ("2 2 2\n0 0:1e30\n1 1:1\n", "rescale")):
        (tmp_path / "train.txt").write_text(text)
        code, _, err = run(capsys, "partition", tmp_path / "train.txt", "--out", tmp_path / "out")
        assert (code, len(err.splitlines())) == (2, 1)
        assert words in err


def test_an_unexpected_error_is_one_line_too(capsys, folder, monkeypatch):
    def broken(*args, **kwargs):
        raise KeyError("a defect")

    monkeypatch.setattr("blockxmc.storage.load", broken)
    code, out, err = run(capsys, "predict", folder / "model", folder / "test.txt")
    assert (code, out) == (1, "")
    assert err.startswith("internal error: KeyError: 'a defect'")
    assert len(err.splitlines()) == 1
    monkeypatch.setenv("BLOCKXMC_TRACEBACK", "1")
    with pytest.raises(KeyError):
        main(["predict", str(folder / "model"), str(folder / "test.txt")])


def wait_for_work(process, seconds):
    """Until a process has worked for so many seconds of CPU time: on a busy machine that takes longer."""
    for _ in range(1200):
        try:
            spent = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:  # it has ended, or there is no /proc
            return time.sleep(seconds) if process.poll() is None else None
        if (int(spent[11]) + int(spent[12])) / os.sysconf("SC_CLK_TCK") >= seconds:
            return None
        time.sleep(0.1)
    return None


@pytest.mark.parametrize(
    ("number", "more"),
    [(signal.SIGTERM, ["--system", "full"]), (signal.SIGINT, ["--paper", "--blocks", "8", "--lam", "0.001"])],
    ids=["SIGTERM", "SIGINT while blocks are trained"],
)
def test_a_signal_ends_training_soon_and_leaves_nothing(tmp_path, number, more):
    data, _ = make_synthetic(n_train=60000, n_test=1, n_features=5000, n_labels=4000, labels_per_row=5.0)
    write_xc(tmp_path / "train.txt", data.X, data.Y)
    command = ["train", str(tmp_path / "train.txt"), "--model", str(tmp_path / "m"), *more]
    with subprocess.Popen(
        [sys.executable, "-m", "blockxmc", *command],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.default_int_handler),
    ) as process:
        wait_for_work(process, seconds=6)
        assert process.poll() is None, "the training was too short to be interrupted"
        began = time.monotonic()
        os.kill(process.pid, number)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "interrupted: nothing half-written was left behind\n")
    assert time.monotonic() - began < 15
    assert sorted(file.name for file in tmp_path.iterdir()) == ["train.txt"]


HOSTILE = "\x1b[2J\x1b]0;owned\x07[red]\nerror: all is lost\u202e\x9b31m"


def test_names_that_a_terminal_would_obey_are_shown_harmlessly(capsys, tmp_path):
    rows = [{"text": "cats purr", "labels": [HOSTILE]}, {"text": "dogs bark", "labels": ["dog", "[b]"]}] * 4
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = tmp_path / "model"
    commands = [
        ("train", tmp_path / "t.jsonl", "--model", model, "--keep-rows", "--blocks", "1"),
        ("inspect", model),
        ("inspect", model, "--block", "0"),
        ("explain", model, "cats purr \x1b[2J"),
        ("explain", model, "cats purr", "--label", HOSTILE),
        ("explain", model, "cats purr", "--label", f"{HOSTILE} "),
        ("train", tmp_path / f"{HOSTILE.replace('/', '')}.jsonl", "--model", model),
    ]
    seen = ""
    for command in commands:
        _, out, err = run(capsys, *command)
        seen += out + err
        for sign in ("\x1b", "\x07", "\x9b", "\u202e"):
            assert sign not in out + err, command
        assert "\nerror: all is lost" not in out + err
    assert r"\x1b[2J" in seen
    assert "[red]" in seen
    assert "[b]" in seen
