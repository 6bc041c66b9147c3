"""What serves an encoder, against short references: no PyTorch is needed here."""

from dataclasses import replace

import numpy as np
import pytest

from blockxmc import BlockwiseClassifier, Encoder, TextClassifier
from blockxmc._core.progress import Reporter
from blockxmc.encoder.fuse import SHARE, HeldOut, best_weight, fit_fusion, gain, logits_of, precision
from blockxmc.encoder.graph import refuse_external
from blockxmc.encoder.learn import Pairs, learned
from blockxmc.encoder.model import Encoded
from blockxmc.encoder.texts import TextEncoder
from blockxmc.encoder.vectors import LabelVectors
from blockxmc.errors import BlockXMCError, ModelFormatError


def message(field, content):
    """A protobuf field that holds a message of at most 127 bytes."""
    return (
        bytes([field << 3 | 2, len(content)]) + content
        if field < 16
        else bytes([(field & 15) << 3 | 2 | 128, field >> 4, len(content)]) + content
    )


OUTSIDE = bytes([14 << 3, 1])  # data_location: external


@pytest.mark.parametrize(
    "path",
    [
        (7, 5),  # graph, initializer
        (7, 15, 1),  # graph, sparse initializer, values
        (7, 1, 5, 5),  # graph, node, attribute, tensor
        (7, 1, 5, 10),  # ... one of several tensors
        (7, 1, 5, 6, 5),  # ... of a graph inside a node
        (7, 1, 5, 22, 2),  # ... indices of a sparse tensor
        (25, 7, 5, 5),  # function, node, attribute, tensor
        (25, 11, 5),  # function, default of an attribute, tensor
    ],
)
def test_data_in_other_files_is_refused_wherever_a_tensor_stands(path):
    def around(content):
        for field in reversed(path):
            content = message(field, content)
        return content

    refuse_external(around(b""))
    refuse_external(around(bytes([14 << 3, 0])))
    with pytest.raises(ModelFormatError, match="other files"):
        refuse_external(around(OUTSIDE))
    with pytest.raises(ModelFormatError, match="other files"):
        refuse_external(around(message(13, b"location")))


@pytest.mark.parametrize("broken", [b"\x3a\x7f", b"\xff" * 12, b"\x3b", b"\x3a\x02\x2a\x09"])
def test_what_is_no_graph_is_refused(broken):
    with pytest.raises(ModelFormatError, match="no ONNX graph"):
        refuse_external(broken)


def test_rounded_vectors_score_as_exact_ones_within_their_steps():
    rng = np.random.default_rng(0)
    vectors, bias = rng.normal(size=(50, 24)).astype(np.float32), rng.normal(size=50).astype(np.float32)
    vectors[7] = 0
    found = LabelVectors.rounded(vectors, bias)
    texts = rng.normal(size=(70, 24)).astype(np.float32)
    texts /= np.linalg.norm(texts, axis=1, keepdims=True)
    labels = rng.integers(-1, 50, (70, 9))
    wanted = np.where(labels >= 0, np.einsum("nld,nd->nl", vectors[labels], texts) + bias[labels], 0)
    step = np.abs(vectors).max() / 127 / 2 * np.sqrt(24)
    np.testing.assert_allclose(found.scores(texts, labels), wanted, atol=step)
    np.testing.assert_array_equal(found.scores(texts[3:4], labels[3:4])[0], found.scores(texts, labels)[3])
    more = found.replaced(np.array([3, 51]), vectors[:2], bias[:2])
    np.testing.assert_allclose(more.exact(np.array([3, 51, 4])), vectors[[0, 1, 4]], atol=step)
    assert more.exact(np.array([50])).any() == 0


