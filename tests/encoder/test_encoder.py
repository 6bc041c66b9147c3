"""The whole way on a tiny encoder: train, export, save, load without PyTorch, answer. Needs the extra ``encoder``."""

import json
import subprocess
import sys
import zlib

import numpy as np
import pytest
from tiny_encoder import make_tiny_encoder

from blockxmc import BlockwiseClassifier, Encoder, TextClassifier, load
from blockxmc.encoder.vectors import SCALE
from blockxmc.errors import BlockXMCError, ModelFormatError

pytest.importorskip("torch", reason="needs the extra 'encoder': make test-encoder runs this")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


@pytest.fixture(scope="module")
def rows():
    """Many labels of few rows, each named by two words, one of which stands in the text: names help."""
    rng = np.random.default_rng(0)
    syllables = ["ba", "ce", "di", "fo", "gu", "ha", "ke", "li", "mo", "nu", "pa", "re", "si", "to", "vu"]
    words = rng.permutation([a + b + c for a in syllables for b in syllables for c in ("n", "r")])
    named = words[:360].reshape(180, 2)
    texts, labels = [], []
    for _ in range(900):
        some = rng.choice(180, 2, replace=False)
        chosen = [named[label][rng.integers(2)] for label in some]
        texts.append(" ".join(rng.permutation([*chosen, *chosen, *rng.choice(words[360:], 3)])))
        labels.append([" ".join(named[label]) for label in some])
    return texts, labels


@pytest.fixture(scope="module")
def folder(rows, tmp_path_factory):
    return make_tiny_encoder(tmp_path_factory.mktemp("tiny"), rows[0])


def fitted(rows, folder, **options):
    texts, labels = rows
    encoder = Encoder(folder, max_tokens=32, device="cpu", **options)
    model = TextClassifier(BlockwiseClassifier(n_blocks=2, n_jobs=2), encoder=encoder)
    # The linear model is not told what labels are called: on these rows the encoder would have nothing to add.
    return model.fit(texts[:800], labels[:800], label_texts=None)


@pytest.fixture(scope="module")
def tuned(rows, folder):
    return fitted(rows, folder, epochs=3)


def test_fine_tuning_learns_and_is_served_as_it_was_trained(tuned, rows):
    found = tuned.encoder_
    assert found is not None
    assert found.summary["fused"] > found.summary["linear"]
    again = tuned.encoder_.encoder.embed(rows[0][800:810], 1)
    np.testing.assert_array_equal(again, tuned.encoder_.encoder.embed(rows[0][800:810], 2))
    np.testing.assert_allclose(np.linalg.norm(again, axis=1), 1, rtol=1e-5)


def test_a_saved_model_answers_the_same_without_pytorch(tuned, rows, tmp_path):
    tuned.save(tmp_path / "model")
    texts = rows[0][800:806]
    wanted = tuned.suggest(texts)
    code = (
        "import json, sys; from blockxmc import load; model = load(sys.argv[1]); "
        "found = model.suggest(json.loads(sys.argv[2])); model.predict(json.loads(sys.argv[2])); "
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules and 'onnx' not in sys.modules; "
        "print(json.dumps(found))"
    )
    run = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "model"), json.dumps(texts)]
    found = json.loads(subprocess.run(run, capture_output=True, text=True, check=True).stdout)
    assert [[label for label, _ in row] for row in found] == [[s.label for s in row] for row in wanted]
    np.testing.assert_allclose(
        [s for row in found for _, s in row], [s.score for row in wanted for s in row], rtol=1e-6
    )
    plain = load(tmp_path / "model", encoder=False)
    assert plain.encoder_ is None
    assert plain.suggest(texts) == tuned.suggest(texts, encoder=False)


def test_without_the_runtime_the_error_names_the_extra(tuned, rows, tmp_path):
    tuned.save(tmp_path / "model")
    code = (
        "import sys; sys.modules['onnxruntime'] = None; from blockxmc import load\n"
        "try: load(sys.argv[1])\nexcept ValueError as error: print(error)\n"
        "print(load(sys.argv[1], encoder=False).suggest('x'))"
    )
    run = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "model")]
    out = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    assert out == "onnxruntime is needed for this: pip install 'blockxmc[encoder]'\n[]\n"


def test_a_frozen_encoder_learns_label_vectors_only(rows, folder):
    model, again = (fitted(rows, folder, epochs=0) for _ in range(2))
    assert model.encoder_.summary["fused"] > model.encoder_.summary["linear"] + 0.005
    assert model.suggest(rows[0][:20]) == again.suggest(rows[0][:20])


