"""The best model within limits."""

import json
import re

import numpy as np
import pytest
from helpers import blocky

from blockxmc import DiSMEC, NaiveBayes, Partitioner, PDSparse
from blockxmc.errors import BlockXMCError
from blockxmc.tuning import KnobGrid, Limits, Point, TrialOptions, tune_within, within
from blockxmc.tuning.problem import Problem
from blockxmc.tuning.reach import _reaches

PER_BLOCK = KnobGrid("per-block")
ONE_THREAD = TrialOptions(n_jobs=1)


@pytest.fixture(scope="module")
def data():
    return blocky(n=400)


def point(route, prune, precision, products, latency, size, recall=0.9):
    measured = {"latency_us": latency, "size_mb": size, "prune": prune, "weights": "shared", "route": route}
    return Point(4, None, (), (precision,), products - 3, products, recall, **measured)


TABLE = [
    point(1, 0.1, 60.0, 50, 10.0, 8.0, 0.7),
    point(4, 0.1, 64.0, 200, 30.0, 8.0, 0.9),
    point(1, 0.3, 58.0, 50, 6.0, 2.0, 0.7),
    point(4, 0.3, 63.0, 200, 20.0, 2.0, 0.9),
]


@pytest.mark.parametrize(
    ("limits", "tolerance", "expected"),
    [
        ({"products": 100}, 2.0, 0),
        ({"latency_us": 25}, 2.0, 3),
        ({"latency_us": 9}, 2.0, 2),
        ({"size_mb": 4}, 2.0, 3),
        ({"size_mb": 4, "products": 100}, 2.0, 2),
        ({"recall": 0.8}, 2.0, 1),
        ({"recall": 0.5}, 2.0, 0),
        ({"recall": 0.8, "latency_us": 25}, 2.0, 3),
        ({}, 2.0, 1),
        ({}, 5.0, 0),
    ],
)
def test_the_best_of_what_keeps_to_the_limits(limits, tolerance, expected):
    assert within._choose(TABLE, limits, tolerance) == TABLE[expected]


def test_a_limit_that_nothing_keeps_to_names_the_nearest():
    with pytest.raises(BlockXMCError, match=r"at most 1 megabytes of weights: the nearest has 2 .*pruned at 0.3"):
        within._choose(TABLE, {"size_mb": 1}, 2.0)


@pytest.mark.parametrize("limit", [9, 14, 25])
def test_products_stay_within_the_budget_and_the_best_is_taken(data, limit):
    result = tune_within(*data, NaiveBayes(), limits=Limits(products=limit), options=ONE_THREAD)
    inside = [point for point in result.points if point.products <= limit]
    assert result.chosen in inside
    assert result.chosen.mean == max(point.mean for point in inside)
    assert {point.weights for point in result.points} == {"per-block", "global", "shared", "no blocks"}
    assert f"at most {limit} products" in result.explain()
    assert json.loads(json.dumps(result.to_dict()))["chosen"]["products"] == result.chosen.products


def test_a_recall_is_met_at_the_fewest_products(data):
    cheap, dear = (
        tune_within(*data, NaiveBayes(), limits=Limits(recall=floor), grid=PER_BLOCK, options=ONE_THREAD)
        for floor in (0.6, 0.95)
    )
    assert cheap.chosen.recall >= 0.6
    assert dear.chosen.recall >= 0.95
    assert cheap.chosen.products < dear.chosen.products


def test_a_coupled_base_and_microseconds(data):
    limits = Limits(latency_us=1e6)
    result = tune_within(*data, PDSparse(max_iter=5), limits=limits, n_blocks=3, options=ONE_THREAD)
    assert 0 < result.chosen.latency_us <= 1e6
    assert "shared" not in {point.weights for point in result.points}


def test_what_is_expected_of_a_setting_is_what_its_model_does(data):
    X, Y = data
    split = Problem.of(X, Y, NaiveBayes(), ONE_THREAD).split()
    for reach in _reaches(split, 4, 2):
        for route in (1, 2):
            lam = reach.largest(route, 12.0)
            if lam is None:
                continue
            pair = reach.pair if lam == reach.pair.lam else reach.pair._replace(cut=lam)
            found = split.measured(split.served(pair, "global", route))
            assert reach.found(lam, route) == pytest.approx((found["products"], found["recall"]))
            assert found["products"] <= 12.0


def test_shared_weights_are_those_of_the_classifier(data):
    from blockxmc import BlockwiseClassifier

    grid = KnobGrid("shared", routes=[1, 2], prunes=[0.05, 0.2])
    how = {"n_blocks": 4, "grid": grid, "options": ONE_THREAD}
    result = tune_within(*data, DiSMEC(tol=0.1), **how)
    assert [(one.route, one.prune) for one in result.points] == [(1, 0.05), (2, 0.05), (1, 0.2), (2, 0.2)]
    split = Problem.of(*data, DiSMEC(tol=0.1), ONE_THREAD).split()
    model = BlockwiseClassifier(DiSMEC(tol=0.1, prune=0.2), n_blocks=4, route=2, n_jobs=1).fit(split.X, split.Y)
    assert model.cost_on(split.X_held_out)["products"] == pytest.approx(result.points[-1].products)
    assert max(one.mean for one in result.points) - result.chosen.mean <= 2.0


@pytest.mark.parametrize(
    ("limits", "options", "message"),
    [
        ({"products": -1}, {}, "positive number"),
        ({"recall": 1.5}, {}, "between 0 and 1"),
        ({"products": 10}, {"options": TrialOptions(work="somewhere")}, "keeps no finished work"),
        ({"products": 10}, {"grid": KnobGrid(prunes=[0.1])}, "has no parameter prune"),
    ],
)
def test_bad_input_is_one_line(data, limits, options, message):
    with pytest.raises(BlockXMCError, match=message):
        tune_within(*data, NaiveBayes(), limits=Limits(**limits), **options)


@pytest.mark.parametrize(
    "grid", [{"weights": "many"}, {"routes": [0]}, {"routes": [1.5]}, {"routes": []}, {"weight_bits": [12]}]
)
def test_settings_that_make_no_sense(grid):
    with pytest.raises(BlockXMCError, match=r"(routes|weights|weight_bits) must be"):
        KnobGrid(**grid)


def test_given_blocks_are_kept(data):
    blocks = Partitioner(n_blocks=3).fit(*data).assignment_
    options = TrialOptions(n_jobs=1, partitioner=Partitioner(init=blocks))
    result = tune_within(*data, NaiveBayes(), limits=Limits(products=20), grid=PER_BLOCK, n_blocks=3, options=options)
    assert result.chosen.n_blocks == 3
    assert np.isfinite(result.chosen.mean)


def test_the_first_of_several_trainings_says_how_long_all_others_take(data, caplog):
    caplog.set_level("INFO", "blockxmc")
    grid = KnobGrid("shared", routes=[1], prunes=[0.1, 0.2, 0.3])
    tune_within(*data, grid=grid, n_blocks=3, options=TrialOptions(n_jobs=1, verbose=1))
    (line,) = [line for line in caplog.messages if "the first trial" in line]
    assert re.fullmatch(r"the first trial took .* s; 2 are left: about .* s if they take as long", line)
