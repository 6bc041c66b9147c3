import json
from dataclasses import replace

import numpy as np
import pytest
from helpers import blocky
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from tiny_learner import TinyRidge

from blockxmc import LEML, BlockwiseClassifier, DiSMEC, NaiveBayes, Partitioner, PDSparse, metrics
from blockxmc._core.progress import Reporter
from blockxmc.data import make_synthetic
from blockxmc.errors import BlockXMCError
from blockxmc.linear.scorers import pack_scorer
from blockxmc.model.routed import RoutedModel
from blockxmc.training.trials import moving, selection
from blockxmc.training.trials import split as evaluation
from blockxmc.training.trials.moving import MovingBlocks
from blockxmc.training.trials.split import FixedBlocks, Split, Task
from blockxmc.tuning import (
    BlockPlan,
    Limits,
    TrialOptions,
    TuningResult,
    fit_tuned,
    plan_blocks,
    quick_lambda,
    tune_budget,
    tune_knobs,
    tune_lambda,
)
from blockxmc.tuning.fold import COSTS
from blockxmc.tuning.result import Tried

LAMS = (0.1, 0.5, 1.5, 4.0, 12.0)


def small(n=240):
    return blocky(n=n)


# ---- choosing, on arrays ----
def test_feasible_needs_every_k_within_the_tolerance():
    base = [[60.0, 40.0], [50.0, 30.0]]
    precision = [[[60, 40], [58, 38], [57.9, 40]], [[55, 29], [48.5, 28.0], [50, 30]]]
    assert selection.feasible(base, precision, 2.0).tolist() == [[True, True, False], [True, True, True]]


@pytest.mark.parametrize(
    ("mask", "run"),
    [
        ([1, 1, 0, 0], (0, 1)),
        ([0, 1, 1, 0, 1], (1, 2)),  # a lucky spike beyond the gap is left out
        ([0, 0, 1], (2, 2)),
        ([1, 1, 1], (0, 2)),
        ([0, 0], None),
    ],
)
def test_first_run(mask, run):
    assert selection.first_run(mask) == run


def decided(folds, tolerance=2.0, lams=(1.0, 2.0, 4.0, 8.0)):
    costs = {"candidates": [40, 20, 10, 5], "products": [43, 23, 13, 8], "recall": [1, 0.9, 0.8, 0.7]}
    records = [{"base": base, "precision": rows} | costs for base, rows in folds]
    tried = Tried(lams, (3,) * len(lams), (1, 3), reassign=True, n_rows=100, n_labels=80)
    setting = {"weights": "per-block", "route": 1, "assignment": "anew", "evaluated_base": "it()"}
    result = TuningResult.decide(records, tried, tolerance=tolerance, setting=setting)
    costs = dict.fromkeys(("naive_trainings", "naive_seconds_estimate", *COSTS), 1.0)
    return replace(result, saving=costs)


def test_interval_is_the_intersection_without_lucky_spikes():
    first = [60, 40], [[60, 40], [59, 39], [50, 30], [59.5, 39.5]]
    second = [62, 42], [[61, 41], [60.5, 41], [61, 41], [61, 41]]
    result = decided([first, second])
    assert result.folds[0].feasible == (True, True, False, True)
    assert result.folds[1].feasible == (True, True, True, True)
    assert result.feasible == (True, True, False, True)
    assert result.interval == (1.0, 2.0)
    assert (result.speed_driven.lam, result.warning) == (2.0, None)
    assert result.accuracy_driven.lam == 1.0
    assert_allclose(result.mean_precision[1], [59.75, 40.0])
    assert_allclose(result.standard_error[1], [0.75, 1.0])
    assert_allclose(result.speedup, [2, 4, 8, 16])
    assert result.speed_driven.lam_rel == pytest.approx(0.06)
    assert result.speed_driven.assigned_at == (1.0, 2.0)
    assert result.speed_driven.loss == pytest.approx(1.5)


