"""From a partition to a served model with shared weights: router, labels, merging.

Some rows are held out while router and labels learn, show how to merge block probabilities into the scores and what a
score means, and then teach the labels that missed them most. Nothing is trained twice but those.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc import metrics
from blockxmc._core.matrix import take_rows
from blockxmc._core.progress import Reporter
from blockxmc.errors import BlockXMCError
from blockxmc.learners._learner import Learner
from blockxmc.linear.weights import LinearWeights
from blockxmc.partition import Partitioner
from blockxmc.partition.ranking import Ranking
from blockxmc.routing import assess_routing
from blockxmc.serving.neighbors import USUAL_NEIGHBORS, Neighbors
from blockxmc.serving.routed import RoutedModel
from blockxmc.training.shared.labels import (
    NEGATIVE_BLOCKS,
    cover_all_labels,
    make_router,
    mean_weights,
    outside_violations,
    pack_shared,
    train_shared,
    visiting,
    visits_of,
    with_labels,
)
from blockxmc.training.shared.mix import UNCALIBRATED, Mix, fit_calibration, fit_merging, fit_top_p, mixed, rarity_of

# With fewer rows nothing is held out.
MIN_ROWS = 200
# One row in twenty is held out, but no more than the one and, where a fifth of the rows allows, no fewer than the other.
SHARE, MOST, LEAST = 20, 4096, 512
# A label that has lost more than this part of its positives to the held-out rows learns again with them.
LOST = 0.1


def fit_shared(
    learner: Learner,
    X: sparse.csr_array,
    Y: sparse.csr_array,
    partition: Partitioner,
    route: float | str,
    reporter: Reporter,
    *,
    threads: int,
    seed: int,
    bits: int = 16,
    n_neighbors: int | str = "auto",
) -> tuple[RoutedModel, dict[str, float]]:
    """Router and labels of one partition, and what its training and the held-out rows say about it.

    ``route`` is a number of blocks to visit, a share of the router's probability to reach, or ``"auto"``; ``n_neighbors``
    how many training rows like it a row asks, unless held-out rows say that they mislead.
    """
    options: Any = {"threads": threads, "seed": seed}
    sizes: Any = {"n_features": X.shape[1], "n_labels": Y.shape[1], "bits": bits, "threads": threads}
    assignment = partition.assignment_
    clusters = cover_all_labels(Y, assignment, partition.label_clusters_)
    held_out = held_out_rows(X.shape[0], seed)
    router = make_router(X).fit(
        X, assignment, n_blocks=len(clusters), mask=~held_out, threads=threads, reporter=reporter
    )
    routed = router.blocks(X, max(NEGATIVE_BLOCKS, 1), threads=threads)
    taught = routed[:, :NEGATIVE_BLOCKS]
    visits = visits_of(assignment, taught, len(clusters), ~held_out)
    shown = sparse.csr_array(sparse.diags_array((~held_out).astype(np.float32)) @ Y)
    shown.eliminate_zeros()
    shared = train_shared(learner, X, shown, visits, clusters, reporter, **options)
    cost = {
        "trained_pairs": shared.share_of_pairs,
        "outside_violations": outside_violations(shared, X, shown, visits, clusters),
    }
    weights = shared.weights
    linear = isinstance(weights, LinearWeights)
    most, top_p = visiting(route, linear)
    blocks = RoutedModel(router.scorer, pack_shared(weights, clusters, **sizes), min(most, len(clusters)), top_p=top_p)
    if not held_out.any():
        cost |= _too_few_rows(X, Y, assignment, clusters, blocks.route, threads)
        return replace(blocks, calibration=UNCALIBRATED), cost

    rows = np.flatnonzero(held_out)
    new = take_rows(X, rows), take_rows(Y, rows)
    asked = neighbors_asked(n_neighbors, linear) if router.scorer is not None else 0
    packing: Any = {"count": asked, "bits": min(bits, 16), "threads": threads}
    rarity, mix = rarity_of(Y), Mix()
    if isinstance(weights, LinearWeights):
        means = mean_weights(X, shown, weights, reporter, threads=threads)
        others = Neighbors.pack(X, Y, assignment, blocks.scorer.n_blocks, among=~held_out, **packing) if asked else None
        blocks = replace(blocks, neighbors=others)
        mix, look = fit_merging(blocks, pack_shared(means, clusters, **sizes), Y, *new, threads)
        trained = mixed(weights, means, rarity, mix)
        blocks = replace(blocks, slope=mix.slope, scorer=pack_shared(trained, clusters, **sizes))
        blocks = replace(blocks, neighbors=replace(others, weight=mix.nearest) if others and mix.nearest else None)
        if router.scorer is not None:
            blocks = replace(blocks, reranker=look)
            if route == "auto":
                blocks = replace(blocks, top_p=fit_top_p(blocks, *new, threads))
        if bits < 32:
            cost["lost_to_rounding"] = _lost_to_rounding(blocks, trained, clusters, *new, threads)
        del means, trained  # large models do not fit into memory many times over
    blocks = replace(blocks, calibration=fit_calibration(blocks, *new, threads))
    # A block lists the labels of its own rows: with those of the held-out rows they would find more than new rows do.
    cost["candidate_recall"] = _recall(blocks, *new, clusters_without(partition, Y, held_out, threads), threads)
    cost["router_accuracy"] = float((routed[rows, 0] == assignment[rows]).mean())

    labels = robbed_labels(Y, held_out)
    if labels.size:
        visits = visits_of(assignment, taught, len(clusters))
        again = train_shared(learner, X, Y, visits, clusters, reporter, labels=labels, **options)
        weights = with_labels(weights, labels, again.weights)
    if isinstance(weights, LinearWeights):
        weights = mixed(weights, mean_weights(X, Y, weights, reporter, threads=threads), rarity, mix)
    if blocks.neighbors is not None:
        everyone = Neighbors.pack(X, Y, assignment, blocks.scorer.n_blocks, **packing)
        blocks = replace(blocks, neighbors=replace(everyone, weight=mix.nearest))
    return replace(blocks, scorer=pack_shared(weights, clusters, **sizes)), cost


def neighbors_asked(n_neighbors: int | str, linear: bool) -> int:
    """How many training rows like it a row asks: some, where nothing is said and the base is linear.

    >>> neighbors_asked("auto", linear=True), neighbors_asked("auto", linear=False), neighbors_asked(3, linear=True)
    (10, 0, 3)
    """
    if n_neighbors == "auto":
        return USUAL_NEIGHBORS if linear else 0
    if n_neighbors and not linear:
        raise BlockXMCError(f"n_neighbors={n_neighbors} needs a linear base: use 0")
    return int(n_neighbors)


def held_out_rows(n: int, seed: int) -> NDArray[np.bool_]:
    """Which of n rows are kept from training until merging is fitted.

    >>> int(held_out_rows(20_000, 0).sum()), int(held_out_rows(100, 0).sum())
    (1000, 0)
    """
    out = np.zeros(n, bool)
    if n >= MIN_ROWS:
        size = min(max(n // SHARE, min(n // 5, LEAST)), MOST)
        out[np.random.default_rng(seed).permutation(n)[:size]] = True
    return out


def clusters_without(
    partition: Partitioner, Y: sparse.csr_array, held_out: NDArray[np.bool_], threads: int
) -> list[NDArray[np.int64]]:
    """The label clusters as they would be without the held-out rows."""
    shown = sparse.csr_array(Y[~held_out])
    ranking = Ranking.of(shown, partition.assignment_[~held_out], partition.n_blocks_, threads=threads)
    lists = ranking.clusters(partition.lam_ * (1 - held_out.mean()), partition.objective)[0].sorted_lists()
    return cover_all_labels(shown, partition.assignment_[~held_out], lists)


def robbed_labels(Y: sparse.csr_array, held_out: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Labels of whose positives too many are held out.

    >>> Y = sparse.csr_array(np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1]]))
    >>> robbed_labels(Y, np.array([True, False, False])).tolist()
    [0, 1]
    """
    in_held_out = np.repeat(held_out, np.diff(Y.indptr))
    lost = np.bincount(Y.indices[in_held_out], minlength=Y.shape[1])
    return np.flatnonzero(lost > LOST * np.bincount(Y.indices, minlength=Y.shape[1]))


