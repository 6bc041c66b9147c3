"""Published figures, shown beside ours where the name of a data folder matches."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

# A and B of the propensity model for data sets without their own: the customary values.
USUAL_A, USUAL_B = 0.55, 1.5


@cache
def _all() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(files(__package__).joinpath("published.json").read_text(encoding="utf-8"))
    return loaded


def _of(data: str) -> dict[str, Any]:
    found: dict[str, Any] = _all().get(data.lower().replace("_", "-"), {})
    return found


def published(data: str, system: str, key: str) -> float | None:
    """The published figure of a system (``"full/leml"``) or of the data (``"data"``), or None.

    >>> published("Wiki10-31K", "bp-accuracy/pd-sparse", "speedup_paper"), published("elsewhere", "data", "labels")
    (209, None)
    """
    known = _of(data)
    rows = known.get("data", {}) if system == "data" else known.get("systems", {}).get(system, {})
    value: float | None = rows.get(key)
    return value


def source(data: str) -> str:
    """Where the published figures of a data set come from; empty where there are none."""
    return str(_of(data).get("source", ""))


def propensity(data: str) -> tuple[float, float]:
    """The customary A and B of the propensity model.

    >>> propensity("amazon-670k"), propensity("anything")
    ((0.6, 2.6), (0.55, 1.5))
    """
    known = _of(data)
    return float(known.get("a", USUAL_A)), float(known.get("b", USUAL_B))