def test_accuracy_driven_may_lie_outside_the_interval_and_ties_go_to_the_cheaper():
    rows = [[59, 39], [50, 30], [70, 50], [70, 50]]
    result = decided([([60, 40], rows)])
    assert result.interval == (1.0, 1.0)
    assert result.accuracy_driven.lam == 8.0


def test_empty_intersection_is_said_aloud():
    first = [60, 40], [[59, 39], [50, 30], [50, 30], [40, 20]]
    second = [60, 40], [[50, 39], [59, 39], [57, 37], [40, 20]]
    result = decided([first, second])
    assert result.interval is None
    assert result.speed_driven is None
    assert "speed-driven" not in result.choices
    with pytest.raises(BlockXMCError, match="no lambda keeps every P@k"):
        result.choice("speed")
    assert result.least_loss.lam == 4.0  # all of the first three lose 10 in some fold: the cheapest of them
    assert result.choice("least-loss") == result.least_loss
    assert "no lambda" in result.warning
    assert "10.00 points" in result.warning
    assert "Warning" in result.explain()
    assert TuningResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result


# ---- the protocol against a naive one ----
def naive(X, Y, base, lams, q, folds, tolerance, seed=0, anew=True):
    """Refit everything for each fold and lambda, with the library's estimators only.

    ``anew``: BP runs at each lambda, from the assignment at the lambda before; else rows stay where the first put them.
    """
    n = X.shape[0]
    order = np.random.default_rng(seed).permutation(n)
    P0, P, candidates = [], [], []
    for fold in range(folds):
        held_out = np.sort(order[fold::folds])
        train = np.setdiff1d(np.arange(n), held_out)
        scale = train.size / n
        full = base().fit(X[train], Y[train])
        P0.append(
            [100 * metrics.precision_at_k(Y[held_out], full.predict_topk(X[held_out], 5)[0], k) for k in (1, 3, 5)]
        )
        part = Partitioner(n_blocks=q, lam=lams[0] * scale).fit(X[train], Y[train])
        rows, counts = [], []
        for lam in lams:
            if anew and lam != lams[0]:
                part = Partitioner(init=part.assignment_, lam=lam * scale).fit(X[train], Y[train])
            fixed = Partitioner(init=part.assignment_, max_iter=0)
            clf = BlockwiseClassifier(base(), fixed, lam=lam * scale, weights="per-block", route=1).fit(
                X[train], Y[train]
            )
            labels = clf.predict_topk(X[held_out], 5)[0]
            rows.append([100 * metrics.precision_at_k(Y[held_out], labels, k) for k in (1, 3, 5)])
            counts.append(clf.cost_on(X[held_out])["candidates"])
        P.append(rows)
        candidates.append(counts)
    P0, P = np.array(P0), np.array(P)
    feasible = [all((P0[v] - P[v, g] <= tolerance + 1e-9).all() for v in range(folds)) for g in range(len(lams))]
    return P0, P, np.array(candidates), feasible


@pytest.mark.parametrize("anew", [True, False])
@pytest.mark.parametrize("base", [NaiveBayes, TinyRidge, PDSparse])
def test_protocol_equals_refitting_everything(base, anew):
    X, Y = small()
    P0, P, candidates, feasible = naive(X, Y, base, LAMS, q=3, folds=3, tolerance=3.0, anew=anew)
    options = TrialOptions(fold_tol=None, reassign=anew)
    result = tune_lambda(X, Y, base(), n_blocks=3, lams=LAMS, folds=3, tolerance=3.0, options=options)
    assert_array_equal([fold.base for fold in result.folds], P0)
    assert_array_equal([fold.precision for fold in result.folds], P)  # bit-equal
    assert_array_equal([fold.candidates for fold in result.folds], candidates)
    assert list(result.feasible) == feasible
    assert result.saving["naive_trainings"] == 3 * 6
    if base.one_vs_all:
        assert result.saving["trainings"] < 3 * 6
        assert anew == (result.saving["reused_pairs"] > 0)


