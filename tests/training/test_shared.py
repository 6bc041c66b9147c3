from dataclasses import replace

import numpy as np
import pytest
from helpers import blocky
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from blockxmc import (
    LEML,
    BlockwiseClassifier,
    DiSMEC,
    NaiveBayes,
    PPDSparse,
    _kernels,
    load,
    metrics,
)
from blockxmc._core.progress import Reporter
from blockxmc.data import make_synthetic
from blockxmc.errors import BlockXMCError
from blockxmc.learners._learner import Context
from blockxmc.learners.sklearn_adapter import as_learner
from blockxmc.linear.scorers import pack_scorer
from blockxmc.linear.vectors import LabelVectors
from blockxmc.linear.weights import LinearWeights
from blockxmc.model.routed_scorer import RoutedScorer
from blockxmc.partition import Partitioner
from blockxmc.training import settings
from blockxmc.training.batches import rows_of_labels
from blockxmc.training.blocks import (
    cover_all_labels,
    expected_products,
    frequent_labels,
    visits_of,
)
from blockxmc.training.candidates import HeldOut, Mix
from blockxmc.training.held_out import held_out_rows, labels_short_of_rows
from blockxmc.training.labels import LabelTrainer, pack_shared, replaced, shared_costs
from blockxmc.training.mix import Fitter
from blockxmc.training.settings import SETTINGS


def with_settings(monkeypatch, **changed):
    monkeypatch.setattr(settings, "SETTINGS", replace(SETTINGS, **changed))


def with_slope(monkeypatch, slope):
    monkeypatch.setattr(Fitter, "mix", lambda self, neighbors: Mix(slope, neighbors=neighbors))


def vectors_of(weights):
    return LabelVectors.joined([weights], np.arange(weights.n_labels))


class Silent:
    def update(self, done):
        pass


def random_weights(rng, n_features, n_labels, density=0.4):
    coef = sparse.random_array((n_features, n_labels), density=density, rng=rng, dtype=np.float32, format="csr")
    return LinearWeights(coef, rng.normal(size=n_labels).astype(np.float32))


def random_clusters(rng, n_blocks, n_labels, size):
    clusters = [np.sort(rng.choice(n_labels, size, replace=False)) for _ in range(n_blocks)]
    return [np.union1d(cluster, [0, 3]) for cluster in clusters]  # two labels live everywhere


def naive_merge(router, weights, clusters, X, b, slope):
    """The definition, a row and a label at a time."""
    margins, scores = router.scores(X), weights.scores(X)
    found = []
    for i in range(X.shape[0]):
        visited = np.lexsort((np.arange(len(clusters)), -margins[i]))[:b]
        mass = {}
        for block in visited:
            for label in clusters[block]:
                mass[label] = mass.get(label, 0.0) + np.exp(-(max(0, 1 - margins[i, block]) ** 2))
        found.append({label: scores[i, label] + slope * np.log(total) for label, total in mass.items()})
    return found


@pytest.mark.parametrize("slope", [0.1, 0.5])
@pytest.mark.parametrize("b", [1, 3])
def test_merged_scores_against_the_definition(slope, b):
    rng = np.random.default_rng(0)
    X = sparse.random_array((30, 12), density=0.4, rng=rng, dtype=np.float32, format="csr")
    router, weights = random_weights(rng, 12, 6), random_weights(rng, 12, 20)
    clusters = random_clusters(rng, 6, 20, 5)
    packed_router = pack_scorer([router], [np.arange(6)], n_features=12, n_labels=6)
    expected = naive_merge(router, weights, clusters, X, b, slope)
    for frequent in (True, False):
        if frequent:
            few = replace(SETTINGS, few_blocks=2)
            scorer = pack_shared(vectors_of(weights), clusters, n_features=12, bits=32, threads=1, settings=few)
            assert scorer.n_blocks == 7
        else:
            scorer = pack_scorer(list(weights.split(clusters)), clusters, n_features=12, n_labels=20)
        routed = RoutedScorer(packed_router, scorer, b, slope)
        labels, scores = routed.topk(X, 4)
        for i, truth in enumerate(expected):
            best = sorted(truth.items(), key=lambda item: -item[1])[:4]
            assert labels[i, : len(best)].tolist() == [label for label, _ in best]
            np.testing.assert_allclose(scores[i, : len(best)], [score for _, score in best], rtol=1e-4, atol=1e-5)


