import pickle

import numpy as np
import pytest
from helpers import blocky
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from blockxmc import BlockwiseClassifier, DiSMEC, Partitioner, load, metrics
from blockxmc.errors import BlockXMCError


def test_fields_of_the_contract():
    X, Y = blocky()
    clf = BlockwiseClassifier(n_blocks=3, lam=0.5).fit(X, Y)
    part = clf.partition_
    assert part.assignment_.shape == (X.shape[0],)
    assert len(part.label_clusters_) == part.n_blocks_ == 3
    assert all((np.diff(cluster) > 0).all() for cluster in part.label_clusters_)
    assert (np.diff(part.objective_trace_) <= 1e-9).all()
    assert part.lam_ == 0.5
    assert 0 < part.captured_ <= 1
    speedups = ["speedup_paper", "speedup", "speedup_flops"]
    for key in ["products", "candidates", "candidate_recall", "router_accuracy", *speedups]:
        assert np.isfinite(clf.cost_[key]), key
    labels, scores = clf.predict_topk(X, k=5)
    assert labels.dtype == np.int64
    assert scores.dtype == np.float32
    assert labels.shape == scores.shape == (X.shape[0], 5)
    assert clf.label_names_ is None


def test_one_block_with_all_labels_is_the_base():
    X, Y = blocky()
    full = DiSMEC().fit(X, Y)
    clf = BlockwiseClassifier.paper(DiSMEC(), n_blocks=1, lam=0.0).fit(X, Y)
    for mine, theirs in zip(clf.predict_topk(X, 5), full.predict_topk(X, 5), strict=True):
        assert_array_equal(mine, theirs)


def test_global_weights_score_as_the_base_does():
    X, Y = blocky()
    full = DiSMEC().fit(X, Y).decision_function(X).toarray()
    scores = BlockwiseClassifier(n_blocks=3, lam=0.5, weights="global").fit(X, Y).decision_function(X)
    rows = np.repeat(np.arange(X.shape[0]), np.diff(scores.indptr))
    np.testing.assert_allclose(scores.data, full[rows, scores.indices], rtol=1e-4, atol=1e-5)
    assert scores.nnz < full.size


def test_paper_mode_learns_the_planted_blocks():
    X, Y = blocky(n=600)
    train, test = slice(0, 450), slice(450, 600)
    clf = BlockwiseClassifier.paper(n_blocks=3, lam=0.3).fit(X[train], Y[train])
    full = DiSMEC().fit(X[train], Y[train])
    k3 = [metrics.precision_at_k(Y[test], model.predict_topk(X[test], 3)[0], 3) for model in (clf, full)]
    assert k3[0] > k3[1] - 0.05
    assert clf.cost_["candidates"] < Y.shape[1]


def test_label_names_in_and_out():
    X = np.array([[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9]])
    Y = [["warm", "red"], ["red"], ["blue"], []]
    clf = BlockwiseClassifier(n_blocks=2, lam=0.1).fit(X, Y)
    assert clf.label_names_.tolist() == ["blue", "red", "warm"]
    assert "red" in clf.predict([[1.0, 0.0]])[0]


@pytest.mark.parametrize(
    "base", [LogisticRegression(), LinearSVC(), SGDClassifier(random_state=0), DecisionTreeClassifier(random_state=0)]
)
@pytest.mark.parametrize("weights", ["per-block", "global"])
def test_any_scikit_learn_classifier_is_a_base(base, weights, tmp_path):
    X, Y = blocky(n=150, n_labels=11)
    clf = BlockwiseClassifier(base, n_blocks=2, lam=0.5, weights=weights).fit(X, Y)
    assert clf.score(X, Y) > 0.6
    if isinstance(base, DecisionTreeClassifier):
        with pytest.raises(BlockXMCError, match="cannot be saved"):
            clf.save(tmp_path / "model")
        assert not (tmp_path / "model").exists()
    else:
        clf.save(tmp_path / "model")
        assert_array_equal(load(tmp_path / "model").predict_topk(X)[1], clf.predict_topk(X)[1])


@pytest.mark.parametrize("weights", ["per-block", "global"])
@pytest.mark.parametrize("route", [1, 2])
def test_batch_single_rows_threads_and_storage_agree_bit_for_bit(weights, route, tmp_path):
    X, Y = blocky()
    clf = BlockwiseClassifier(n_blocks=4, lam=0.3, weights=weights, route=route, n_jobs=1).fit(X, Y)
    expected = clf.predict_topk(X, 4)
    other = BlockwiseClassifier(n_blocks=4, lam=0.3, weights=weights, route=route, n_jobs=2).fit(X, Y)
    clf.save(tmp_path / "model")
    for model in (other, load(tmp_path / "model"), pickle.loads(pickle.dumps(clf))):
        for mine, theirs in zip(model.predict_topk(X, 4), expected, strict=True):
            assert_array_equal(mine, theirs)
    for i in range(0, X.shape[0], 17):
        at = slice(X.indptr[i], X.indptr[i + 1])
        labels, scores = clf.predict_one(X.indices[at], X.data[at], 4)
        assert_array_equal(labels, expected[0][i])
        assert_array_equal(scores, expected[1][i])


