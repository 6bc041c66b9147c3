"""Lambda on a sample, and what fit makes of it."""

import re

import numpy as np
import pytest
from helpers import blocky
from numpy.testing import assert_array_equal
from scipy import sparse
from tiny_learner import TinyRidge

from blockxmc import BlockwiseClassifier, Partitioner, metrics
from blockxmc.training.trials import quick


def small(n=240):
    return blocky(n=n)


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
    assert "labels per row" in text
    assert first.choice_["lam"]["value"] == first.lam_
    assert_array_equal(models[0].predict_topk(X, 5)[0], models[1].predict_topk(X, 5)[0])
    own = Partitioner(n_blocks=3).fit(X, Y)
    assert first.lam_ >= own.lam_ * 0.999  # lambdas have four digits
    assert first.n_blocks_ <= 3


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


def test_blocks_and_lambda_are_chosen_together_where_both_are_open():
    X, Y = small(800)
    models = [BlockwiseClassifier.paper(TinyRidge(), n_jobs=n_jobs).fit(X, Y) for n_jobs in (1, 2)]
    part = models[0].partition_
    assert_array_equal(part.assignment_, models[1].partition_.assignment_)
    again = Partitioner(part.n_blocks, part.lam_, assign_at=part.assign_at).fit(X, Y)
    assert_array_equal(part.assignment_, again.assignment_)
    # What is said of the loss is what the model of the other rows loses, and it is within the tolerance.
    train, held_out = quick.sample_split(800, 0, 1.0, quick.ALL_ROWS)
    steps = [lam * train.size / 800 for lam in part.assign_at]
    own = Partitioner(part.n_blocks, steps[-1], assign_at=steps)
    fitted = BlockwiseClassifier(TinyRidge(), own, weights="per-block", route=1).fit(X[train], Y[train])
    full = TinyRidge().fit(X[train], Y[train])
    loss = [
        100 * (metrics.precision_at_k(Y[held_out], a, k) - metrics.precision_at_k(Y[held_out], b, k))
        for a, b in [(full.predict_topk(X[held_out], 5)[0], fitted.predict_topk(X[held_out], 5)[0])]
        for k in (1, 3, 5)
    ]
    found = re.search(r"it loses (-?[\d.]+) ± ([\d.]+) points of P@(\d)", part.choice_["text"])
    assert float(found[1]) == pytest.approx(loss[(1, 3, 5).index(int(found[3]))], abs=0.3)
    assert float(found[1]) + float(found[2]) <= quick.TOLERANCE or "no pair that was tried" in part.choice_["text"]


def test_to_the_letter_the_number_of_blocks_is_that_of_the_papers_search():
    X, Y = small(600)
    part = BlockwiseClassifier.paper(TinyRidge(), partitioner=Partitioner(letter=True)).fit(X, Y).partition_
    assert part.letter
    assert part.assign_at == [part.lam_]