def test_one_training_serves_the_grid(monkeypatch):
    X, Y = small()
    calls = []
    train = evaluation.train_blocks
    monkeypatch.setattr(evaluation, "train_blocks", lambda *args, **kw: calls.append(1) or train(*args, **kw))
    fixed = TrialOptions(reassign=False)
    result = tune_lambda(X, Y, NaiveBayes(), n_blocks=3, lams=[0.1, 0.2, 0.5, 1.0], folds=2, options=fixed)
    assert len(calls) == 2
    assert result.saving["trainings"] == 4
    assert result.saving["naive_trainings"] == 10


def split_of(X, Y, learner):
    held_out = np.arange(0, X.shape[0], 4)
    task = Task(learner, Partitioner(), (1, 3, 5), 0, 1, Reporter())
    return Split(task, X, Y, np.setdiff1d(np.arange(X.shape[0]), held_out), held_out)


@pytest.mark.parametrize("kind", ["per-block", "global"])
@pytest.mark.parametrize("route", [1, 2])
def test_prefixes_answer_as_the_model_trained_at_that_lambda(kind, route):
    X, Y = small()
    split = split_of(X, Y, TinyRidge())
    blocks = FixedBlocks(split, 3, 0.2)
    for lam in (0.2, 1.0, 3.0):
        found = blocks.measure(lam, kind, route)
        fixed = Partitioner(init=blocks.partition.assignment_, max_iter=0)
        clf = BlockwiseClassifier(TinyRidge(), fixed, lam=lam, weights=kind, route=route).fit(split.X, split.Y)
        assert found["precision"] == split.precision(clf.predict_topk(split.X_held_out, 5)[0])
        assert found["products"] == clf.cost_on(split.X_held_out)["products"]
    assert split.trainings == 1


def test_a_lambda_that_empties_a_block_trains_anew():
    X, Y = small()
    rare = np.flatnonzero(Y.toarray()[:, 2:11].any(axis=1))[40:]  # leave one planted block with 40 rows only
    keep = np.setdiff1d(np.arange(X.shape[0]), rare)
    split = split_of(sparse.csr_array(X[keep]), sparse.csr_array(Y[keep]), NaiveBayes())
    blocks = FixedBlocks(split, 3, 0.2)
    between = float(np.mean(np.sort(blocks._critical)[:2]))
    layout = blocks.layout(between)
    assert not layout.intact
    assert len(layout.clusters) == 2
    assert blocks.measure(0.2)["trainings"] == 1
    assert blocks.measure(between)["trainings"] == 1
    assert blocks.measure(0.3)["trainings"] == 0  # what was trained for intact blocks is still there
    nothing = blocks.measure(1e6)
    assert nothing["precision"] == [0.0, 0.0, 0.0]
    assert (nothing["candidates"], nothing["recall"]) == (0.0, 0.0)


def test_lambda_is_rescaled_from_folds_to_all_rows(monkeypatch):
    X, Y = small()
    seen = []
    alternate = Partitioner._alternate
    monkeypatch.setattr(
        Partitioner,
        "_alternate",
        lambda self, X, Y, start, lam, *rest, **more: (
            seen.append((X.shape[0], lam)) or alternate(self, X, Y, start, lam, *rest, **more)
        ),
    )
    one_by_one = TrialOptions(n_jobs=1)
    result = tune_lambda(X, Y, NaiveBayes(), n_blocks=3, lams=[1.0, 2.0], folds=4, options=one_by_one)
    assert seen == [(180, pytest.approx(0.75)), (180, pytest.approx(1.5))] * 4
    assert result.lams == (1.0, 2.0)
    assert result.accuracy_driven.lam_rel == pytest.approx(result.accuracy_driven.lam * 3 / 240)


