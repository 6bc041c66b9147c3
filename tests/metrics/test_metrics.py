"""Metrics against numbers worked out by hand, and against every awkward shape."""

from __future__ import annotations

import pickle
from math import log2

import numpy as np
import pytest
from scipy import sparse
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from blockxmc import metrics
from blockxmc.errors import BlockXMCError
from blockxmc.learners._learner import Context, Learner
from blockxmc.linear.weights import LinearWeights

# Row 0 has labels 0 and 2, row 1 has label 1, row 2 has none.
Y = sparse.csr_array(np.array([[1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]))
LABELS = np.array([[2, 1, 0], [3, 1, -1], [0, 1, 2]])
IP = np.array([1.0, 2.0, 4.0, 8.0])


@pytest.mark.parametrize(
    ("k", "precision", "recall", "ndcg", "coverage"),
    [
        (1, 1 / 3, (1 / 2 + 0) / 2, (1 + 0) / 2, 1 / 4),
        (2, 2 / 6, (1 / 2 + 1) / 2, (1 / (1 + 1 / log2(3)) + 1 / log2(3)) / 2, 2 / 4),
        (3, 3 / 9, (2 / 2 + 1) / 2, ((1 + 1 / log2(4)) / (1 + 1 / log2(3)) + 1 / log2(3)) / 2, 3 / 4),
        (5, 3 / 15, (2 / 2 + 1) / 2, ((1 + 1 / log2(4)) / (1 + 1 / log2(3)) + 1 / log2(3)) / 2, 3 / 4),
    ],
)
def test_plain_metrics_by_hand(k, precision, recall, ndcg, coverage):
    assert metrics.precision_at_k(Y, LABELS, k) == pytest.approx(precision, abs=1e-15)
    assert metrics.recall_at_k(Y, LABELS, k) == pytest.approx(recall, abs=1e-15)
    assert metrics.ndcg_at_k(Y, LABELS, k) == pytest.approx(ndcg, abs=1e-15)
    assert metrics.coverage_at_k(Y, LABELS, k) == coverage


def test_propensity_metrics_by_hand():
    # Best first labels: row 0 label 2 (4) then 0 (1); row 1 label 1 (2).
    assert metrics.psp_at_k(Y, LABELS, 1, IP) == pytest.approx(4 / (4 + 2))
    assert metrics.psp_at_k(Y, LABELS, 2, IP) == pytest.approx((4 + 2) / (5 + 2))
    assert metrics.psp_at_k(Y, LABELS, 3, IP) == pytest.approx(1.0)
    ideal = 1 + 1 / log2(3)
    got = 4 / ideal + (2 / log2(3)) / 1
    best = (4 + 1 / log2(3)) / ideal + 2
    assert metrics.psndcg_at_k(Y, LABELS, 2, IP) == pytest.approx(got / best)


def test_inverse_propensity_formula():
    Y_train = np.array([[1, 1, 0]] * 3 + [[1, 0, 0]] * 17)
    got = metrics.inverse_propensity(sparse.csr_array(Y_train), a=0.6, b=2.6)
    scale = (np.log(20) - 1) * 3.6**0.6
    np.testing.assert_allclose(got, [1 + scale * (count + 2.6) ** -0.6 for count in (20, 3, 0)], rtol=1e-14)
    np.testing.assert_array_equal(got, metrics.inverse_propensity_from_counts([20, 3, 0], 20, a=0.6, b=2.6))
    assert (np.diff(got) > 0).all()  # rarer labels weigh more


@pytest.mark.parametrize("n_rows", [0, 1, 2])
def test_inverse_propensity_of_a_tiny_training_set_stays_a_probability(n_rows):
    assert metrics.inverse_propensity_from_counts([0, 1], n_rows).tolist() == [1.0, 1.0]


def test_scores_rank_stored_entries_only_with_ties_to_the_lower_id():
    # Explicit zero and a tie in row 0; row 1 stores nothing although label 1 is its truth.
    scores = sparse.csr_array((np.array([0.0, 0.5, 0.5]), np.array([1, 2, 3]), np.array([0, 3, 3])), shape=(2, 4))
    truth = np.array([[0, 0, 1, 0], [0, 1, 0, 0]])
    assert metrics.precision_at_k(truth, scores, 1) == 0.5
    assert metrics.recall_at_k(truth, scores, 4) == 0.5
    assert metrics.precision_at_k([[0, 1, 0, 0], [0, 0, 0, 0]], scores, 3) == pytest.approx(1 / 6)  # the zero counts
    assert metrics.precision_at_k([[1, 0, 0, 0], [1, 1, 1, 1]], scores, 4) == 0.0  # what is not stored does not


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_array, sparse.coo_array])
def test_any_sparse_format(kind):
    scores = kind(np.array([[0.1, 0, 0.9, 0], [0.1, 0.5, 0, 0], [0, 0, 0.3, 0]]))
    assert metrics.precision_at_k(kind(Y.toarray()), scores, 1) == pytest.approx(2 / 3)


