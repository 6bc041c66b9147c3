"""The paper's protocol: what is chosen, against refitting everything with the library's estimators only."""

import json

import numpy as np
import pytest
from helpers import blocky
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from tiny_learner import TinyRidge

from blockxmc import LEML, BlockwiseClassifier, NaiveBayes, Partitioner, PDSparse, metrics
from blockxmc._core.progress import Reporter
from blockxmc.errors import BlockXMCError
from blockxmc.training.trials import selection
from blockxmc.training.trials.split import Pair, Split, Task
from blockxmc.tuning import BlockPlan, TrialOptions, TuningResult, fit_tuned, plan_blocks, tune_lambda
from blockxmc.tuning.result import FoldRecord, Point

LAMS = (0.1, 0.5, 1.5, 4.0, 12.0)


def small(n=240):
    return blocky(n=n)


# ---- choosing, on arrays ----
def test_feasible_needs_every_k_within_the_tolerance():
    base = [[60.0, 40.0], [50.0, 30.0]]
    precision = [[[60, 40], [58, 38], [57.9, 40]], [[55, 29], [48.5, 28.0], [50, 30]]]
    assert selection.feasible(base, precision, 2.0).tolist() == [[True, True, False], [True, True, True]]


def decided(precision, products, tolerance=2.0, base=60.0):
    """The result of folds x lambdas of P@1."""
    lams = tuple(float(i + 1) for i in range(len(products)))
    found = [
        [
            {"precision": [p], "candidates": w - 1, "products": w, "recall": 0.9}
            for p, w in zip(fold, products, strict=True)
        ]
        for fold in precision
    ]
    folds = [FoldRecord.of([base], entries, lams, tolerance) for entries in found]
    mean, worst = np.mean(precision, axis=0), base - np.min(precision, axis=0)
    points = [
        Point(2, lam, (lam,), (float(mean[i]),), products[i] - 1, products[i], 0.9, loss=float(worst[i]))
        for i, lam in enumerate(lams)
    ]
    setting = {"evaluated_base": "B", "assignment": "anew"}
    rest = {"n_labels": 100, "ks": (1,), "tolerance": tolerance, "setting": setting}
    return TuningResult.decide(lams, (2,) * len(lams), folds, points, [], **rest)


def test_a_noisy_fold_does_not_hide_a_larger_lambda():
    # The second fold loses 2.5 at the third lambda, in the midst of feasible ones.
    result = decided([[60.0, 59.0, 59.5, 59.0, 50.0], [60.5, 59.0, 57.5, 58.5, 58.5]], [90.0, 70.0, 50.0, 30.0, 10.0])
    assert result.feasible == (True, True, False, True, False)
    assert [fold.interval for fold in result.folds] == [(1.0, 4.0), (1.0, 5.0)]
    assert result.interval == (1.0, 4.0)
    assert result.speed_driven.lam == 4.0
    assert result.accuracy_driven.lam == 1.0
    assert "By fold: 1 1 to 4, 2 1 to 5." in result.explain()


def test_speed_driven_is_never_slower_than_accuracy_driven():
    rng = np.random.default_rng(0)
    for _ in range(200):
        precision = rng.uniform(55, 61, (3, 6))
        result = decided(precision, rng.uniform(5, 90, 6).tolist(), tolerance=4.0)
        if result.speed_driven is not None:
            assert result.speed_driven.products <= result.accuracy_driven.products
            kept = (precision >= 56.0 - 1e-9).all(axis=0)
            assert result.feasible == tuple(kept.tolist())
            assert result.accuracy_driven.precision[0] == precision.mean(axis=0)[kept].max()


def test_where_nothing_is_feasible_it_is_said_aloud():
    result = decided([[50.0, 50.0, 40.0]], [30.0, 20.0, 10.0])
    assert result.interval is result.speed_driven is None
    with pytest.raises(BlockXMCError, match="no lambda keeps every P@k"):
        result.choice("speed")
    assert result.choice("least-loss").lam == 2.0  # of two equal losses the cheaper
    assert "10.00 points" in result.warning
    assert result.explain().startswith("Warning")
    assert TuningResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result


