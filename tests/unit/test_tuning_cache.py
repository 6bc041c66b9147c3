"""A stopped search goes on where it was."""

import pytest
from helpers import blocky

from blockxmc import NaiveBayes, PDSparse
from blockxmc.training.trials import split as evaluation
from blockxmc.tuning import TrialOptions, tune_lambda
from blockxmc.tuning.cache import Notebook, digest
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
    options, kept = {"n_blocks": 3, "lams": [0.2, 0.5, 1.0], "folds": 3}, TrialOptions(cache=tmp_path / "kept")
    expected = tune_lambda(X, Y, NaiveBayes(), **options)
    calls = stop_at_training(monkeypatch, 2, Stop)  # the first of the second fold
    with pytest.raises(Stop):
        tune_lambda(X, Y, NaiveBayes(), options=kept, **options)
    assert len(list((tmp_path / "kept").iterdir())) == 1
    result = tune_lambda(X, Y, NaiveBayes(), options=kept, **options)
    assert len(calls) == 2 + 2  # one fold was finished; the other two are trained once each
    assert result.saving["reused_from_cache"] == 4  # three lambdas and the base
    assert result.folds == expected.folds
    again = tune_lambda(X, Y, NaiveBayes(), options=kept, **options)
    assert len(calls) == 4
    assert again.folds == expected.folds
    assert again.saving["trainings"] == expected.saving["trainings"]
    tune_lambda(X, Y, NaiveBayes(alpha=2.0), options=kept, **options)
    assert len(calls) == 7  # other settings share nothing


def test_finished_lambdas_of_a_coupled_base_are_kept(monkeypatch, tmp_path):
    X, Y = small()
    options = {"n_blocks": 3, "lams": [0.2, 0.5, 1.0], "folds": 2, "options": TrialOptions(cache=tmp_path)}
    calls = stop_at_training(monkeypatch, 3, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        tune_lambda(X, Y, PDSparse(), **options)
    tune_lambda(X, Y, PDSparse(), **options)
    assert len(calls) == 3 + 1 + 3


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"format": 1, "key": "other", "entries": {}}',
        '{"format": 1, "key": "KEY", "entries": [1]}',
        '{"format": 1, "key": "KEY", "entries": {"base": 1}}',
    ],
)
def test_damaged_or_foreign_files_are_ignored_and_noted(tmp_path, content):
    key = "k" * 40
    book = Notebook(tmp_path, "fold-0", key)
    book.once("base", lambda: {"value": 1})
    book.path.write_text(content.replace("KEY", key))
    fresh = Notebook(tmp_path, "fold-0", key)
    assert len(fresh.notes) == 1
    assert "ignored" in fresh.notes[0]
    assert fresh.once("base", lambda: {"value": 2}) == {"value": 2}
    assert Notebook(tmp_path, "fold-0", key).once("base", dict) == {"value": 2}
    assert [path.name for path in tmp_path.iterdir()] == [book.path.name]


def test_damaged_cache_is_mentioned_in_the_result(tmp_path):
    X, Y = small()
    options = {"n_blocks": 3, "lams": [0.2, 1.0], "folds": 2, "options": TrialOptions(cache=tmp_path)}
    first = tune_lambda(X, Y, NaiveBayes(), **options)
    sorted(tmp_path.iterdir())[0].write_text("no JSON")
    second = tune_lambda(X, Y, NaiveBayes(), **options)
    assert second.folds == first.folds
    assert len(second.notes) == 1


def test_digest_tells_data_and_settings_apart():
    X, Y = small()
    other = X.copy()
    other.data[0] += 1
    keys = {digest(X, Y, {"a": 1}), digest(other, Y, {"a": 1}), digest(X, Y, {"a": 2}), digest(X, Y[:, ::-1], {"a": 1})}
    assert len(keys) == 4
    assert digest(X.copy(), Y, {"a": 1}) in keys


def test_description_names_what_changes_the_model_only():
    assert described(NaiveBayes(n_jobs=3)) == described(NaiveBayes(verbose=1))
    assert described(NaiveBayes(alpha=2.0)) != described(NaiveBayes())