def test_scores_are_ranked_in_their_own_precision_and_sign():
    close = sparse.csr_array(np.array([[1.0, 1.0 + 1e-12]]))
    assert metrics.precision_at_k([[0, 1]], close, 1) == 1.0
    unsigned = sparse.csr_array(np.array([[1, 2]], np.uint8))
    assert metrics.precision_at_k([[0, 1]], unsigned, 1) == 1.0


def test_input_is_left_as_it_was():
    scores = sparse.csr_array((np.array([1.0, 2.0]), np.array([2, 0]), np.array([0, 2])), shape=(1, 3))
    for array in (scores.data, scores.indices, scores.indptr):
        array.flags.writeable = False
    assert metrics.precision_at_k([[1, 0, 0]], scores, 1) == 1.0
    assert scores.indices.tolist() == [2, 0]


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0, 0), (2, 3)])
def test_nothing_to_measure_is_zero(shape):
    nothing = sparse.csr_array(shape)
    for labels in (np.full((shape[0], 2), -1), np.zeros((shape[0], 0), int), sparse.csr_array(shape)):
        report = metrics.evaluate(nothing, labels, inverse_propensity=np.ones(shape[1]))
        assert report.pop("rows") == report.pop("rows_without_labels") == shape[0]
        assert set(report.values()) == {0.0}


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([[0, 0], [1, 2], [1, 2]]), "row 0 names label 0 twice"),
        (np.array([[0, 4], [1, 2], [1, 2]]), "0..3"),
        (np.array([[0, -2], [1, 2], [1, 2]]), "0..3"),
        (np.array([[0, 1]]), "1 rows"),
        (np.array([0, 1, 2]), "shape"),
        (np.array([[0.5, 0.1]] * 3), "float64"),
        ((LABELS, LABELS), "shape"),
        (sparse.csr_array((3, 5)), "shape"),
        (sparse.csr_array(np.array([[np.nan, 0, 0, 0]] * 3)), "NaN"),
    ],
)
def test_bad_labels_are_refused(labels, message):
    with pytest.raises(BlockXMCError, match=message):
        metrics.precision_at_k(Y, labels, 2)


@pytest.mark.parametrize("k", [0, -1, 1.0, True, "1", None])
def test_bad_k_is_refused(k):
    with pytest.raises(BlockXMCError, match="at least 1"):
        metrics.precision_at_k(Y, LABELS, k)


def test_other_bad_input_is_refused():
    with pytest.raises(BlockXMCError, match="0-1 label matrix"):
        metrics.precision_at_k([[2, 0]], np.array([[0]]), 1)
    with pytest.raises(BlockXMCError, match="dimension"):
        metrics.precision_at_k([1, 0], np.array([[0]]), 1)
    with pytest.raises(BlockXMCError, match="inverse propensity has shape"):
        metrics.psp_at_k(Y, LABELS, 1, [1.0, 2.0])
    with pytest.raises(BlockXMCError, match="finite"):
        metrics.psp_at_k(Y, LABELS, 1, [1.0, 2.0, np.nan, 1.0])
    with pytest.raises(BlockXMCError, match="one non-negative number"):
        metrics.inverse_propensity_from_counts([1, -1], 3)
    with pytest.raises(BlockXMCError, match="label counts"):
        metrics.precision_by_frequency(Y, LABELS, 1, [1, 2])