def test_an_encoder_that_cannot_help_leaves_the_linear_model_alone(rows, folder):
    labels = [[f"label {zlib.crc32(text.encode()) % 7}"] for text in rows[0]]
    model = fitted((rows[0], labels), folder, epochs=0)
    assert model.encoder_ is None or model.encoder_.summary["fused"] > model.encoder_.summary["linear"]


def test_a_training_goes_on_from_its_last_pass(rows, folder, tmp_path, monkeypatch):
    from blockxmc.encoder import train

    texts, labels = rows
    encoder = Encoder(folder, max_tokens=32, device="cpu", epochs=2)
    make = lambda: TextClassifier(BlockwiseClassifier(n_blocks=2, n_jobs=1), encoder=encoder)  # noqa: E731
    whole = make().fit(texts[:500], labels[:500], label_texts=None)
    learn, steps = train.FineTuning._learn, []

    def stop(self, *args):
        steps.append(self.step)
        if len(steps) == 10:
            raise KeyboardInterrupt
        return learn(self, *args)

    monkeypatch.setattr(train.FineTuning, "_learn", stop)
    with pytest.raises(KeyboardInterrupt):
        make().fit(texts[:500], labels[:500], label_texts=None, work=tmp_path)
    steps.clear()
    monkeypatch.setattr(
        train.FineTuning, "_learn", lambda self, *args: (steps.append(self.step), learn(self, *args))[1]
    )
    again = make().fit(texts[:500], labels[:500], label_texts=None, work=tmp_path)
    assert steps[0] > 0
    assert (again.encoder_ is None) == (whole.encoder_ is None)
    if whole.encoder_ is not None:
        np.testing.assert_allclose(
            again.predict_topk(texts[500:520], 3)[1], whole.predict_topk(texts[500:520], 3)[1], rtol=1e-4
        )


@pytest.mark.parametrize("kind", ["bert", "modernbert"])
def test_the_graph_says_what_pytorch_says(rows, tmp_path, kind):
    import torch

    from blockxmc.encoder.export import exported, open_source
    from blockxmc.encoder.train import tokenized, vectors_of

    source = open_source(Encoder(make_tiny_encoder(tmp_path, rows[0], kind=kind), max_tokens=24))
    texts = [*rows[0][:20], "", "zzz qqq", "a" * 100_000]
    wanted = vectors_of(source, tokenized(source, texts))
    np.testing.assert_allclose(exported(source, bits=32).embed(texts, 2), wanted, atol=1e-5)
    assert (exported(source).embed(texts) * wanted).sum(axis=1).min() > 0.98
    assert not torch.is_grad_enabled() or source.module.training is False


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: (path / "model.safetensors").unlink(), "cannot be loaded"),
        (lambda path: (path / "config.json").write_text("{}"), "cannot be loaded"),
        (lambda path: (path / "tokenizer.json").unlink(), "cannot be loaded|no tokenizer.json"),
    ],
)
def test_an_incomplete_folder_is_one_clear_line(rows, tmp_path, spoil, said):
    from blockxmc.encoder.export import open_source

    make_tiny_encoder(tmp_path, rows[0])
    spoil(tmp_path)
    with pytest.raises(BlockXMCError, match=said):
        open_source(Encoder(str(tmp_path)))


def test_a_changed_graph_is_refused(tuned, tmp_path):
    tuned.save(tmp_path / "model")
    graph = next((tmp_path / "model").glob("encoder.encoder.graph.*.npy"))
    content = bytearray(graph.read_bytes())
    content[-100] ^= 1
    graph.write_bytes(content)
    with pytest.raises(ModelFormatError, match="was changed"):
        load(tmp_path / "model")
    assert load(tmp_path / "model", encoder=False).encoder_ is None


def test_updates_teach_new_labels_and_forgetting_takes_them_back(rows, folder, tmp_path):
    texts, labels = rows
    encoder = Encoder(folder, max_tokens=32, device="cpu", epochs=0)
    model = TextClassifier(BlockwiseClassifier(n_blocks=2, n_jobs=1, keep_rows=True), encoder=encoder)
    model.fit(texts[:800], labels[:800], label_texts=None).save(tmp_path / "model")
    model = load(tmp_path / "model")
    n_labels, before = len(model.classes_), model.encoder_.labels
    model.update(["zabun zabun pelir", "zabun mokar zabun", "quzar zabun"] * 4, [["zabun quzar"]] * 12)
    after = model.encoder_.labels
    assert len(after.bias) == len(model.classes_) == n_labels + 1
    assert len(model.encoder_.rows.bias) == 812
    assert model.suggest("zabun zabun", k=1)[0].label == "zabun quzar"
    others = np.arange(n_labels)
    np.testing.assert_array_equal(after.vectors[others], before.vectors)
    mine = model.encoder_.encoder.embed(["zabun zabun", texts[0]])
    scores = after.scores(mine, np.array([[n_labels]] * 2))
    assert scores[0, 0] > scores[1, 0]
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").suggest(texts[:5]) == model.suggest(texts[:5])
    model.forget(np.arange(800, 812))
    assert len(model.encoder_.rows.bias) == 800
    assert model.suggest(texts[0], k=1)