# ---- the protocol against a naive one ----
def naive(X, Y, base, lams, q, folds, tolerance, *, letter=False):
    """Refit everything for each fold and lambda."""
    n = X.shape[0]
    order = np.random.default_rng(0).permutation(n)
    P0, P, candidates = [], [], []
    for fold in range(folds):
        held_out = np.sort(order[fold::folds])
        train = np.setdiff1d(np.arange(n), held_out)
        scale = train.size / n
        full = base().fit(X[train], Y[train]).predict_topk(X[held_out], 5)[0]
        P0.append([100 * metrics.precision_at_k(Y[held_out], full, k) for k in (1, 3, 5)])
        rows, counts, part = [], [], None
        for lam in lams:
            init = "kmeans" if part is None or letter else part.assignment_
            part = Partitioner(q if isinstance(init, str) else "auto", lam * scale, init=init, letter=letter)
            part.fit(X[train], Y[train])
            fixed = Partitioner(init=part.assignment_, max_iter=0, letter=letter)
            clf = BlockwiseClassifier(base(), fixed, lam=lam * scale, weights="per-block", route=1)
            clf.fit(X[train], Y[train])
            labels = clf.predict_topk(X[held_out], 5)[0]
            rows.append([100 * metrics.precision_at_k(Y[held_out], labels, k) for k in (1, 3, 5)])
            counts.append(clf.cost_on(X[held_out])["candidates"])
        P.append(rows)
        candidates.append(counts)
    P0, P = np.array(P0), np.array(P)
    feasible = [all((P0[v] - P[v, g] <= tolerance + 1e-9).all() for v in range(folds)) for g in range(len(lams))]
    return P0, P, np.array(candidates), feasible


@pytest.mark.parametrize("letter", [False, True])
@pytest.mark.parametrize("base", [NaiveBayes, TinyRidge, PDSparse])
def test_protocol_equals_refitting_everything(base, letter):
    X, Y = small()
    P0, P, candidates, feasible = naive(X, Y, base, LAMS, q=3, folds=3, tolerance=3.0, letter=letter)
    options = TrialOptions(fold_tol=None, partitioner=Partitioner(letter=letter))
    result = tune_lambda(X, Y, base(), n_blocks=3, lams=LAMS, folds=3, tolerance=3.0, options=options)
    assert_allclose([fold.base for fold in result.folds], P0, rtol=1e-12)
    assert_allclose([fold.precision for fold in result.folds], P, rtol=1e-12)
    assert_array_equal([fold.candidates for fold in result.folds], candidates)
    assert list(result.feasible) == feasible
    assert result.trainings == 3 * 6


@pytest.mark.parametrize("base", [TinyRidge(), LEML(rank=3), PDSparse()])
def test_what_is_found_for_a_pair_does_not_depend_on_the_others_tried(base):
    X, Y = small()
    task = Task(base, Partitioner(), (1, 3, 5), 0, 1, Reporter())
    rows = np.arange(X.shape[0])
    splits = [Split(task, sparse.csr_array(X), sparse.csr_array(Y), rows[60:], rows[:60]) for _ in range(2)]
    steps = (0.2, 0.5, 1.0)
    alone = splits[0].measured(splits[0].served(Pair(3, steps)))
    for pair in (Pair(3, steps[:1]), Pair(2, steps), Pair(3, steps[:2])):
        splits[1].measured(splits[1].served(pair))
    assert splits[1].measured(splits[1].served(Pair(3, steps))) == alone


def test_lambda_is_rescaled_from_folds_to_all_rows(monkeypatch):
    X, Y = small()
    seen, alternate = [], Partitioner._alternate

    def seeing(self, X, Y, start, lam, *rest, **more):
        seen.append((X.shape[0], lam))
        return alternate(self, X, Y, start, lam, *rest, **more)

    monkeypatch.setattr(Partitioner, "_alternate", seeing)
    result = tune_lambda(X, Y, NaiveBayes(), n_blocks=3, lams=[1.0, 2.0], folds=4, options=TrialOptions(n_jobs=1))
    assert seen == [(180, pytest.approx(0.75)), (180, pytest.approx(1.5))] * 4
    assert result.lams == (1.0, 2.0)


def test_held_out_labels_are_not_looked_at():
    X, Y = small()
    rows = np.arange(X.shape[0])
    held_out = rows[::4]
    other = Y.tolil()
    other[held_out] = 0
    other[held_out, 5] = 1
    task = Task(NaiveBayes(), Partitioner(), (1,), 0, 1, Reporter())
    answers = []
    for labels in (Y, sparse.csr_array(other)):
        split = Split(task, sparse.csr_array(X), sparse.csr_array(labels), np.setdiff1d(rows, held_out), held_out)
        answers.append(split.served(Pair(3, (0.3, 0.5))).topk(split.X_held_out, 5, 1)[0])
    assert_array_equal(*answers)


