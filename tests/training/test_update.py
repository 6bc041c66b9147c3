"""Updates: what is solved again equals a solution on all rows, the rest stays; and rows that are forgotten are gone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers import blocky
from numpy.testing import assert_array_equal
from scipy import sparse

from blockxmc import BlockwiseClassifier, DiSMEC, load, storage
from blockxmc._core.progress import Reporter
from blockxmc.errors import BlockXMCError, ModelFormatError, UpdateError
from blockxmc.linear.one_vs_all import OneVsAll, train_one_vs_all, typical_length
from blockxmc.training import drift
from blockxmc.training.blocks import cover_all_labels
from blockxmc.training.held_out import held_out_rows
from blockxmc.training.labels import LabelTrainer, shared_costs
from blockxmc.training.lessons import Told
from blockxmc.training.listings import lists
from blockxmc.training.settings import SETTINGS

OLD = 500


@pytest.fixture(scope="module")
def data():
    X, Y = blocky(n=640, n_features=60, n_labels=32, n_blocks=4)
    return sparse.csr_array(X), sparse.csr_array(Y)


def model(**params):
    base = DiSMEC(C=0.5, prune=0.0, tol=1e-4, unit_rows=True)
    return BlockwiseClassifier(base, n_blocks=4, lam=1.0, keep_rows=True, random_state=1, **params)


class Meanwhile(list):
    """A list of allowed labels; while it is read, something happens."""

    def __init__(self, labels, happens):
        super().__init__(labels)
        self.happens = happens

    def __iter__(self):
        self.happens()
        return super().__iter__()


@pytest.mark.parametrize("one", [False, True])
def test_an_answer_is_of_one_version(data, one):
    X, Y = data
    clf = model().fit(X[:OLD], Y[:OLD])
    row = X[:1].indices.astype(np.int32), X[:1].data

    def ask(allow):
        return clf.predict_one(*row, 3, allow=allow) if one else clf.predict_topk(X[:50], 3, allow=allow)

    wider = sparse.csr_array(sparse.hstack([Y[OLD:], np.ones((X.shape[0] - OLD, 2))]))
    before = ask(range(32))
    for was, now in zip(before, ask(Meanwhile(range(32), lambda: clf.update(X[OLD:], wider))), strict=True):
        assert_array_equal(was, now)
    assert not np.array_equal(before[1], ask(range(32))[1])


@pytest.fixture
def fitted(data):
    X, Y = data
    return model().fit(X[:OLD], Y[:OLD])


def solved_alone(clf, label):
    """The weights of one label as an independent solution on the rows that concern it has them."""
    X, Y = clf.kept_.rows(clf.n_features_in_, clf.targets_.n_labels)
    partition = clf.partition_
    clusters = cover_all_labels(Y, partition.assignment_, partition.label_clusters_)
    blocks = [block for block, ids in enumerate(clusters) if label in ids]
    own = Y[:, [label]].toarray().ravel() > 0
    concerned = np.isin(partition.assignment_, blocks) | np.isin(clf.kept_.negative_blocks, blocks).any(axis=1) | own
    rows = np.flatnonzero(concerned)
    length = typical_length(X)
    problem = OneVsAll("squared_hinge", C=0.5 / length**2, tol=1e-5, bias=length, prune=0.0)
    with Reporter().phase("") as phase:
        costs = shared_costs(Y, 0.5)[rows]
        return train_one_vs_all(problem, X[rows], Y[rows][:, [label]], threads=1, phase=phase, costs=costs)


def assert_solved(clf, label):
    alone, weights = solved_alone(clf, label), clf.kept_.labels
    np.testing.assert_allclose(weights.vectors[[label]].toarray()[0], alone.coef.toarray().ravel(), atol=5e-3)
    np.testing.assert_allclose(weights.bias[label], alone.bias[0], atol=5e-3)


def same_answers(one, other, X):
    for found, expected in zip(one.predict_topk(X, 5), other.predict_topk(X, 5), strict=True):
        assert_array_equal(found, expected)


# ---- update ----
def test_solved_labels_equal_a_solution_on_all_rows(data, fitted):
    X, Y = data
    before, few = fitted.kept_.labels, OLD + 26  # no more than a twentieth
    fitted.update(X[OLD:few], Y[OLD:few])
    assert fitted.history_[-1]["labels_shifted"] == 0
    after = fitted.kept_.labels
    changed = np.flatnonzero(abs(before.vectors - after.vectors).sum(axis=1))
    new, every = (np.bincount(part.indices, minlength=Y.shape[1]) for part in (Y[OLD:few], Y[:few]))
    assert set(np.flatnonzero(new > SETTINGS.update_share * every)) <= set(changed)
    assert changed.size >= 10
    for label in changed[::3]:
        assert_solved(fitted, label)


def test_labels_that_are_shifted_come_near_to_a_solution_on_all_rows(data, fitted):
    X, Y = data
    before = fitted.kept_.labels.vectors.toarray()
    fitted.update(X[OLD:], Y[OLD:])
    assert fitted.history_[-1]["labels_shifted"] >= 10
    assert fitted.kept_.complete.sum() >= 10
    after = fitted.kept_.labels.vectors.toarray()
    changed = np.flatnonzero((before != after).any(axis=1))
    exact = np.array([solved_alone(fitted, label).coef.toarray().ravel() for label in changed])
    was, is_now = (np.linalg.norm(vectors[changed] - exact, axis=1) for vectors in (before, after))
    assert is_now.mean() < 0.7 * was.mean()


def test_labels_that_were_shifted_are_solved_by_the_next_large_update(data, fitted):
    X, Y = data
    half = (OLD + X.shape[0]) // 2
    fitted.update(X[OLD:half], Y[OLD:half])
    first = fitted.kept_.shifted
    assert first.sum() == fitted.history_[-1]["labels_shifted"] >= 10
    fitted.update(X[half:], Y[half:])
    solved = np.flatnonzero(first & ~fitted.kept_.shifted)
    assert solved.size >= 10
    assert (fitted.kept_.shifted & ~first).sum() == fitted.history_[-1]["labels_shifted"]
    assert fitted.history_[-1]["labels_solved"] >= solved.size
    for label in solved[::3]:
        assert_solved(fitted, label)


def test_rows_held_out_of_the_fit_are_known_until_they_are_forgotten(data, fitted):
    held = np.flatnonzero(held_out_rows(data[1][:OLD], 1))
    assert_array_equal(fitted.kept_.unseen, held)
    assert not fitted.kept_.complete.all()
    fitted.forget([held[0], held[1] - 1] if held[1] - 1 != held[0] else [held[0]])
    moved = 2 if held[1] - 1 != held[0] else 1
    assert_array_equal(fitted.kept_.unseen, held[1:] - moved)


def test_blocks_list_new_labels_where_their_rows_are_routed(data):
    X, Y = data
    clf = model().fit(X[:OLD], Y[:OLD])
    new = sparse.lil_array((140, 34), dtype=np.float32)
    new[:, :32] = Y[OLD:]
    new[3:9, 32], new[9:11, 33] = 1, 1
    clf.update(X[OLD:], new.tocsr())
    kept, assignment = clf.kept_, clf.partition_.assignment_
    listed = lists(clf.partition_, kept.rows(60, 34)[1], kept.negative_blocks, kept, 2)
    clusters = clf.partition_.label_clusters_
    for label, rows in ((32, OLD + np.arange(3, 9)), (33, OLD + np.arange(9, 11))):
        visited = np.column_stack([assignment[rows], kept.negative_blocks[rows]])
        most = np.argsort(-np.bincount(visited.ravel(), minlength=4), kind="stable")[:2]
        home = [block for block, ids in enumerate(clusters) if label in ids]
        found = {block for block, ids in enumerate(listed) if label in ids}
        assert set(most) <= found <= {*most, *home, *assignment[rows]}


def test_labels_that_new_rows_say_nothing_about_stay_as_they_are(data, fitted):
    X, Y = data
    before = fitted.kept_.labels
    few = np.argsort(np.bincount(Y.indices, minlength=Y.shape[1]), kind="stable")[:2]  # labels with few positives
    fitted.update(X[OLD : OLD + 8], sparse.csr_array(np.isin(np.arange(Y.shape[1]), few) * np.ones((8, 1), np.float32)))
    solved = fitted.history_[-1]["labels_solved"]
    assert 2 <= solved < Y.shape[1]
    changed = np.flatnonzero(abs(before.vectors - fitted.kept_.labels.vectors).sum(axis=1))
    assert changed.size <= solved
    assert set(few) <= set(changed)


def test_what_labels_are_told_adds_up_until_they_are_solved(data, fitted):
    X, Y = data
    everywhere = 0  # a label that half of the rows have: a single new row is no reason to solve it again
    before = fitted.kept_.labels.vectors[[everywhere]]
    rows = OLD + np.flatnonzero(Y[OLD:][:, [everywhere]].toarray().ravel())
    solved = []
    for start in range(0, rows.size, 10):
        fitted.update(X[rows[start : start + 10]], Y[rows[start : start + 10]])
        solved.append((fitted.kept_.labels.vectors[[everywhere]] != before).nnz > 0)
        assert (fitted.kept_.told[everywhere] == 0) == (solved[-1] and not any(solved[:-1]))
        if solved[-1]:
            break
    assert not solved[0]
    assert solved[-1]
    told = 10 * len(solved)
    assert told > SETTINGS.update_share * fitted.label_counts_[everywhere] - 10


def test_the_router_waits_until_rows_have_grown(data, fitted):
    X, Y = data
    before = fitted.kept_.blocks.vectors
    fitted.update(X[OLD : OLD + 40], Y[OLD : OLD + 40])
    assert (fitted.kept_.blocks.vectors != before).nnz == 0
    fitted.update(X[OLD + 40 :], Y[OLD + 40 :])
    assert fitted.history_[-1]["blocks_solved"] == 4
    assert (fitted.kept_.blocks.vectors != before).nnz > 0


def test_small_updates_let_the_router_wait_for_less(data, fitted):
    X, Y = data
    for first, solved in ((OLD, 0), (OLD + 26, 4), (OLD + 52, 0)):  # each no more than a twentieth
        fitted.update(X[first : first + 26], Y[first : first + 26])
        assert fitted.history_[-1]["blocks_solved"] == solved


def test_labels_that_came_with_updates_learn_from_near_rows_while_they_have_few(data, fitted, monkeypatch):
    X, Y = data
    asked, train_some = [], LabelTrainer.train_some

    def spy(self, Y, visits, labels, title, new=None):
        asked.append(set(labels[new].tolist()))
        return train_some(self, Y, visits, labels, title, new)

    monkeypatch.setattr(LabelTrainer, "train_some", spy)
    new = sparse.hstack([Y, sparse.csr_array((640, 2), dtype=np.float32)], format="lil")
    new[OLD : OLD + 3, 32] = new[OLD + 20, 32] = 1
    new[OLD : OLD + 20, 33] = 1
    for first in (OLD, OLD + 20):
        fitted.update(X[first : first + 20], sparse.csr_array(new[first : first + 20]))
    assert asked == [{32}, {32}]
    assert SETTINGS.update_new < 20


def test_counts_blocks_and_rows_follow(data, fitted):
    X, Y = data
    before = fitted.partition_.assignment_
    fitted.update(X[OLD:], Y[OLD:])
    assert fitted.n_train_rows_ == fitted.partition_.assignment_.size == X.shape[0]
    assert_array_equal(fitted.partition_.assignment_[:OLD], before)
    assert_array_equal(fitted.label_counts_, np.bincount(Y.indices, minlength=Y.shape[1]))
    kept = fitted.kept_.rows(*(fitted.n_features_in_, fitted.targets_.n_labels))
    assert (kept[0] != X).nnz == 0
    assert (kept[1] != Y).nnz == 0
    # A new row went where most of its labels are listed.
    listed = np.stack([Y[OLD:][:, ids].sum(axis=1) for ids in fitted.partition_.label_clusters_], axis=1)
    chosen = listed[np.arange(X.shape[0] - OLD), fitted.partition_.assignment_[OLD:]]
    assert (chosen == listed.max(axis=1)).mean() > 0.9


def test_an_update_learns_as_much_as_a_training(data, fitted):
    X, Y = data
    whole = model().fit(X, Y)
    fitted.update(X[OLD:], Y[OLD:])
    new_X, new_Y = blocky(n=900, n_features=60, n_labels=32, n_blocks=4)
    assert fitted.score(new_X[640:], new_Y[640:]) >= whole.score(new_X[640:], new_Y[640:]) - 0.05


def test_new_labels_and_features_come_last(data):
    X, Y = data
    clf = model().fit(X[:OLD, :50], Y[:OLD, :30])
    rows = sparse.lil_array((40, 55), dtype=np.float32)
    rows[:, 52] = 1.0
    labels = sparse.lil_array((40, 31), dtype=np.float32)
    labels[:, 30] = 1.0
    clf.update(rows.tocsr(), labels.tocsr())
    assert (clf.n_features_in_, clf.targets_.n_labels, clf.label_counts_[30]) == (55, 31, 40)
    assert (clf.predict_topk(rows.tocsr()[:3], 1)[0] == 30).all()
    event = clf.history_[-1]
    assert (event["new_labels"], event["new_features"]) == (1, 5)
    with pytest.raises(BlockXMCError, match="features"):
        clf.update(X[:2, :40], Y[:2, :31])


def test_names_of_new_labels_follow_the_known_ones(data):
    X, Y = data
    names = [[f"l{j:02}" for j in Y.indices[Y.indptr[i] : Y.indptr[i + 1]]] for i in range(OLD)]
    clf = model().fit(X[:OLD], names)
    known = clf.label_names_.tolist()
    clf.update(X[OLD : OLD + 20], [["aaa", "l05"]] * 20)
    assert clf.label_names_.tolist() == [*known, "aaa"]
    assert clf.label_counts_[-1] == 20
    with pytest.raises(BlockXMCError, match="text"):
        clf.update(X[:1], [[7]])


def test_the_same_updates_give_the_same_bits_for_any_thread_count(data, tmp_path):
    X, Y = data
    found = []
    for threads in (1, 3):
        clf = model(n_jobs=threads).fit(X[:OLD], Y[:OLD])
        clf.update(X[OLD:600], Y[OLD:600])
        clf.save(tmp_path / str(threads))
        again = load(tmp_path / str(threads))
        again.update(X[600:], Y[600:]).forget([3, 520])
        found.append(again)
        clf.update(X[600:], Y[600:]).forget([3, 520])
        same_answers(clf, again, X)
    same_answers(*found, X)
    first, second = (clf.kept_.labels.vectors for clf in found)
    assert (first != second).nnz == 0


def test_without_kept_rows_an_update_says_how_to_get_there(data):
    X, Y = data
    clf = BlockwiseClassifier(n_blocks=4, lam=1.0).fit(X, Y)
    with pytest.raises(UpdateError, match="keep_rows=True"):
        clf.update(X[:2], Y[:2])
    with pytest.raises(UpdateError, match="keep_rows=True"):
        clf.forget([0])
    with pytest.raises(BlockXMCError, match="shared weights"):
        BlockwiseClassifier(keep_rows=True, weights="per-block").fit(X, Y)
    with pytest.raises(BlockXMCError, match="sample_weight"):
        BlockwiseClassifier(keep_rows=True).fit(X, Y, sample_weight=np.ones(X.shape[0]))


def test_a_failed_update_leaves_the_model_as_it_was(data, fitted):
    X, Y = data
    before = fitted.predict_topk(X, 5)
    with pytest.raises(BlockXMCError, match="rows"):
        fitted.update(X[:3], Y[:2])
    with pytest.raises(BlockXMCError, match="list of numbers from 0 to 499"):
        fitted.forget([500])
    for found, expected in zip(fitted.predict_topk(X, 5), before, strict=True):
        assert_array_equal(found, expected)
    assert len(fitted.history_) == 1


# ---- forget ----
def test_forgetting_new_rows_leads_back(data, fitted):
    X, Y = data
    # A large update gives held-out rows blocks by their labels: what it leads back to is a model that knows them.
    fitted.kept_ = replace(fitted.kept_, placed=True)
    fitted.forget([0])
    clusters = [ids.tolist() for ids in fitted.partition_.label_clusters_]
    n_rows = fitted.n_train_rows_
    fitted.update(X[OLD:], Y[OLD:]).forget(np.arange(n_rows, n_rows + X.shape[0] - OLD))
    assert [ids.tolist() for ids in fitted.partition_.label_clusters_] == clusters
    assert fitted.n_train_rows_ == n_rows
    for label in np.unique(Y[OLD:].indices)[::4]:
        assert_solved(fitted, label)


def test_forgetting_a_row_that_held_a_shifted_label_solves_the_label(data, fitted):
    X, Y = data
    known = np.setdiff1d(np.arange(OLD), fitted.kept_.unseen)
    held = np.random.default_rng(0).permutation(known)[:: SETTINGS.update_hold]
    fitted.update(X[OLD:], Y[OLD:])
    kept, partition = fitted.kept_, fitted.partition_
    visited = np.column_stack([partition.assignment_, kept.negative_blocks])[held]
    listed = np.array([np.isin(np.arange(Y.shape[1]), ids) for ids in partition.label_clusters_])
    margins = kept.labels.scores(sparse.csr_array(X[held]))
    # Below this margin a row teaches a label that was solved nothing; these labels it has held nevertheless.
    quiet = kept.shifted & (margins <= -1) & (Y[held].toarray() == 0) & listed[visited].any(axis=1)
    row = int(np.argmax(quiet.sum(axis=1)))
    labels = np.flatnonzero(quiet[row])
    assert labels.size >= 2
    fitted.forget([held[row]])
    assert not fitted.kept_.shifted[labels].any()
    for label in labels[:4]:
        before = kept.labels.vectors[[label]].toarray() - fitted.kept_.labels.vectors[[label]].toarray()
        assert abs(before).max() > 0.05
        assert_solved(fitted, label)


def test_forgotten_rows_are_gone_from_the_files(data, fitted, tmp_path):
    X, Y = data
    marked = sparse.csr_array(X[:OLD].toarray() * 1.0)
    marked.data[marked.indptr[7]] = np.float32(0.123456789)
    clf = model().fit(marked, Y[:OLD])
    clf.save(tmp_path / "model")
    pattern = np.float32(0.123456789).tobytes()
    assert any(pattern in path.read_bytes() for path in (tmp_path / "model").glob("*kept*data*"))
    clf.forget([7])
    clf.save(tmp_path / "model")
    assert not any(pattern in path.read_bytes() for path in (tmp_path / "model").iterdir())
    assert storage.verify(tmp_path / "model") == []


def test_a_label_or_block_that_loses_all_its_rows(data, fitted):
    X, Y = data
    block = 2
    rows = np.flatnonzero(fitted.partition_.assignment_ == block)
    label = int(np.flatnonzero(Y[:OLD][rows].sum(axis=0))[-1])
    carrying = np.flatnonzero(Y[:OLD][:, [label]].toarray().ravel())
    fitted.forget(np.union1d(rows, carrying))
    assert fitted.partition_.n_blocks_ == 3
    assert fitted.label_counts_[label] == 0
    assert label not in fitted.predict_topk(X, 32)[0]
    fitted.update(X[carrying], Y[carrying])
    assert label in fitted.predict_topk(X[carrying], 3)[0]


def test_forgetting_everything_is_refused(fitted):
    with pytest.raises(UpdateError, match="no row with a label"):
        fitted.forget(np.ones(OLD, bool))
    assert fitted.forget([]) is fitted


# ---- files ----
def test_a_small_update_writes_no_rows_again(data, fitted, tmp_path):
    X, Y = data
    fitted.save(tmp_path / "model")
    before = {path.name for path in (tmp_path / "model").glob("state.kept.parts.0*")}
    clf = load(tmp_path / "model")
    clf.update(X[OLD : OLD + 5], Y[OLD : OLD + 5])
    clf.save(tmp_path / "model")
    after = {path.name for path in (tmp_path / "model").iterdir()}
    assert before
    assert before <= after
    again = load(tmp_path / "model")
    assert again.history_ == clf.history_
    assert [event["what"] for event in again.history_] == ["fit", "update"]
    same_answers(again, clf, X)


@pytest.mark.parametrize("name", ["X.indices", "Y.indices"])
def test_damaged_rows_are_found_before_they_are_used(data, fitted, tmp_path, name):
    X, Y = data
    fitted.save(tmp_path / "model")
    (path,) = (tmp_path / "model").glob(f"state.kept.parts.0.{name}.*")
    content = bytearray(path.read_bytes())
    content[-4:] = b"\xff\xff\xff\x7f"
    path.write_bytes(content)
    clf = load(tmp_path / "model")
    clf.predict_topk(X, 1)
    with pytest.raises(ModelFormatError, match="outside"):
        clf.update(X[:2], Y[:2])
    assert storage.verify(tmp_path / "model") != []


# ---- what happened ----
def test_of_many_new_rows_some_are_judged(data, fitted, monkeypatch):
    X, Y = (part[OLD:] for part in data)
    monkeypatch.setattr(drift, "SETTINGS", replace(SETTINGS, held_out_most=5))
    some = np.linspace(0, X.shape[0] - 1, 5).astype(int)
    found, of_some = (drift.before_learning(fitted.model_, *rows, 1) for rows in ((X, Y), (X[some], Y[some])))
    assert found == of_some
    assert found["judged"] == 5


def test_a_worse_precision_of_few_judged_rows_is_no_advice():
    fit = {"what": "fit", "rows": 9000, "captured": 0.9, "largest_block": 0.1} | {f"P@{k}": 0.5 for k in (1, 3, 5)}
    now = fit | {"what": "update", "rows": 4000} | {f"P@{k}": 0.46 for k in (1, 3, 5)}
    assert "new rows had P@1 of 46.0" in drift.advice([fit, now])
    assert drift.advice([fit, now | {"judged": 100}]) is None


def test_the_history_tells_how_new_rows_were_served_before(data, fitted):
    X, Y = data
    labels = fitted.predict_topk(X[OLD:], 5)[0]
    hits = [Y[OLD + i, labels[i, 0]] for i in range(X.shape[0] - OLD)]
    fitted.update(X[OLD:], Y[OLD:])
    assert fitted.history_[-1]["P@1"] == pytest.approx(np.mean(hits))
    assert fitted.history_[-1]["judged"] == X.shape[0] - OLD
    assert fitted.advice_ is None or "fresh training" in fitted.advice_


def test_drift_is_told_with_its_numbers(data, fitted):
    X, Y = data
    rng = np.random.default_rng(0)
    fitted.update(X[:OLD], sparse.csr_array(Y[:OLD][rng.permutation(OLD)]))
    assert "before they were learnt" in fitted.advice_
    assert "500 rows came since the fit on 500" in fitted.advice_


def test_rows_tell_their_labels_and_those_that_they_come_close_to(data, fitted):
    X, Y = data
    kept, partition = fitted.kept_, fitted.partition_
    visits = sparse.csr_array(np.ones((OLD, partition.n_blocks_), np.float32))
    rows = sparse.csr_array(X[:OLD]), sparse.csr_array(Y[:OLD])
    margins = kept.labels.scores(rows[0])
    listed = np.isin(np.arange(Y.shape[1]), np.concatenate(partition.label_clusters_))
    positive = rows[1].toarray() > 0
    expected = positive | ((margins > -0.3) & listed)
    told = Told.by(kept.labels, rows, visits, partition.label_clusters_, -0.3, 1)
    found = np.zeros_like(expected)
    found[told.rows, told.labels] = True
    assert_array_equal(found, expected)
    assert_array_equal(told.positive, positive[told.rows, told.labels])
    np.testing.assert_allclose(told.margins, margins[told.rows, told.labels], atol=1e-5)
    assert_array_equal(told.counts(Y.shape[1], 0.1), (expected & (positive | (margins > 0.1))).sum(axis=0))


def test_a_training_that_goes_on_after_a_kill_keeps_the_same_rows(data, tmp_path):
    X, Y = data
    plain = model().fit(X[:OLD], Y[:OLD])
    for _ in range(2):  # the second time, every stage is there already
        clf = model().fit(X[:OLD], Y[:OLD], work=tmp_path)
    assert clf.went_on_from_
    for fitted in (plain, clf):
        fitted.update(X[OLD:], Y[OLD:])
    same_answers(plain, clf, X)
