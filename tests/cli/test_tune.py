import json
import shlex

import pytest
from cli_parts import run
from helpers import blocky
from numpy.testing import assert_array_equal

from blockxmc import NaiveBayes, Partitioner, load
from blockxmc.data import read_xc, write_xc
from blockxmc.tuning import TuningResult, fit_tuned


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    path = tmp_path_factory.mktemp("tune") / "train.txt"
    write_xc(path, *blocky(n=240))
    return path


NB = ("--base", "naive-bayes", "--blocks", "3", "--threads", "1")
APART = ("--weights", "per-block")


def test_tolerance_as_table_and_json(capsys, train, tmp_path):
    code, out, _ = run(capsys, "tune", train, *NB, "--folds", 3, "--tolerance", 40, "--work", tmp_path / "kept")
    assert code == 0
    for word in ("no blocks", "feasible", "By fold: 1 ", "speed-driven", "accuracy-driven", "trainings"):
        assert word in out
    assert "the 10 best of 12 settings; --json has all" in out
    code, out, _ = run(
        capsys, "tune", train, *NB, "--folds", 3, "--tolerance", 40, "--work", tmp_path / "kept", "--json"
    )
    found = json.loads(out)
    assert "within 40 points" in found.pop("explanation")
    assert set(found.pop("train")) == {"speed-driven", "accuracy-driven"}
    result = TuningResult.from_dict(found)
    assert result.trainings == 3 * 13
    assert result.seconds > 0
    assert result.n_blocks == 3


def test_given_lambdas_and_figure(capsys, train, tmp_path):
    pytest.importorskip("matplotlib")
    figure = tmp_path / "lambda.png"
    code, out, _ = run(capsys, "tune", train, *NB, "--folds", 2, "--lams", "0,0.5,2", "--plot", figure, "--json")
    assert code == 0
    assert json.loads(out)["lams"] == [0.0, 0.5, 2.0]
    assert figure.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("request_", [("--budget", 12), ("--recall", 0.8), ("--latency-us", 5000)])
def test_budgets(capsys, train, tmp_path, request_):
    request_ = (*request_, "--weights", "per-block")
    code, out, _ = run(capsys, "tune", train, *NB, *request_, "--json")
    found = json.loads(out)
    assert code == 0
    assert found.pop("explanation")
    words = shlex.split(found.pop("train"))
    assert words[:2] == ["blockxmc", "train"]
    assert next(iter(found["limits"].values())) == request_[1]
    words[-1] = tmp_path / "model"
    assert run(capsys, *words[1:])[0] == 0
    point, trained = found["chosen"], load(tmp_path / "model")
    assert (trained.weights, trained.route) == (point["weights"], point["route"])
    assert trained.partition_.lam_ == point["lam"]
    assert trained.cost_["products"] == pytest.approx(point["products"], rel=0.25)
    code, out, _ = run(capsys, "tune", train, *NB, *request_)
    assert "chosen" in out


def test_knobs_and_the_command_they_end_in(capsys, train, tmp_path):
    table = ("--blocks", 3, "--threads", 1, "--route", "1,2", "--prune", "0.1,0.3")
    code, out, _ = run(capsys, "tune", train, *table, "--weights", "shared")
    assert code == 0
    for word in ("route", "pruned", "µs/row single", "MB", "chosen", "shared weights"):
        assert word in out
    code, out, _ = run(capsys, "tune", train, *table, "--budget", 1000, "--json")
    found = json.loads(out)
    assert len(found["points"]) == 4
    best = max(found["points"], key=lambda knobs: sum(knobs["precision"]))
    assert sum(found["chosen"]["precision"]) == sum(best["precision"])
    words = shlex.split(found["train"])
    assert words[:2] == ["blockxmc", "train"]
    assert f"base__prune={found['chosen']['prune']:g}" in words
    words[-1] = tmp_path / "model"
    assert run(capsys, *words[1:])[0] == 0
    assert load(tmp_path / "model").model_.route == found["chosen"]["route"]


def test_weights_of_8_bits_from_the_table_to_the_model(capsys, train, tmp_path):
    table = ("--blocks", 3, "--threads", 1, "--route", 2, "--prune", "0.1", "--weights", "shared")
    code, out, _ = run(capsys, "tune", train, *table, "--bits", "8", "--json")
    assert code == 0
    words = shlex.split(json.loads(out)["train"])
    assert "weight_bits=8" in words
    words[-1] = tmp_path / "model"
    assert run(capsys, *words[1:])[0] == 0
    assert load(tmp_path / "model").model_.scorer.bits == 8
    code, out, err = run(capsys, "tune", train, *table, "--bits", "8,12")
    assert code == 2
    assert err.strip() == "error: weight_bits must be some of 32, 16, 8, got [8, 12]"


