"""Labels that are added by what they are called, to a model that is fitted."""

import numpy as np
import pytest
from helpers import catalogue
from numpy.testing import assert_array_equal

from blockxmc import BlockwiseClassifier, DiSMEC, TextClassifier, load
from blockxmc.errors import BlockXMCError
from blockxmc.training.settings import SETTINGS

NEW = {"zebra studies": ["zebra herds", "quagga"], "moss science": "moss lichen noise1"}
TEXTS, LABELS = catalogue()


def fitted(labels=LABELS, label_texts="names", **options):
    options = {"n_blocks": 4, "n_jobs": 1} | options
    return TextClassifier(BlockwiseClassifier(**options)).fit(TEXTS, labels, label_texts=label_texts)


@pytest.fixture(scope="module")
def plain():
    return fitted()


@pytest.fixture
def model(plain, tmp_path):
    plain.save(tmp_path / "plain")
    return load(tmp_path / "plain").add_labels(NEW)


def test_they_are_suggested_at_once_and_marked(model, plain, tmp_path):
    n = plain.label_names_.size
    assert model.label_names_.tolist() == [*plain.label_names_.tolist(), "moss science", "zebra studies"]
    assert model.classifier_.label_counts_[n:].tolist() == [0, 0]
    for text, wanted in (("zebra herds", "zebra studies"), ("quagga", "zebra studies"), ("lichen", "moss science")):
        assert (model.suggest(text, k=1)[0].label, model.suggest(text, k=1)[0].trained) == (wanted, False)
    assert "the text shares `zebra` with the name" in model.explain("zebra topic3", label="zebra studies")[0].fate
    assert model.suggest("zebra topic3", k=5, allow=list(NEW))[0].label == "zebra studies"
    assert "zebra studies" not in [found.label for found in model.suggest("quagga", k=9, deny=["zebra studies"])]
    [best] = model.suggest("zebra herds", k=1)
    assert model.suggest("zebra herds", k=1, threshold=best.score + 1e-3) == []
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    for mine, theirs in zip(
        model.predict_topk([*TEXTS[:50], "quagga"], 9), again.predict_topk([*TEXTS[:50], "quagga"], 9), strict=True
    ):
        assert_array_equal(mine, theirs)
    assert again.add_labels({"owl lore": "owls"}).suggest("owls", k=1)[0].label == "owl lore"


def test_the_score_is_the_cosine_to_the_name_by_its_weight(model):
    [why] = model.explain("zebra topic3", label="zebra studies")
    row, name = model._features("zebra topic3")[0], model.classifier_.names_[[-1]]
    cosine = float((row @ name.T).toarray()[0, 0] / np.linalg.norm(name.data))
    weight = model.names_teach_["weight"]
    assert weight >= SETTINGS.least_name
    assert sum(part.part for part in why.features) == pytest.approx(weight * cosine, rel=0.01)
    assert why.constant == -1.0  # of a wrong label


def test_other_labels_keep_their_scores(model, plain):
    for text in TEXTS[:20]:
        for old, new in zip(plain.explain(text, k=3), model.explain(text, k=3), strict=True):
            assert (old.label, old.score) == (new.label, new.score)


def test_labels_without_rows_all_have_the_same_bias():
    named = {name: name for row in LABELS for name in row} | {f"strange{i}": f"strange{i} topic{i}" for i in range(300)}
    model = fitted(label_texts=named).add_labels(NEW)
    found = [
        model.explain(text, label=label)[0].constant
        for text, label in (("quagga", "zebra studies"), ("strange3", "strange3"))
    ]
    assert found[0] == pytest.approx(found[1])
    assert found[0] < -1


def test_where_names_count_nothing_those_of_other_labels_go_on_doing_so(tmp_path):
    codes = {name: f"code{i}" for i, name in enumerate(sorted({name for row in LABELS for name in row}))}
    model = fitted([[codes[name] for name in row] for row in LABELS], "auto", keep_rows=True)
    assert model.names_teach_ == {"weight": 0.0}
    best = model.predict_topk(TEXTS, 5)[0]
    model.add_labels(NEW)
    assert model.suggest("zebra quagga herds", k=1)[0].label == "zebra studies"
    assert (model.predict_topk(TEXTS, 5)[0] == best).mean() > 0.99
    assert np.diff(model.classifier_.names_.indptr).tolist() == [0] * len(codes) + [3, 3]
    model.update(["code1 noise5"], [["code1"]])  # after which it is made anew, from what is kept
    model.save(tmp_path / "m")
    [found] = load(tmp_path / "m").suggest("zebra quagga herds", k=1)
    assert (found.label, found.trained) == ("zebra studies", False)


def test_an_update_teaches_them_and_forget_takes_it_back():
    model = fitted(keep_rows=True).add_labels(NEW)
    rows = [f"savanna stripes noise{i}" for i in range(8)]
    assert model.suggest("savanna stripes", k=1) == []
    model.update(rows, [["zebra studies"]] * len(rows))
    for text in ("savanna stripes", "zebra"):
        [found] = model.suggest(text, k=1)
        assert (found.label, found.trained) == ("zebra studies", True)
    assert not model.suggest("lichen", k=1)[0].trained
    model.forget(np.arange(len(TEXTS), len(TEXTS) + len(rows)))
    [found] = model.suggest("quagga", k=1)
    assert (found.label, found.trained) == ("zebra studies", False)


def test_answers_do_not_depend_on_threads(plain, tmp_path):
    plain.save(tmp_path / "m")
    found = []
    for jobs in (1, 2):
        model = load(tmp_path / "m")
        model.classifier_.set_params(n_jobs=jobs)
        found.append(model.add_labels(NEW).predict_topk([*TEXTS, "zebra moss"], 5))
    for mine, theirs in zip(*found, strict=True):
        assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topic3 science": "more"}, "has the label 'topic3 science' already"),
        ({"a": "x", " a ": "y"}, "is there twice"),
        ({"a": ["apple"], "b": " "}, "the texts of 'b' hold no word"),
        ({"a": "! ?"}, "the texts of 'a' hold no word"),
        ({"a": []}, "holds no text"),
        ({}, "holds no text"),
        (None, "must be"),
        ({3: "three"}, "needs labels that are text"),
        ({"a": 3}, "must be text"),
    ],
)
def test_wrong_labels_are_refused_and_nothing_changes(plain, given, message):
    before = dict(vars(plain))
    with pytest.raises(BlockXMCError, match=message):
        plain.add_labels(given)
    assert vars(plain) == before


def test_models_that_cannot_take_them_say_so():
    texts = ["red apple", "green leaf"] * 3
    for classifier in (DiSMEC(), BlockwiseClassifier.paper(n_blocks=1, lam=0.0)):
        model = TextClassifier(classifier).fit(texts, [["a"], ["b"]] * 3)
        with pytest.raises(BlockXMCError, match="add_labels needs a BlockwiseClassifier with shared weights"):
            model.add_labels(NEW)
    numbered = TextClassifier().fit(texts, [[1], [2]] * 3)
    with pytest.raises(BlockXMCError, match="labels that are text"):
        numbered.add_labels(NEW)


@pytest.mark.parametrize("bits", [8, 32])
def test_small_models_of_one_block_take_them_too(bits):
    model = TextClassifier(BlockwiseClassifier(weight_bits=bits)).fit(
        ["cats purr", "dogs bark"] * 5, [["cat"], ["dog"]] * 5, label_texts=["cat", "dog"]
    )
    assert model.add_labels(["cows"]).suggest("cows", k=1)[0].label == "cows"
    assert model.suggest("cats purr", k=1)[0].label == "cat"