def test_held_out_labels_are_not_looked_at():
    """Predictions for held-out rows must not change when their labels do."""
    X, Y = small()
    held_out = np.arange(0, X.shape[0], 4)
    other = Y.tolil()
    other[held_out] = 0
    other[held_out, 5] = 1
    splits = [split_of(X, sparse.csr_array(labels), NaiveBayes()) for labels in (Y, other)]
    served = [FixedBlocks(split, 3, 0.3).serve(0.5, "per-block", 1) for split in splits]
    answers = [model.topk(sparse.csr_array(X[held_out]), 5, 1) for model in served]
    assert_array_equal(answers[0][0], answers[1][0])


def test_coupled_base_starts_warm():
    X, Y = small(400)
    result = tune_lambda(X, Y, LEML(rank=6), n_blocks=3, folds=2)
    assert len(result.lams) <= 6
    assert result.saving["trainings"] == result.saving["naive_trainings"]
    assert result.saving["warm_trainings"] > 0
    cold = naive(X, Y, lambda: LEML(rank=6), result.lams, 3, 2, 2.0)[1]
    assert_allclose(result.mean_precision, np.mean(cold, axis=0), atol=6)


def synthetic(n_features):
    return make_synthetic(n_train=1500, n_test=1500, n_features=n_features, n_labels=60, seed=1)


def test_warm_starts_lead_where_cold_ones_do():
    train, _ = synthetic(800)  # blocks of about as many rows as features: rounds and starts of a solver show most
    split = split_of(train.X, train.Y, LEML(rank=15))
    blocks, gains = FixedBlocks(split, 3, 0.02), []
    for lam in (0.07, 0.24, 0.8, 2.5):
        warm = blocks.measure(lam)
        assert (warm["trainings"], warm["warm_trainings"]) == (1 + (lam == 0.07), 1)
        layout = blocks.layout(lam)
        cold = evaluation.train_per_block(split, layout)
        scorer = pack_scorer(cold, layout.clusters, n_features=split.X.shape[1], n_labels=split.Y.shape[1])
        answers = RoutedModel(layout.router.scorer, scorer, 1).topk(split.X_held_out, 5, 1)[0]
        gains.append(np.subtract(warm["precision"], split.precision(answers)))
    assert np.abs(gains).max() < 1.5
    assert np.abs(np.mean(gains, axis=0)).max() < 0.75


def test_what_is_found_for_a_lambda_does_not_depend_on_the_others_tried():
    X, Y = small(400)
    split = split_of(X, Y, LEML(rank=6))
    alone = FixedBlocks(split, 3, 0.2).measure(1.0)
    blocks = FixedBlocks(split, 3, 0.2)
    assert [blocks.measure(lam) for lam in (0.2, 0.5, 1.0)][-1]["precision"] == alone["precision"]


@pytest.mark.parametrize("base", [LEML(), PDSparse()])
def test_the_final_fit_loses_what_tuning_promised(base):
    train, test = synthetic(4000)
    result = tune_lambda(train.X, train.Y, base, n_blocks=3)

    def delivered(model):
        labels, _ = model.predict_topk(test.X, 5)
        return np.array([100 * metrics.precision_at_k(test.Y, labels, k) for k in result.ks])

    whole = delivered(clone(base).fit(train.X, train.Y))
    for choice in ("least-loss", "accuracy"):
        loss = whole - delivered(fit_tuned(result, train.X, train.Y, choice, base=base))
        assert_allclose(loss, result.base_precision - result.choice(choice).precision, atol=2.0)