def test_merged_batch_single_threads_and_candidates_agree_bit_for_bit():
    rng = np.random.default_rng(1)
    X = sparse.random_array((700, 15), density=0.3, rng=rng, dtype=np.float32, format="csr")
    router, weights = random_weights(rng, 15, 9), random_weights(rng, 15, 40)
    clusters = random_clusters(rng, 9, 40, 8)
    packed = pack_shared(vectors_of(weights), clusters, n_features=15, bits=16, threads=1)
    routed = RoutedScorer(pack_scorer([router], [np.arange(9)], n_features=15, n_labels=9), packed, 3, 0.3)
    labels, scores = routed.topk(X, 5, threads=1)
    for mine, theirs in zip(routed.topk(X, 5, threads=2), (labels, scores), strict=True):
        assert_array_equal(mine, theirs)
    candidates = routed.scores(X, threads=2)
    for i in range(X.shape[0]):
        at = slice(X.indptr[i], X.indptr[i + 1])
        one = routed.one(X.indices[at], X.data[at], 5)
        assert_array_equal(one[0], labels[i])
        assert_array_equal(one[1], scores[i])
        row = candidates[[i]]
        order = np.lexsort((row.indices, -row.data))[:5]
        assert_array_equal(row.indices[order], labels[i])
        assert_array_equal(row.data[order], scores[i])


def test_every_label_has_a_block():
    X, Y = blocky()
    clusters = [np.array([0]), np.array([1])]
    assignment = (np.arange(X.shape[0]) % 2).astype(np.int32)
    covered = cover_all_labels(Y, assignment, clusters)
    assert set(np.concatenate(covered)) == set(np.unique(Y.indices))
    counts = np.stack([np.bincount(Y[assignment == block].indices, minlength=Y.shape[1]) for block in (0, 1)])
    for block in (0, 1):
        for label in set(covered[block]) - {0, 1}:
            assert counts[block, label] >= counts[1 - block, label]


def test_labels_learn_from_the_union_of_their_rows():
    X, Y = blocky(n=120, n_labels=14)
    assignment = (np.arange(120) % 3).astype(np.int32)
    routed = ((np.arange(120)[:, None] + [1, 5]) % 3).astype(np.int32)
    clusters = cover_all_labels(Y, assignment, [np.array([0, 2, 4]), np.array([1, 2]), np.array([3])])
    learner = DiSMEC(tol=1e-6, prune=0.0)
    visits = visits_of(assignment, routed, len(clusters))
    costs = shared_costs(Y, SETTINGS.shared_positive)
    found, _ = LabelTrainer(learner, X, clusters, Reporter(), threads=1, seed=0).train(Y, visits, "labels")
    for label in range(Y.shape[1]):
        blocks = [block for block, ids in enumerate(clusters) if label in ids]
        rows = np.isin(assignment, blocks) | np.isin(routed, blocks).any(axis=1)
        rows |= Y[:, [label]].toarray().ravel() > 0
        used = np.flatnonzero(rows)
        if not used.size:
            continue
        own = sparse.csr_array(Y[used][:, [label]])
        alone = learner._train(X[used], own, Context(1, 0, Silent()), costs=costs[used])
        theirs = found.vectors[[label]].toarray().ravel()
        np.testing.assert_allclose(theirs, alone.coef.toarray().ravel(), atol=2e-3)


def test_a_row_of_several_blocks_teaches_a_label_once():
    _, Y = blocky(n=60, n_labels=8)
    visits = visits_of((np.arange(60) % 2).astype(np.int32), (np.arange(60)[:, None] % 2).astype(np.int32) ^ 1, 2)
    rows = rows_of_labels(
        sparse.csr_array(visits.T), sparse.csr_array(np.ones((8, 2), np.float32)), sparse.csr_array(Y.T), 1
    )
    assert_array_equal(rows.toarray(), np.ones((8, 60)))


