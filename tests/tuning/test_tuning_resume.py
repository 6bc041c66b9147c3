"""A stopped search goes on where it was."""

import pytest
from helpers import blocky

from blockxmc import NaiveBayes, PDSparse
from blockxmc.errors import BlockXMCError
from blockxmc.training.trials import split as evaluation
from blockxmc.tuning import TrialOptions, tune_lambda
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


@pytest.mark.parametrize("base", [NaiveBayes(), PDSparse()])
@pytest.mark.parametrize("at", [1, 2, 5])
def test_an_interrupted_run_goes_on_where_it_stopped(monkeypatch, tmp_path, base, at):
    X, Y = small()
    options = {"n_blocks": 3, "lams": [0.2, 0.5, 1.0], "folds": 2}
    kept = TrialOptions(work=tmp_path / "kept", n_jobs=1)
    expected = tune_lambda(X, Y, base, **options)
    calls = stop_at_training(monkeypatch, at, Stop)
    with pytest.raises(Stop):
        tune_lambda(X, Y, base, options=kept, **options)
    result = tune_lambda(X, Y, base, options=kept, **options)
    assert len(calls) == 2 * 3 + 1  # only the trial that was stopped is made again
    assert result.folds == expected.folds
    assert result.trainings == expected.trainings
    looser = tune_lambda(X, Y, base, options=kept, tolerance=50.0, **options)
    assert len(calls) == 2 * 3 + 1  # trials do not depend on the tolerance
    assert looser.tolerance == 50


def test_a_search_that_is_stopped_again_and_again_ends_the_same(monkeypatch, tmp_path):
    X, Y = small()
    options = {"lams": [0.5, 2.0, 6.0], "folds": 2, "tolerance": 8.0}
    expected = tune_lambda(X, Y, NaiveBayes(), **options)
    for _ in range(200):
        stop_at_training(monkeypatch, 2, Stop)
        try:
            result = tune_lambda(X, Y, NaiveBayes(), options=TrialOptions(work=tmp_path, n_jobs=1), **options)
            break
        except Stop:
            monkeypatch.undo()
    assert result.folds == expected.folds
    assert result.tried == expected.tried
    assert result.choices == expected.choices


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
