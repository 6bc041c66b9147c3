"""What scikit-learn and our own contract ask of every estimator, in one place."""

import pickle
import warnings

import numpy as np
import pytest
from helpers import blocky
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import check_estimator

from blockxmc import LEML, BlockwiseClassifier, DiSMEC, NaiveBayes, PDSparse, PPDSparse, TextClassifier, load
from blockxmc.baselines import CBMLC, LPSR, FastXML, LabelFilters
from blockxmc.learners import OneVsRest

ESTIMATORS = [
    BlockwiseClassifier(),
    BlockwiseClassifier.paper(n_blocks=2, lam=0.1),
    CBMLC(n_blocks=2),
    DiSMEC(),
    FastXML(n_trees=5),
    LEML(rank=10),
    LPSR(n_blocks=2),
    LabelFilters(n_filters=2),
    NaiveBayes(),
    OneVsRest(LogisticRegression()),
    PDSparse(max_iter=10),
    PPDSparse(),
]
# A row of weight 0 or 2 is assigned to a block like any other: a row that is missing or there twice changes the blocks.
EXPECTED = {
    f"check_sample_weight_equivalence_on_{kind}_data": "weights count in the loss, not in the partition"
    for kind in ("dense", "sparse")
}
NAMES = ["BP", "BP-paper", *(type(estimator).__name__ for estimator in ESTIMATORS[2:])]


@pytest.mark.parametrize("estimator", [ESTIMATORS[i] for i in (0, 2, 6, 9)], ids=[NAMES[i] for i in (0, 2, 6, 9)])
def test_scikit_learns_checks(estimator):
    """The learners and the other baselines run these checks in their own tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's own check of infinite values casts them
        results = check_estimator(clone(estimator), on_fail=None, on_skip=None, expected_failed_checks=EXPECTED)
    failed = {r["check_name"]: str(r["exception"])[:300] for r in results if r["status"] == "failed"}
    assert not failed


def test_scikit_learns_checks_of_a_plain_estimator_fail_for_the_named_reason_only():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(BlockwiseClassifier(), on_fail=None, on_skip=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert failed.keys() == EXPECTED.keys()
    assert all(isinstance(error, AssertionError) for error in failed.values())  # answers differ; nothing is refused
    with pytest.warns(Warning, match="requires input"):  # scikit-learn has no checks of estimators of texts
        assert {r["status"] for r in check_estimator(TextClassifier())} == {"passed"}


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=NAMES)
def test_shape_of_answers_storage_pickle_and_threads(estimator, tmp_path):
    X, Y = blocky(n=150, n_labels=14)
    model = clone(estimator).set_params(n_jobs=1).fit(X, Y)
    labels, scores = model.predict_topk(X, k=3)
    assert (labels.dtype, scores.dtype) == (np.int64, np.float32)
    assert labels.shape == scores.shape == (150, 3)
    real = labels >= 0
    assert (np.isneginf(scores) == ~real).all()
    assert (np.diff(np.where(real, scores, -1e9), axis=1) <= 0).all()
    assert model.predict(X).shape == Y.shape
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    others = [again, pickle.loads(pickle.dumps(model)), clone(estimator).set_params(n_jobs=2).fit(X, Y)]
    for other in others:
        for mine, theirs in zip(other.predict_topk(X, k=3), (labels, scores), strict=True):
            assert_array_equal(mine, theirs)
    if hasattr(model, "predict_one"):
        for i in (0, 7, 149):
            at = slice(X.indptr[i], X.indptr[i + 1])
            assert_array_equal(again.predict_one(X.indices[at], X.data[at], 3)[0], labels[i])
    for key in ("candidates", "products", "speedup_paper", "speedup", "speedup_flops"):
        assert np.isfinite(model.cost_on(X)[key])


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=NAMES)
def test_rows_and_labels_that_teach_nothing(estimator):
    X, Y = blocky(n=80, n_labels=14)
    X, Y = X.toarray(), Y.toarray()
    X[:4], Y[2:6] = 0, 0  # rows without features, rows without labels
    Y[:, 5], Y[:, 6] = 0, 1  # a label nobody has, a label everybody has
    model = clone(estimator).fit(X, Y)
    labels, _ = model.predict_topk(np.zeros((2, X.shape[1])), k=20)
    assert labels.shape == (2, 20)
    assert (labels[:, 14:] == -1).all()


@pytest.mark.parametrize(
    "base", [DiSMEC(), LEML(), NaiveBayes(), PDSparse(), PPDSparse()], ids=lambda b: type(b).__name__
)
def test_blocks_of_one_label_that_all_their_rows_have(base):
    X, Y = np.repeat(np.eye(3), 10, axis=0), np.repeat(np.eye(3, dtype=int), 10, axis=0)
    for model in (CBMLC(base, n_blocks=3), BlockwiseClassifier.paper(base, n_blocks=3, lam=0.1)):
        labels, scores = model.fit(X, Y).predict_topk(X, k=5)
        assert_array_equal(labels[:, 0], Y.argmax(axis=1))
        assert (labels[:, 1:] == -1).all()
        assert np.isfinite(scores[:, 0]).all()


def test_a_bases_own_seed_counts_inside_blocks():
    X, Y = blocky(n=150, n_labels=14)
    scores = [
        CBMLC(LEML(rank=2, n_iter=1, init="random", random_state=seed), n_blocks=2).fit(X, Y).predict_topk(X)[1]
        for seed in (0, 0, 1)
    ]
    assert_array_equal(scores[0], scores[1])
    assert (scores[0] != scores[2]).any()
