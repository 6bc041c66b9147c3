import json

import numpy as np
import pytest

import blockxmc.data
from blockxmc.cli import main


@pytest.fixture
def train(tmp_path):
    """40 rows in two groups that share nothing."""
    rng = np.random.default_rng(0)
    lines = ["40 8 6"]
    for i in range(40):
        g = i % 2
        labels = sorted({3 * g + int(j) for j in rng.integers(0, 3, 2)})
        features = sorted({4 * g + int(f) for f in rng.integers(0, 4, 3)})
        lines.append(",".join(map(str, labels)) + " " + " ".join(f"{f}:1.5" for f in features))
    path = tmp_path / "train.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def run(*args):
    """Exit code of a command."""
    with pytest.raises(SystemExit) as stop:
        main(["partition", *map(str, args)])
    return stop.value.code or 0


def test_writes_assignment_clusters_and_summary(train, tmp_path, capsys):
    out = tmp_path / "deep" / "out"
    assert run(train, "--out", out, "--blocks", 2, "--lam", 0.1, "--threads", 1, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((out / "summary.json").read_text())
    assignment = np.loadtxt(out / "assignment.txt", dtype=int)
    assert (assignment == assignment[:2][np.arange(40) % 2]).all()
    clusters = [list(map(int, line.split())) for line in (out / "label_clusters.txt").read_text().splitlines()]
    assert sorted(clusters) == [[0, 1, 2], [3, 4, 5]]
    assert printed["captured"] == 1
    assert {path.name for path in out.iterdir()} == {"assignment.txt", "label_clusters.txt", "summary.json"}
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_export_gives_each_block_as_xc(train, tmp_path):
    out = tmp_path / "out"
    assert run(train, "--out", out, "--blocks", 2, "--lam", 0.1, "--export") == 0
    whole = blockxmc.data.read_dataset(train)
    assignment = np.loadtxt(out / "assignment.txt", dtype=int)
    for block in (0, 1):
        part = blockxmc.data.read_dataset(out / f"block-{block}.txt")
        labels = np.loadtxt(out / f"block-{block}.labels.txt", dtype=int)
        rows = np.flatnonzero(assignment == block)
        np.testing.assert_array_equal(part.X.toarray(), whole.X[rows].toarray())
        np.testing.assert_array_equal(part.Y.toarray(), whole.Y[rows][:, labels].toarray())


def test_replaces_its_own_folder_only(train, tmp_path, capsys):
    out = tmp_path / "out"
    assert run(train, "--out", out, "--blocks", 2, "--export") == 0
    assert run(train, "--out", out, "--blocks", 1) == 0
    assert set((out / "assignment.txt").read_text().split()) == {"0"}
    assert not (out / "block-0.txt").exists()
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("precious")
    assert run(train, "--out", foreign) == 2
    assert run(train, "--out", train) == 2
    assert (foreign / "thesis.tex").read_text() == "precious"
    assert "not empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--blocks", "41"), "more than the 40 rows"),
        (("--blocks", "some"), "n_blocks must be"),
        (("--lam", "-1"), "lam must be"),
        (("--lam", "nan"), "lam must be"),
        (("--objective", "x"), "objective must be"),
        (("--init", "x"), "init must be"),
    ],
)
def test_bad_options_are_one_line_and_leave_nothing(train, tmp_path, capsys, option, message):
    assert run(train, "--out", tmp_path / "out", *option) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert [path.name for path in tmp_path.iterdir()] == ["train.txt"]