# ---- the whole ----
def test_default_grid_and_fit_tuned():
    X, Y = small(400)
    options = TrialOptions(max_rows=50)
    result = tune_lambda(X, Y, TinyRidge(), n_blocks=3, folds=3, tolerance=5.0, options=options)
    assert len(result.lams) == 12
    assert_allclose(np.diff(np.log(result.lams)), np.log(result.lams[1] / result.lams[0]), atol=1e-3)
    assert result.warning is None
    for choice, point in (("speed", result.speed_driven), ("accuracy", result.accuracy_driven)):
        model = fit_tuned(result, X, Y, choice, base=TinyRidge())
        assert model.partition_.lam_ == point.lam
        assert model.weights == "per-block"
        assert model.model_.route == 1
        part = Partitioner(n_blocks=3, lam=point.assigned_at[0]).fit(X, Y)
        for lam in point.assigned_at[1:]:
            part = Partitioner(init=part.assignment_, lam=lam).fit(X, Y)
        assert_array_equal(model.partition_.assignment_, part.assignment_)
    half = fit_tuned(result, X[:200], Y[:200], base=TinyRidge())
    assert half.partition_.lam_ == pytest.approx(result.speed_driven.lam / 2)
    assert result.speed_driven.products <= result.accuracy_driven.products


def test_lambdas_between_those_of_the_grid_are_feasible_too():
    X, Y = small(400)
    result = tune_lambda(X, Y, TinyRidge(), n_blocks=3, folds=3, tolerance=5.0)
    step = result.lams.index(result.interval[1])
    for point in result.refined:
        assert result.lams[step] < point.lam < result.lams[step + 1]
        assert point.assigned_at[: step + 1] == result.lams[: step + 1]
        assert point.assigned_at[-1] == point.lam
        assert point.loss <= 5.0
    assert result.speed_driven.lam == max([result.interval[1], *(point.lam for point in result.refined)])
    given = tune_lambda(X, Y, TinyRidge(), n_blocks=3, lams=result.lams, folds=3, tolerance=5.0)
    assert given.refined == ()
    assert given.interval == result.interval


def test_a_fixed_assignment_is_that_of_the_smallest_lambda():
    X, Y = small(400)
    result = tune_lambda(X, Y, TinyRidge(), n_blocks=3, folds=2, tolerance=5.0, options=TrialOptions(reassign=False))
    assert "fixed assignment" in result.explain()
    model = fit_tuned(result, X, Y, base=TinyRidge())
    start = Partitioner(n_blocks=3, lam=result.lams[0]).fit(X, Y)
    assert_array_equal(model.partition_.assignment_, start.assignment_)
    assert model.partition_.lam_ == result.speed_driven.lam > result.lams[0]


# ---- pairs of a number of blocks and a lambda ----
def test_the_joint_choice_is_at_least_as_good_as_a_plain_grid():
    X, Y = small(480)
    tolerance, options = 6.0, TrialOptions(fold_tol=None)
    result = tune_lambda(X, Y, TinyRidge(), folds=3, tolerance=tolerance, options=options)
    assert {trial.n_blocks for trial in result.scouted} >= {2, 4, 8}
    assert any(trial.by_paper for trial in result.scouted)
    best = np.inf
    for q in (2, 4, 8, 15):
        alone = tune_lambda(
            X, Y, TinyRidge(), n_blocks=q, lams=result.lams, folds=3, tolerance=tolerance, options=options
        )
        if alone.speed_driven is not None:
            best = min(best, alone.speed_driven.products)
    assert result.speed_driven.products <= best
    assert result.speed_driven.loss <= tolerance
    assert result.accuracy_driven.loss is not None


