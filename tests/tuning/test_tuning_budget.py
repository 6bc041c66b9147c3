import json

import numpy as np
import pytest
from helpers import blocky
from tiny_learner import TinyRidge

from blockxmc import NaiveBayes, PDSparse
from blockxmc.errors import BlockXMCError
from blockxmc.training.trials import split as evaluation
from blockxmc.tuning import BudgetResult, Limits, TrialOptions, fit_tuned, tune_budget
from blockxmc.tuning.problem import Problem
from blockxmc.tuning.scout import Scout, _first


@pytest.fixture(scope="module")
def data():
    return blocky(n=500, n_labels=62, n_features=90, n_blocks=5)


@pytest.mark.parametrize("limit", [9, 14, 25])
def test_products_stay_within_the_budget_and_the_best_is_taken(data, limit):
    result = tune_budget(*data, TinyRidge(), limits=Limits(products=limit))
    inside = [point for point in result.points if point.products <= limit]
    assert result.chosen in inside
    assert np.mean(result.chosen.precision) == max(np.mean(point.precision) for point in inside)
    assert {point.weights for point in result.points} == {"per-block", "global"}
    assert len({point.route for point in result.points}) > 1
    assert str(limit) in result.explain()


def test_a_number_of_blocks_is_tried_with_several_assignments(data):
    X, Y = data
    first = Scout(Problem.of(X, Y, NaiveBayes()).split(), 5, X.shape[0])
    other = first.assigned_for(0.5)
    assert other.blocks.partition.lam_ > first.blocks.partition.lam_
    assert other.n_blocks == first.n_blocks
    assert first.assigned_for(1.0) is None  # no larger lambda: it would be the same assignment
    result = tune_budget(X, Y, TinyRidge(), limits=Limits(products=9), n_blocks=5)
    assert len({point.assigned_at for point in result.points}) > 1


def test_more_products_do_not_hurt(data):
    best = [
        np.mean(tune_budget(*data, TinyRidge(), limits=Limits(products=limit)).chosen.precision)
        for limit in (8, 16, 40)
    ]
    assert best[0] <= best[1] + 0.5
    assert best[1] <= best[2] + 0.5


def test_recall_floor_is_met_at_the_fewest_products(data):
    cheap, dear = (tune_budget(*data, NaiveBayes(), limits=Limits(recall=floor)) for floor in (0.6, 0.95))
    assert cheap.chosen.recall >= 0.6
    assert dear.chosen.recall >= 0.95
    assert cheap.chosen.products < dear.chosen.products
    for result in (cheap, dear):
        meeting = [point for point in result.points if point.recall >= result.limit]
        assert result.chosen.products == min(point.products for point in meeting)


def test_latency_is_calibrated_and_measured_here(data):
    result = tune_budget(*data, NaiveBayes(), limits=Limits(latency_us=1e4))
    assert set(result.calibration) == {"a", "b", "timed_settings"}
    assert result.calibration["b"] > 0
    assert all(point.latency_us > 0 for point in result.points)
    assert result.chosen.latency_us <= 1e4
    assert "microseconds" in result.explain()


@pytest.mark.parametrize(
    ("request_", "unit"),
    [
        ({"products": 0.5}, "products per row"),
        ({"latency_us": 1e-3}, "microseconds per row"),
        ({"recall": 1.0}, "candidate recall"),
    ],
)
def test_an_impossible_request_names_the_nearest(data, request_, unit):
    blocks = {"n_blocks": 5, "routes": [1]}
    with pytest.raises(
        BlockXMCError, match=rf"no setting has at (most|least) .* {unit}: the nearest has [\d.]+ \(5 blocks"
    ):
        tune_budget(*data, NaiveBayes(), limits=Limits(**request_), **blocks)


def test_scouting_agrees_with_the_trained_model(data):
    result = tune_budget(*data, TinyRidge(), limits=Limits(products=14))
    problem = Problem.of(*data, TinyRidge())
    split, point = problem.split(), result.chosen
    scout = Scout(split, point.n_blocks, problem.n_rows)
    lam = point.lam * split.train_rows.size / problem.n_rows
    assert scout.products(lam, point.route) == pytest.approx(point.products)
    assert scout.recall(lam, point.route) == pytest.approx(point.recall)


def test_bisection_finds_the_edge():
    assert _first(lambda lam: lam >= 3.0, 0.1, 10.0) == pytest.approx(3.0, rel=1e-3)
    assert _first(lambda lam: lam >= 3.0, 0.1, 10.0, last_false=True) == pytest.approx(3.0, rel=1e-3)
    assert _first(lambda lam: True, 0.1, 10.0) == 0.1
    assert _first(lambda lam: False, 0.1, 10.0) is None


def test_few_trainings_and_a_new_kind_of_weights_is_one_line(data, monkeypatch):
    result = tune_budget(*data, TinyRidge(), limits=Limits(products=14))
    assert result.trainings <= 3  # per-block for two numbers of blocks, and one for all of the global ones
    named = []

    def like_global(split, layout):
        named.append(1)
        return evaluation.train_whole(split, layout)

    monkeypatch.setitem(evaluation.KINDS, "another", evaluation.Kind(like_global, lambda learner: False))
    result = tune_budget(*data, TinyRidge(), limits=Limits(products=14), weights=("another",))
    assert named
    assert {point.weights for point in result.points} == {"another"}


def test_coupled_base(data):
    result = tune_budget(*data, PDSparse(max_iter=5), limits=Limits(products=20), routes=(1, 2))
    assert result.chosen.products <= 20


def test_fit_and_json(data):
    result = tune_budget(*data, NaiveBayes(), limits=Limits(products=14))
    assert BudgetResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result
    model = fit_tuned(result, *data, base=NaiveBayes())
    point = result.chosen
    assert (model.weights, model.route) == (point.weights, point.route)
    assert model.partition_.lam_ == pytest.approx(point.lam)
    assert model.cost_["products"] == pytest.approx(point.products, rel=0.15)


def test_deterministic_and_resumed(data, tmp_path, monkeypatch):
    first = tune_budget(*data, NaiveBayes(), limits=Limits(products=14), options=TrialOptions(n_jobs=1))
    kept = tune_budget(*data, NaiveBayes(), limits=Limits(products=14), options=TrialOptions(n_jobs=2, work=tmp_path))
    assert [first.points, first.chosen] == [kept.points, kept.chosen]
    monkeypatch.setattr(evaluation, "train_blocks", None)  # would fail if anything were trained again
    assert (
        tune_budget(*data, NaiveBayes(), limits=Limits(products=14), options=TrialOptions(work=tmp_path)).points
        == first.points
    )


@pytest.mark.parametrize(
    ("limits", "options", "message"),
    [
        ({}, {}, "exactly one of"),
        ({"products": 10, "recall": 0.5}, {}, "exactly one of"),
        ({"size_mb": 10}, {}, "exactly one of products, latency_us, recall; got size_mb"),
        ({"products": -1}, {}, "positive number"),
        ({"recall": 1.5}, {}, "between 0 and 1"),
        ({"products": 10}, {"weights": ("many",)}, "weights must be among"),
        ({"products": 10}, {"routes": (0,)}, "routes must be"),
    ],
)
def test_bad_input_is_one_line(data, limits, options, message):
    with pytest.raises(BlockXMCError, match=message):
        tune_budget(*data, NaiveBayes(), limits=Limits(**limits), **options)