def test_evaluate_holds_every_metric_and_points_are_hundredths():
    report = metrics.evaluate(Y, LABELS, inverse_propensity=IP)
    for k in (1, 3, 5):
        assert report[f"P@{k}"] == metrics.precision_at_k(Y, LABELS, k)
        assert report[f"nDCG@{k}"] == metrics.ndcg_at_k(Y, LABELS, k)
        assert report[f"R@{k}"] == metrics.recall_at_k(Y, LABELS, k)
        assert report[f"coverage@{k}"] == metrics.coverage_at_k(Y, LABELS, k)
        assert report[f"PSP@{k}"] == metrics.psp_at_k(Y, LABELS, k, IP)
        assert report[f"PSnDCG@{k}"] == metrics.psndcg_at_k(Y, LABELS, k, IP)
    assert (report["rows"], report["rows_without_labels"]) == (3, 1)
    points = metrics.evaluate(Y, LABELS, ks=[1], percent=True)
    assert points["P@1"] == pytest.approx(100 / 3)
    assert points["rows"] == 3
    assert "PSP@1" not in points


def test_candidates_by_hand_in_both_forms():
    clusters = [np.array([0, 1]), np.array([2, 3]), np.array([], int)]
    blocks = np.array([[0, 1], [2, -1], [0, -1]])
    pattern = sparse.csr_array(np.array([[1, 1, 1, 1], [0, 0, 0, 0], [1, 1, 0, 0]]))
    for candidates in (pattern, (blocks, clusters)):
        assert metrics.candidate_recall(Y, candidates) == 0.5  # rows 0 and 1 have labels: 2 of 2, 0 of 1
        assert metrics.precision_ceiling(Y, candidates, 1) == pytest.approx(1 / 3)
        assert metrics.precision_ceiling(Y, candidates, 3) == pytest.approx((2 / 3) / 3)
        assert metrics.candidate_counts(candidates, 4).tolist() == [4, 0, 2]
    assert metrics.candidate_recall(Y, (np.array([0, 1, 2]), clusters)) == 0.25  # one block per row


def test_stored_zeros_are_candidates_and_overlapping_clusters_count_once():
    zeros = sparse.csr_array((np.zeros(2), np.array([0, 1]), np.array([0, 1, 2, 2])), shape=(3, 4))
    assert metrics.candidate_recall(Y, zeros) == 0.75
    overlapping = (np.array([[0, 1, 1]] * 3), [[0, 1], [1, 1, 2]])
    assert metrics.candidate_counts(overlapping, 4).tolist() == [3, 3, 3]


def test_bad_candidates_are_refused():
    for candidates in (
        sparse.csr_array((2, 4)),
        sparse.csr_array((3, 5)),
        np.ones((3, 4)),
        (np.array([[2]] * 3), [[0], [1]]),
        (np.array([[0]] * 3), [[4]]),
        (np.array([[0.5]] * 3), [[1]]),
        (np.array([[0]]), [[1]]),
    ):
        with pytest.raises(BlockXMCError):
            metrics.candidate_recall(Y, candidates)


def test_candidates_of_more_rows_than_are_taken_at_once():
    rng = np.random.default_rng(0)
    n, m, q = 9000, 30, 7
    clusters = [np.flatnonzero(rng.random(m) < 0.3) for _ in range(q)]
    blocks = rng.integers(-1, q, (n, 2))
    truth = rng.random((n, m)) < 0.1
    member = np.zeros((q + 1, m), bool)
    for block, cluster in enumerate(clusters):
        member[block, cluster] = True
    allowed = member[blocks].any(axis=1)  # block -1 is the last, empty one
    some = truth.any(axis=1)
    share = (truth & allowed).sum(axis=1)[some] / truth.sum(axis=1)[some]
    assert metrics.candidate_recall(truth, (blocks, clusters)) == pytest.approx(share.mean(), abs=1e-14)
    np.testing.assert_array_equal(metrics.candidate_counts((blocks, clusters), m), allowed.sum(axis=1))


def test_speedups():
    got = metrics.speedups(670_091, 2000, 241, flops_full=38e3 + 335e6, flops=152e3 + 38e3 + 120e3)
    assert got["speedup_paper"] == pytest.approx(2780, rel=1e-3)
    assert got["speedup"] == pytest.approx(299, rel=1e-3)
    assert got["speedup_flops"] == pytest.approx(1080, rel=1e-2)
    assert metrics.speedups(10, 1, [1, 3]) == {"speedup_paper": 5.0, "speedup": 10 / 3, "speedup_flops": None}
    assert metrics.speedups(10, 0, [0, 0])["speedup"] == np.inf