def held_out(n_rows=400, n_candidates=20, seed=0, told=1.0):
    """Candidates of which the logits know something, and the scores something else."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(n_rows, n_candidates))
    right = truth > np.sort(truth, axis=1)[:, [-3]]
    logits = (truth + rng.normal(size=truth.shape)).astype(np.float32)
    scores = (3 * (told * truth + rng.normal(size=truth.shape)) + 5).astype(np.float32)
    labels = np.tile(np.arange(n_candidates), (n_rows, 1))
    return HeldOut(labels, logits, right, right.sum(axis=1)), scores


def test_the_weight_is_that_of_the_best_likelihood():
    rows, scores = held_out()

    def loss(weight):
        fused = (rows.logits + weight * scores).astype(np.float64)
        total = 0.0
        for z, right in zip(fused, rows.right, strict=True):
            wrong = np.exp(z[~right][:, None] - z[right]).sum(axis=0)
            total += np.log1p(wrong).sum() / np.sqrt(right.sum())
        return total

    # The weight of the logits is drawn to 1 and shares its scale with the other: only their ratio is compared.
    from scipy.optimize import minimize

    def both(x):
        fused = (x[1] * rows.logits + x[0] * scores).astype(np.float64)
        return sum(
            np.log1p(np.exp(z[~r][:, None] - z[r]).sum(axis=0)).sum() / np.sqrt(r.sum())
            for z, r in zip(fused, rows.right, strict=True)
        )

    own, linear = minimize(both, [0.1, 1.0], method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-6}).x
    assert best_weight(rows, scores) == pytest.approx(SHARE * own / linear, rel=0.02)
    assert loss(own / linear) < loss(0)


def test_scores_of_chance_gain_nothing():
    rows, scores = held_out(told=0.0)
    before, after = gain(rows, scores)
    assert abs(after - before) < 0.01
    rows, scores = held_out()
    before, after = gain(rows, scores)
    assert after > before + 0.05
    assert before == precision(rows, rows.logits).mean()


def test_fused_probabilities_mean_what_they_say():
    rows, scores = held_out(4000)
    fusion = fit_fusion(rows, scores, 1)
    labels, ranked = fusion.ranked(rows.labels, rows.logits, scores)
    fusion.calibration.apply_topk((labels, ranked))
    right = np.take_along_axis(rows.right, labels, 1)
    assert (np.diff(ranked, axis=1) <= 0).all()
    for low, high in ((0.05, 0.2), (0.2, 0.5), (0.5, 1)):
        inside = (ranked > low) & (ranked <= high)
        assert right[inside].mean() == pytest.approx(ranked[inside].mean(), abs=0.03)


def test_ties_go_to_the_lower_id_and_nothing_comes_last():
    rows, scores = held_out()
    fusion = fit_fusion(rows, scores, 1)
    labels, ranked = fusion.ranked(
        np.array([[5, 2, -1, 9]]), np.zeros((1, 4), np.float32), np.zeros((1, 4), np.float32)
    )
    assert labels.tolist() == [[2, 5, 9, -1]]
    assert ranked[0, 3] == -np.inf


def test_label_vectors_learn_what_frozen_texts_say():
    rng = np.random.default_rng(0)
    wanted = rng.normal(size=(30, 16)).astype(np.float32)
    texts = rng.normal(size=(2000, 16)).astype(np.float32)
    texts /= np.linalg.norm(texts, axis=1, keepdims=True)
    labels = np.argsort(rng.random((2000, 30)), axis=1)[:, :10]
    labels[:, 9] = -1
    right = (np.einsum("nld,nd->nl", wanted[labels], texts) > 1) & (labels >= 0)
    first, bias = np.zeros((31, 16), np.float32), np.full(31, -1, np.float32)
    vectors, after = learned(Pairs(texts, labels, right), first, bias, 0, Reporter(), passes=60)
    scores = np.einsum("nld,nd->nl", vectors[labels], texts)
    order = np.where(labels >= 0, scores + after[labels] / 16, -np.inf)
    assert right[np.arange(2000), order.argmax(axis=1)].mean() > 0.9 * right.any(axis=1).mean()
    assert not vectors[30].any()
    assert after[30] == -1
    assert not first.any()


def test_pairs_begin_at_the_same_odds_for_every_encoder():
    texts = np.eye(3, dtype=np.float32)
    pairs = Pairs(texts, np.array([[0, 1], [1, -1], [0, 1]]), np.array([[True, False], [True, False], [False, False]]))
    vectors = np.array([[0, 0, 0.5], [0.25, 0, 1.0]], np.float32)
    assert pairs.first_bias(vectors) == pytest.approx(-4 - 16 * (0.25 + 0.5 + 1.0) / 3)


class Given:
    """An encoder whose vectors of texts are known."""

    graph = tokenizer = np.zeros(1, np.uint8)
    size = 8

    def embed(self, texts, threads=1):
        return np.array([np.random.default_rng(len(text)).normal(size=8) for text in texts], np.float32) / 3


@pytest.fixture(scope="module")
def encoded():
    rng = np.random.default_rng(1)
    words = [f"word{i}" for i in range(60)]
    labels = [[f"label{j}" for j in rng.choice(40, 3, replace=False)] for _ in range(600)]
    texts = [" ".join([*rng.choice(words, 6), *(words[int(name[5:])] for name in row)]) for row in labels]
    model = TextClassifier(BlockwiseClassifier(n_blocks=4)).fit(texts, labels)
    rows, scores = held_out(n_candidates=8)
    vectors = LabelVectors.rounded(rng.normal(size=(40, 8)).astype(np.float32), np.zeros(40, np.float32))
    model.encoder_ = Encoded(Given(), vectors, fit_fusion(rows, scores, 1), 8, {})
    return model, texts


def documented(model, text):
    """The documented score of every label that the linear model scores, by brute force."""
    found = model.encoder_
    ids, chances = model.classifier_.predict_topk(model.vectorizer_.transform([text], 1), 40)
    ids, chances = ids[0][ids[0] >= 0], chances[0][ids[0] >= 0]
    first = ids[:8]
    scores = found.labels.scores(Given().embed([text]), first[None])
    labels, ranked = found.fusion.ranked(first[None], logits_of(chances[None, :8]), scores)
    found.fusion.calibration.apply_topk((labels, ranked))
    behind = np.minimum(chances[8:], ranked.min())
    return np.concatenate([labels[0], ids[8:]]).tolist(), np.concatenate([ranked[0], behind]).tolist()


def test_answers_are_the_exact_best_of_the_documented_score(encoded):
    model, texts = encoded
    rng = np.random.default_rng(0)
    for text in texts[:25]:
        ids, scores = documented(model, text)
        found, values = model.predict_topk(text, 40)
        assert found[found >= 0].tolist() == ids
        np.testing.assert_allclose(values[found >= 0], scores, rtol=1e-6)
        mask = rng.random(40) < 0.3
        among = [(i, s) for i, s in zip(ids, scores, strict=True) if mask[i]]
        for k in (1, 5, 20):
            found, values = model.predict_topk(text, k, allow=mask)
            assert found[found >= 0].tolist() == [i for i, _ in among[:k]]
            np.testing.assert_allclose(values[found >= 0], [s for _, s in among[:k]], rtol=1e-6)
        denied, _ = model.predict_topk(text, 5, deny=~mask)
        assert denied.tolist() == model.predict_topk(text, 5, allow=mask)[0].tolist()
        whole = model.predict_proba([text]).toarray()[0]
        np.testing.assert_allclose(whole[ids], scores, rtol=1e-6)


def test_one_text_or_many_one_thread_or_two(encoded):
    model, texts = encoded
    many = model.suggest(texts[:30])
    assert [model.suggest(text) for text in texts[:30]] == many
    model.classifier_.set_params(n_jobs=2)
    assert model.suggest(texts[:30]) == many


def test_the_linear_model_answers_where_asked(encoded):
    model, texts = encoded
    plain = model.suggest(texts[0], encoder=False)
    X = model.vectorizer_.transform(texts[:1], 1)
    assert [s.score for s in plain] == model.classifier_.predict_topk(X, 5)[1][0].tolist()
    assert [s.score for s in plain] != [s.score for s in model.suggest(texts[0])]


def test_label_sets_are_cut_by_the_fusions_own_size(encoded):
    model, texts = encoded
    size = model.encoder_.fusion.f1_size
    for text, chosen in zip(texts[:20], model.predict(texts[:20]), strict=True):
        labels, p = model.predict_topk(text, 8)
        least = max(p[: n + 1].sum() / (n + 1 + size) for n in range(8))
        assert sorted(chosen) == sorted(model.classes_[labels[p > least]].tolist())
    for threshold, wanted in (
        (0.2, lambda p: p > 0.2),
        ("top-k", lambda p: np.arange(8) < model.encoder_.fusion.f1_labels),
    ):
        model.classifier_.set_params(threshold=threshold)
        labels, p = model.predict_topk(texts[0], 8)
        assert sorted(model.predict(texts[0])) == sorted(model.classes_[labels[wanted(p)]].tolist())
    model.classifier_.set_params(threshold="f1")
    assert model.suggest([]) == []
    assert model.predict_proba([]).shape == (0, 40)


def test_ranking_by_propensity_is_refused(encoded):
    model, texts = encoded
    model.classifier_.set_params(rank_by="propensity")
    try:
        with pytest.raises(BlockXMCError, match="propensity"):
            model.suggest(texts[0])
    finally:
        model.classifier_.set_params(rank_by="probability")


def spoiled(state, path, value):
    *parents, last = path
    for name in parents:
        state = state[name]
    state[last] = value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("labels", "vectors"), np.zeros((40, 7), np.int8)),
        (("labels", "vectors"), np.zeros((39, 8), np.int8)),
        (("labels", "vectors"), np.zeros((40, 8), np.float32)),
        (("labels", "scales"), np.full(40, np.nan, np.float32)),
        (("labels", "bias"), np.zeros(41, np.float32)),
        (("encoder", "size"), 0),
        (("encoder", "size"), 9),
        (("encoder", "graph"), np.zeros(4, np.int64)),
        (("encoder", "prefix"), 3),
        (("encoder", "max_tokens"), -1),
        (("fusion", "linear"), -1.0),
        (("fusion", "encoder"), float("nan")),
        (("fusion", "calibration"), [0.0] * 3),
        (("candidates",), 0),
        (("rows",), {"vectors": np.zeros((3, 8), np.int8)}),
        (("labels",), None),
    ],
)
def test_parts_that_do_not_fit_are_refused(encoded, path, value):
    whole = replace(encoded[0].encoder_, encoder=TextEncoder.of(b"", b"{}", 8, 16, ""))
    assert Encoded.from_state(whole.state(), 40, 600).candidates == 8
    state = whole.state()
    spoiled(state, path, value)
    with pytest.raises((ModelFormatError, KeyError)):  # loading makes one line of a missing part
        Encoded.from_state(state, 40, 600)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"epochs": -1}, "epochs must be a whole number"),
        ({"epochs": "many"}, "epochs must be a whole number"),
        ({"max_tokens": 1}, "max_tokens"),
        ({"candidates": 0}, "candidates"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"device": "tpu"}, "device must be one of"),
        ({"prefix": 3}, "prefix must be text"),
    ],
)
def test_parameters_that_mean_nothing_are_refused(given, said):
    with pytest.raises(BlockXMCError, match=said):
        Encoder("any", **given).check()


def test_a_classifier_without_probabilities_is_refused():
    model = TextClassifier(BlockwiseClassifier.paper(n_blocks=2, lam=1.0), encoder="any")
    with pytest.raises(BlockXMCError, match="probabilities"):
        model.fit(["cats purr", "dogs bark"] * 5, [["cat"], ["dog"]] * 5)


def test_too_few_rows_stay_linear():
    model = TextClassifier(encoder="no/such/folder").fit(["cats purr", "dogs bark"] * 5, [["cat"], ["dog"]] * 5)
    assert model.encoder_ is None
    assert model.suggest("cats purr", k=1)[0].label == "cat"
