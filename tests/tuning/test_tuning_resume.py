"""A stopped search goes on where it was."""

import pytest
from helpers import blocky

from blockxmc import NaiveBayes, PDSparse
from blockxmc.errors import BlockXMCError
from blockxmc.training.trials import split as evaluation
from blockxmc.training.trials.moving import MovingBlocks
from blockxmc.tuning import Limits, TrialOptions, tune_budget, tune_lambda
from blockxmc.tuning.problem import described


def small(n=240):
    return blocky(n=n)


# ---- resuming ----
class Stop(Exception):
    pass


def stop_at_training(monkeypatch, number, error):
    """Raise ``error`` in the training of this number; the list that is given back has an entry for each training."""
    calls, train = [], evaluation.train_blocks

    def train_or_stop(*args, **kw):
        calls.append(1)
        if len(calls) == number:
            raise error
        return train(*args, **kw)

    monkeypatch.setattr(evaluation, "train_blocks", train_or_stop)
    return calls


def test_an_interrupted_run_goes_on_where_it_stopped(monkeypatch, tmp_path):
    X, Y = small()
    options = {"n_blocks": 3, "lams": [0.2, 0.5, 1.0], "folds": 3}
    kept = TrialOptions(work=tmp_path / "kept", n_jobs=1)
    expected = tune_lambda(X, Y, NaiveBayes(), **options)
    calls = stop_at_training(monkeypatch, 2, Stop)  # the first of the second fold
    with pytest.raises(Stop):
        tune_lambda(X, Y, NaiveBayes(), options=kept, **options)
    result = tune_lambda(X, Y, NaiveBayes(), options=kept, **options)
    assert len(calls) == 2 + 2  # one fold was finished; the other two are trained once each
    assert result.saving["reused"] == 7  # the plan, the base of each fold and three lambdas
    assert result.folds == expected.folds
    again = tune_lambda(X, Y, NaiveBayes(), options=kept, **options)
    assert len(calls) == 4
    assert again.folds == expected.folds
    assert again.saving["trainings"] == expected.saving["trainings"]
    looser = tune_lambda(X, Y, NaiveBayes(), options=kept, tolerance=50.0, **options)
    assert len(calls) == 4  # trials do not depend on the tolerance
    assert looser.tolerance == 50


def test_other_data_and_settings_are_refused_by_name(tmp_path):
    X, Y = small()
    options = {"n_blocks": 3, "lams": [0.2, 1.0], "folds": 2, "options": TrialOptions(work=tmp_path)}
    tune_lambda(X, Y, NaiveBayes(), **options)
    with pytest.raises(BlockXMCError, match=r"base was NaiveBayes\(alpha=1\.0\), now NaiveBayes\(alpha=2\.0\)"):
        tune_lambda(X, Y, NaiveBayes(alpha=2.0), **options)
    other = X.copy()
    other.data[0] += 1
    with pytest.raises(BlockXMCError, match="data was "):
        tune_lambda(other, Y, NaiveBayes(), **options)
    with pytest.raises(BlockXMCError, match="held_out_rows was "):
        tune_lambda(X, Y, NaiveBayes(), **options | {"folds": 3})
    with pytest.raises(BlockXMCError, match="assignment was "):
        tune_budget(X, Y, NaiveBayes(), limits=Limits(products=14), options=TrialOptions(work=tmp_path))


def test_finished_lambdas_of_a_coupled_base_are_kept(monkeypatch, tmp_path):
    X, Y = small()
    kept = TrialOptions(work=tmp_path, n_jobs=1)
    options = {"n_blocks": 3, "lams": [0.2, 0.5, 1.0], "folds": 2, "options": kept}
    calls, measure = [], MovingBlocks.measure

    def measure_or_stop(self, steps, *given):
        calls.append(tuple(steps))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return measure(self, steps, *given)

    monkeypatch.setattr(MovingBlocks, "measure", measure_or_stop)
    with pytest.raises(KeyboardInterrupt):
        tune_lambda(X, Y, PDSparse(), **options)
    tune_lambda(X, Y, PDSparse(), **options)
    assert len(calls) == 3 + 1 + 3


def test_damaged_trials_are_made_again_and_mentioned_in_the_result(tmp_path):
    X, Y = small()
    options = {"n_blocks": 3, "lams": [0.2, 1.0], "folds": 2, "options": TrialOptions(work=tmp_path)}
    first = tune_lambda(X, Y, NaiveBayes(), **options)
    (tmp_path / "fold-2-base.json").write_text("no JSON")
    second = tune_lambda(X, Y, NaiveBayes(), **options)
    assert second.folds == first.folds
    assert len(second.notes) == 1
    assert "fold-2-base.json is damaged" in second.notes[0]


def test_description_names_what_changes_the_model_only():
    assert described(NaiveBayes(n_jobs=3)) == described(NaiveBayes(verbose=1))
    assert described(NaiveBayes(alpha=2.0)) != described(NaiveBayes())