def test_batches_of_labels_change_nothing(monkeypatch):
    X, Y = blocky(n=120)
    base = DiSMEC(tol=1e-7, prune=0.0)
    once = BlockwiseClassifier(base, n_blocks=4).fit(X, Y).predict_topk(X)[1]
    with_settings(monkeypatch, pairs_at_a_time=100)
    np.testing.assert_allclose(BlockwiseClassifier(base, n_blocks=4).fit(X, Y).predict_topk(X)[1], once, atol=2e-3)


def test_blocks_that_do_not_pay_give_way_to_the_full_classifier(caplog):
    X, Y = blocky(n=2500, n_labels=12)
    clf = BlockwiseClassifier(verbose=1).fit(X, Y)  # any blocks would take more than six products
    assert clf.partition_.n_blocks_ == 1
    assert clf.cost_["products"] == np.unique(Y.indices).size
    assert clf.model_.neighbors is None
    assert clf.model_.reranker is not None  # scores are mixed and calibrated as behind blocks
    assert clf.model_.calibration is not None
    labels, scores = clf.predict_topk(X, 5)
    one = clf.predict_one(X[[3]].indices, X[[3]].data, 5)
    assert_array_equal(one[0], labels[3])
    assert_array_equal(one[1], scores[3])


def test_expected_products_are_those_of_the_blocks():
    X, Y = blocky(n=400, n_labels=40)
    partition = Partitioner(8, lam=0.01, init="labels").fit(X, Y)
    rows = partition.assignment_
    labels = np.mean([len(partition.label_clusters_[block]) for block in rows])
    sizes = np.bincount(rows)[rows].mean()
    assert expected_products(partition) == pytest.approx(8 + 4 * labels)
    assert expected_products(partition, neighbors=True) == pytest.approx(8 + 4 * (labels + sizes))


def test_neighbors_that_cost_too_much_are_not_asked_unless_wanted():
    X, Y = blocky(n=900, n_labels=40)
    auto, wanted = (BlockwiseClassifier(n_blocks=8, n_neighbors=n).fit(X, Y) for n in ("auto", 5))
    assert auto.model_.neighbors is None
    assert wanted.model_.neighbors is not None


def test_frequent_labels():
    clusters = [np.array([0, i]) for i in range(1, 20)]
    assert frequent_labels(clusters, 20).tolist() == [0]
    assert frequent_labels(clusters[:4], 20).tolist() == []


def test_frequent_labels_fill_no_more_than_a_chunk_where_few_more_copies_prevent_it():
    room = _kernels.MAX_CHUNK_LABELS
    some, others = np.arange(room), np.arange(room, room + 10)
    for copies, frequent in ((4, room), (6, room), (7, room), (8, room), (9, room + 10)):
        found = frequent_labels([some] * 10 + [others] * copies, room + 10)
        assert found.size == frequent


@pytest.mark.parametrize(
    "base", [None, PPDSparse(), NaiveBayes(), LinearSVC(), DecisionTreeClassifier(max_depth=4, random_state=0)]
)
def test_shared_weights_for_every_one_vs_all_base(base, tmp_path):
    X, Y = blocky(n=260, n_labels=14)
    clf = BlockwiseClassifier(base, weights="shared", n_blocks=3).fit(X, Y)
    assert clf.score(X, Y) > 0.5
    assert 0 < clf.cost_["trained_pairs"] <= 1
    _, scores = clf.predict_topk(X, 3)
    finite = scores[np.isfinite(scores)]
    assert ((finite >= 0) & (finite <= 1)).all()
    if not isinstance(base, DecisionTreeClassifier):
        clf.save(tmp_path / "m")
        assert_array_equal(load(tmp_path / "m").predict_topk(X, 3)[1], scores)


def test_shared_weights_need_one_vs_all():
    X, Y = blocky(n=60)
    with pytest.raises(BlockXMCError, match="one-vs-all"):
        BlockwiseClassifier(LEML(rank=5), weights="shared").fit(X, Y)
    assert BlockwiseClassifier(LEML(rank=5), n_blocks=2, lam=0.1).fit(X, Y).model_.calibration is None


