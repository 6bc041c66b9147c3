"""Published figures, shown beside ours where the data are known by their sizes or by the name of their folder."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from blockxmc.metrics.propensity import plain_name

# Folders as the repository's archives unpack.
UNPACKED = {
    "amazon": "amazon-670k",
    "wikilshtc": "wikilshtc-325k",
    "amazoncat": "amazoncat-13k",
    "wiki10": "wiki10-31k",
    "deliciouslarge": "delicious-200k",
}


@cache
def _all() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(files(__package__).joinpath("published.json").read_text(encoding="utf-8"))
    return loaded


def known_as(name: str, labels: int | None = None) -> str:
    """The set that published figures are about: by its number of labels, else by the name of its folder; or nothing.

    >>> known_as("Amazon-670K.bow"), known_as("anything", labels=30938), known_as("Amazon", labels=77)
    ('amazon-670k', 'wiki10-31k', '')
    """
    counts = {key: known["data"]["labels"] for key, known in _all().items() if "data" in known}
    for key, count in counts.items():
        if count == labels:
            return key
    plain = plain_name(name).removesuffix("bow")
    found = UNPACKED.get(plain) or next((key for key in _all() if plain_name(key) == plain), "")
    return "" if labels is not None and found in counts else found


def published(data: str, system: str, key: str) -> float | None:
    """The published figure of a system (``"full/leml"``) or of the data (``"data"``), or None.

    >>> published("wiki10-31k", "bp-accuracy/pd-sparse", "speedup_paper"), published("", "data", "labels")
    (209, None)
    """
    known = _all().get(data, {})
    rows = known.get("data", {}) if system == "data" else known.get("systems", {}).get(system, {})
    value: float | None = rows.get(key)
    return value


def source(data: str) -> str:
    """Where the published figures of a data set come from; empty where there are none."""
    return str(_all().get(data, {}).get("source", ""))


def title(data: str) -> str:
    """The name of a published set."""
    return str(_all()[data]["title"])