def _recall(blocks: RoutedModel, X: sparse.csr_array, Y: sparse.csr_array, clusters: Any, threads: int) -> float:
    """Share of the labels that the visited blocks list."""
    visited = blocks.visited(X, threads)
    # The block of the frequent labels comes first where there is one: it is visited by all and lists nothing.
    return 1.0 if visited is None else metrics.candidate_recall(Y, (visited[:, -blocks.route :], clusters))


def _lost_to_rounding(
    rounded: RoutedModel, weights: Any, clusters: Any, X: sparse.csr_array, Y: sparse.csr_array, threads: int
) -> float:
    """Points of the mean of P@1, P@3 and P@5 that full precision would gain."""
    full = pack_shared(weights, clusters, n_features=X.shape[1], n_labels=Y.shape[1], bits=32, threads=threads)
    answers = (blocks.topk(X, 5, threads)[0] for blocks in (rounded, replace(rounded, scorer=full)))
    lost, kept = (np.mean([metrics.precision_at_k(Y, labels, k) for k in (1, 3, 5)]) for labels in answers)
    return 100 * float(kept - lost)


def _too_few_rows(
    X: sparse.csr_array, Y: sparse.csr_array, assignment: Any, clusters: Any, route: int, threads: int
) -> dict[str, float]:
    """What to expect where no row was held out: a router of its own is fitted to tell."""
    if X.shape[0] < 2:
        return {"candidate_recall": 1.0, "router_accuracy": 1.0}
    found = assess_routing(X, Y, assignment, clusters, route, router=make_router(X), threads=threads)
    return {key: found[key] for key in ("candidate_recall", "router_accuracy")}