def test_shared_weights_reach_the_full_classifier():
    X, Y = blocky(n=900, n_labels=44, n_blocks=6)
    train, test = slice(0, 700), slice(700, 900)
    full = DiSMEC().fit(X[train], Y[train])
    clf = BlockwiseClassifier(n_blocks=6).fit(X[train], Y[train])
    p3 = [metrics.precision_at_k(Y[test], model.predict_topk(X[test], 3)[0], 3) for model in (clf, full)]
    assert p3[0] > p3[1] - 0.02


def test_scores_are_calibrated():
    X, Y = blocky(n=1500, n_labels=23)
    clf = BlockwiseClassifier(n_blocks=3).fit(X[:1000], Y[:1000])
    scores = clf.decision_function(X[1000:])
    rows = np.repeat(np.arange(500), np.diff(scores.indptr))
    right = np.asarray(Y[1000:][rows, scores.indices]).ravel()
    for low, high in ((0.0, 0.2), (0.5, 1.0)):
        inside = (scores.data >= low) & (scores.data < high)
        assert abs(right[inside].mean() - scores.data[inside].mean()) < 0.12


@pytest.mark.parametrize("base", [DiSMEC(tol=1e-6, prune=0.0), DecisionTreeClassifier(max_depth=2, random_state=0)])
def test_some_labels_can_be_trained_again(base):
    X, Y = blocky(n=120, n_labels=14)
    assignment = (np.arange(120) % 3).astype(np.int32)
    clusters = cover_all_labels(Y, assignment, [np.arange(14)] * 3)
    visits = visits_of(assignment, assignment[:, None], 3)
    trainer = LabelTrainer(as_learner(base, DiSMEC), X, clusters, Reporter(), threads=1, seed=0)
    whole, none = (trainer.train(labels, visits, "labels")[0] for labels in (Y, Y * 0))
    some = np.array([1, 5, 13])
    mixed = replaced(none, some, trainer.train_some(Y, visits, some, "again"), 1).scores(X)
    others = np.setdiff1d(np.arange(14), some)
    np.testing.assert_allclose(mixed[:, some], whole.scores(X)[:, some], atol=2e-3)
    assert_array_equal(mixed[:, others], none.scores(X)[:, others])


def test_rows_left_out_visit_nothing():
    assignment, routed = np.array([0, 1, 1], np.int32), np.array([[1], [1], [0]], np.int32)
    visits = visits_of(assignment, routed, 2, np.array([True, False, True]))
    assert_array_equal(visits.toarray() > 0, [[True, True], [False, False], [True, True]])


def test_held_out_rows_teach_no_label_before_merging(monkeypatch):
    X, Y = blocky(n=600, n_labels=20)
    seen = []
    candidates = HeldOut.candidates

    def spy(rows, *args):
        seen.append((rows.trial.scorer, rows.X, rows.trial.neighbors))
        return candidates(rows, *args)

    monkeypatch.setattr(HeldOut, "candidates", spy)
    with_slope(monkeypatch, 0.0)
    with_settings(monkeypatch, held_out_least=20)
    clf = BlockwiseClassifier(n_blocks=3, n_neighbors=10).fit(X, Y)
    held_out = held_out_rows(Y, 0, settings.SETTINGS)
    assert_array_equal(seen[0][1].toarray(), X[held_out].toarray())
    # They are nobody's neighbors either, until all is fitted.
    assert_array_equal(np.sort(np.concatenate(seen[0][2].rows.label_clusters)), np.flatnonzero(~held_out))
    assert_array_equal(np.sort(np.concatenate(clf.model_.neighbors.rows.label_clusters)), np.arange(600))
    assert short_of_rows(Y, held_out) == labels_short_of_rows(Y, held_out).tolist()
    # Labels that lost few positives keep the weights that the held-out rows judged.
    kept = np.setdiff1d(np.arange(20), short_of_rows(Y, held_out))
    assert kept.size
    before = seen[0][0].scores(X, None).toarray()[:, kept]
    np.testing.assert_allclose(clf.model_.scorer.scores(X, None).toarray()[:, kept], before, atol=1e-6)


