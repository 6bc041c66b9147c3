"""bench/scale_model.py: formulas, their constants, and that the page has what the script prints."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import scale_model  # noqa: E402


def run(rows, labels, factor):
    """A training whose every stage took ``factor`` times the units of its size."""
    sizes = scale_model.Sizes(rows, labels, 50.0, 4.0)
    phases = {scale_model.STAGES[stage][0]: factor * unit for stage, unit in sizes.units(64).items()}
    return {"name": f"{rows}", "rows": rows, "labels": labels, "values": 50 * rows, "positives": 4 * rows, "blocks": 64,
            "phases": phases}  # fmt: skip


def test_constants_are_found_again():
    found = scale_model.constants([run(1000, 50, 2.0), run(4000, 90, 3.0), run(9000, 700, 2.5)])
    assert found == pytest.approx(dict.fromkeys(scale_model.STAGES, 2.5))


def test_a_run_is_judged_by_the_others():
    rows = scale_model.fitted([run(1000, 50, 2.0), run(4000, 90, 2.0), run(9000, 700, 8.0)])
    off = {row["run"]: row["expected"] / row["seen"] for row in rows}
    assert off == pytest.approx({"1000": 2.5, "4000": 2.5, "9000": 0.25})


def test_labels_are_shared_and_the_rest_is_not():
    sizes, per_unit = scale_model.Sizes(10**6, 10**5, 75.0, 5.0), dict.fromkeys(scale_model.STAGES, 1e-8)
    one, eight = (scale_model.plan(sizes, per_unit, workers, 250)[0] for workers in (1, 8))
    assert one["labels"] == pytest.approx(8 * eight["labels"])
    for stage in set(scale_model.STAGES) - set(scale_model.ON_WORKERS):
        assert one[stage] == eight[stage]
    assert eight["reading X"] >= one["reading X"]


def test_clusters_beside_the_formulas(tmp_path, monkeypatch):
    runs = [run(1000, 50, 2.0), run(4000, 90, 2.0)]
    units = scale_model.sizes_of(runs[0]).units(64)
    phases = {name: {"cpu": 1.0, "wall": 10.0} for name in scale_model.STAGES["labels"]}
    rounds = [{"blocks": 64, "wall": wall, "label_wall": 8.0, "cpu": 9.0, "parts": 7, "idle": 0.1, "mb": 2.0, "phases": {}}
              for wall in (9.0, 11.0, 50.0)]  # fmt: skip
    found = runs[0] | {"runs": {"alone": [{"blocks": 64, "wall": 25.0, "cpu": 24.0, "phases": phases}], "4": rounds}}
    monkeypatch.setattr(scale_model, "CLUSTER", tmp_path / "cluster.json")
    scale_model.CLUSTER.write_text(json.dumps([found]))
    four, alone = scale_model.on_clusters(runs)
    assert (four["workers"], alone["workers"]) == ("4", "alone")
    assert four["labels"] == pytest.approx(2.0 * units["labels"] / 4)
    assert alone["labels"] == pytest.approx(2.0 * units["labels"])
    assert alone["others"] == pytest.approx(2.0 * (sum(units.values()) - units["labels"]))
    assert four["seen"] == {"labels": 8.0, "others": 3.0, "cpu": 9.0, "parts": 7, "idle": 0.1, "mb": 2.0}
    assert alone["seen"] == {"labels": 20.0, "others": 5.0, "cpu": 24.0}
    page = scale_model.put_into("a\n\n| set | workers | old |\n|---|\n| x |\n\nb\n", scale_model.cluster_table(runs))
    assert page.startswith("a\n\n| set | workers | parts |")
    assert page.endswith(" |\n\nb\n")
    assert "| x |" not in page


def test_the_page_has_the_tables():
    page = (ROOT / "docs" / "explanation" / "scale.md").read_text()
    runs = json.loads(scale_model.RUNS.read_text())["runs"]
    assert scale_model.fit_table(runs) in page
    assert scale_model.check_table(runs) in page
    assert scale_model.cluster_table(runs) in page
    sizes = scale_model.Sizes(60_000_000, 10_000_000, 75, 5.5)
    assert scale_model.plan_table(sizes, scale_model.constants(runs), [8, 64, 256], 250) in page
