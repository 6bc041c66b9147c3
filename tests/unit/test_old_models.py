"""Models that released versions wrote: they are read, answer as they did, and are written anew in today's format."""

import json
import zipfile
from pathlib import Path

import pytest

from blockxmc import load, storage

# 500 of the bundled texts with their 40 most frequent labels and 150 words, in 4 blocks with neighbors, by blockxmc 0.2.0.
MODELS = sorted((Path(__file__).parents[1] / "data").glob("model-*.zip"))


@pytest.mark.parametrize("archive", MODELS, ids=lambda path: path.stem)
def test_a_model_of_an_older_version_answers_as_it_did(tmp_path, archive):
    with zipfile.ZipFile(archive) as files:
        files.extractall(tmp_path)
    expected = json.loads((tmp_path / "expected.json").read_text())
    version = archive.stem.removeprefix("model-")
    assert storage.read_manifest(tmp_path / "model")["provenance"]["blockxmc"] == version
    assert storage.verify(tmp_path / "model") == []
    load(tmp_path / "model").save(tmp_path / "again")
    assert storage.read_manifest(tmp_path / "again")["format_version"] == storage.FORMAT_VERSION
    for name in ("model", "again"):
        model = load(tmp_path / name)
        found = model.suggest(expected["texts"], k=4)
        for row, told in zip(found, expected["suggested"], strict=True):
            assert [suggestion.label for suggestion in row] == [label for label, _ in told]
            assert [suggestion.score for suggestion in row] == pytest.approx([score for _, score in told], abs=1e-4)
        assert [list(labels) for labels in model.predict(expected["texts"])] == expected["predicted"]
        assert model.explain(expected["texts"][0], k=1)[0].name == expected["suggested"][0][0][0]


def test_there_is_one():
    assert MODELS