def test_the_recall_that_is_promised_counts_no_label_that_only_held_out_rows_brought_in():
    """Labels of a few rows each, which no feature tells: a held-out row finds its label where it put it itself."""
    rng = np.random.default_rng(0)
    Y = sparse.csr_array(
        (np.ones(4000, np.float32), rng.integers(1500, size=4000), np.arange(4001)), shape=(4000, 1500)
    )
    X = sparse.csr_array(sparse.random(4000, 300, 0.05, rng=rng, dtype=np.float32))
    clf = BlockwiseClassifier(n_blocks=30, route=4, base=DiSMEC(tol=1.0)).fit(X, Y)
    held_out = held_out_rows(Y, 0)
    visited = clf.model_.visited(X[held_out], 1)[:, -4:]
    found = metrics.candidate_recall(Y[held_out], (visited, clf.model_.scorer.label_clusters))
    assert clf.cost_["candidate_recall"] < found - 0.05


def test_blocks_and_router_do_not_know_the_labels_of_held_out_rows():
    """Other labels for the held-out rows change neither blocks nor router."""
    X, Y = blocky(n=600, n_labels=30)
    held_out = held_out_rows(Y, 0)
    other = Y.tolil()
    other[held_out] = np.roll(Y.toarray(), 7, axis=1)[held_out]
    one, two = (BlockwiseClassifier(n_blocks=4).fit(X, labels) for labels in (Y, sparse.csr_array(other)))
    assert_array_equal(held_out_rows(sparse.csr_array(other), 0), held_out)
    assert held_out.any()
    assert_array_equal(one.partition_.assignment_, two.partition_.assignment_)
    for ours, theirs in zip(one.partition_.label_clusters_, two.partition_.label_clusters_, strict=True):
        assert_array_equal(ours, theirs)
    assert_array_equal(one.model_.visited(X, 1), two.model_.visited(X, 1))


def test_labels_that_only_held_out_rows_have_are_still_learnt():
    X, Y = blocky(n=600, n_labels=30)
    held_out = held_out_rows(Y, 0)
    rare = sparse.csr_array((np.ones(2, np.float32), (np.flatnonzero(held_out)[:2], [0, 1])), shape=(600, 2))
    clf = BlockwiseClassifier(n_blocks=4).fit(X, sparse.csr_array(sparse.hstack([Y, rare])))
    assert {30, 31} <= set(np.concatenate(clf.model_.scorer.label_clusters).tolist())


def test_no_row_is_held_out_where_the_others_have_no_label():
    Y = sparse.csr_array((np.ones(1, np.float32), ([100], [0])), shape=(400, 1))
    assert not any(held_out_rows(Y, seed).any() for seed in range(20) if held_out_rows(Y, seed)[100])
    X = sparse.csr_array(np.eye(400, dtype=np.float32))
    assert BlockwiseClassifier().fit(X, Y).predict_topk(X[[100]], 1)[0].tolist() == [[0]]


def short_of_rows(Y, held_out):
    dense = Y.toarray() > 0
    lost, positives = dense[held_out].sum(0), dense.sum(0)
    return [j for j in range(Y.shape[1]) if lost[j] > 0.03 * positives[j]]


@pytest.mark.parametrize("factor", [8.0, 0.125])
def test_the_default_does_not_mind_how_long_rows_are(factor):
    X, Y = blocky(n=400, n_labels=30)
    X = sparse.csr_array(normalize(X))
    labels, scores = BlockwiseClassifier(n_blocks=4).fit(X, Y).predict_topk(X, 3)
    scaled = sparse.csr_array(X * np.float32(factor))
    again, same = BlockwiseClassifier(n_blocks=4).fit(scaled, Y).predict_topk(scaled, 3)
    assert (again == labels).mean() > 0.95
    np.testing.assert_allclose(same, scores, atol=0.1)  # the solver stops where it may, not at the same point


def test_labels_that_lost_nothing_are_not_trained_again(monkeypatch):
    X, Y = blocky(n=400, n_labels=12)
    with_settings(monkeypatch, lost=1.0)  # no label loses more than all it has
    monkeypatch.setattr(LabelTrainer, "train_some", None)
    clf = BlockwiseClassifier(n_blocks=3).fit(X, Y)
    assert clf.score(X, Y) > 0.5


