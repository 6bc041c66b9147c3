import json

import pytest
from helpers import blocky

from blockxmc.cli import main
from blockxmc.data import write_xc
from blockxmc.tuning import BudgetResult, TuningResult


def run(capsys, *args):
    """Exit code, stdout and stderr of a command."""
    with pytest.raises(SystemExit) as caught:
        main([str(arg) for arg in args])
    out, err = capsys.readouterr()
    return caught.value.code or 0, out, err


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    path = tmp_path_factory.mktemp("tune") / "train.txt"
    write_xc(path, *blocky(n=240))
    return path


NB = ("--base", "naive-bayes", "--blocks", "3", "--threads", "1")


def test_tolerance_as_table_and_json(capsys, train, tmp_path):
    code, out, _ = run(capsys, "tune", train, *NB, "--folds", 3, "--tolerance", 40, "--cache", tmp_path / "kept")
    assert code == 0
    for word in ("no blocks", "in range", "speed-driven", "accuracy-driven", "trainings"):
        assert word in out
    code, out, _ = run(
        capsys, "tune", train, *NB, "--folds", 3, "--tolerance", 40, "--cache", tmp_path / "kept", "--json"
    )
    found = json.loads(out)
    assert "within 40 points" in found.pop("explanation")
    result = TuningResult.from_dict(found)
    assert result.saving["reused_from_cache"] == 3 * 13
    assert result.n_blocks == 3


def test_given_lambdas_and_figure(capsys, train, tmp_path):
    pytest.importorskip("matplotlib")
    figure = tmp_path / "lambda.png"
    code, out, _ = run(capsys, "tune", train, *NB, "--folds", 2, "--lams", "0,0.5,2", "--plot", figure, "--json")
    assert code == 0
    assert json.loads(out)["lams"] == [0.0, 0.5, 2.0]
    assert figure.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("request_", [("--budget", 12), ("--recall", 0.8), ("--latency-us", 5000)])
def test_budgets(capsys, train, request_):
    code, out, _ = run(capsys, "tune", train, *NB, *request_, "--json")
    found = json.loads(out)
    assert code == 0
    assert found.pop("explanation")
    assert BudgetResult.from_dict(found).limit == request_[1]
    code, out, _ = run(capsys, "tune", train, *NB, *request_)
    assert "chosen" in out
    assert ("µs/row" in out) == (request_[0] == "--latency-us")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--budget", "1", "--blocks", "3"), "no setting has at most 1 products per row: the nearest has"),
        (("--budget", "10", "--recall", "0.5"), "exactly one of"),
        (("--recall", "2"), "between 0 and 1"),
        (("--budget", "10", "--lams", "1"), "--lams and --plot belong"),
        (("--lams", "1,many"), "--lams must be numbers"),
        (("--blocks", "some"), "--blocks must be"),
        (("--base", "svm"), "--base must be one of"),
        (("--folds", "1"), "folds must be at least 2"),
        (("--tolerance", "-1"), "tolerance must be"),
    ],
)
def test_errors_are_one_line_and_code_two(capsys, train, options, message):
    code, out, err = run(capsys, "tune", train, *NB, *options)
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


def test_missing_file(capsys, tmp_path):
    code, _, err = run(capsys, "tune", tmp_path / "nothing.txt")
    assert code == 2
    assert "nothing.txt" in err


def test_cache_that_is_a_file(capsys, train):
    code, _, err = run(capsys, "tune", train, *NB, "--folds", 2, "--cache", train)
    assert code == 2
    assert "must be a folder" in err