def test_precision_by_frequency_adds_up_to_precision():
    rng = np.random.default_rng(1)
    truth = rng.random((50, 23)) < 0.2
    labels = np.argsort(rng.random((50, 23)), axis=1)[:, :5]
    counts = rng.integers(0, 9, 23)
    for n_bins in (1, 10, 40):
        table = metrics.precision_by_frequency(truth, labels, 5, counts, n_bins)
        assert {len(column) for column in table.values()} == {n_bins}
        assert table["precision"].sum() == pytest.approx(metrics.precision_at_k(truth, labels, 5))
        assert table["share"].sum() == pytest.approx(1.0)
        assert table["n_labels"].sum() == 23
        assert table["occurrences"].sum() == truth.sum()
        hits = (table["recall"] * table["occurrences"]).sum()
        assert hits == pytest.approx(metrics.precision_at_k(truth, labels, 5) * 250)
    table = metrics.precision_by_frequency(truth, labels, 5, counts, 10)
    assert (table["max_count"][1:] <= table["min_count"][:-1]).all()


class Shrunken(Learner):
    """Scores a label by the mean of its rows, all features above ``keep`` ignored."""

    def __init__(self, keep=1, n_jobs=1, random_state=0, verbose=0):
        self.keep, self.n_jobs, self.random_state, self.verbose = keep, n_jobs, random_state, verbose

    def _train(self, X, Y, job: Context):
        coef = (X.T @ Y).toarray()
        coef[self.keep :] = 0
        return LinearWeights(sparse.csr_array(coef.astype(np.float32)), np.zeros(Y.shape[1], np.float32))


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    truth = rng.random((60, 6)) < 0.3
    X = truth @ rng.random((6, 8)) + 0.05 * rng.random((60, 8))
    return sparse.csr_array(X), sparse.csr_array(truth.astype(int))


@pytest.mark.parametrize("metric", ["P@1", "nDCG@3", "R@5", "coverage@5", "PSP@1", "PSnDCG@5"])
def test_scorers_choose_in_grid_search_with_sparse_targets(problem, metric):
    X, truth = problem
    scorer = pickle.loads(pickle.dumps(metrics.scorer(metric)))
    search = GridSearchCV(Shrunken(), {"keep": [1, 8]}, scoring=scorer, cv=3, error_score="raise").fit(X, truth)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    best, k = search.best_estimator_, int(metric[-1])
    report = metrics.evaluate(truth, best.predict_topk(X, k)[0], [k], metrics.inverse_propensity(truth))
    assert search.score(X, truth) == pytest.approx(report[metric])


def test_several_scorers_and_a_pipeline(problem):
    X, truth = problem
    pipeline = make_pipeline(MaxAbsScaler(), Shrunken(keep=8))
    scoring = {name: metrics.scorer(name) for name in ("P@1", "PSP@3")}
    grid = {"shrunken__keep": [1, 8]}
    search = GridSearchCV(pipeline, grid, scoring=scoring, refit="P@1", cv=3, error_score="raise").fit(X, truth)
    assert set(search.cv_results_) >= {"mean_test_P@1", "mean_test_PSP@3"}
    pipeline.fit(X, truth)
    labels = pipeline[-1].predict_topk(pipeline[:-1].transform(X), 1)[0]
    assert scoring["P@1"](pipeline, X, truth) == metrics.precision_at_k(truth, labels, 1)


def test_scorer_understands_label_names(problem):
    X, truth = problem
    names = [[f"label {j}" for j in np.flatnonzero(row)] for row in truth.toarray()]
    model = Shrunken(keep=8).fit(X, names)
    expected = metrics.precision_at_k(truth, model.predict_topk(X, 3)[0], 3)
    assert metrics.scorer("P@3")(model, X, names) == expected


@pytest.mark.parametrize("name", ["P", "P@0", "p@1", "P@-1", "MAP@5", "P@1 ", ""])
def test_unknown_metric_names_are_refused(name):
    with pytest.raises(BlockXMCError, match="unknown metric"):
        metrics.scorer(name)


def test_public_names_are_sorted_and_exist():
    assert metrics.__all__ == sorted(metrics.__all__)
    assert all(hasattr(metrics, name) for name in metrics.__all__)