def test_labels_learn_from_the_same_rows_whatever_the_route():
    X, Y = blocky(n=400, n_labels=12)
    one, four = (BlockwiseClassifier(n_blocks=5, route=route).fit(X, Y).cost_["trained_pairs"] for route in (1, 4))
    assert one == four


@pytest.mark.parametrize("top_p", [0.3, 0.6, 0.95])
def test_a_row_visits_blocks_until_their_probability_is_enough(top_p, tmp_path):
    X, Y = blocky(n=400, n_labels=40)
    clf = BlockwiseClassifier(n_blocks=8, route=top_p).fit(X, Y)
    blocks, _ = clf.model_.router.topk(X, None, 8)
    assert clf.model_.route == 8
    p = np.exp(-(np.maximum(0, 1 - np.take_along_axis(margins_of(clf.model_.router, X), blocks, 1)) ** 2))
    before = np.cumsum(p, axis=1) - p
    expected = np.where((before >= top_p * p.sum(axis=1, keepdims=True)) & (np.arange(8) > 0), -1, blocks)
    visited = clf.model_.visited(X, 1)[:, -8:]
    assert_array_equal(visited, expected)
    assert (visited < 0).any()
    labels, scores = clf.predict_topk(X, 5)
    for i in (0, 17, 399):
        one = clf.predict_one(X[[i]].indices, X[[i]].data, 5)
        assert_array_equal(one[0], labels[i])
        assert_array_equal(one[1], scores[i])
    clf.save(tmp_path / "m")
    assert_array_equal(load(tmp_path / "m").predict_topk(X, 5)[0], labels)


def margins_of(router, X):
    return router.scores(X, None).toarray()


@pytest.mark.parametrize("route", [0, -1, 1.5, 0.0, "many"])
def test_a_route_that_makes_no_sense(route):
    with pytest.raises(BlockXMCError, match="route"):
        BlockwiseClassifier(route=route).fit(*blocky(n=30))


def test_a_share_of_probability_needs_shared_and_linear_weights():
    with pytest.raises(BlockXMCError, match="shared weights"):
        BlockwiseClassifier(route=0.5, weights="per-block").fit(*blocky(n=30))
    with pytest.raises(BlockXMCError, match="shared weights"):
        BlockwiseClassifier(LEML(rank=2), route=0.5).fit(*blocky(n=30))
    with pytest.raises(BlockXMCError, match="linear base"):
        BlockwiseClassifier(DecisionTreeClassifier(), n_blocks=3, route=0.5).fit(*blocky(n=60))


def test_weights_of_fewer_bits_are_smaller_and_nearly_the_same(monkeypatch):
    with_slope(monkeypatch, 0.2)  # rounded scores fit a slope that is a little different
    X, Y = blocky(n=400, n_labels=40)
    full, half, byte = (
        BlockwiseClassifier(n_blocks=4, weight_bits=bits, verbose=2).fit(X, Y) for bits in (32, "auto", 8)
    )
    assert [model.model_.scorer.bits for model in (full, half, byte)] == [32, 16, 8]
    assert byte.model_.scorer.nbytes < half.model_.scorer.nbytes < full.model_.scorer.nbytes
    for model in (half, byte):
        scores, exact = (replace(one.model_, calibration=None).scores(X, 1).toarray() for one in (model, full))
        np.testing.assert_allclose(scores, exact, atol=0.2)
    for wrong in (12, "16", None, [8]):
        with pytest.raises(BlockXMCError, match='weight_bits must be "auto", 32, 16 or 8'):
            BlockwiseClassifier(weight_bits=wrong).fit(X, Y)


def test_the_papers_weights_can_have_8_bits_too():
    X, Y = blocky()
    full, byte = (BlockwiseClassifier.paper(n_blocks=3, lam=0.1, weight_bits=bits).fit(X, Y) for bits in ("auto", 8))
    assert [model.model_.scorer.bits for model in (full, byte)] == [32, 8]
    np.testing.assert_allclose(byte.decision_function(X).toarray(), full.decision_function(X).toarray(), atol=0.1)


