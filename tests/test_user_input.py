"""What users hand to fit: seeds, names under scikit-learn's tools, pandas."""

import numpy as np
import pytest
from helpers import blocky
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score

from blockxmc import LEML, BlockwiseClassifier, DiSMEC, Partitioner, load
from blockxmc.baselines import CBMLC, LPSR, FastXML, LabelFilters
from blockxmc.data import read_data_dir, read_dataset, read_npz, read_shards, read_text, read_xc, write_xc
from blockxmc.errors import BlockXMCError
from blockxmc.storage import verify

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


def test_what_no_parameter_can_be_is_one_line(tmp_path, monkeypatch):
    X, Y = blocky(n=60, n_labels=14)
    clf = BlockwiseClassifier(n_blocks=2, lam=0.1).fit(X, Y)
    for wrong in ({"n_jobs": 1.5}, {"n_jobs": "two"}, {"partitioner": 3}, {"partitioner": Partitioner}):
        with pytest.raises(BlockXMCError, match=f"^{next(iter(wrong))} must be"):
            BlockwiseClassifier(**wrong).fit(X, Y)
    with pytest.raises(BlockXMCError, match=r"k=1099511627776 labels of 60 rows take .* are free"):
        clf.predict_topk(X, 2**40)
    for path in (3, None, "", b"model"):
        for use in (clf.save, load, verify, read_dataset, read_npz, read_xc, read_shards, read_text, read_data_dir):
            with pytest.raises(BlockXMCError, match="a path must be text or a pathlib"):
                use(path)
        with pytest.raises(BlockXMCError, match="a path must be"):
            write_xc(path, X, Y)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BlockXMCError, match="a path must be"):
        clf.fit(X, Y, work="")
    assert not list(tmp_path.iterdir())


def test_a_threshold_that_cannot_be_is_refused_by_fit():
    X, Y = blocky(n=60, n_labels=14)
    paper = BlockwiseClassifier.paper(n_blocks=2, lam=0.1, threshold="top-k")
    for clf, rows in ((BlockwiseClassifier(threshold="top-k"), 1), (paper, 4)):
        with pytest.raises(BlockXMCError, match=r"top-k.*at least 200 training rows"):
            clf.fit(sparse.vstack([X] * rows), sparse.vstack([Y] * rows))
    many = sparse.csr_array(sparse.vstack([X] * 4)), sparse.csr_array(sparse.vstack([Y] * 4))
    clf = BlockwiseClassifier(threshold="top-k").fit(*many)
    assert (np.diff(sparse.csr_array(clf.predict(X)).indptr) == clf.f1_labels_).all()
    with pytest.raises(BlockXMCError, match="top-k"):
        clf.fit(*many, sample_weight=np.arange(240) < 100)


def test_weights_of_rows_that_no_float_holds():
    X, Y = blocky(n=60, n_labels=14)
    for wrong in (1e-300, 1e-40, 1e300):
        weights = np.ones(60)
        weights[7] = wrong
        for given in (weights, np.full(60, wrong)):
            with pytest.raises(BlockXMCError, match=r"sample_weight holds 1e[-+]\d+, and must be 0 or from"):
                BlockwiseClassifier().fit(X, Y, sample_weight=given)
    with pytest.raises(BlockXMCError, match="not all of them zero"):
        BlockwiseClassifier().fit(X, Y, sample_weight=np.zeros(60))


def test_label_features_are_blamed_for_their_own_values():
    X, Y = blocky(n=60, n_labels=14)
    for wrong, what in ((np.nan, "NaN"), (np.inf, "NaN or infinite"), (1e30, "1e\\+30")):
        features = np.ones((14, X.shape[1]))
        features[3, 3] = wrong
        with pytest.raises(BlockXMCError, match=f"^label_features holds .*{what}"):
            BlockwiseClassifier().fit(X, Y, label_features=features)


@pytest.mark.parametrize("scale", [1e-16, 1e-25, 1e-38, 1e-44])
@pytest.mark.parametrize("system", [*SYSTEMS[:2], DiSMEC()], ids=lambda system: type(system).__name__)
def test_features_too_small_to_learn_from(scale, system):
    X, Y = blocky(n=60, n_labels=14)
    with pytest.raises(BlockXMCError, match=r"no value of X is larger than .*rescale the features"):
        system.fit(X * np.float32(scale), Y)


def test_small_features_are_learnt_and_zeros_are_meant():
    X, Y = blocky(n=240, n_labels=14)
    clf = BlockwiseClassifier(n_blocks=2, lam=0.1)
    usual = clf.fit(X, Y).score(X, Y)
    assert abs(clf.fit(X * np.float32(1e-14), Y).score(X * np.float32(1e-14), Y) - usual) < 0.05
    clf.fit(sparse.csr_array(X.shape, dtype=np.float32), Y)
    mixed = X.toarray()
    mixed[:, 0] *= np.float32(1e-30)
    assert clf.fit(mixed, Y).score(mixed, Y) > usual - 0.05
