import numpy as np
import pytest
from helpers import blocky
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.base import clone

from blockxmc import BlockwiseClassifier, DiSMEC, NaiveBayes, PPDSparse
from blockxmc._core.progress import Reporter
from blockxmc.errors import BlockXMCError
from blockxmc.learners import dismec
from blockxmc.learners._learner import Context
from blockxmc.tuning import KnobGrid, Knobs, Limits, TrialOptions, knobs, tune_knobs
from blockxmc.tuning.knobs import Remembered, Trainings

ONE_THREAD = TrialOptions(n_jobs=1)


def knob(route, prune, precision, products, latency, size, recall=0.9):
    return Knobs(route, prune, (precision,), products - 3, products, recall, 1.0, latency, size)


TABLE = [
    knob(1, 0.1, 60.0, 50, 10.0, 8.0, 0.7),
    knob(4, 0.1, 64.0, 200, 30.0, 8.0, 0.9),
    knob(1, 0.3, 58.0, 50, 6.0, 2.0, 0.7),
    knob(4, 0.3, 63.0, 200, 20.0, 2.0, 0.9),
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
    assert knobs._choose(TABLE, limits, tolerance) == TABLE[expected]


def test_a_limit_that_nothing_keeps_to_names_the_nearest():
    with pytest.raises(
        BlockXMCError, match=r"at most 1 megabytes of weights: the nearest has 2 .*route 1, pruned at 0.3"
    ):
        knobs._choose(TABLE, {"size_mb": 1}, 2.0)


def test_every_setting_is_the_model_fitted_and_served_so():
    X, Y = blocky(n=400)
    result = tune_knobs(
        X, Y, DiSMEC(tol=0.1), n_blocks=4, grid=KnobGrid(routes=[1, 2], prunes=[0.05, 0.2]), options=ONE_THREAD
    )
    order = np.random.default_rng(0).permutation(400)
    held_out, rest = np.sort(order[:80]), np.sort(order[80:])
    for setting in result.settings:
        model = BlockwiseClassifier(DiSMEC(prune=setting.prune, tol=0.1), n_blocks=4, weights="shared", n_jobs=1)
        model.fit(X[rest], Y[rest])
        served = knobs.replace(model.model_, route=setting.route)
        labels, _ = served.topk(sparse.csr_array(X[held_out]), 5, 1)
        right = Y[held_out].toarray()[np.arange(held_out.size), labels[:, 0]]
        assert setting.precision[0] == pytest.approx(100 * right.mean())
        parts = (served.scorer, served.router, served.neighbors)
        assert setting.size_mb * 1e6 == pytest.approx(sum(part.nbytes for part in parts if part is not None))
    assert result.settings[2].size_mb < result.settings[0].size_mb


def test_labels_are_trained_once(monkeypatch):
    X, Y = blocky(n=300)
    calls = []
    train = dismec.train_one_vs_all
    monkeypatch.setattr(dismec, "train_one_vs_all", lambda *args, **kw: calls.append(1) or train(*args, **kw))
    tune_knobs(X, Y, n_blocks=3, grid=KnobGrid(routes=[1, 2], prunes=[0.1]), options=ONE_THREAD)
    once = len(calls)
    tune_knobs(X, Y, n_blocks=3, grid=KnobGrid(routes=[1, 2, 3], prunes=[0.1, 0.2, 0.3]), options=ONE_THREAD)
    assert len(calls) == 2 * once


def test_a_base_without_pruning_has_routes_only():
    X, Y = blocky(n=300)
    result = tune_knobs(X, Y, NaiveBayes(), n_blocks=3, options=ONE_THREAD)
    assert [(setting.route, setting.prune) for setting in result.settings] == [
        (1, None),
        (2, None),
        (0.5, None),
        (0.7, None),
    ]
    assert "pruned" not in result.explain()
    with pytest.raises(BlockXMCError, match="NaiveBayes has no parameter prune"):
        tune_knobs(X, Y, NaiveBayes(), n_blocks=3, grid=KnobGrid(prunes=[0.1]))


@pytest.mark.parametrize(
    ("base", "times"),
    [(DiSMEC(), 1), (DiSMEC(unit_rows=True), 8), (DiSMEC(unit_rows=True, bias=0.25), 0.125), (PPDSparse(bias=0.5), 1)],
)
def test_remembered_weights_are_those_of_a_harder_pruned_training(base, times):
    X, Y = blocky(n=200)
    X, pruned = X * np.float32(times), set()
    trainings = Trainings()
    with Reporter().phase("") as silent:
        for level in (0.02, 0.1, 0.4, 1.0):
            trainings.rewind()
            base.set_params(prune=0.02)
            found = Remembered(base, level, trainings)._train(X, Y, Context(1, 0, silent))
            wanted = clone(base).set_params(prune=level)._train(X, Y, Context(1, 0, silent))
            assert_array_equal(found.coef.toarray(), wanted.coef.toarray())
            assert_array_equal(found.bias, wanted.bias)
            pruned.add(np.count_nonzero(found.bias))
    assert len(pruned) > 1 or isinstance(base, PPDSparse)  # levels at which biases are dropped, where they are at all


@pytest.mark.parametrize(
    ("limits", "grid", "message"),
    [
        ({}, {"routes": [0]}, "routes must be"),
        ({}, {"prunes": [-1.0]}, "levels of pruning"),
        ({"recall": 1.5}, {}, "recall must be a share"),
        ({"size_mb": 0}, {}, "size_mb must be a positive number"),
    ],
)
def test_bad_input_is_one_line(limits, grid, message):
    X, Y = blocky(n=60)
    with pytest.raises(BlockXMCError, match=message):
        tune_knobs(X, Y, n_blocks=2, limits=Limits(**limits), grid=KnobGrid(**grid))


def test_a_folder_for_work_is_refused(tmp_path):
    X, Y = blocky(n=60)
    with pytest.raises(BlockXMCError, match="leave work out of the options"):
        tune_knobs(X, Y, n_blocks=2, options=TrialOptions(work=tmp_path))


def test_bits_of_a_weight_are_a_knob():
    X, Y = blocky(n=300)
    table = tune_knobs(
        X, Y, n_blocks=3, grid=KnobGrid(routes=[2], prunes=[0.1], weight_bits=[32, 8, 16]), options=ONE_THREAD
    ).settings
    assert [setting.weight_bits for setting in table] == [8, 16, 32]
    assert table[0].size_mb < table[1].size_mb < table[2].size_mb
    assert table[0].products == table[1].products == table[2].products
    assert "32 bits" in table[2].describe()
    assert "8 bits" in table[0].describe()
    for wrong in ([12], [], [16, 0]):
        with pytest.raises(BlockXMCError, match="weight_bits must be some of 32, 16, 8"):
            tune_knobs(X, Y, n_blocks=3, grid=KnobGrid(routes=[2], prunes=[0.1], weight_bits=wrong), options=ONE_THREAD)


@pytest.mark.parametrize("routes", [[], [0], [1.5], [-0.5], [float("inf")], [float("nan")]])
def test_routes_that_make_no_sense(routes):
    with pytest.raises(BlockXMCError, match="routes must be"):
        tune_knobs(*blocky(n=60), n_blocks=2, grid=KnobGrid(routes=routes), options=ONE_THREAD)


def test_neighbors_are_a_knob():
    X, Y = blocky(n=400, n_labels=20)
    table = tune_knobs(
        X, Y, n_blocks=3, grid=KnobGrid(routes=[2], prunes=[0.1], n_neighbors=[5, 0]), options=ONE_THREAD
    ).settings
    without, with_five = table
    assert (without.n_neighbors, with_five.n_neighbors) == (0, 5)
    assert without.size_mb < with_five.size_mb
    assert without.products < with_five.products
    assert "5 neighbors" in with_five.describe()
    with pytest.raises(BlockXMCError, match="n_neighbors must be"):
        tune_knobs(X, Y, n_blocks=3, grid=KnobGrid(routes=[2], prunes=[0.1], n_neighbors=[-1]), options=ONE_THREAD)