def test_the_papers_search_runs_at_the_lambda_it_is_used_with():
    X, Y = small(480)
    lams = (0.3, 2.0)
    plan = plan_blocks(X, Y, n_blocks="paper", lams=lams)
    assert len(plan.paths) == 1
    for step, lam in enumerate(lams):
        captured = {}
        for q in range(2, 480 // 16 + 1):
            blocks = Partitioner(q, lam, assign_at=lams[: step + 1]).fit(X, Y)
            if blocks.n_blocks_ < q:
                break
            captured[q] = blocks.captured_
        most = max(captured.values())
        if len(captured) < 14:  # every number was tried, with the first of the seeds
            assert plan.paper[step] == max(captured, key=captured.get)
        assert most > 0
    result = tune_lambda(X, Y, NaiveBayes(), n_blocks=plan, folds=2)
    assert result.blocks == plan.paper


def test_a_search_that_meets_no_dying_pair_says_so():
    plan = BlockPlan((0.1, 0.2), ((4, 8),), (4, 8), (True, False))
    assert "no pair that died at 1 of 2 lambdas" in plan.note()
    assert BlockPlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    X, Y = small()
    unbounded = Partitioner("paper", lam=0.01).fit(X, Y)
    assert "no pair died up to 15 blocks" in unbounded.choice_["text"]
    ended = Partitioner("paper", lam=8.0).fit(X, Y)
    assert "no pair died" not in ended.choice_["text"]


def test_paths_that_a_sample_gives_as_many_blocks_do_not_share_a_walk():
    X, Y = blocky(n=1200, n_labels=40)
    plan = BlockPlan((1.0, 2.0), ((16, 16), (32, 32)))
    alone, together = (
        quick_lambda(X, Y, NaiveBayes(), n_blocks=plan, options=TrialOptions(max_rows=300, n_jobs=n_jobs))
        for n_jobs in (1, 3)
    )
    assert [(t.n_blocks, t.lam, t.loss) for t in alone.scouted] == [
        (t.n_blocks, t.lam, t.loss) for t in together.scouted
    ]


def test_fit_tuned_refuses_another_model():
    X, Y = small()
    result = quick_lambda(X, Y, NaiveBayes(), n_blocks=3)
    with pytest.raises(BlockXMCError, match="tuned with base NaiveBayes"):
        fit_tuned(result, X, Y, base=TinyRidge())
    with pytest.raises(BlockXMCError, match="partitioner"):
        fit_tuned(result, X, Y, base=NaiveBayes(), partitioner=Partitioner(tie="small"))
    with pytest.raises(BlockXMCError, match="'speed', 'accuracy' or"):
        fit_tuned(result, X, Y, "both", base=NaiveBayes())


def test_result_goes_to_json_and_back():
    X, Y = small()
    result = tune_lambda(X, Y, NaiveBayes(), n_blocks=3, folds=2, options=TrialOptions(ks=(1, 2)))
    back = TuningResult.from_dict(json.loads(json.dumps(result.to_dict())))
    assert back == result
    text = back.explain()
    assert "P@1, P@2" in text or "Warning" in text
    assert "per-block weights" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"folds": 1}, "folds must be at least 2"),
        ({"folds": 500}, "500 folds need"),
        ({"tolerance": -1}, "tolerance"),
        ({"lams": [1.0, -2.0]}, "lams must be"),
        ({"lams": []}, "lams must be"),
        ({"n_blocks": "many"}, "n_blocks"),
        ({"base": "dismec"}, "base must be"),
    ],
)
def test_bad_input_is_one_line(options, message):
    X, Y = small()
    with pytest.raises(BlockXMCError, match=message):
        tune_lambda(X, Y, **options)


@pytest.mark.parametrize("ks", [(), (0,), (1.5,)])
def test_ranks_that_make_no_sense(ks):
    with pytest.raises(BlockXMCError, match="ks must be"):
        TrialOptions(ks=ks)


def test_max_rows_bounds_the_held_out_rows_of_a_fold_and_the_rows_of_a_sample():
    X, Y = small()
    options = TrialOptions(max_rows=50)
    folds = tune_lambda(X, Y, NaiveBayes(), n_blocks=3, lams=[0.5], folds=2, options=options)
    assert folds.setting["held_out_rows"] == [50, 50]
    sample = quick_lambda(X, Y, NaiveBayes(), n_blocks=3, options=options)
    assert sample.setting["held_out_rows"] == [10]