# ---- the whole ----
def test_default_grid_and_fit_tuned():
    X, Y = small(400)
    options = TrialOptions(max_rows=50)
    result = tune_lambda(X, Y, TinyRidge(), n_blocks=3, folds=3, tolerance=5.0, options=options)
    assert len(result.lams) == 12
    assert_allclose(np.diff(np.log(result.lams)), np.log(result.lams[1] / result.lams[0]), atol=1e-3)
    assert result.setting["held_out_rows"] == [50] * 3
    for choice, point in (("speed", result.speed_driven), ("accuracy", result.accuracy_driven)):
        model = fit_tuned(result, X, Y, choice, base=TinyRidge())
        assert model.partition_.lam_ == point.lam
        assert (model.weights, model.model_.route) == ("per-block", 1)
        part = Partitioner(n_blocks=3, lam=point.assigned_at[0]).fit(X, Y)
        for lam in point.assigned_at[1:]:
            part = Partitioner(init=part.assignment_, lam=lam).fit(X, Y)
        assert_array_equal(model.partition_.assignment_, part.assignment_)
    half = fit_tuned(result, X[:200], Y[:200], base=TinyRidge())
    assert half.partition_.lam_ == pytest.approx(result.speed_driven.lam / 2)


def test_the_joint_choice_is_at_least_as_good_as_a_plain_grid():
    X, Y = small(480)
    tolerance, options = 6.0, TrialOptions(fold_tol=None)
    result = tune_lambda(X, Y, TinyRidge(), folds=3, tolerance=tolerance, options=options)
    plain = []
    for q in (2, 4, 8, 15):
        how = {"n_blocks": q, "lams": result.lams, "folds": 3, "tolerance": tolerance}
        alone = tune_lambda(X, Y, TinyRidge(), options=options, **how)
        plain += [] if alone.speed_driven is None else [alone.speed_driven.products]
    assert result.speed_driven.products <= min(plain)
    assert result.speed_driven.loss <= tolerance
    assert len({trial.n_blocks for trial in result.tried}) > 1


def test_a_search_that_finds_nothing_feasible_takes_the_least_loss():
    X, Y = small(240)
    result = tune_lambda(X, Y, TinyRidge(), folds=2, lams=[6.0, 20.0], tolerance=0.0)
    assert result.speed_driven is None
    tried = {(trial.n_blocks, trial.lam): trial.loss for trial in result.tried}
    assert min(tried.values()) >= min(result.least_loss.loss - 5.0, min(tried.values()))
    assert "Warning" in result.explain()


def test_the_papers_search_runs_at_the_lambda_it_is_used_with():
    X, Y = small(480)
    lams = (0.3, 2.0)
    plan = plan_blocks(X, Y, n_blocks="paper", lams=lams)
    assert plan.paths == (plan.paper,)
    for step in range(len(lams)):
        captured = {}
        for q in range(2, 480 // 16 + 1):
            blocks = Partitioner(q, lams[step], assign_at=lams[: step + 1]).fit(X, Y)
            if blocks.n_blocks_ < q:
                break
            captured[q] = blocks.captured_
        assert captured
        if len(captured) < 14:  # every number was tried, with the first of the seeds
            assert plan.paper[step] == max(captured, key=captured.get)
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
    assert "it cuts hardly anything" in Partitioner("paper").fit(X, Y).choice_["text"]


def test_fit_tuned_refuses_another_model():
    X, Y = small()
    result = tune_lambda(X, Y, NaiveBayes(), n_blocks=3, folds=2, lams=[0.5])
    with pytest.raises(BlockXMCError, match="tuned with base NaiveBayes"):
        fit_tuned(result, X, Y, base=TinyRidge())
    with pytest.raises(BlockXMCError, match="partitioner"):
        fit_tuned(result, X, Y, base=NaiveBayes(), partitioner=Partitioner(tie="small"))
    with pytest.raises(BlockXMCError, match="'speed', 'accuracy' or"):
        fit_tuned(result, X, Y, "both", base=NaiveBayes())


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


def test_the_first_trial_says_how_long_all_others_take(caplog, tmp_path):
    caplog.set_level("INFO", "blockxmc")
    options = TrialOptions(n_jobs=1, verbose=1, work=tmp_path)
    for _ in range(2):  # the second time from what is kept
        result = tune_lambda(*small(), NaiveBayes(), n_blocks=3, lams=LAMS, folds=2, options=options)
    lines = [line for line in caplog.messages if "the first trial" in line]
    assert result.trainings == 2 * (1 + len(LAMS))
    assert len(lines) == 2
    assert all("; 11 are left: about " in line for line in lines)
    assert lines[0] == lines[1]
