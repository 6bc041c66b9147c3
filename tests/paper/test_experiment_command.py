import json

import pytest
from cli_parts import run
from experiment_parts import Tuner, write_folder


def test_a_table_as_json_and_as_text(capsys, tmp_path, monkeypatch):
    Tuner().install(monkeypatch)
    folder, out = write_folder(tmp_path), tmp_path / "out"
    options = ("--bases", "dismec", "--folds", 2, "--tolerance", 100, "--threads", 1, "--max-test-rows", 20)
    code, text, err = run(capsys, "experiment", "table-recall", folder, "--out", out, *options)
    assert (code, err) == (0, "")
    assert text.endswith(f"Report: {out / 'report.html'}\n")
    code, text, _ = run(capsys, "experiment", "table-recall", folder, "--out", out, *options, "--json")
    result = json.loads(text)
    assert code == 0
    assert result["cells"]["tiny/full/dismec"]["rows"] == 20
    assert result["settings"]["tolerance"] == 100
    assert result["failed"] == {}
    assert "20.00†" not in (out / "table-recall.csv").read_text()
    assert "†" in (out / "table-recall.md").read_text()


def test_failed_cells_are_named(capsys, tmp_path):
    folder = write_folder(tmp_path)
    code, text, _ = run(
        capsys,
        "experiment",
        "table-precision",
        folder,
        "--out",
        tmp_path / "out",
        "--bases",
        "dismec",
        "--blocks",
        "none",
    )
    assert code == 0
    assert "tiny/tune/dismec failed: " in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("table-nothing", "FOLDER"), "unknown experiment 'table-nothing': choose one of verdicts, table-data"),
        (("table-data", "MISSING"), "not a folder"),
        (("table-data", "EMPTY"), "empty"),
        (("table-data", "FOLDER", "--bases", "svm"), "--bases must name some of dismec"),
        (("table-data", "FOLDER", "--bases", ","), "--bases must name some of dismec"),
        (("table-data", "FOLDER", "--max-train-rows", "tiny"), "--max-train-rows wants NAME=N"),
        (("table-data", "FOLDER", "--propensity", "0.5"), "--propensity takes two numbers"),
        (("table-data",), "give at least one DATA_DIR"),
        (("all", "--check"), "not a folder; --check looks"),
    ],
)
def test_bad_input_is_one_line_and_code_2(capsys, tmp_path, arguments, message):
    (tmp_path / "empty").mkdir()
    places = {"FOLDER": write_folder(tmp_path), "MISSING": tmp_path / "missing", "EMPTY": tmp_path / "empty"}
    code, out, err = run(
        capsys, "experiment", *(places.get(part, part) for part in arguments), "--out", tmp_path / "out"
    )
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert len(err.splitlines()) == 1


def test_cells_first_and_pages_later(capsys, tmp_path):
    folder, out = write_folder(tmp_path), tmp_path / "out"
    code, text, err = run(capsys, "experiment", "table-data", folder, "--out", out, "--cells-only", "--verbose")
    assert code == 0
    assert "tiny/data: " in err
    assert text.endswith(f"Cells: {out / 'cells'}\n")
    assert not (out / "report.md").exists()
    assert run(capsys, "experiment", "table-data", folder, "--out", out)[0] == 0
    code, text, _ = run(capsys, "experiment", "all", "--out", out, "--check")
    assert code == 0
    assert "table-data: fresh" in text
    page = out / "table-data.json"
    page.write_text(page.read_text().replace('"tiny/data": "', '"tiny/data": "0'))
    code, text, _ = run(capsys, "experiment", "all", "--out", out, "--check", "--json")
    assert json.loads(text)["stale"] == {"table-data": ["tiny/data"]}
