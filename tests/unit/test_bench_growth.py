"""The growth benchmark: a small rung is trained, served and told."""

import json
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
pytestmark = pytest.mark.skipif(not BENCH.exists(), reason="the source distribution carries no benchmarks")


@pytest.fixture
def growth(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import growth

    monkeypatch.setattr(growth, "TEST_ROWS", 60)
    monkeypatch.setattr(growth, "forget_peak", lambda: None)
    return growth


def test_a_rung_has_all_that_its_page_shows(growth, tmp_path):
    row = growth.train(300, 600, tmp_path, labels_per_row=3.0, words_per_row=20.0)
    row |= growth.serve(tmp_path) | {"load": 1.0, "cores": 2}
    assert growth.complete(row)
    assert row["labels_per_row"] == pytest.approx(3, abs=0.3)
    titles = [phase["phase"] for phase in row["phases"]]
    assert {"number of blocks", "train labels"} <= set(titles)
    page = growth.report([row], [row | {"labels": 2_800_000, "train_gib": 24.5}])
    assert "| labels | " + " | ".join(dict.fromkeys(titles)) + " |" in page
    assert "## 2,800,000 labels" in page
    assert "600 training rows with" in page
    assert "24.5 GiB at its peak, above the bar of 24" in page


def test_an_interrupted_rung_goes_on(growth, tmp_path, monkeypatch):
    how = {"labels_per_row": 3.0, "words_per_row": 20.0, "keep": True}
    with monkeypatch.context() as patch:
        patch.setattr(growth.BlockwiseClassifier, "save", stop)
        with pytest.raises(KeyboardInterrupt):
            growth.train(300, 600, tmp_path, **how)
    first = json.loads((tmp_path / "spent.json").read_text())
    row = growth.train(300, 600, tmp_path, **how)
    assert row["train_cpu_s"] > first["train_cpu_s"]
    assert row["phases"][: len(first["phases"])] == first["phases"]
    monkeypatch.setattr(growth.BlockwiseClassifier, "fit", stop)
    assert growth.train(300, 600, tmp_path, **how) == json.loads(json.dumps(row))


def stop(*args, **more):
    raise KeyboardInterrupt
