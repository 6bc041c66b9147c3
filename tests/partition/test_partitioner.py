import json

import numpy as np
import pytest
from helpers import blocky
from partition_twins import random_problem
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.cluster import KMeans
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import normalize

from blockxmc import Partitioner
from blockxmc._core.progress import Reporter
from blockxmc.errors import BlockXMCError
from blockxmc.partition import choice, start
from blockxmc.partition.ranking import Ranking


def planted(n=400, groups=4, d=40, m=40, seed=0):
    """Rows of one group share features and labels."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, groups, n)
    X = (rng.random((n, d)) < 0.02).astype(np.float32)
    Y = np.zeros((n, m), np.float32)
    for i, g in enumerate(group):
        X[i, g * (d // groups) + rng.choice(d // groups, 5, replace=False)] = 1
        Y[i, g * (m // groups) + rng.choice(m // groups, 3, replace=False)] = 1
    return sparse.csr_array(X), sparse.csr_array(Y), group


class TestFit:
    @pytest.mark.parametrize("init", ["kmeans", "labels"])
    @pytest.mark.parametrize("objective", ["quadratic", "cost"])
    def test_finds_planted_blocks(self, init, objective):
        X, Y, group = planted()
        p = Partitioner(n_blocks=4, lam=0.05, init=init, objective=objective).fit(X, Y)
        assert p.n_blocks_ == 4
        assert p.captured_ == 1
        assert len(set(zip(p.assignment_.tolist(), group.tolist(), strict=True))) == 4
        assert sorted(c.tolist() for c in p.label_clusters_) == [list(range(g, g + 10)) for g in range(0, 40, 10)]

    def test_one_block_with_lambda_0_has_all_labels_seen(self):
        X, Y = random_problem(4)
        Y = sparse.hstack([Y, sparse.csr_array((Y.shape[0], 2))], format="csr")
        p = Partitioner(n_blocks=1, lam=0).fit(X, Y)
        np.testing.assert_array_equal(p.label_clusters_[0], np.unique(Y.indices))
        assert p.captured_ == 1
        assert not p.assignment_.any()

    def test_max_iter_0_is_the_start_and_its_label_step(self):
        X, Y = random_problem(4)
        z = start.cluster_rows(X, 3, balanced=True, seed=7, threads=1, reporter=Reporter())
        p = Partitioner(lam=0.4, init=z, max_iter=0).fit(X, Y)
        np.testing.assert_array_equal(p.assignment_, z)
        assert (p.n_iter_, len(p.objective_trace_)) == (0, 1)

    def test_blocks_that_lose_all_labels_are_dropped(self):
        Y = np.array([[1, 0, 0]] * 8 + [[1, 1, 0]] * 8 + [[0, 0, 1]], np.float32)
        X = np.eye(17)
        p = Partitioner(lam=2, init=[0] * 8 + [1] * 8 + [2]).fit(X, Y)
        assert p.n_blocks_ == 2
        assert p.assignment_.max() == 1

    def test_gaps_in_a_given_start_are_closed_up(self):
        X, Y = random_problem(4)
        wide, narrow = (Partitioner(lam=0.1, init=np.arange(60) % 3 * gap).fit(X, Y) for gap in (10**12, 1))
        np.testing.assert_array_equal(wide.assignment_, narrow.assignment_)

    def test_unlabelled_rows_follow_their_features(self):
        X, Y, group = planted()
        empty = np.arange(0, 400, 10)
        mask = np.ones((400, 1))
        mask[empty] = 0
        Y = sparse.csr_array(Y.multiply(mask))
        Y.eliminate_zeros()
        p = Partitioner(n_blocks=4, lam=0.05, init="labels").fit(X, Y)
        assert len(set(zip(p.assignment_.tolist(), group.tolist(), strict=True))) == 4

    def test_threads_give_the_same_bits(self):
        X, Y = random_problem(9, n=9000, d=60, m=40)
        for init in ("kmeans", "balanced", "labels"):
            one, many = (Partitioner(n_blocks=12, init=init, n_jobs=jobs).fit(X, Y) for jobs in (1, 4))
            np.testing.assert_array_equal(one.assignment_, many.assignment_)
            assert one.objective_trace_.tobytes() == many.objective_trace_.tobytes()
            assert one.lam_ == many.lam_

    def test_seed_matters_and_repeats(self):
        X, Y = random_problem(9, n=300)
        a, b, c = (Partitioner(n_blocks=9, lam=0.1, random_state=s).fit(X, Y).assignment_ for s in (1, 1, 2))
        np.testing.assert_array_equal(a, b)
        assert (a != c).any()

    def test_label_names_and_dense_input(self):
        p = Partitioner(n_blocks=2, lam=0.1).fit([[1, 0], [0, 1], [0, 1]], [["a"], ["b", "c"], ["b"]])
        assert sorted(c.tolist() for c in p.label_clusters_) == [[0], [1, 2]]

    def test_rows_and_features_that_are_empty(self):
        X, Y = random_problem(4, n=30)
        for nothing in (sparse.csr_array((30, 5), dtype=np.float32), np.zeros((30, 1))):
            for init in ("kmeans", "balanced", "labels"):
                assert Partitioner(n_blocks=3, lam=0.1, init=init).fit(nothing, Y).n_blocks_ >= 1
        assert Partitioner(n_blocks=30, lam=0).fit(X, Y).captured_ == 1

    def test_lam_auto_keeps_its_promise_at_the_start(self):
        X, Y = random_problem(4, n=500, m=60)
        p = Partitioner(n_blocks=6, max_iter=0).fit(X, Y)
        assert p.captured_ >= choice.FLOOR
        path = p.path()
        assert path.captured[path.lam > p.lam_].max() < choice.FLOOR
        assert p.lam_rel_ == pytest.approx(p.lam_ * 6 / 500)


class TestBadInput:
    @pytest.mark.parametrize(
        ("params", "message"),
        [
            ({"n_blocks": 61}, "more than the 60 rows"),
            ({"n_blocks": 0}, "at least 1"),
            ({"n_blocks": 2.5}, "whole number"),
            ({"n_blocks": None}, "whole number"),
            ({"lam": None}, "lam must be"),
            ({"n_blocks": "many"}, "n_blocks must be"),
            ({"lam": -1}, "lam must be"),
            ({"lam": "big"}, "lam must be"),
            ({"lam": np.inf}, "lam must be"),
            ({"lam": 1e9}, "use a lam below"),
            ({"objective": "cubic"}, "objective must be"),
            ({"tie": "first"}, "tie must be"),
            ({"init": "random"}, "init must be"),
            ({"init": [0, 1]}, "one whole number for each of the 60 rows"),
            ({"init": np.zeros(60)}, "one whole number"),
            ({"init": np.full(60, -1)}, "negative"),
            ({"init": np.arange(60), "n_blocks": 3}, "init names 60 blocks"),
            ({"max_iter": -1}, "max_iter"),
        ],
    )
    def test_is_one_clear_line(self, params, message):
        X, Y = random_problem(0)
        with pytest.raises(BlockXMCError, match=message) as error:
            Partitioner(**params).fit(X, Y)
        assert "\n" not in str(error.value)

    def test_no_labels_at_all(self):
        X, Y = random_problem(0)
        with pytest.raises(BlockXMCError, match="no row has a label"):
            Partitioner().fit(X, sparse.csr_array(Y.shape))

    def test_unfitted(self):
        with pytest.raises(NotFittedError):
            Partitioner().path()


class TestEstimator:
    def test_clone_and_params(self):
        p = Partitioner(n_blocks=3, lam=0.2).set_params(tie="small")
        assert clone(p).get_params() == p.get_params()
        assert not is_classifier(p)

    @pytest.mark.parametrize("init", ["kmeans", "array"])
    def test_state_round_trip(self, init):
        X, Y = random_problem(3)
        given = np.arange(60) % 4 if init == "array" else init
        p = Partitioner(n_blocks=4, lam=0.3, init=given, objective="cost").fit(X, Y)
        q = Partitioner.from_state(p.state())
        np.testing.assert_array_equal(q.assignment_, p.assignment_)
        for a, b in zip(p.label_clusters_, q.label_clusters_, strict=True):
            np.testing.assert_array_equal(a, b)
        for name in ("captured_", "lam_", "lam_rel_", "n_blocks_", "n_iter_", "choice_", "n_features_in_"):
            assert getattr(p, name) == getattr(q, name)
        np.testing.assert_array_equal(p.objective_trace_, q.objective_trace_)
        np.testing.assert_array_equal(p.path().captured, q.path().captured)
        json.dumps(p.choice_)

    def test_verbose_says_what_was_chosen(self, caplog):
        X, Y = random_problem(3)
        Partitioner(n_blocks=2, lam=0.1, verbose=1).fit(X, Y)
        assert "2 blocks" in caplog.text


class TestChoice:
    def test_few_labels_need_one_block(self):
        rng = np.random.default_rng(0)
        p = Partitioner().fit(rng.random((30, 4)), np.arange(30) % 3)
        assert p.n_blocks_ == 1
        assert p.captured_ == 1

    def test_planted_blocks_save_products(self):
        X, Y, _ = planted(n=2000, groups=8, d=160, m=400)
        p = Partitioner().fit(X, Y)
        tried = {t["n_blocks"]: t["products"] for t in p.choice_["n_blocks"]["tried"]}
        assert min(tried, key=tried.get) == p.choice_["n_blocks"]["start"] > 4
        assert tried[p.choice_["n_blocks"]["start"]] < tried[1] / 3

    def test_a_sample_of_rows_chooses_alike(self, monkeypatch):
        X, Y, _ = planted(n=4000, groups=8, d=160, m=400)
        whole = choice.fewest_products(X, Y, None, "quadratic", seed=0, threads=1)
        monkeypatch.setattr(choice, "SAMPLE_ROWS", 2500)
        part = choice.fewest_products(X, Y, None, "quadratic", seed=0, threads=1)
        assert whole.n_blocks / 2 <= part.n_blocks <= whole.n_blocks * 2

    def test_rows_that_visit_several_blocks_want_smaller_ones(self):
        X, Y, _ = planted(n=4000, groups=16, d=160, m=800)
        once, often = (
            choice.fewest_products(X, Y, None, "quadratic", seed=0, threads=1, visited=visited) for visited in (1, 8)
        )
        assert often.n_blocks > once.n_blocks
        for t in often.tried:
            expected = t["n_blocks"] + min(8, t["n_blocks"]) * t["labels_per_row"]
            assert t["products"] == pytest.approx(expected)

    def test_a_lambda_that_binds_is_respected(self):
        X, Y, _ = planted(n=2000, groups=8, d=160, m=400)
        chosen = choice.fewest_products(X, Y, 5.0, "quadratic", seed=0, threads=1)
        most = max(t["captured"] for t in chosen.tried)
        best = next(t for t in chosen.tried if t["n_blocks"] == chosen.n_blocks)
        assert best["captured"] >= choice.FLOOR * most
        assert all(best["products"] <= t["products"] for t in chosen.tried if t["captured"] >= choice.FLOOR * most)

    @pytest.mark.parametrize("lam", [6.0, "auto"])
    def test_paper_search_takes_what_captures_most(self, lam):
        X, Y, _ = planted(groups=4)
        p = Partitioner(n_blocks="paper", lam=lam).fit(X, Y)
        tried = p.choice_["n_blocks"]["tried"]
        good = {t["n_blocks"]: t["captured"] for t in tried if t["alive"] == t["n_blocks"]}
        assert p.n_blocks_ == max(good, key=lambda q: (good[q], -q))
        assert p.captured_ == max(good.values())
        if lam == 6.0:
            assert p.n_blocks_ == 4

    def test_paper_search_tries_every_seed_before_it_gives_up(self):
        X, Y, _ = planted(groups=4)
        tried = Partitioner(n_blocks="paper", lam=8.0).fit(X, Y).choice_["n_blocks"]["tried"]
        good = {t["n_blocks"] for t in tried if t["alive"] == t["n_blocks"]}
        bad = {t["n_blocks"] for t in tried} - good
        assert bad
        for q in bad:
            assert [t["attempt"] for t in tried if t["n_blocks"] == q] == list(range(choice.PAPER_SEEDS))
        assert min(bad) == max(good) + 1

    def test_paper_search_without_any_success_is_one_block(self):
        X, Y = np.ones((64, 1)), np.ones((64, 1))
        p = Partitioner(n_blocks="paper", lam=33.0).fit(X, Y)
        assert p.n_blocks_ == 1
        assert p.choice_["n_blocks"]["start"] == 1

    def test_paper_search_bisects_between_grid_values(self):
        survivors = 23

        class Run:
            captured = 1

            def __init__(self, q):
                self.clusters = type("C", (), {"sizes": np.zeros(min(q, survivors))})

        _, chosen = choice.paper_search(lambda q, attempt: Run(q), 62_500, 10)
        assert {t["n_blocks"] for t in chosen.tried} == {*range(2, 17), 24, 20, 22, 23}

    def test_lam_at_floor_is_the_largest(self):
        Y = sparse.csr_array(np.array([[1, 1], [1, 0], [1, 0]], np.float32))
        ranking = Ranking.of(Y, np.zeros(3, np.int32), 1)
        assert choice.lam_at_floor(ranking, "quadratic", 0.7) == pytest.approx(1 / 3)
        assert choice.lam_at_floor(ranking, "quadratic", 0.8) == 0

    @pytest.mark.parametrize("objective", ["quadratic", "cost"])
    def test_lam_at_floor_is_read_off_the_path(self, objective):
        for seed in range(20):
            rng = np.random.default_rng(seed)
            Y = sparse.csr_array((rng.random((60, 25)) < rng.random(25)).astype(np.float32))
            ranking = Ranking.of(Y, rng.integers(4, size=60).astype(np.int32), 4)
            path = ranking.path(objective, int(ranking.counts.sum()))
            for floor in (0.0, 0.3, 0.9, 0.98, 1.0):
                wanted = path.lam[path.captured >= floor * path.captured[0]].max()
                assert choice.lam_at_floor(ranking, objective, floor) == wanted
            some = path.lam[::7]
            apart = [ranking.path(objective, int(ranking.counts.sum()), [lam]) for lam in some]
            np.testing.assert_array_equal([at.cost[0] for at in apart], path.cost[::7])
            np.testing.assert_array_equal([at.captured[0] for at in apart], path.captured[::7])


class TestStart:
    def test_lloyd_is_as_good_as_scikit_learn(self):
        X, _, _ = planted(n=600, groups=6, d=60)
        unit = normalize(sparse.csr_matrix(X))

        def spread(z):
            sums = np.array([unit[z == c].sum(axis=0).A1 for c in range(6)])
            return np.linalg.norm(sums, axis=1).sum()  # what spherical k-means maximises

        ours = [
            spread(start.cluster_rows(X, 6, balanced=False, seed=s, threads=1, reporter=Reporter())) for s in range(5)
        ]
        theirs = [spread(KMeans(6, n_init=1, random_state=s).fit(unit).labels_) for s in range(5)]
        assert max(ours) >= 0.999 * max(theirs)
        assert np.mean(ours) >= 0.97 * np.mean(theirs)

    def test_many_clusters_are_nearer_to_their_rows_than_the_tree_is(self):
        X, _, _ = planted(n=1500, groups=10, d=200)
        unit = normalize(sparse.csr_matrix(X))
        spread = {}
        for balanced in (False, True):
            z = start.cluster_rows(X, 80, balanced=balanced, seed=0, threads=1, reporter=Reporter())
            assert np.bincount(z, minlength=80).min() >= 1
            spread[balanced] = sum(np.linalg.norm(unit[z == c].sum(axis=0)) for c in range(80))
        assert spread[False] > 1.02 * spread[True]

    def test_no_cluster_ends_empty(self):
        X = sparse.csr_array(np.vstack([np.ones((20, 2)), np.zeros((5, 2)), [[1, 0]]]).astype(np.float32))
        z = start.cluster_rows(X, 7, balanced=False, seed=0, threads=1, reporter=Reporter())
        assert np.bincount(z, minlength=7).min() >= 1

    def test_a_pass_through_the_tree_finds_what_a_full_pass_finds(self, monkeypatch):
        X = planted(n=3000, groups=12, d=240, m=100)[0]
        with Reporter().phase("") as phase:
            leaves = start.balanced_tree(X, 40, seed=0, threads=1, phase=phase)
        full = start.lloyd_pass(X, leaves, 40, 1)
        found = start.tree_pass(X, leaves, 40, 2)
        assert (found == full).mean() > 0.95
        monkeypatch.setattr(start, "NEAR_GROUPS", 7)  # all of them
        np.testing.assert_array_equal(start.tree_pass(X, leaves, 40, 1), full)

    def test_groups_side_by_side_share_the_budget_of_centroids(self, monkeypatch):
        X = planted(n=3000, groups=12, d=240, m=100)[0]
        budgets, nearest = [], start._nearest

        def watched(*args, **options):
            budgets.append(options.get("budget", start.CENTROID_BUDGET))
            return nearest(*args, **options)

        monkeypatch.setattr(start, "_nearest", watched)
        start.tree_pass(X, np.arange(3000, dtype=np.int32) % 300, 300, 4)
        assert set(budgets[1:]) == {start.CENTROID_BUDGET // 4}

    @pytest.mark.parametrize("threads", [1, 3])
    def test_label_vectors_are_sums_of_unit_rows(self, monkeypatch, threads):
        X, Y = random_problem(6)
        labels = np.flatnonzero(np.bincount(Y.indices, minlength=Y.shape[1])).astype(np.int32)
        expected = (Y.T @ normalize(sparse.csr_matrix(X))).toarray()[labels]
        with Reporter().phase("") as phase:
            np.testing.assert_allclose(
                start.label_vectors(X, Y, labels, threads=threads, phase=phase).toarray(), expected, atol=1e-5
            )
            monkeypatch.setattr(start, "LABEL_FEATURES", 4)
            cut = start.label_vectors(X, Y, labels, threads=threads, phase=phase).toarray()
        for row, full in zip(cut, expected, strict=True):
            kept = np.flatnonzero(row)
            assert kept.size <= 4
            np.testing.assert_allclose(row[kept], full[kept], atol=1e-5)
            assert np.delete(full, kept).max(initial=0) <= full[kept].min() + 1e-6


def test_rows_choose_their_first_block_by_rare_labels():
    """Against the definition, a row at a time; ties to the lower cluster."""
    rng = np.random.default_rng(0)
    Y = sparse.csr_array((rng.random((200, 12)) < np.geomspace(0.5, 0.02, 12)).astype(np.float32))
    cluster_of = rng.integers(4, size=12).astype(np.int32)
    dense = Y.toarray()
    weight = np.maximum(dense.sum(axis=0), 1) ** -start.RARITY
    found = start.heaviest_clusters(Y, cluster_of, 2)
    for i in range(200):
        held = np.bincount(cluster_of, weights=dense[i] * weight, minlength=4)
        assert found[i] == (held.argmax() if dense[i].any() else -1)


def test_a_frequent_label_does_not_pull_all_rows_into_one_block():
    rng = np.random.default_rng(1)
    topic = rng.integers(20, size=3000)
    Y = np.zeros((3000, 41), np.float32)
    Y[np.arange(3000), topic] = 1
    Y[np.arange(3000), 20 + (topic + rng.integers(2, size=3000)) % 20] = 1
    Y[:, 40] = rng.random(3000) < 0.7  # nearly everybody's
    X = np.eye(20, dtype=np.float32)[topic] + 0.1 * rng.random((3000, 20), dtype=np.float32)
    blocks = Partitioner(10, lam=0.0, init="labels", max_iter=0).fit(X, Y)
    assert np.bincount(blocks.assignment_).max() < 0.3 * 3000


def test_bad_seeds_and_values_are_refused_in_one_line():
    X, Y = np.eye(4, dtype=np.float32), np.eye(4)
    with pytest.raises(BlockXMCError, match="random_state must be"):
        Partitioner(2, random_state=-5).fit(X, Y)
    with pytest.raises(BlockXMCError, match="rescale the features"):
        Partitioner(2).fit(X * 1e30, Y)


class TestAssignAt:
    def test_each_run_starts_from_the_assignment_before(self):
        X, Y = blocky(n=240)
        p = Partitioner(n_blocks=4, lam=2.0, assign_at=(0.1, 0.5, 2.0)).fit(X, Y)
        step = Partitioner(n_blocks=4, lam=0.1).fit(X, Y)
        for lam in (0.5, 2.0):
            step = Partitioner(init=step.assignment_, lam=lam).fit(X, Y)
        np.testing.assert_array_equal(p.assignment_, step.assignment_)
        np.testing.assert_array_equal(p.objective_trace_, step.objective_trace_)
        assert p.lam_ == 2.0

    def test_beyond_the_last_only_labels_are_cut(self):
        X, Y = blocky(n=240)
        start = Partitioner(n_blocks=3, lam=0.1).fit(X, Y)
        p = Partitioner(n_blocks=3, lam=1.0, assign_at=[0.1]).fit(X, Y)
        np.testing.assert_array_equal(p.assignment_, start.assignment_)
        for cluster, wanted in zip(p.label_clusters_, start.label_clusters_at(1.0), strict=True):
            np.testing.assert_array_equal(cluster, wanted)

    def test_is_part_of_what_is_stored(self):
        X, Y = blocky(n=120)
        p = Partitioner(n_blocks=2, lam=1.0, assign_at=np.array([0.5, 1.0])).fit(X, Y)
        assert Partitioner.from_state(p.state()).assign_at == [0.5, 1.0]

    def test_a_smaller_lambda_than_the_last_gives_labels_back(self):
        X, Y = blocky(n=240)
        start = Partitioner(n_blocks=3, lam=2.0).fit(X, Y)
        p = Partitioner(n_blocks=3, lam=0.1, assign_at=[2.0]).fit(X, Y)
        np.testing.assert_array_equal(p.assignment_, start.assignment_)
        for cluster, wanted in zip(p.label_clusters_, start.label_clusters_at(0.1), strict=True):
            np.testing.assert_array_equal(cluster, wanted)

    @pytest.mark.parametrize(
        ("lam", "steps"), [("auto", [0.1]), (1.0, []), (1.0, [0.5, 0.1]), (1, [-1]), (1, [np.inf])]
    )
    def test_other_lists_are_refused(self, lam, steps):
        X, Y = blocky(n=60)
        with pytest.raises(BlockXMCError, match="assign_at must be rising lambdas"):
            Partitioner(n_blocks=2, lam=lam, assign_at=steps).fit(X, Y)
