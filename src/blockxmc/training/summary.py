"""What a training says of its model, in words."""

from __future__ import annotations

from blockxmc.model.routed import RoutedModel
from blockxmc.partition import Partitioner


def described(model: RoutedModel, cost: dict[str, float]) -> str:
    """How a model with shared weights scores, in words."""
    visited = f"{model.route} blocks" if model.top_p == 1 else f"up to {model.route} blocks"
    text = f"{visited} visited, whose probabilities count {model.slope:.2g}"
    if model.neighbors is not None:
        text += f"; {model.neighbors.count} neighbors count {model.neighbors.weight:.2g}"
    if model.reranker is not None:
        text += f"; the first {model.reranker.first} labels are reranked"
    if "names_weight" in cost:
        text += f"; names of labels {names_in_words(cost)}"
    return text


def names_in_words(cost: dict[str, float]) -> str:
    """What was chosen of names of labels, and what held-out rows gained.

    >>> names_in_words({"names_weight": 0.0})
    'do not count: held-out rows gain nothing by them'
    """
    if not cost["names_weight"]:
        return "do not count: held-out rows gain nothing by them"
    text = f"count {cost['names_weight']:.2g}"
    if "names_gained_P@1" not in cost:
        return text
    gained = (f"{100 * cost[f'names_gained_P@{k}']:+.1f}" for k in (1, 3, 5))
    return f"{text}: held-out rows gain {' / '.join(gained)} points of P@1 / 3 / 5"


def expectation(partition: Partitioner, held_out: dict[str, float], scores: str) -> str:
    """What blocks capture and held-out rows find, in one line."""
    return (
        f"{partition.n_blocks_} blocks, lam {partition.lam_:.4g}: "
        f"{partition.captured_:.1%} of the training labels captured; "
        f"on held-out rows the router is right for {held_out['router_accuracy']:.1%} and "
        f"candidates hold {held_out['candidate_recall']:.1%} of a row's labels; scores: {scores}"
    )


def uneven_rows(times: float) -> str:
    """What to do about rows of very different length."""
    return (
        f"Rows differ much in length: one in a hundred is {times:.0f} times as long as most. Long rows count for more "
        "in training; give all rows one length (sklearn.preprocessing.normalize) unless that is meant"
    )
