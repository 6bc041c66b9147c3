"""Arrays of packed weights in few bytes: they come back as they were, and damaged ones are refused."""

import numpy as np
import pytest
from scipy import sparse

from blockxmc import BlockwiseClassifier, load
from blockxmc.data import load_demo
from blockxmc.errors import BlockXMCError, ModelFormatError
from blockxmc.linear import compact
from blockxmc.linear.packed import PackedScorer
from blockxmc.model.companions import Companions


@pytest.fixture(scope="module")
def fitted():
    train, _ = load_demo()
    return BlockwiseClassifier(n_blocks=20, random_state=0).fit(train.X[:3000], train.Y[:3000]), train.X[3000:3200]


@pytest.mark.parametrize(("most", "width"), [(200, np.uint8), (60_000, np.uint16), (70_000, np.uint32)])
def test_steps_come_back(most, width):
    rng = np.random.default_rng(0)
    sizes = np.array([4, 0, 1, 30])
    added = rng.integers(0, most, sizes.sum())
    added[[1, -1]] = most
    values = np.concatenate([np.cumsum(own) for own in np.split(added, np.cumsum(sizes)[:-1])]).astype(np.uint32)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    found = compact.steps(values, ends)
    assert found.dtype == width
    if width != np.uint32:
        assert compact.from_steps(found, ends, "rows").tolist() == values.tolist()


def test_large_arrays_stay_as_they_are(monkeypatch):
    monkeypatch.setattr(compact, "MOST_BYTES", 32)
    rows, keys, labels = np.arange(9, dtype=np.uint32), np.arange(9, dtype=np.int32), np.arange(9, dtype=np.int32)
    assert compact.steps(rows, np.array([0, 9])) is rows
    assert compact.short_features(keys, 9) is keys
    assert compact.narrowed(labels) is labels


@pytest.mark.parametrize("ends", [[], [0, 2], [1, 3], [0, 3, 2, 3], [0, -(2**63), 3], [0, 2**62, 3]])
def test_parts_that_do_not_fit_are_refused(ends):
    with pytest.raises(ModelFormatError, match="the parts of rows are out of order"):
        compact.from_steps(np.array([0, 1, 2], np.uint8), np.array(ends, np.int64), "rows")


def test_a_model_comes_back_bit_for_bit(fitted, tmp_path):
    clf, X = fitted
    clf.save(tmp_path / "model")
    again = load(tmp_path / "model")
    for part in ("router", "scorer"):
        own, other = (getattr(of.model_, part)._arrays for of in (clf, again))
        for name, array in own.items():
            assert other[name].dtype == array.dtype
            np.testing.assert_array_equal(other[name], array, err_msg=name)
    for own, other in zip(clf.predict_topk(X, 5), again.predict_topk(X, 5), strict=True):
        np.testing.assert_array_equal(own, other)


def test_pairs_of_labels_come_back():
    pairs = Companions(np.array([0, 2, 2]), np.array([1, 7], np.int32), np.array([3, 4], np.uint8), 2.0, 0.5)
    state = pairs.state()
    assert state["indptr"].dtype == np.uint8
    assert state["others"].dtype == np.uint16
    again = Companions.from_state(state, 2)
    assert (again.indptr.dtype, again.others.dtype) == (np.int64, np.int32)
    assert (again.indptr.tolist(), again.others.tolist()) == ([0, 2, 2], [1, 7])


def test_files_take_fewer_bytes_than_memory(fitted):
    scorer = fitted[0].model_.scorer
    state = scorer.state()
    for name in ("keys", "buckets", "rows", "labels"):
        assert state[name].nbytes <= scorer._arrays[name].nbytes / 2
    assert state["arena"] is scorer._arrays["arena"]


def test_models_that_were_written_in_full_are_read(fitted):
    clf, X = fitted
    scorer = clf.model_.scorer
    again = PackedScorer.restored(scorer.__getstate__())
    blocks = np.zeros((X.shape[0], 1), np.int32)
    np.testing.assert_array_equal(again.topk(X, blocks, 3)[0], scorer.topk(X, blocks, 3)[0])


def test_steps_that_lead_elsewhere_are_refused_when_a_row_comes(fitted):
    clf, X = fitted
    state = clf.model_.scorer.state()
    for name in ("rows", "buckets"):
        wrong = state[name].copy()
        wrong[1] += 1
        with pytest.raises(ModelFormatError, match="damaged"):
            PackedScorer.restored(state | {name: wrong}).scores(sparse.csr_array(X), None)


def test_short_forms_that_nobody_writes_are_refused(monkeypatch):
    monkeypatch.setattr(compact, "MOST_BYTES", 32)
    ends = np.array([0, 9])
    for read in (
        lambda: compact.from_steps(np.ones(9, np.uint8), ends, "rows"),
        lambda: compact.long_features(np.ones(9, np.uint16)),
        lambda: compact.long_pointers(np.ones(5, np.uint8), "indptr", 4),
    ):
        with pytest.raises(BlockXMCError, match="too large for its short form"):
            read()


def test_features_that_there_are_not_stay_as_they_are():
    for bad in (70_000, -2, 9):
        keys = np.array([3, bad], np.int32)
        assert compact.short_features(keys, 9) is keys
