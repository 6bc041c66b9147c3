"""What a scorer promises besides its numbers: storing, copying, refusing damage, taking any array."""

import copy
import pickle

import numpy as np
import pytest
from scipy import sparse
from scoring_twin import TwinScorer

from blockxmc import _kernels
from blockxmc.errors import BlockXMCError, ModelFormatError
from blockxmc.linear.packed import PackedScorer
from blockxmc.linear.scorers import pack_scorer, pack_shared_scorer, restore_scorer
from blockxmc.linear.vectors import LabelVectors
from blockxmc.linear.weights import LinearWeights, LowRankWeights
from blockxmc.model.routed_scorer import RoutedScorer

D, M, Q = 400, 60, 5


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def X(rng):
    return sparse.csr_array(sparse.random_array((30, D), density=0.1, dtype=np.float32, rng=rng, format="csr"))


def to_half(values):
    """The nearest floats whose lower 16 bits are zero, ties to even."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def linear(rng, n_labels, density=0.01, mass=False):
    coef = sparse.random_array((D, n_labels), density=density, dtype=np.float32, rng=rng, format="csr")
    # Integers over 128, 127 in every label among them, so that all precisions must give the same scores.
    coef.data = (np.round(coef.data * 127) / 128).astype(np.float32)
    coef.data[np.unique(coef.indices, return_index=True)[1]] = 127 / 128
    bias = rng.normal(size=n_labels).astype(np.float32)
    return LinearWeights(sparse.csr_array(coef), bias, bias[::-1].copy() if mass else None)


@pytest.fixture
def parts(rng):
    ids = [np.sort(rng.choice(M, size, replace=False)) for size in (20, 0, 1, 40, 60)]
    # Densities that give hashed rows, direct rows, and dense rows.
    densities = (0.005, 0, 0.1, 0.05, 0.5)
    return [linear(rng, i.size, density, mass=True) for i, density in zip(ids, densities, strict=True)], ids


@pytest.fixture(params=[32, 16, 8])
def scorer(parts, request):
    return pack_scorer(*parts, n_features=D, n_labels=M, bits=request.param)


@pytest.fixture
def blocks(rng):
    return rng.integers(-1, Q, (30, 3)).astype(np.int32)


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def test_layouts_are_all_in_the_fixture(scorer):
    offsets, rows = scorer.__getstate__()["offsets"], scorer.__getstate__()["rows"]
    direct = np.diff(offsets[:, 1]) == 0
    assert direct.any()
    assert not direct.all()
    assert (rows & 1).any()
    assert not (rows & 1).all()


def test_agrees_with_the_twin(scorer, parts, X, blocks):
    labels, scores = scorer.topk(X, blocks, 4)
    expected = TwinScorer(*parts, D, M).topk(X, blocks, 4)
    assert np.array_equal(labels, expected[0])
    np.testing.assert_allclose(scores, expected[1], rtol=1e-5)


def test_bfloat16_rounds_weights_to_the_nearest(rng, X):
    coef = sparse.random_array((D, 70), density=0.1, dtype=np.float32, rng=rng, format="csr")
    coef.data = np.concatenate([[1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8], rng.normal(size=coef.nnz - 3)]).astype(
        np.float32
    )
    rounded = coef.copy()
    rounded.data = to_half(coef.data)
    assert rounded.data[:3].tolist() == [1.0, 1 + 4 * 2**-8, -1.0]  # ties to even
    bias = np.zeros(70, np.float32)
    pack = {"n_features": D, "n_labels": 70}
    half = pack_scorer([LinearWeights(coef, bias)], [np.arange(70)], bits=16, **pack)
    single = pack_scorer([LinearWeights(rounded, bias)], [np.arange(70)], **pack)
    assert same(half.topk(X, None, 5), single.topk(X, None, 5))
    assert half.touched(X, None) == single.touched(X, None)
    assert half.nbytes < single.nbytes


def test_size_and_clusters(scorer, parts):
    assert scorer.n_blocks == Q
    assert scorer.nbytes == sum(a.nbytes for a in scorer.__getstate__().values() if isinstance(a, np.ndarray))
    assert all(np.array_equal(a, b) for a, b in zip(scorer.label_clusters, parts[1], strict=True))


def test_touched_counts_stored_weights(X):
    coef = sparse.csr_array(np.eye(D, M, dtype=np.float32))
    scorer = pack_scorer([LinearWeights(coef, np.zeros(M, np.float32))], [np.arange(M)], n_features=D, n_labels=M)
    assert scorer.touched(X, None) == pytest.approx((X.indices < M).sum() / X.shape[0])
    low_rank = LowRankWeights(np.ones((D, 2), np.float32), np.ones((M, 2), np.float32))
    scorer = pack_scorer([low_rank], [np.arange(M)], n_features=D, n_labels=M)
    assert scorer.touched(X, None) == pytest.approx(2 * X.nnz / X.shape[0] + 2 * M)


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, lambda s: pickle.loads(pickle.dumps(s))])
def test_copies(scorer, copied, X, blocks):
    assert same(copied(scorer).topk(X, blocks, 3), scorer.topk(X, blocks, 3))


def test_state_comes_back_from_memory_maps(scorer, tmp_path, X, blocks):
    state = scorer.state()
    for name, value in state.items():
        if isinstance(value, np.ndarray):
            np.save(tmp_path / f"{name}.npy", value)
            state[name] = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
    restored = restore_scorer(state)
    assert same(restored.topk(X, blocks, 3), scorer.topk(X, blocks, 3))
    assert restored.nbytes == scorer.nbytes


def test_read_only_input(scorer, X, blocks):
    expected = scorer.topk(X, blocks, 3)
    for array in (X.indptr, X.indices, X.data, blocks):
        array.flags.writeable = False
    assert same(scorer.topk(X, blocks, 3), expected)
    assert same(scorer.one(X.indices[: X.indptr[1]], X.data[: X.indptr[1]], blocks[0], 3), [e[0] for e in expected])


@pytest.mark.parametrize("dtype", [np.int64, np.uint16, list])
def test_one_takes_any_integers(scorer, X, blocks, dtype):
    indices, values = X.indices[: X.indptr[1]], X.data[: X.indptr[1]]
    convert = (lambda a: a.tolist()) if dtype is list else (lambda a: a.astype(dtype))
    visited = blocks[:1][blocks[:1] >= 0]
    expected = scorer.one(indices, values, visited, 3)
    assert same(scorer.one(convert(indices), values.tolist(), convert(visited), 3), expected)
    assert same(scorer.one(indices, values.astype(np.float64), visited, 3), expected)


def _damaged(state, name, at, value):
    array = state[name].copy()
    array[at] = value
    return {**state, name: array}


@pytest.mark.parametrize(
    ("name", "at", "value"),
    [
        ("labels", 0, M),
        ("labels", 3, 0),
        ("labels", 0, -1),
        ("keys", 0, -5),
        ("keys", -1, 3),
        ("buckets", 1, 2**31),
        ("rows", 1, 2**32 - 1),
        ("rows", 0, 4),
        ("rows", -1, 0),
    ],
)
def test_damaged_indices_are_refused_on_first_use(scorer, X, name, at, value):
    restored = restore_scorer(_damaged(scorer.__getstate__(), name, at, value))
    with pytest.raises(ModelFormatError, match="damaged"):
        restored.topk(X, None, 3)
    with pytest.raises(ModelFormatError, match="damaged"):
        restored.topk(X, None, 3, threads=2)
    with pytest.raises(ModelFormatError, match="damaged"):
        restored.one(X.indices[:3], X.data[:3], None, 3)


def test_any_damaged_word_is_refused_or_harmless(scorer, X, rng):
    for name in {"labels", "keys", "buckets", "rows", "arena", "scale"} & set(scorer.__getstate__()):
        for _ in range(40):
            size = scorer.__getstate__()[name].size
            state = _damaged(scorer.__getstate__(), name, rng.integers(size), rng.integers(0, 2**31))
            try:
                labels, _ = restore_scorer(state).topk(X, None, 3)
            except ModelFormatError:
                continue
            assert ((labels >= -1) & (labels < M)).all()


def test_undamaged_blocks_stay_usable(scorer, X):
    restored = restore_scorer(_damaged(scorer.__getstate__(), "labels", 0, M))
    other = np.full((30, 1), 3, np.int32)
    assert same(restored.topk(X, other, 3), scorer.topk(X, other, 3))


@pytest.mark.parametrize(
    ("name", "at", "value"),
    [
        ("block_ptr", 1, 99),
        ("block_ptr", 0, 1),
        ("offsets", (1, 0), -1),
        ("offsets", (1, 4), 2**40),
        ("offsets", (0, 2), 1),
    ],
)
def test_damaged_pointers_are_refused_at_once(scorer, name, at, value):
    with pytest.raises(ModelFormatError, match="damaged"):
        restore_scorer(_damaged(scorer.__getstate__(), name, at, value))


def test_missing_or_wrong_arrays_are_refused(scorer):
    state = scorer.__getstate__()
    with pytest.raises(ModelFormatError, match="incomplete"):
        restore_scorer({name: value for name, value in state.items() if name != "arena"})
    with pytest.raises(ModelFormatError, match="'bias' has type float64"):
        restore_scorer({**state, "bias": state["bias"].astype(np.float64)})
    with pytest.raises(ModelFormatError, match="damaged"):
        restore_scorer({**state, "arena": state["arena"][:-1]})
    with pytest.raises(ModelFormatError, match="unknown kind"):
        restore_scorer({**state, "kind": "quantum"})


def test_wrong_arguments_are_refused(scorer, parts, X, blocks):
    weights, ids = parts
    with pytest.raises(BlockXMCError, match="features"):
        scorer.topk(X[:, :7], None, 3)
    with pytest.raises(BlockXMCError, match="k must be"):
        scorer.topk(X, None, 0)
    with pytest.raises(ValueError, match="one row per row"):
        scorer.topk(X, blocks[:3], 3)
    for wrong in (Q, -2):
        with pytest.raises(ValueError, match="block numbers"):
            scorer.topk(X, np.full((30, 1), wrong, np.int32), 3)
    with pytest.raises(BlockXMCError, match="must ascend"):
        pack_scorer(weights[:1], [ids[0][::-1]], n_features=D, n_labels=M)
    with pytest.raises(BlockXMCError, match="20 labels, but 3"):
        pack_scorer(weights[:1], [ids[0][:3]], n_features=D, n_labels=M)
    with pytest.raises(BlockXMCError, match="sets of label ids"):
        pack_scorer(weights[:1], [], n_features=D, n_labels=M)
    with pytest.raises(BlockXMCError, match="features"):
        pack_scorer(weights[:1], ids[:1], n_features=D + 1, n_labels=M)


def test_a_router_of_too_many_blocks_is_refused(scorer, rng, X):
    router = pack_scorer([linear(rng, Q + 1)], [np.arange(Q + 1)], n_features=D, n_labels=Q + 1)
    with pytest.raises(ValueError, match="router"):
        RoutedScorer(router, scorer, 2).topk(X, 3)


def test_a_router_of_too_few_blocks_is_refused(scorer, rng, X):
    router = pack_scorer([linear(rng, Q - 2)], [np.arange(Q - 2)], n_features=D, n_labels=Q - 2)
    with pytest.raises(ValueError, match="one block more"):
        RoutedScorer(router, scorer, 1).topk(X, 3)
    with pytest.raises(ValueError, match="one block more"):
        RoutedScorer(router, scorer, 1).one(X.indices[:2], X.data[:2], 3)


def test_no_blocks_and_no_rows(scorer, X):
    empty = pack_scorer([], [], n_features=D, n_labels=M)
    labels, scores = empty.topk(X, None, 2)
    assert (labels == -1).all()
    assert np.isneginf(scores).all()
    assert empty.scores(X, None).nnz == 0
    assert scorer.topk(X[:0], None, 2)[0].shape == (0, 2)
    assert scorer.touched(X[:0], None) == 0


class Opaque:
    n_labels = 2

    def scores(self, X):
        return np.tile(np.float32([1, 2]), (X.shape[0], 1))


def test_opaque_weights_score_and_pickle_but_refuse_to_be_saved(X):
    scorer = pack_scorer([Opaque()], [np.array([4, 9])], n_features=D, n_labels=M)
    assert not isinstance(scorer, PackedScorer)
    assert scorer.topk(X, None, 2)[0][0].tolist() == [9, 4]
    with pytest.raises(BlockXMCError, match="cannot be saved"):
        scorer.state()
    assert same(pickle.loads(pickle.dumps(scorer)).topk(X, None, 2), scorer.topk(X, None, 2))


def test_damaged_low_rank_and_mixed_blocks_are_refused(rng):
    low_rank = LowRankWeights(np.ones((D, 2), np.float32), np.ones((3, 2), np.float32))
    scorer = pack_scorer([low_rank, linear(rng, 4, 0.1)], [np.array([0, 5, 9]), np.arange(4)], n_features=D, n_labels=M)
    state = scorer.state()
    damages = [
        ("0", "labels", np.array([0, 5, M], np.int32)),
        ("0", "labels", np.array([5, 0, 9], np.int32)),
        ("0", "labels", np.array([0, 5], np.int32)),
        ("0", "W", np.ones((D - 1, 2), np.float32)),
        ("1", "indices", np.full_like(state["blocks"]["1"]["indices"], 4)),
    ]
    for block, name, value in damages:
        blocks = {**state["blocks"], block: {**state["blocks"][block], name: value}}
        with pytest.raises(ModelFormatError, match="damaged"):
            restore_scorer({**state, "blocks": blocks})


@pytest.mark.parametrize("chosen", [[], [2], [5, 0, 3], list(range(6))])
def test_taken_columns_keep_only_the_rows_they_use(rng, chosen):
    coef = sparse.random_array((40, 6), density=0.1, dtype=np.float32, rng=rng, format="csr")
    by_column = sparse.csc_array(coef)
    ids = np.array(chosen, np.int32)
    args = by_column.indptr.astype(np.int64), by_column.indices.astype(np.int32), by_column.data
    rows, indptr, columns, values = _kernels.take_columns(*args, ids, 40)
    expected = coef.toarray()[:, ids]
    assert rows.tolist() == np.flatnonzero(expected.any(axis=1)).tolist()
    found = sparse.csr_array((values, columns, indptr), shape=(rows.size, ids.size))
    assert found.has_sorted_indices
    assert np.array_equal(found.toarray(), expected[rows])
    for bad in ([6], [-1]):
        with pytest.raises(ValueError, match="column number"):
            _kernels.take_columns(*args, np.array(bad, np.int32), 40)
    if values.size:
        with pytest.raises(ValueError, match="row number"):
            _kernels.take_columns(*args, ids, int(rows.max()))


@pytest.mark.parametrize("bits", [32, 16, 8])
def test_labels_that_come_later_score_as_if_they_had_been_packed_at_once(rng, X, bits):
    vectors = sparse.csr_array(sparse.random_array((24, X.shape[1]), density=0.2, rng=rng, dtype=np.float32))
    bias, n_old = np.concatenate([rng.normal(size=20), np.full(4, -1.5)]).astype(np.float32), 20
    block_of, frequent = np.array([2, 0, 2, 2]), np.array([3, 7])
    clusters = [np.array([0, 3, 4, 9]), np.array([3, 5, 7]), np.array([1, 2, 6, 7, 8, *range(10, 20)])]
    old = LabelVectors(vectors[:n_old], bias[:n_old])
    some = {"n_features": X.shape[1], "bits": bits}
    grown = pack_shared_scorer(old, clusters, frequent, **some).with_labels(vectors[n_old:], -1.5, block_of, 1)
    longer = [np.concatenate([ids, n_old + np.flatnonzero(block_of == k)]) for k, ids in enumerate(clusters)]
    whole = pack_shared_scorer(LabelVectors(vectors, bias), longer, frequent, **some)
    assert [ids.tolist() for ids in grown.label_clusters] == [ids.tolist() for ids in whole.label_clusters]
    for visited in (None, np.tile(np.array([[3, 0, 2]], np.int32), (X.shape[0], 1))):
        mine, theirs = (scorer.scores(X, visited).toarray() for scorer in (grown, whole))
        np.testing.assert_allclose(mine, theirs, atol=1e-5)
    again = restore_scorer(grown.state())
    np.testing.assert_array_equal(again.scores(X, None).toarray(), grown.scores(X, None).toarray())
