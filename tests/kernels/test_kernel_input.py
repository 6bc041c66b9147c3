"""What kernels refuse: rows that cannot be scored, numbers that ask for too much memory, models that were tampered with."""

import subprocess
import sys
import textwrap
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from blockxmc import BlockwiseClassifier, _kernels
from blockxmc._core.matrix import csr_args
from blockxmc.errors import BlockXMCError, ModelFormatError
from blockxmc.linear.scorers import pack_scorer, restore_scorer
from blockxmc.linear.weights import LinearWeights
from blockxmc.model.neighbors import Neighbors
from blockxmc.model.routed_scorer import RoutedScorer

D, M = 60, 12


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    X = sparse.csr_array(rng.random((200, D)) * (rng.random((200, D)) < 0.7), dtype=np.float32)
    Y = sparse.csr_array((rng.random((200, M)) < 0.3).astype(np.float32))
    return BlockwiseClassifier(n_blocks=4, n_neighbors=10, n_jobs=1).fit(X, Y)


@pytest.fixture(scope="module")
def scorer():
    rng = np.random.default_rng(1)
    coef = sparse.csr_array(rng.random((D, M)) * (rng.random((D, M)) < 0.3), dtype=np.float32)
    weights = LinearWeights(coef, np.zeros(M, np.float32))
    return pack_scorer([weights], [np.arange(M)], n_features=D, n_labels=M)


def rows_with(feature, value):
    """Two rows of which one has this feature with this value among many others."""
    indices = np.append(np.arange(30, dtype=np.int32), np.int32(feature))
    values = np.append(np.full(30, 0.5, np.float32), np.float32(value))
    return np.array([0, 2, 33]), np.r_[indices[:2], indices], np.r_[values[:2], values]


BAD = [
    (40, np.nan, "NaN or infinite"),
    (40, np.inf, "NaN or infinite"),
    (40, -np.inf, "NaN or infinite"),
    (-1, 1.0, "out of range"),
    (-(2**31), 1.0, "out of range"),
    (D, 1.0, "out of range"),
    (2**31 - 1, 1.0, "out of range"),
]


@pytest.mark.parametrize(("feature", "value", "message"), BAD)
def test_one_bad_row_is_refused(model, scorer, feature, value, message):
    _, indices, values = rows_with(feature, value)
    for call in (model.model_.one, lambda i, v, k: scorer.one(i, v, None, k)):
        call(indices[:-1], values[:-1], 3)
        for last in (1, 31):  # few features, and more than are compared with neighbors
            with pytest.raises(BlockXMCError, match=message):
                call(indices[-last:], values[-last:], 3)


@pytest.mark.parametrize(("feature", "value", "message"), BAD)
def test_bad_rows_are_refused_by_every_call(model, feature, value, message):
    blocks = model.model_
    router, scorer = blocks.router._model, blocks.scorer._model
    X = rows_with(feature, value)
    labels, scores = np.empty((2, 3), np.int64), np.empty((2, 3), np.float32)
    calls = [
        lambda: scorer.topk(*X, None, labels, scores, 2),
        lambda: scorer.topk_routed(router, *X, 2, 0.1, 1.0, labels, scores, 2),
        lambda: scorer.scores(*X, None, 2),
        lambda: scorer.scores_routed(router, *X, 2, 0.1, 1.0, 2),
        lambda: scorer.touched(*X, None, 2),
        lambda: scorer.routes(router, *X, 2, 0.1, 1.0, 2),
    ]
    for call in calls:
        with pytest.raises(BlockXMCError, match=message):
            call()


def test_values_behind_the_last_row_are_not_looked_at(scorer):
    indptr, indices, values = rows_with(2**31 - 1, np.nan)
    labels, scores = np.empty((1, 3), np.int64), np.empty((1, 3), np.float32)
    scorer._model.topk(indptr[:2].copy(), indices, values, None, labels, scores, 1)
    assert (labels[0] == scorer.one(indices[:2], values[:2], None, 3)[0]).all()


@pytest.mark.parametrize("values", [[np.nan] * 30, [np.nan, 1.0], [np.inf, -np.inf]])
def test_largest_values_refuse_nan(values):
    values = np.array(values, np.float32)
    args = np.array([0, values.size]), np.arange(values.size, dtype=np.int32), values
    with pytest.raises(BlockXMCError, match="NaN or infinite"):
        _kernels.largest_values(*args, 1, 1)


@pytest.mark.parametrize("k", [2**31, 2**40, 2**62])
def test_a_very_large_k_takes_no_memory(model, scorer, k):
    row = np.arange(3, dtype=np.int32), np.ones(3, np.float32)
    for call in (model.model_.one, lambda i, v, k: scorer.one(i, v, None, k)):
        with pytest.raises(BlockXMCError, match="k is too large"):
            call(*row, k)
    if k == 2**31:  # larger arrays do not come into being
        X = sparse.csr_array(np.eye(1, D, dtype=np.float32))
        with pytest.raises((BlockXMCError, MemoryError)):
            scorer.topk(X, None, k)
    labels, scores = scorer.one(*row, None, 100)  # a little more than there are: padded, as ever
    assert labels.shape == (100,)
    assert (labels[M:] == -1).all()
    assert (scores[M:] == -np.inf).all()


