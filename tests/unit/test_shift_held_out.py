"""Labels that lost few positives to the held-out rows learn from these rows alone, once these have judged them."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import blocky
from numpy.testing import assert_array_equal
from sklearn.svm import LinearSVC

from blockxmc import BlockwiseClassifier, DiSMEC
from blockxmc.training.shared import settings
from blockxmc.training.shared.candidates import Mix
from blockxmc.training.shared.held_out import held_out_rows, labels_that_lost_rows
from blockxmc.training.shared.mix import Fitter

WEIGHTS = np.random.default_rng(1).integers(1, 4, size=600).astype(np.float32)


@pytest.fixture
def data():
    return blocky(n=600, n_labels=20)


@pytest.fixture
def scores_of(data, monkeypatch):
    """Scores of all rows by the weights as they were learnt: nothing is mixed in."""
    monkeypatch.setattr(Fitter, "mix", lambda self, neighbors, rows=None: Mix(0.0, neighbors=neighbors))

    def fit(base=None, fitted=None, **changed):
        own = settings.Settings(held_out_least=40, **changed)
        monkeypatch.setattr(settings, "SETTINGS", own)
        base = base or DiSMEC(C=0.5, prune=0.0, tol=1e-4)
        clf = BlockwiseClassifier(base, n_blocks=3, weight_bits=32, **(fitted or {}))
        return lambda **given: clf.fit(*data, **given).model_.scorer.scores(data[0], None).toarray()

    return fit


def others_of(Y):
    own = replace(settings.SETTINGS, held_out_least=40)
    return labels_that_lost_rows(Y, held_out_rows(Y, 0, own), own)


@pytest.mark.parametrize("sample_weight", [None, WEIGHTS])
def test_they_come_near_to_what_all_rows_teach(data, scores_of, sample_weight):
    short, others = others_of(data[1])
    assert short.size > 3
    assert others.size > 3
    without = scores_of(lost_little=1.0)(sample_weight=sample_weight)
    shifted = scores_of()(sample_weight=sample_weight)
    solved = scores_of(lost=0.0, lost_of_many=0.0)(sample_weight=sample_weight)
    # Labels that are solved again are the same either way; labels of no held-out row stay as they are.
    assert_array_equal(shifted[:, short], without[:, short])
    untouched = np.setdiff1d(np.arange(20), np.union1d(short, others))
    assert_array_equal(shifted[:, untouched], without[:, untouched])
    far, near = (np.abs(found - solved)[:, others].mean(axis=0) for found in (without, shifted))
    assert (near < far).all()
    assert near.mean() < 0.75 * far.mean()


def test_a_model_that_keeps_its_rows_leaves_them_to_updates(scores_of):
    assert_array_equal(scores_of(fitted={"keep_rows": True})(), scores_of(lost_little=1.0)())


def test_only_solutions_of_our_own_solver_are_shifted(scores_of):
    others = LinearSVC(C=0.5)
    assert_array_equal(scores_of(others)(), scores_of(others, lost_little=1.0)())


def test_thread_counts_do_not_matter(scores_of):
    one, four = (scores_of(fitted={"n_jobs": threads})() for threads in (1, 4))
    assert_array_equal(one, four)
