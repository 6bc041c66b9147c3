"""Lambda on a sample, and what fit makes of it."""

import numpy as np
import pytest
from helpers import blocky
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from tiny_learner import TinyRidge

from blockxmc import BlockwiseClassifier, NaiveBayes, Partitioner, metrics
from blockxmc._core.progress import Reporter
from blockxmc.partition.walk import paper_blocks
from blockxmc.training.trials import quick
from blockxmc.training.trials.moving import MovingBlocks
from blockxmc.tuning import TrialOptions, quick_lambda


def small(n=240):
    return blocky(n=n)


# ---- one split of a sample ----
def test_quick_same_seed_same_result_for_any_threads(monkeypatch):
    monkeypatch.setattr(quick, "LEAST", 200)
    X, Y = small()
    results = [quick_lambda(X, Y, NaiveBayes(), options=TrialOptions(n_jobs=n_jobs)) for n_jobs in (1, 2)]
    assert results[0].folds == results[1].folds
    assert results[0].saving["trainings"] <= 1 + 12 + 2  # without blocks, at each lambda, and between lambdas
    assert results[0].setting["held_out_rows"] == [40]
    assert "on the held-out rows" in results[0].explain() or results[0].warning


def test_quick_counts_losses_from_the_base():
    X, Y = small()
    result = quick_lambda(X, Y, TinyRidge(), n_blocks=3)
    held_out = np.sort(np.random.default_rng(0).permutation(X.shape[0])[: X.shape[0] // 5])
    rest = np.setdiff1d(np.arange(X.shape[0]), held_out)
    labels = TinyRidge().fit(X[rest], Y[rest]).predict_topk(X[held_out], 5)[0]
    expected = [100 * metrics.precision_at_k(Y[held_out], labels, k) for k in (1, 3, 5)]
    assert_allclose(result.folds[0].base, expected)


def test_quick_global_weights_need_one_training():
    X, Y = small()
    assert quick_lambda(X, Y, NaiveBayes(), n_blocks=3, weights="global").saving["trainings"] == 1


def test_a_sample_keeps_the_rows_per_block(monkeypatch):
    monkeypatch.setattr(quick, "LEAST", 400)
    X, Y = small(800)
    seen = []
    measure = MovingBlocks.measure
    monkeypatch.setattr(
        MovingBlocks,
        "measure",
        lambda self, steps, *how: seen.append((self.n_blocks, steps[0])) or measure(self, steps, *how),
    )
    result = quick_lambda(X, Y, NaiveBayes(), n_blocks=40)
    assert {q for q, _ in seen} == {16}
    assert seen[0][1] == pytest.approx(result.lams[0] * 40 / 800 * 320 / 16)
    assert result.n_blocks == 40


@pytest.mark.parametrize("weights", ["per-block", "global"])
def test_fit_chooses_lambda_on_held_out_rows_and_says_so(weights):
    X, Y = small(800)
    models = [
        BlockwiseClassifier(TinyRidge(), n_blocks=3, weights=weights, n_jobs=n_jobs).fit(X, Y) for n_jobs in (1, 2)
    ]
    first = models[0].partition_
    assert first.lam_ == models[1].partition_.lam_
    text = first.choice_["text"]
    assert "held-out rows" in text
    assert "labels scored per row" in text
    assert first.choice_["lam"]["value"] == first.lam_
    assert_array_equal(models[0].predict_topk(X, 5)[0], models[1].predict_topk(X, 5)[0])
    own = Partitioner(n_blocks=3).fit(X, Y)
    assert first.lam_ >= own.lam_
    assert_array_equal(first.assignment_, own.assignment_)
    for cluster, wanted in zip(first.label_clusters_, own.label_clusters_at(first.lam_), strict=True):
        assert_array_equal(cluster, wanted)


def test_fit_leaves_lambda_to_the_path_where_little_can_be_held_out():
    X, Y = small(240)
    assert (
        BlockwiseClassifier.paper(TinyRidge(), n_blocks=3).fit(X, Y).partition_.lam_
        == Partitioner(n_blocks=3).fit(X, Y).lam_
    )
    X, Y = small(600)
    cost = Partitioner(n_blocks=3, objective="cost")
    model = BlockwiseClassifier(TinyRidge(), cost, weights="per-block").fit(X, Y)
    assert model.partition_.lam_ == cost.fit(X, Y).lam_
    given = Partitioner(n_blocks=3, lam=0.7)
    assert BlockwiseClassifier(TinyRidge(), given, weights="per-block").fit(X, Y).partition_.lam_ == 0.7


def test_fit_survives_a_sample_without_labels():
    X, Y = small(600)
    rows = np.random.default_rng(0).permutation(600)[:120]  # those that will be held out
    few = sparse.csr_array(Y.multiply(np.isin(np.arange(600), rows)[:, None]))
    model = BlockwiseClassifier(TinyRidge(), n_blocks=2, weights="per-block").fit(X, few)
    assert model.partition_.lam_ == Partitioner(n_blocks=2).fit(X, few).lam_


def test_fit_keeps_given_blocks():
    X, Y = small(600)
    blocks = Partitioner(n_blocks=3).fit(X, Y).assignment_
    model = BlockwiseClassifier(TinyRidge(), Partitioner(init=blocks, max_iter=0), weights="per-block").fit(X, Y)
    assert_array_equal(model.partition_.assignment_, blocks)
    assert "held-out rows" in model.partition_.choice_["text"]


def test_the_number_of_blocks_belongs_to_lambda_where_both_are_open():
    X, Y = small(800)
    models = [BlockwiseClassifier.paper(TinyRidge(), n_jobs=n_jobs).fit(X, Y) for n_jobs in (1, 2)]
    part = models[0].partition_
    assert_array_equal(part.assignment_, models[1].partition_.assignment_)
    assert "found by the paper's search at that lambda" in part.choice_["text"]
    assert part.choice_["n_blocks"]["rule"].startswith("the paper's search")
    again = Partitioner(part.n_blocks, part.lam_, assign_at=part.assign_at).fit(X, Y)
    assert_array_equal(part.assignment_, again.assignment_)
    assert part.assign_at[-1] == part.lam_
    # The search behind it, at the same lambda on the same rows of the sample.
    train, _ = quick.sample_split(800, 0)
    lams = [lam * train.size / 800 for lam in part.assign_at]
    found = paper_blocks(Partitioner(), sparse.csr_array(X[train]), sparse.csr_array(Y[train]), lams, Reporter())
    assert found[-1].n_blocks == part.n_blocks