def test_a_row_visits_no_more_blocks_than_there_are(model):
    blocks = model.model_
    X = sparse.csr_array(np.eye(8, D, dtype=np.float32))
    usual = RoutedScorer(blocks.router, blocks.scorer, 4)
    for b in (5, 2**61, 2**62):  # eight rows times 2^61 blocks wrap to nothing
        many = RoutedScorer(blocks.router, blocks.scorer, b)
        for found, expected in zip(many.topk(X, 3), usual.topk(X, 3), strict=True):
            np.testing.assert_array_equal(found, expected)
        row = np.arange(3, dtype=np.int32), np.ones(3, np.float32)
        np.testing.assert_array_equal(many.one(*row, 3)[0], usual.one(*row, 3)[0])


def test_more_neighbors_than_training_rows(model):
    blocks = model.model_
    row = np.arange(3, dtype=np.int32), np.ones(3, np.float32)
    X = sparse.csr_array(np.eye(8, D, dtype=np.float32))
    answers = []
    for count in (blocks.neighbors.indptr.size - 1, 10**6, 2**61):
        neighbors = replace(blocks.neighbors, count=count).kernel
        routed = RoutedScorer(blocks.router, blocks.scorer, 4, 0.1, 1.0, neighbors)
        answers.append([*routed.one(*row, 3), *routed.topk(X, 3)])
    for some in answers[1:]:
        for found, expected in zip(some, answers[0], strict=True):
            np.testing.assert_array_equal(found, expected)


# ---- models that were tampered with ----
def with_offsets(state, column, values):
    """The packed arrays with more chunks in the last block, whose starts in one array are these."""
    offsets = state["offsets"]
    more = np.repeat(offsets[:1] * 0, len(values), axis=0)
    more[:, column] = values
    block_ptr = state["block_ptr"].copy()
    block_ptr[-1] += len(values)
    return {**state, "offsets": np.concatenate([offsets[:1], more, offsets[1:]]), "block_ptr": block_ptr}


@pytest.mark.parametrize("column", range(5))
@pytest.mark.parametrize(
    "values", [[2**40, 2**62, -(2**63), -(2**62), 0], [2**62, -(2**63), 0], [-1], [2**40], [-(2**63)]]
)
def test_offsets_that_wrap_are_refused(scorer, column, values):
    with pytest.raises(ModelFormatError, match="damaged"):
        restore_scorer(with_offsets(scorer.__getstate__(), column, values))


