"""The demo, on a few rows instead of the bundled ones."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
from cli_parts import run

import blockxmc.data
from blockxmc.cli.demo import YOUR_OWN_DATA
from blockxmc.data import from_texts, load_demo_texts
from blockxmc.data.corpus import read_corpus


def small_demo(**options):
    rng = np.random.default_rng(0)
    words = {name: [f"{name}{j}" for j in range(6)] for name in ("python", "perl", "gnome", "xml")}
    names = rng.choice(list(words), 240)
    texts = [" ".join(rng.choice(words[name], 4)) + f" module with {name}" for name in names]
    labels = [[name, "library"] for name in names]
    train = from_texts(texts[:200], labels[:200])
    return train, from_texts(texts[200:], labels[200:], train.vectorizer, train.label_names)


def test_it_ends_with_lines_that_can_be_pasted(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(blockxmc.data, "load_demo", small_demo)
    code, out, _ = run(capsys, "demo", "--out", tmp_path, "--threads", 1)
    assert code == 0
    assert "-> " in out
    pasted = out.rstrip().splitlines()[-3:]
    assert [line.split()[0] for line in pasted] == ["printf", "python", "echo"]
    assert "train mine.csv" in pasted[1]
    assert (tmp_path / "blocks.png").exists()
    code, out, _ = run(capsys, "demo", "--out", tmp_path, "--threads", 1, "--json")
    assert len(json.loads(out)["sentences"]) == 3


def test_make_demo_calls_what_exists_and_its_last_lines_do_what_they_say(tmp_path):
    root = Path(__file__).parents[2]
    makefile = (root / "Makefile").read_text()
    [rule] = re.findall(r"^demo: .*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert [line.split() for line in rule.splitlines()] == [["$(BIN)/blockxmc", "demo"]]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert project["scripts"]["blockxmc"] == "blockxmc.cli:main"
    [extras] = re.findall(r"^\$\(VENV\)/demo\.stamp:.*\n(?:\t.*\n)*?\t.*-e '\.\[(.*)\]'", makefile, re.MULTILINE)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    lines = YOUR_OWN_DATA.format(program=f"{shlex.quote(sys.executable)} -m blockxmc").rstrip().splitlines()[-3:]
    pasted = "set -e\n" + "\n".join(lines)
    done = subprocess.run(pasted, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "Cats" in json.loads(done.stdout.splitlines()[-1])["labels"][:2]


def test_the_bundled_rows_can_be_had_as_csv(capsys, tmp_path):
    code, out, _ = run(capsys, "demo", "--data", tmp_path / "data")
    assert code == 0
    assert "15,711 rows" in out
    written = read_corpus(tmp_path / "data" / "test.csv")
    assert written == load_demo_texts()[1]
    assert run(capsys, "demo", "--data", tmp_path / "data")[0] == 0  # the same rows may be written again
    (tmp_path / "data" / "test.csv").write_text("text,labels\nmine,a\n")
    code, _, err = run(capsys, "demo", "--data", tmp_path / "data")
    assert code == 2
    assert "holds other rows" in err
    assert (tmp_path / "data" / "test.csv").read_text() == "text,labels\nmine,a\n"
