"""What explanations say of training rows: their ids, titles, and texts where rows are kept."""

import json

import numpy as np
import pytest

from blockxmc import BlockwiseClassifier, TextClassifier, load
from blockxmc.data import load_demo_texts
from blockxmc.errors import BlockXMCError, ModelFormatError
from blockxmc.model.sources import ROWS_TOGETHER, Source, Sources
from blockxmc.storage import verify

N = 1500
TRAIN = load_demo_texts()[0]
TEXTS, LABELS, IDS = TRAIN.texts[:N], TRAIN.labels[:N], [f"p{i}" for i in range(N)]


@pytest.fixture(scope="module")
def model():
    classifier = BlockwiseClassifier(n_blocks=10, n_neighbors=10, n_jobs=1, keep_rows=True)
    return TextClassifier(classifier).fit(TEXTS, LABELS, ids=IDS)


def neighbors(model, text):
    return model.explain(text, k=1)[0].neighbors


def test_neighbors_carry_id_title_and_text(model, tmp_path):
    model.save(tmp_path / "m")
    for clf in (model, load(tmp_path / "m")):
        [first, *others] = neighbors(clf, TEXTS[7])
        assert (first.id, first.text) == ("p7", TEXTS[7])
        assert TEXTS[7].split()[:3] == first.title.split()[:3]
        assert all(near.text == TEXTS[near.row] for near in others)
        assert f"p7  {first.title}" in str(clf.explain(TEXTS[7], k=1)[0])
    assert json.dumps(model.explain(TEXTS[7], k=1)[0].to_dict()["neighbors"][0]["id"]) == '"p7"'
    html = model.explain(TEXTS[7], k=1)[0]._repr_html_()
    assert html.startswith("<pre>")
    assert "<" not in html[5:-6]
    assert verify(tmp_path / "m") == []


def test_models_that_keep_no_rows_keep_first_words_only_or_nothing(tmp_path):
    fit = TextClassifier(BlockwiseClassifier(n_blocks=10, n_neighbors=10, n_jobs=1)).fit
    first = neighbors(fit(TEXTS, LABELS), TEXTS[7])[0]
    assert (first.id, first.text, first.row) == (None, None, 7)
    assert first.title
    bare = neighbors(fit(TEXTS, LABELS, ids=IDS, titles=False), TEXTS[7])[0]
    assert (bare.id, bare.title) == (None, None)
    assert "row 7 " in str(bare)
    with pytest.raises(BlockXMCError, match="1 ids for 1500 texts"):
        fit(TEXTS, LABELS, ids=["a"])


def test_updates_add_sources_and_forgetting_removes_them(model, tmp_path):
    model.save(tmp_path / "m")
    clf = load(tmp_path / "m")
    clf.classifier_.update(clf.vectorizer_.transform(["cats purr"]), [LABELS[0]])  # a row without a text
    clf.update(["Jane Doe purrs " + TEXTS[7]], [LABELS[7]], ids=["jane"])
    assert [clf.classifier_.sources_[row].id for row in (N - 1, N, N + 1)] == [f"p{N - 1}", None, "jane"]
    assert "jane" in [near.id for near in neighbors(clf, "Jane Doe purrs " + TEXTS[7])]
    clf.forget([7, N + 1])
    assert [clf.classifier_.sources_[row].id for row in (6, 7, N - 2, N - 1, N)] == [
        "p6",
        "p8",
        f"p{N - 1}",
        None,
        None,
    ]
    assert not {"p7", "jane"} & {near.id for near in neighbors(clf, TEXTS[7])}


def test_sources_are_those_of_a_list():
    rng = np.random.default_rng(0)
    known = [
        Source(None if i % 3 else f"b{i}", "word " * int(rng.integers(0, 9))) for i in range(3 * ROWS_TOGETHER + 5)
    ]
    sources = Sources.of(known, whole=True)
    assert [sources[i] for i in range(len(known))] == known
    dropped = rng.random(len(known)) < 0.4
    kept = [source for source, gone in zip(known, dropped, strict=True) if not gone]
    assert [sources.without(dropped)[i] for i in range(len(kept))] == kept
    assert sources[len(known)] == sources[-1] == Source(None, "")
    more = sources.extended(len(known) + 2, known)
    assert [more[i] for i in range(len(known) + 2, 2 * len(known) + 2)] == known
    again = Sources.from_state(more.state(), len(more))
    assert [again[i] for i in range(len(more))] == [more[i] for i in range(len(more))]


@pytest.mark.parametrize("name", ["packed", "rows", "ends"])
@pytest.mark.parametrize("value", [np.zeros(2, np.uint8), np.array([9, 3]), np.array([10**9, 10**9]), None, "text"])
def test_damaged_sources_are_refused(name, value):
    state = Sources.of([Source("a", "b")] * 100, whole=True).state()
    with pytest.raises(ModelFormatError):
        Sources.from_state(state | {name: value}, 100).check()
