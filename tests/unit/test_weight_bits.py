"""Models whose weights have 8 bits: on disk, damaged, from older versions, and what they lose."""

import numpy as np
import pytest
from helpers import blocky
from scipy import sparse
from storage_models import saved, tamper

import blockxmc
from blockxmc import BlockwiseClassifier, _kernels, metrics
from blockxmc.data import load_demo
from blockxmc.errors import BlockXMCError, ModelFormatError
from blockxmc.scoring import Scorer
from blockxmc.weights import LinearWeights


@pytest.fixture(scope="module")
def byte():
    return BlockwiseClassifier(n_blocks=4, weight_bits=8, n_jobs=1).fit(*blocky())


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def test_a_model_comes_back_as_it_was(byte, tmp_path):
    X, _ = blocky()
    restored = blockxmc.load(saved(tmp_path, byte))
    assert restored.blocks_.scorer.bits == 8
    assert same(restored.predict_topk(X, 5), byte.predict_topk(X, 5))
    assert restored.cost_ == byte.cost_


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_a_damaged_scale_is_refused(byte, value):
    X, _ = blocky()
    state = byte.blocks_.scorer.state()
    scale = state["scale"].copy()
    scale[5] = value
    restored = Scorer.from_state({**state, "scale": scale})
    with pytest.raises(ModelFormatError, match="the scale of a label is not a positive number"):
        restored.topk(X, None, 3)


def test_scales_belong_to_8_bits_and_to_no_others(byte):
    state = byte.blocks_.scorer.state()
    with pytest.raises(ModelFormatError, match="scales are missing"):
        Scorer.from_state({**state, "scale": state["scale"][:-1]})
    with pytest.raises(ModelFormatError, match="weights of 8 bits need scales"):
        Scorer.from_state({name: value for name, value in state.items() if name != "scale"})
    with pytest.raises(ModelFormatError, match="weights of 8 bits need scales"):
        Scorer.from_state({**state, "bits": 16})
    for bits in (0, 7, -8):
        with pytest.raises(ModelFormatError, match="32, 16 or 8 bits"):
            Scorer.from_state({**state, "bits": bits})
    with pytest.raises(ModelFormatError, match="'scale' has type float64"):
        Scorer.from_state({**state, "scale": state["scale"].astype(np.float64)})


@pytest.mark.parametrize(("bits", "half"), [(16, True), (32, False), (32, None)])
def test_models_of_format_1_say_half(bits, half, tmp_path):
    X, Y = blocky()
    model = BlockwiseClassifier(n_blocks=4, weight_bits=bits, n_jobs=1).fit(X, Y)

    def as_before(manifest):
        manifest["format_version"] = 1
        for part in ("scorer", "router"):
            scorer = manifest["state"]["blocks"][part]
            scorer = scorer if part == "scorer" else scorer["scorer"]
            old = {"half": half and scorer["bits"] == 16} if half is not None else {}
            del scorer["bits"]
            scorer.update(old)

    path = saved(tmp_path, model)
    tamper(path, as_before)
    restored = blockxmc.load(path)
    assert restored.blocks_.scorer.bits == bits
    assert same(restored.predict_topk(X, 5), model.predict_topk(X, 5))


def test_the_demo_loses_next_to_nothing_and_shrinks():
    train, test = load_demo()
    X, Y = train.X[:1500], train.Y[:1500]
    full, half, byte = (BlockwiseClassifier(n_blocks=16, weight_bits=bits).fit(X, Y) for bits in (32, 16, 8))
    for k in (1, 3, 5):
        kept = [metrics.precision_at_k(test.Y, model.predict_topk(test.X, 5)[0], k) for model in (full, byte)]
        assert kept[1] > kept[0] - 0.005
    assert abs(byte.cost_["lost_to_rounding"]) < 0.5
    assert byte.blocks_.scorer.nbytes < 0.95 * half.blocks_.scorer.nbytes


def test_weights_that_8_bits_cannot_hold_are_refused():
    coef = sparse.csr_array(np.array([[1.0, np.inf]], np.float32))
    with pytest.raises(BlockXMCError, match="must be finite"):
        Scorer.pack([LinearWeights(coef, np.zeros(2, np.float32))], [np.arange(2)], n_features=1, n_labels=2, bits=8)
    finite = LinearWeights(sparse.csr_array(np.ones((1, 2), np.float32)), np.zeros(2, np.float32))
    with pytest.raises(BlockXMCError, match="weights of 2 labels, but there are 3"):
        Scorer.pack_shared(finite, [np.arange(3)], np.zeros(0, int), n_features=1, n_labels=3)
    with pytest.raises(BlockXMCError, match="32, 16 or 8 bits, not 12"):
        Scorer.pack([], [], n_features=1, n_labels=2, bits=12)


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


def test_models_of_format_2_have_no_neighbours(tmp_path):
    X, Y = blocky()
    model = BlockwiseClassifier(n_blocks=4, n_neighbors=0, n_jobs=1).fit(X, Y)

    def as_before(manifest):
        manifest["format_version"] = 2
        del manifest["state"]["blocks"]["neighbours"], manifest["params"]["n_neighbors"]

    path = saved(tmp_path, model)
    tamper(path, as_before)
    assert same(blockxmc.load(path).predict_topk(X, 5), model.predict_topk(X, 5))


@pytest.mark.parametrize("version", [3, 4])
def test_models_of_formats_3_and_4_compare_all_features_with_neighbours(tmp_path, version):
    X, Y = blocky()
    model = BlockwiseClassifier(n_blocks=4, n_neighbors=3, n_jobs=1).fit(X, Y)

    def as_before(manifest):
        manifest["format_version"] = version
        del manifest["state"]["blocks"]["neighbours"]["features"]
        if version == 3:  # too few rows for a second look, which it did not know
            del manifest["state"]["blocks"]["look"]

    path = saved(tmp_path, model)
    tamper(path, as_before)
    before = blockxmc.load(path)
    assert before.blocks_.neighbours.features > X.shape[1]
    assert same(before.predict_topk(X, 5), model.predict_topk(X, 5))  # its rows are short