@pytest.mark.parametrize("letter", [False, True])
def test_the_command_trains_the_model_that_was_tuned(capsys, train, tmp_path, letter):
    options = ("--base", "naive-bayes", "--threads", "1", "--tolerance", 30, "--folds", 2, "--seed", 3)
    code, out, _ = run(capsys, "tune", train, *options, *(["--letter"] * letter), "--json")
    assert code == 0
    found = json.loads(out)
    lines = found.pop("train")
    found.pop("explanation")
    data, how = read_xc(train), {"base": NaiveBayes(), "partitioner": Partitioner(letter=letter)}
    for name, choice in (("speed-driven", "speed"), ("accuracy-driven", "accuracy")):
        words = shlex.split(lines[name])
        words[-1] = tmp_path / name
        assert run(capsys, *words[1:])[0] == 0
        trained, tuned = (
            load(tmp_path / name),
            fit_tuned(TuningResult.from_dict(found), data.X, data.Y, choice, **how),
        )
        assert trained.weights == "per-block"
        assert_array_equal(trained.partition_.assignment_, tuned.partition_.assignment_)
        for one, other in zip(trained.predict_topk(data.X, 5), tuned.predict_topk(data.X, 5), strict=True):
            assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--budget", "1", *APART), "--budget 1: no setting has at most 1 products per row: the nearest has"),
        (("--route", "2"), "--route belongs to shared weights and to limits"),
        (("--budget", "10", "--letter"), "--letter belongs to tuning lambda"),
        (("--budget", "10", "--work", "kept"), "--work belongs to tuning lambda"),
        (("--size-mb", "1e-9"), "--size-mb 1e-09: no setting has at most 1e-09 megabytes of weights: the nearest has"),
        (("--recall", "2"), "--recall must be a share between 0 and 1"),
        (("--budget", "-3"), "--budget must be a positive number"),
        (("--budget", "10", "--lams", "1"), "--lams belongs to"),
        (("--prune", "0.1"), "--prune belongs to shared weights"),
        (("--budget", "10", "--prune", "0.1"), "has no parameter prune"),
        (("--weights", "shared", "--base", "leml"), "--weights shared needs a one-vs-all base"),
        (("--weights", "some"), "--weights must be"),
        (("--weights", "global"), "--weights global is tuned within a limit"),
        (("--budget", "10", "--route", "1,two"), "--route must be numbers"),
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


def test_limits_are_searched_over_all_ways_to_train(capsys, train, tmp_path):
    code, out, _ = run(capsys, "tune", train, "--threads", 1, "--recall", 0.7, "--json")
    assert code == 0
    found = json.loads(out)
    able = [point["products"] for point in found["points"] if point["recall"] >= 0.7]
    assert found["chosen"]["products"] == min(able)
    assert {point["weights"] for point in found["points"]} == {"per-block", "global", "shared", "no blocks"}
    words = shlex.split(found["train"])
    words[-1] = tmp_path / "model"
    assert run(capsys, *words[1:])[0] == 0
    code, out, _ = run(capsys, "tune", train, "--threads", 1, "--budget", 60)
    assert code == 0
    assert "settings tried" in out
    assert "all labels scored" in out


def test_where_nothing_keeps_to_a_limit_the_nearest_is_shown(capsys, train):
    code, _, err = run(capsys, "tune", train, "--threads", 1, "--budget", 0.5)
    assert code == 2
    assert "--budget 0.5: no setting has at most 0.5 products per row: the nearest has" in err


def test_missing_file(capsys, tmp_path):
    code, _, err = run(capsys, "tune", tmp_path / "nothing.txt")
    assert code == 2
    assert "nothing.txt" in err


def test_work_that_is_a_file(capsys, train):
    code, _, err = run(capsys, "tune", train, *NB, "--folds", 2, "--work", train)
    assert code == 2
    assert "is a file: finished work is kept in a folder" in err


def test_a_file_without_rows_is_refused(tmp_path, capsys):
    empty = tmp_path / "empty.txt"
    empty.write_text("0 0 0\n")
    code, _, err = run(capsys, "tune", empty)
    assert code == 2
    assert "no rows" in err
    assert err.count("\n") == 1