def test_labels_that_are_added_have_vectors_by_their_texts(tuned, tmp_path):
    tuned.save(tmp_path / "m")
    model = load(tmp_path / "m").add_labels({"zebra": "zebra herds"})
    vector = model.encoder_.labels.exact(np.array([len(tuned.encoder_.labels.bias)]))[0]
    wanted = model.encoder_.encoder.embed(["zebra herds"], 1)[0] * SCALE
    np.testing.assert_allclose(vector, wanted, atol=np.abs(wanted).max() / 127)
    found = model.suggest("zebra herds", k=1)
    model.save(tmp_path / "m")
    assert load(tmp_path / "m").suggest("zebra herds", k=1) == found
    assert model.label_names_.tolist() == [*tuned.label_names_.tolist(), "zebra"]


def test_explanations_have_the_encoders_part_and_its_passages(tuned, rows):
    text = rows[0][0] + ". " + rows[0][1]
    found = tuned.explain(text, k=3)
    best = tuned.suggest(text, k=3)
    assert [why.name for why in found] == [s.label for s in best]
    for why, suggestion in zip(found, best, strict=True):
        assert why.probability == pytest.approx(suggestion.score, rel=1e-5)
        parts = why.constant + sum(f.part for f in why.features) + why.other_features + sum(why.terms.values())
        assert parts == pytest.approx(why.score, abs=1e-4)
        assert "the encoder" in why.terms
        assert all(passage.text in text and passage.part > 0 for passage in why.passages)
        assert "encoder" in str(why)
        json.dumps(why.to_dict())
    rest = tuned.predict_topk(text, 180)[0]
    far = int(rest[rest >= 0][-1])
    assert "behind the 100" in tuned.explain(text, label=far)[0].fate


def test_the_command_line_from_train_to_evaluate(rows, folder, tmp_path):
    texts, labels = rows
    for name, part in (("train", slice(0, 800)), ("test", slice(800, 900))):
        lines = (json.dumps({"text": t, "labels": y}) for t, y in zip(texts[part], labels[part], strict=True))
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")

    def run(*arguments):
        command = [sys.executable, "-W", "ignore", "-m", "blockxmc", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        return done.returncode, done.stdout, done.stderr

    assert (
        run("train", "train.jsonl", "--model", "m", "--encoder", folder, "--epochs", 0, "--label-texts", "none")[0] == 0
    )
    code, out, _ = run("evaluate", "m", "test.jsonl", "--json")
    found = json.loads(out)["with_encoder"]
    assert code == 0
    assert set(found) == {"linear", "encoder", "fused"}
    model = load(tmp_path / "m")
    assert found["fused"]["P@1"] == pytest.approx(100 * model.score(texts[800:], labels[800:]))
    assert run("evaluate", "m", "test.jsonl")[0] == 0
    code, out, _ = run("predict", "m", "test.jsonl")
    assert json.loads(out.splitlines()[0])["labels"] == [s.label for s in model.suggest(texts[800])]
    assert "the encoder" in run("explain", "m", texts[0])[1]
    assert "encoder" in run("inspect", "m", "--verify")[1]
    code, _, said = run("train", "train.jsonl", "--model", "n", "--epochs", 3)
    assert (code, "--encoder" in said) == (2, True)


def test_the_service_answers_with_the_encoder(tuned, rows, tmp_path):
    from blockxmc.service import answers
    from blockxmc.service.models import ServedModel

    tuned.save(tmp_path / "model")
    model = ServedModel.open("m", tmp_path / "model")
    text = rows[0][810]
    wanted = [s.label for s in tuned.suggest(text)]
    assert not answers.is_short(model, {"text": text})
    for body in ({"text": text}, {"texts": [text]}):
        found = answers.suggest(model, body)["results"][0]["suggestions"]
        assert [s["label"] for s in found] == wanted
    assert "the encoder" in answers.explain(model, {"text": text})["explanations"][0]["terms"]
