"""When a model that was updated should be trained anew: what its history says, with the numbers behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from blockxmc import metrics
from blockxmc._core.matrix import as_csr, take_rows
from blockxmc.model.routed import RoutedModel
from blockxmc.partition import Partitioner
from blockxmc.training.settings import SETTINGS

# The mean of P@1, P@3 and P@5 of new rows, before they are learnt, may fall this far below what held-out rows promised ...
WORSE = 0.02
# ... and by so many standard errors (at most 0.5 over the root of the rows).
ERRORS = 2.0
# The share of the positives that blocks capture may fall this far.
LESS_CAPTURED = 0.05
# The largest block may grow by this factor, and by this share of all rows; what blocks list by this factor.
LARGER, LARGER_SHARE = 1.5, 0.02
# Rows that came since the fit, per row of the fit.
GROWN = 0.5


def first_event(n_rows: int, n_labels: int, cost: dict[str, float]) -> dict[str, Any]:
    """What ``fit`` leaves in the history."""
    promised = {f"P@{k}": float(cost[f"expected_P@{k}"]) for k in (1, 3, 5) if f"expected_P@{k}" in cost}
    return {"what": "fit", "rows": n_rows, "labels": n_labels, **promised}


def before_learning(model: RoutedModel, X: sparse.csr_array, Y: sparse.csr_array, threads: int) -> dict[str, float]:
    """P@1, P@3 and P@5 of a model on labelled rows that it has not learnt yet: how well it serves what comes now.

    Of many, as many as a fit holds out at most: it is their promise that these are compared with.
    """
    labelled = np.flatnonzero(np.diff(Y.indptr))
    if not labelled.size:
        return {}
    labelled = labelled[np.linspace(0, labelled.size - 1, min(labelled.size, SETTINGS.held_out_most)).astype(np.intp)]
    known = as_csr(take_rows(X, labelled)[:, : model.n_features])
    labels = model.topk(known, min(5, model.n_labels), threads)[0]
    labels = np.pad(labels, ((0, 0), (0, 5 - labels.shape[1])), constant_values=-1)
    rows = take_rows(Y, labelled)
    found = {f"P@{k}": float(metrics.precision_at_k(rows, labels, k)) for k in (1, 3, 5)}
    return found | {"judged": int(labelled.size)}


def standing(partition: Partitioner) -> dict[str, float]:
    """How the blocks stand: share of positives captured, share of rows in the largest, labels that a row's block lists."""
    sizes = np.bincount(partition.assignment_)
    listed = np.array([len(labels) for labels in partition.label_clusters_])
    return {
        "captured": float(partition.captured_),
        "largest_block": float(sizes.max() / sizes.sum()),
        "listed": float(sizes @ listed[: sizes.size] / sizes.sum()),
    }


def advice(history: Sequence[dict[str, Any]]) -> str | None:
    """Why to train anew, or None.

    >>> fit = {"what": "fit", "rows": 100, "captured": 0.9, "largest_block": 0.1}
    >>> now = {"what": "update", "rows": 60, "captured": 0.8, "largest_block": 0.1}
    >>> advice([fit, now])  # doctest: +NORMALIZE_WHITESPACE
    'a fresh training may gain: blocks capture 80.0 % of the positives, 90.0 % after fit; 60 rows came since the fit on
    100'
    >>> advice([fit]) is None
    True
    """
    if len(history) < 2:
        return None
    first, last = history[0], history[-1]
    updates = [event for event in history[1:] if event.get("what") == "update"]
    found = [*_worse(first, updates)]
    if last["captured"] < first["captured"] - LESS_CAPTURED:
        found.append(f"blocks capture {last['captured']:.1%} of the positives, {first['captured']:.1%} after fit")
    if last["largest_block"] > max(LARGER * first["largest_block"], first["largest_block"] + LARGER_SHARE):
        found.append(
            f"the largest block holds {last['largest_block']:.1%} of the rows, not {first['largest_block']:.1%}"
        )
    if "listed" in first and last.get("listed", 0) > LARGER * first["listed"] + 1:
        found.append(f"blocks list {last['listed']:,.0f} labels, {first['listed']:,.0f} after fit")
    came = sum(event["rows"] for event in updates)
    if came > GROWN * first["rows"]:
        found.append(f"{came:,} rows came since the fit on {first['rows']:,}")
    return f"a fresh training may gain: {'; '.join(found)}".replace("%", " %") if found else None


def _worse(first: dict[str, Any], updates: Sequence[dict[str, Any]]) -> list[str]:
    """What new rows say of the model before they were learnt, where that is clearly less than was promised."""
    judged = [event for event in updates if event["rows"] and all(f"P@{k}" in event for k in (1, 3, 5))]
    if not all(f"P@{k}" in first for k in (1, 3, 5)) or not judged:
        return []
    rows = np.array([event.get("judged", event["rows"]) for event in judged])  # of a large update, some
    seen = {k: float(np.average([event[f"P@{k}"] for event in judged], weights=rows)) for k in (1, 3, 5)}
    lost = float(np.mean([first[f"P@{k}"] - seen[k] for k in (1, 3, 5)]))
    if lost < max(WORSE, ERRORS * 0.5 / np.sqrt(rows.sum())):
        return []
    return [
        f"new rows had P@1 of {100 * seen[1]:.1f} and P@5 of {100 * seen[5]:.1f} before they were learnt, "
        f"held-out rows of the fit {100 * first['P@1']:.1f} and {100 * first['P@5']:.1f}"
    ]
