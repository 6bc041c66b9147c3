"""What users hand to fit: seeds, names under scikit-learn's tools, pandas."""

import numpy as np
import pytest
from helpers import blocky
from numpy.testing import assert_array_equal
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score

from blockxmc import LEML, BlockwiseClassifier, DiSMEC, load
from blockxmc.baselines import CBMLC, LPSR, FastXML, LabelFilters
from blockxmc.errors import BlockXMCError

SYSTEMS = [BlockwiseClassifier(n_blocks=2, lam=0.1), CBMLC(n_blocks=2), LPSR(n_blocks=2), LabelFilters(n_filters=1)]
SYSTEMS += [FastXML(n_trees=2), LEML(rank=4)]


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: type(system).__name__)
def test_a_negative_seed_is_refused_and_generators_are_drawn_from(system):
    X, Y = blocky(n=60, n_labels=14)
    for wrong in (-5, 0.5, "seed", 2**40):
        with pytest.raises(BlockXMCError, match="random_state must be"):
            system.set_params(random_state=wrong).fit(X, Y)
    for make in (np.random.RandomState, np.random.default_rng):
        first, second = (system.set_params(random_state=make(3)).fit(X, Y).predict_topk(X)[0] for _ in range(2))
        assert_array_equal(first, second)
    system.set_params(random_state=None).fit(X, Y)


def test_a_generator_in_the_base_is_drawn_from_once():
    X, Y = blocky(n=90, n_labels=14)
    answers = []
    for threads in (1, 2):
        base = LEML(rank=2, n_iter=1, init="random", random_state=np.random.RandomState(1))
        answers.append(CBMLC(base, n_blocks=6, n_jobs=threads).fit(X, Y).predict_topk(X)[1])
    assert_array_equal(*answers)


def test_a_model_with_a_generator_is_saved_without_it(tmp_path):
    X, Y = blocky(n=60, n_labels=14)
    model = DiSMEC(random_state=np.random.RandomState(0)).fit(X, Y)
    model.save(tmp_path / "m")
    assert load(tmp_path / "m").random_state is None
    assert isinstance(model.random_state, np.random.RandomState)


def names_of(Y):
    return [[f"label {j}" for j in np.flatnonzero(row)] for row in Y.toarray()]


def test_lists_of_names_in_scikit_learns_searches():
    """Its default splitter takes no lists; one that is named does."""
    X, Y = blocky(n=90)
    search = GridSearchCV(DiSMEC(), {"C": [0.5, 1.0]}, cv=KFold(3)).fit(X, names_of(Y))
    assert search.best_score_ > 0.5
    assert search.predict(X[[0]])[0] != []
    assert cross_val_score(DiSMEC(), X, names_of(Y), cv=KFold(3)).shape == (3,)
    assert GridSearchCV(DiSMEC(), {"C": [0.5, 1.0]}, cv=3).fit(X, Y.toarray()).best_score_ > 0.5


def test_pandas_series_of_lists():
    pandas = pytest.importorskip("pandas")
    X, Y = blocky(n=90)
    frame, names = pandas.DataFrame(X.toarray()).add_prefix("f"), pandas.Series(names_of(Y))
    model = DiSMEC().fit(frame, names)
    assert model.predict(frame)[0] == sorted(model.predict(frame)[0])
    assert model.score(frame, names) > 0.8
    assert cross_val_score(DiSMEC(), frame, names, cv=KFold(3)).shape == (3,)
    one = pandas.Series([row[0] for row in names])
    assert DiSMEC().fit(frame, one).predict(frame).shape == (90,)


@pytest.mark.parametrize("k", [0, -1, 2.5, "five"])
def test_k_is_a_whole_number(k):
    X, Y = blocky(n=60)
    with pytest.raises(BlockXMCError, match="k must be"):
        DiSMEC().fit(X, Y).predict_topk(X, k)


def test_rows_must_agree():
    X, Y = blocky(n=60)
    with pytest.raises(BlockXMCError, match="X has 59 rows but Y has 60"):
        DiSMEC().fit(X[:59], Y)