@pytest.mark.parametrize(
    ("tuner", "extra", "usual"),
    [
        (tune_lambda, {"lams": [0.5], "folds": 2}, 0.1),
        (quick_lambda, {}, 0.1),
        (tune_budget, {"limits": Limits(products=20)}, 0.01),
        (tune_knobs, {}, 0.01),
    ],
)
def test_how_tightly_trials_are_solved(tuner, extra, usual):
    X, Y = small()
    for fold_tol, tol in (("auto", usual), (0.5, 0.5), (None, 0.01)):
        result = tuner(X, Y, DiSMEC(tol=0.01), n_blocks=2, options=TrialOptions(fold_tol=fold_tol, n_jobs=1), **extra)
        assert f"tol={tol}" in result.setting["evaluated_base"]
        assert "tol=0.01" in result.setting["base"]


def test_a_search_that_finds_nothing_feasible_looks_at_every_pair():
    X, Y = small(480)
    lams = (3.0, 4.0, 5.0, 6.0, 8.0)
    result = tune_lambda(X, Y, TinyRidge(), lams=lams, folds=2, tolerance=0.5)
    assert result.speed_driven is None
    tried = {(trial.n_blocks, trial.lam) for trial in result.scouted if not trial.by_paper}
    assert tried == {(q, lam) for q in (2, 4, 8, 15) for lam in lams}
    assert "least loss" in result.choices
    assert result.least_loss.loss == pytest.approx(min(point.loss for point in result.choices.values()))


# ---- reuse along lambda ----
def test_blocks_that_moved_start_from_their_vectors_and_lead_to_the_same_solutions():
    train, _ = make_synthetic(n_train=600, n_test=10, n_features=120, n_labels=40, seed=2)
    lams, exact = [0.01, 0.03, 0.09], DiSMEC(tol=1e-5, prune=0.0)
    split = split_of(train.X, train.Y, exact)
    blocks = MovingBlocks(split, 4)
    warm = [blocks.measure(lams[: step + 1]) for step in range(len(lams))]
    assert split.warm_trainings > 0
    for step, found in enumerate(warm):
        cold = MovingBlocks(split_of(train.X, train.Y, exact), 4).measure(lams[: step + 1])
        assert found["products"] == cold["products"]
        assert_allclose(found["precision"], cold["precision"], atol=0.7)


def test_a_block_that_gains_labels_trains_these_only(monkeypatch):
    X, Y = small()
    split = split_of(X, Y, DiSMEC(tol=1e-4))
    blocks, trained = MovingBlocks(split, 3), []
    blocks.measure([0.5])
    blocks._walk._made[0] = (0.1, blocks._walk._made[0][1])  # the same rows, as if they were those of a smaller lambda
    clusters = blocks._walk._made[0][1].clusters.sorted_lists()
    rows_of = moving.rows_by_block(blocks.layout([0.1]))
    half = [labels[::2] for labels in clusters]
    weights = [weights for _, weights in blocks._trained.by_number]
    kept = list(zip(half, evaluation.prefixes(weights, clusters, half), strict=True))
    blocks._trained = moving.Trained({rows.tobytes(): own for rows, own in zip(rows_of, kept, strict=True)}, kept)
    train = moving.train_block
    monkeypatch.setattr(moving, "train_block", lambda *given: trained.append(len(given[4])) or train(*given))
    found = blocks.measure([0.1])
    assert sum(trained) == sum(len(labels) // 2 for labels in clusters)
    assert found["reused_pairs"] == sum(map(len, half))
    for again, (labels, before) in zip(blocks._trained.by_number, zip(clusters, weights, strict=True), strict=True):
        assert_array_equal(again[0], labels)
        # Labels are solved sixteen at a time, and end elsewhere within the tolerance beside other labels.
        assert_allclose(again[1].scores(X), before.scores(X), atol=1e-5)
