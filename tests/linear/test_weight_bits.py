"""Models whose weights have 8 bits: on disk, damaged, and what they lose."""

import numpy as np
import pytest
from helpers import blocky
from scipy import sparse
from storage_models import saved

import blockxmc
from blockxmc import BlockwiseClassifier, _kernels, metrics
from blockxmc.data import load_demo
from blockxmc.errors import BlockXMCError, ModelFormatError
from blockxmc.linear.scorers import pack_scorer, pack_shared_scorer, restore_scorer
from blockxmc.linear.vectors import LabelVectors
from blockxmc.linear.weights import LinearWeights


@pytest.fixture(scope="module")
def byte():
    return BlockwiseClassifier(n_blocks=4, weight_bits=8, n_jobs=1).fit(*blocky())


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def test_a_model_comes_back_as_it_was(byte, tmp_path):
    X, _ = blocky()
    restored = blockxmc.load(saved(tmp_path, byte))
    assert restored.model_.scorer.bits == 8
    assert same(restored.predict_topk(X, 5), byte.predict_topk(X, 5))
    assert restored.cost_ == byte.cost_


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_a_damaged_scale_is_refused(byte, value):
    X, _ = blocky()
    state = byte.model_.scorer.__getstate__()
    scale = state["scale"].copy()
    scale[5] = value
    restored = restore_scorer({**state, "scale": scale})
    with pytest.raises(ModelFormatError, match="the scale of a label is not a positive number"):
        restored.topk(X, None, 3)


def test_scales_belong_to_8_bits_and_to_no_others(byte):
    state = byte.model_.scorer.__getstate__()
    with pytest.raises(ModelFormatError, match="scales are missing"):
        restore_scorer({**state, "scale": state["scale"][:-1]})
    with pytest.raises(ModelFormatError, match="weights of 8 bits need scales"):
        restore_scorer({name: value for name, value in state.items() if name != "scale"})
    with pytest.raises(ModelFormatError, match="weights of 8 bits need scales"):
        restore_scorer({**state, "bits": 16})
    for bits in (0, 7, -8):
        with pytest.raises(ModelFormatError, match="32, 16 or 8 bits"):
            restore_scorer({**state, "bits": bits})
    with pytest.raises(ModelFormatError, match="'scale' has type float64"):
        restore_scorer({**state, "scale": state["scale"].astype(np.float64)})


def test_the_demo_loses_next_to_nothing_and_shrinks():
    train, test = load_demo()
    X, Y = train.X[:1500], train.Y[:1500]
    full, half, byte = (BlockwiseClassifier(n_blocks=16, weight_bits=bits).fit(X, Y) for bits in (32, 16, 8))
    for k in (1, 3, 5):
        kept = [metrics.precision_at_k(test.Y, model.predict_topk(test.X, 5)[0], k) for model in (full, byte)]
        assert kept[1] > kept[0] - 0.005
    assert byte.model_.scorer.nbytes < 0.95 * half.model_.scorer.nbytes


def test_weights_that_8_bits_cannot_hold_are_refused():
    coef = sparse.csr_array(np.array([[1.0, np.inf]], np.float32))
    with pytest.raises(BlockXMCError, match="must be finite"):
        pack_scorer([LinearWeights(coef, np.zeros(2, np.float32))], [np.arange(2)], n_features=1, n_labels=2, bits=8)
    finite = LabelVectors(sparse.csr_array(np.ones((2, 1), np.float32)), np.zeros(2, np.float32))
    with pytest.raises(BlockXMCError, match="weights on 1 features, but there are 3"):
        pack_shared_scorer(finite, [np.arange(2)], np.zeros(0, int), n_features=3)
    with pytest.raises(BlockXMCError, match="32, 16 or 8 bits, not 12"):
        pack_scorer([], [], n_features=1, n_labels=2, bits=12)


def test_the_kernel_refuses_what_does_not_fit():
    indptr, indices, data = np.array([0, 1, 2]), np.array([0, 2], np.int32), np.ones(2, np.float32)
    labels, ends = np.array([0, 1, -1], np.int32), np.array([2, 3])
    sizes, *_ = _kernels.pack_chunks(indptr, indices, data, labels, ends, 3, 8, 1)
    assert sizes.size == 8
    for wrong, message in [
        ({"labels": np.array([0, 2, -1], np.int32)}, "labels must be"),
        ({"labels": np.array([0, -2, -1], np.int32)}, "labels must be"),
        ({"ends": np.array([2, 1])}, "must ascend"),
        ({"ends": np.array([2])}, "all labels"),
        ({"indices": np.array([0, 3], np.int32)}, "column index is out of range"),
        ({"indices": np.array([-1, 2], np.int32)}, "column index is out of range"),
        ({"bits": 4}, "32, 16 or 8"),
    ]:
        given = {"indices": indices, "labels": labels, "ends": ends, "bits": 8} | wrong
        with pytest.raises(ValueError, match=message):
            _kernels.pack_chunks(indptr=indptr, data=data, n_features=3, threads=1, **given)


@pytest.mark.parametrize(("wanted", "router", "neighbors"), [("auto", 16, 8), (32, 32, 8), (8, 16, 8)])
def test_router_and_neighbors_have_bits_of_their_own(wanted, router, neighbors):
    X, Y = blocky(n=600, n_labels=30)
    options = {"n_blocks": 4, "lam": 0.1, "n_neighbors": 3, "keep_rows": True, "n_jobs": 1}
    clf = BlockwiseClassifier(weight_bits=wanted, **options).fit(X, Y)
    for _ in range(2):
        assert clf.model_.router.bits == router
        assert clf.model_.neighbors is None or clf.model_.neighbors.rows.bits == neighbors
        clf.update(X[:5], Y[:5])
