"""Which pages of a folder were made by the code there is now."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from blockxmc.errors import BlockXMCError
from blockxmc.paper.experiments.code import code_digest


def check_pages(out: Path) -> dict[str, list[str]]:
    """Pages (by the name of their experiment) and the cells of each that other code made; no cells: the page is fresh.

    A page that does not say what made it is stale as a whole.
    """
    if not out.is_dir():
        raise BlockXMCError(f"{out}: not a folder; --check looks at the pages that an earlier run wrote there")
    pages: dict[str, list[str]] = {}
    for file in sorted(out.glob("*.json")):
        try:
            page: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            name, code = page["experiment"], page.get("code", {"all of it": None})
            pages[str(name)] = [cell for cell, digest in code.items() if digest != _now(cell)]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # no page of an experiment
    if not pages:
        raise BlockXMCError(f"{out}: no page of an experiment; run blockxmc experiment with --out {out} first")
    return pages


def _now(cell: str) -> str | None:
    parts = cell.split("/")
    return code_digest(parts[1]) if len(parts) > 1 else None
