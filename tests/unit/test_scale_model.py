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


def test_the_page_has_the_tables():
    page = (ROOT / "docs" / "explanation" / "scale.md").read_text()
    runs = json.loads(scale_model.RUNS.read_text())["runs"]
    assert scale_model.fit_table(runs) in page
    assert scale_model.check_table(runs) in page
    sizes = scale_model.Sizes(60_000_000, 10_000_000, 75, 5.5)
    assert scale_model.plan_table(sizes, scale_model.constants(runs), [8, 64, 256], 250) in page
