"""A few hundred damaged models of every class; ``tests/fuzz/fuzz_models.py`` tries many thousands."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "fuzz"))

COUNT = 300
ROOT = Path(__file__).parent.parent.parent
FORMAT = (ROOT / "docs" / "reference" / "model-format.md").read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="needs fork, /proc and limits on memory")
def test_damaged_models_of_every_class_are_refused_or_harmless(tmp_path):
    import fuzz_models

    from blockxmc.storage.registry import CLASSES

    run = fuzz_models.Run(tmp_path, seed=1)
    run.go(COUNT)
    assert run.wrong == []
    assert sum(run.outcomes.values()) == COUNT
    assert run.outcomes["refused"] > COUNT / 3
    assert run.outcomes["answers"] > COUNT / 20
    # No class is forgotten: all that can be saved is damaged, the other names are values inside of them.
    saved = {json.loads((path / "manifest.json").read_text())["class"] for path in run.saved.values()}
    inside = "".join((path / "manifest.json").read_text() for path in run.saved.values())
    sklearn = {name for name, place in CLASSES.items() if place.startswith("sklearn")}
    assert {name for name in CLASSES if name not in saved and f'"{name}"' not in inside} <= sklearn
    # The description of the format knows every file of every model.
    names = {file.name.split(".")[-3] for path in run.saved.values() for file in path.glob("*.*.*")}
    assert {name for name in names if not re.search(rf"[`.]{re.escape(name)}`", FORMAT)} == set()


def test_the_description_of_the_format_names_functions_that_exist():
    sources = "".join(file.read_text() for file in (ROOT / "src").rglob("*.[ph][yp]*"))
    named = re.findall(r"`([A-Z]\w+\.\w+|_\w+)`", FORMAT)
    assert len(named) > 20
    for name in named:
        *owner, function = name.split(".")
        assert re.search(rf"def {function}\(", sources), name
        assert not owner or re.search(rf"class {owner[0]}\b", sources), name
