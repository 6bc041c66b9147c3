"""What rows may visit and ask: less, where they would take more products than a row may.

Before training, a row is expected to visit the usual number of blocks. Where features say little of labels, the router
spreads its probability over many more blocks than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from scipy import sparse

from blockxmc._core.progress import Reporter
from blockxmc.model.routed import RoutedModel
from blockxmc.partition import Partitioner
from blockxmc.training.blocks import expected_products, neighbors_asked
from blockxmc.training.settings import Settings


def neighbors_within(
    n_neighbors: int | str, linear: bool, partition: Partitioner, n_labels: int, settings: Settings, reporter: Reporter
) -> int:
    """As many neighbors as are wanted; where that is left open, none where they would cost more than they may."""
    if n_neighbors == "auto":
        expected = expected_products(partition, settings, neighbors=True)
        if partition.n_blocks_ == 1 or expected > settings.most_products * n_labels:
            reporter.say(f"No neighbors: a row would take {expected:,.0f} products, all labels take {n_labels:,}")
            return 0
    return neighbors_asked(n_neighbors, linear, settings)


def within_products(
    model: RoutedModel,
    rows: sparse.csr_array,
    most: float,
    threads: int,
    reporter: Reporter,
    *,
    least_blocks: int,
    drop_neighbors: bool,
) -> RoutedModel:
    """The model if these rows take at most so many products; else without neighbors, and then with fewer blocks.

    Not fewer than ``least_blocks``. Where that is not enough the model stays as it is, and the user is told: most of its
    products are then the router's and those of frequent labels, which fewer blocks would not save. The full classifier
    would take more of them, and far longer to train (yso-finna-en: 2,259 CPU seconds instead of 100).
    """
    fewer = replace(model, neighbors=None) if drop_neighbors else model
    routes = range(model.route, min(least_blocks, model.route) - 1, -1)
    for tried in (model, *(replace(fewer, route=route) for route in routes)):
        if _products(tried, rows, threads) <= most:
            return tried
    found = _products(model, rows, threads)
    reporter.say(f"Blocks save little here: a row takes {found:,.0f} products, and was to take {most:,.0f} at most")
    return model


def affordable_top_ps(
    model: RoutedModel, top_ps: Sequence[float], rows: sparse.csr_array, most: float, threads: int
) -> list[float]:
    """The shares of the router's probability at which these rows take at most so many products; the model's own, always."""
    return [p for p in top_ps if p <= model.top_p or _products(replace(model, top_p=p), rows, threads) <= most]


def _products(model: RoutedModel, rows: sparse.csr_array, threads: int) -> float:
    return model.work(model.visited(rows, threads), threads)[1]