def test_a_wrapping_model_does_not_crash_the_process():
    """Differences of these offsets wrap to sizes that look right."""
    code = """
    import numpy as np
    from scipy import sparse
    from blockxmc.errors import ModelFormatError
    from blockxmc.linear.scorers import pack_scorer, restore_scorer
    from blockxmc.linear.weights import LinearWeights

    weights = LinearWeights(sparse.csr_array(np.eye(2, dtype=np.float32)), np.zeros(2, np.float32))
    state = pack_scorer([weights], [np.array([0, 1])], n_features=2, n_labels=2).__getstate__()
    offsets = np.zeros((7, 5), np.int64)
    offsets[-1] = state["offsets"][-1]
    offsets[1:6, 3] = [2**40, 2**62, -(2**63), -(2**62), 0]
    state |= {"offsets": offsets, "block_ptr": np.array([0, 6])}
    try:
        print(restore_scorer(state).one(np.arange(2, dtype=np.int32), np.ones(2, np.float32), None, 2))
    except ModelFormatError:
        print("refused")
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout.strip()) == (0, "refused"), run.stderr


@pytest.mark.parametrize("name", ["bias", "arena", "mass", "scale"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_do_not_crash(model, name, value):
    blocks = model.model_
    state = blocks.scorer.__getstate__()
    if name not in state:
        state = {**state, "mass": np.zeros_like(state["bias"])} if name == "mass" else state
    if name not in state:
        return
    array = state[name].copy()
    words = np.float32(value).view(np.uint32) if array.dtype == np.uint32 else value
    array[:: 2 if name == "arena" else 1] = words
    reranker = None if blocks.reranker is None else blocks.reranker.kernel
    X = sparse.csr_array(np.ones((5, D), np.float32))
    row = np.arange(D, dtype=np.int32), np.ones(D, np.float32)
    try:
        routed = RoutedScorer(
            blocks.router, restore_scorer(state | {name: array}), 4, 0.1, 1.0, blocks.neighbors.kernel, reranker
        )
        labels, _ = routed.topk(X, M + 3)
        assert ((labels >= -1) & (labels < M)).all()
        routed.one(*row, M + 3)
        routed.scores(X)
    except ModelFormatError:
        pass


def test_a_reranker_survives_nan_among_many_labels():
    """Sorting by scores of which some are NaN must stay within its range."""
    rng = np.random.default_rng(2)
    n = 400
    coef = sparse.csr_array(rng.random((D, n)).astype(np.float32))
    blocks = [np.arange(0, n, 2), np.arange(1, n, 2)]
    bias = rng.random(n).astype(np.float32)
    bias[rng.random(n) < 0.5] = np.nan
    weights = LinearWeights(coef, bias)
    scorer = pack_scorer([_some(weights, b) for b in blocks], blocks, n_features=D, n_labels=n)
    router = pack_scorer([_some(weights, blocks[0][:2])], [np.arange(2)], n_features=D, n_labels=2)
    curve = np.r_[np.full(4, -9), np.full(4, 9), np.ones(14)].astype(np.float32)
    reranker = _kernels.Reranker(curve, np.zeros(n, np.float32), 300)
    routed = RoutedScorer(router, scorer, 2, 0.1, 1.0, None, reranker)
    labels, _ = routed.topk(sparse.csr_array(rng.random((20, D)).astype(np.float32)), 350)
    assert ((labels >= -1) & (labels < n)).all()


def _some(weights, labels):
    return LinearWeights(sparse.csr_array(weights.coef[:, labels]), weights.bias[labels])


@pytest.mark.parametrize(
    "wrong",
    [
        {"indptr": np.array([0, 2**62, 1])},
        {"indptr": np.array([], np.int64)},
        {"indptr": np.array([0, -1, 1])},
        {"count": 0},
        {"count": -1},
        {"features": 0},
        {"weight": np.nan},
        {"n_labels": 0},
        {"n_labels": -1},
    ],
)
def test_neighbors_with_wrong_numbers_are_refused(model, wrong):
    with pytest.raises((ModelFormatError, BlockXMCError)):
        _ = Neighbors.from_state(model.model_.neighbors.state() | wrong).kernel


@pytest.mark.parametrize(
    ("curve", "frequency", "first"),
    [
        (np.zeros(21, np.float32), np.zeros(3, np.float32), 1),
        (np.zeros(0, np.float32), np.zeros(3, np.float32), 1),
        (np.full(22, np.nan, np.float32), np.zeros(3, np.float32), 1),
        (np.zeros(22, np.float32), np.full(3, np.inf, np.float32), 1),
        (np.zeros(22, np.float32), np.zeros(3, np.float32), 0),
        (np.r_[np.ones(4), np.zeros(18)].astype(np.float32), np.zeros(3, np.float32), 1),
    ],
)
def test_rerankers_with_wrong_numbers_are_refused(curve, frequency, first):
    with pytest.raises(ModelFormatError, match="reranker"):
        _kernels.Reranker(curve, frequency, first)


def forest(**change):
    arrays = {
        "roots": np.array([0], np.int32),
        "children": np.array([1, 2, -1, -1, -1, -1], np.int32),
        "feature_ptr": np.array([0, 1, 1, 1]),
        "features": np.array([0], np.int32),
        "weights": np.ones(1, np.float32),
        "bias": np.zeros(3, np.float32),
        "label_ptr": np.array([0, 0, 1, 2]),
        "labels": np.array([0, 1], np.int32),
        "label_scores": np.ones(2, np.float32),
    }
    return _kernels.Forest(**(arrays | change), n_features=2, n_labels=2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"roots": np.array([3], np.int32)},
        {"children": np.array([1, 2, -1, -1, -1], np.int32)},
        {"children": np.array([0, 2, -1, -1, -1, -1], np.int32)},
        {"children": np.array([1, 3, -1, -1, -1, -1], np.int32)},
        {"feature_ptr": np.array([0, 2**62, -(2**63), 1])},
        {"feature_ptr": np.array([0, 1, 1])},
        {"label_ptr": np.array([0, 5, 1, 2])},
        {"features": np.array([2], np.int32)},
        {"labels": np.array([0, -1], np.int32)},
        {"label_scores": np.array([1, np.nan], np.float32)},
    ],
)
def test_damaged_forests_are_refused(wrong):
    forest()
    with pytest.raises(ModelFormatError, match="damaged"):
        forest(**wrong)


def test_damaged_label_filters_are_refused():
    bounds = np.zeros((2, 3), np.float32)
    with pytest.raises(ModelFormatError, match="differ in shape"):
        _kernels.FilterIndex(bounds, bounds[:, :2].copy())
    with pytest.raises(ModelFormatError, match="1 to 64 filters"):
        _kernels.FilterIndex(bounds[:0], bounds[:0])
    index = _kernels.FilterIndex(np.full((2, 3), np.nan, np.float32), np.full((2, 3), np.inf, np.float32))
    assert index.candidates(np.array([[np.nan, 1]], np.float32), 1)[1].size == 0
    indptr, indices, values = csr_args(sparse.csr_array(np.eye(3, dtype=np.float32)))
    for args in (
        (np.array([0, 2**62, -(2**63), 3]), indices, values, 3),
        (indptr, indices, values[:2].copy(), 3),
        (indptr, indices, values, 2),
        (indptr, indices, values, -1),
    ):
        with pytest.raises(ModelFormatError, match="damaged"):
            _kernels.LabelWeights(*args)


def test_unlisted_is_far_below_all_scores():
    assert _kernels.UNLISTED == -1e6