@pytest.mark.parametrize("slope", [0.0, 0.3])
def test_where_frequent_labels_are_kept_changes_no_answer(monkeypatch, slope):
    X, Y = blocky(n=400, n_labels=40)
    with_slope(monkeypatch, slope)
    models = []
    for most in (1, 10**9):
        with_settings(monkeypatch, few_blocks=most, many_blocks=most)
        models.append(BlockwiseClassifier(n_blocks=6, route=2, lam=0.01).fit(X, Y))
    apart, everywhere = models
    assert apart.model_.scorer.n_blocks == everywhere.model_.scorer.n_blocks + 1
    assert apart.model_.slope == slope
    (labels, scores), (same_labels, same_scores) = (model.predict_topk(X, 3) for model in models)
    assert_array_equal(labels, same_labels)
    np.testing.assert_allclose(scores, same_scores, atol=1e-3)
    one = apart.predict_one(X[[5]].indices, X[[5]].data, 3)
    assert_array_equal(one[0], labels[5])
    whole = apart.decision_function(X).toarray()
    np.testing.assert_allclose(np.take_along_axis(whole, labels, 1), scores, atol=1e-6)


@pytest.mark.parametrize("n_jobs", [1, 3])
@pytest.mark.parametrize("slope", [0.0, 0.3])
def test_where_more_labels_are_wanted_than_blocks_list_the_other_frequent_ones_come_last(monkeypatch, slope, n_jobs):
    X, Y = blocky(n=400, n_labels=40)
    with_slope(monkeypatch, slope)
    with_settings(monkeypatch, few_blocks=1)
    blocks = BlockwiseClassifier(n_blocks=6, route=1, lam=0.01).fit(X, Y).model_
    blocks = replace(blocks, calibration=None)  # probabilities of the last ones are all 0
    candidates = blocks.scores(X, n_jobs)
    assert np.diff(candidates.indptr).min() < 40
    unlisted = 0
    for k in (3, 40):
        labels, scores = blocks.topk(X, k, n_jobs)
        for i in range(X.shape[0]):
            a, b = candidates.indptr[i : i + 2]
            best = np.lexsort((candidates.indices[a:b], -candidates.data[a:b]))[:k]
            assert_array_equal(labels[i][: best.size], candidates.indices[a:b][best])
            assert_array_equal(scores[i][: best.size], candidates.data[a:b][best])
            assert (labels[i][best.size :] == -1).all()
            unlisted += (candidates.data[a:b] < -1e5).sum()
            alone = blocks.one(X.indices[X.indptr[i] : X.indptr[i + 1]], X.data[X.indptr[i] : X.indptr[i + 1]], k)
            assert_array_equal(alone[0], labels[i])
            assert_array_equal(alone[1], scores[i])
    assert unlisted > 0


def test_the_default_alternates_for_few_rounds_and_the_paper_until_nothing_moves():
    data, _ = make_synthetic(n_train=1000, n_test=1, n_features=400, n_labels=1500, labels_per_row=30.0)
    ours = BlockwiseClassifier(n_blocks=32, lam=0.5).fit(data.X, data.Y)
    assert len(ours.partition_.objective_trace_) == 1 + 2 * settings.SETTINGS.rounds
    paper = Partitioner(32, 0.5, init="labels").fit(data.X, data.Y)
    assert len(paper.objective_trace_) > 1 + 2 * settings.SETTINGS.rounds


def test_rows_of_very_different_length_are_told_of(caplog):
    X, Y = blocky()
    lengths = np.exp(2 * np.random.default_rng(0).standard_normal(X.shape[0])).astype(np.float32)
    BlockwiseClassifier(n_blocks=3, verbose=1).fit(sparse.csr_array(X.multiply(lengths[:, None])), Y)
    assert "Rows differ much in length: one in a hundred is " in caplog.text
    caplog.clear()
    BlockwiseClassifier(n_blocks=3, verbose=1).fit(X, Y)
    assert "Rows differ" not in caplog.text