def test_batches_of_any_number_of_threads_answer_alike():
    X, Y = blocky(n=900)
    clf = BlockwiseClassifier(n_blocks=4, route=2, n_jobs=1).fit(X, Y)
    expected = clf.predict_topk(X, 4)
    for threads in (2, 3, 16):
        clf.n_jobs = threads
        for mine, theirs in zip(clf.predict_topk(X, 4), expected, strict=True):
            assert_array_equal(mine, theirs)


def test_a_matrix_that_is_ready_sets_what_scikit_learn_would():
    pd = pytest.importorskip("pandas")
    X, Y = blocky(n=120)
    clf = BlockwiseClassifier(n_blocks=2).fit(pd.DataFrame(X.toarray()).rename(columns=str), Y)
    assert clf.feature_names_in_.size == X.shape[1]
    clf.fit(X, Y)
    assert clf.n_features_in_ == X.shape[1]
    assert not hasattr(clf, "feature_names_in_")


def test_decision_function_and_topk_tell_the_same():
    X, Y = blocky()
    clf = BlockwiseClassifier(n_blocks=4, lam=0.3, route=2).fit(X, Y)
    scores, (labels, best) = clf.decision_function(X), clf.predict_topk(X, 1)
    assert_array_equal(metrics.precision_at_k(Y, scores, 1), metrics.precision_at_k(Y, labels, 1))
    assert_array_equal(scores.max(axis=1).toarray().ravel(), best[:, 0].clip(min=0))


def test_pipeline_grid_search_and_clone():
    X, Y = blocky(n=120)
    clf = BlockwiseClassifier(n_blocks=2)
    search = GridSearchCV(
        clf, {"lam": [0.1, 5.0], "base": [DiSMEC(), DiSMEC(C=0.1)]}, cv=2, scoring=metrics.scorer("P@1")
    )
    assert search.fit(X, Y).best_params_["lam"] in (0.1, 5.0)
    assert clone(clf).get_params()["n_blocks"] == 2
    assert make_pipeline(_Normalise(), clf).fit(X, Y).predict(X).shape == Y.shape


class _Normalise:
    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return normalize(X)

    def fit_transform(self, X, y=None):
        return normalize(X)


def test_rows_without_features_or_labels():
    X, Y = blocky(n=60)
    X, Y = X.toarray(), Y.toarray()
    X[:5], Y[3:9] = 0, 0
    clf = BlockwiseClassifier(n_blocks=2, lam=0.2).fit(sparse.csr_array(X), sparse.csr_array(Y))
    labels, _ = clf.predict_topk(sparse.csr_array((3, X.shape[1]), dtype=np.float32))
    assert labels.shape == (3, 5)


def test_one_label_and_k_above_it():
    clf = BlockwiseClassifier().fit([[1.0, 0], [0, 1.0], [1.0, 0.2]], [["a"], [], ["a"]])
    labels, scores = clf.predict_topk([[1.0, 0.0]], k=3)
    assert labels.tolist() == [[0, -1, -1]]
    assert np.isneginf(scores[0, 1:]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": "both"}, "weights"),
        ({"route": 0}, "route"),
        ({"n_blocks": 10**6}, "more than the"),
        ({"lam": -1.0}, "lam"),
        ({"base": DiSMEC}, "not a class"),
        ({"base": DiSMEC(C=-1)}, "C"),
        ({"base": "dismec"}, "classifier"),
    ],
)
def test_bad_parameters_are_refused_in_one_line(options, message):
    X, Y = blocky(n=40)
    with pytest.raises(BlockXMCError, match=message) as caught:
        BlockwiseClassifier(**options).fit(X, Y)
    assert "\n" not in str(caught.value)


def test_nothing_labelled_is_refused():
    with pytest.raises(BlockXMCError, match="label"):
        BlockwiseClassifier().fit([[1.0, 0], [0, 1]], sparse.csr_array((2, 3)))


def test_wrong_width_is_refused():
    X, Y = blocky(n=60)
    clf = BlockwiseClassifier(n_blocks=2, lam=0.1).fit(X, Y)
    with pytest.raises(ValueError, match="features"):
        clf.predict(X[:, :10])


def test_partitioner_options_reach_the_partition():
    X, Y = blocky()
    clf = BlockwiseClassifier(partitioner=Partitioner(max_iter=0), n_blocks=3, lam=0.2).fit(X, Y)
    assert clf.partition_.n_iter_ == 0
    assert clf.partitioner.n_blocks == "auto"  # the user's object is not written to
