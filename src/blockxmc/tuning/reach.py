"""What settings of per-block and global weights can reach, told by blocks and router before any base is trained.

The products and the candidate recall of a setting are known as soon as the router is, so the base is trained only for the
settings that look best by then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc import metrics
from blockxmc.linear.scorers import pack_scorer
from blockxmc.linear.weights import LinearWeights, Weights
from blockxmc.partition.alternation import Blocks
from blockxmc.partition.choice import MIN_ROWS
from blockxmc.partition.ranking import LambdaPath
from blockxmc.training.trials.grid import lam_capturing
from blockxmc.training.trials.split import Pair, Split
from blockxmc.tuning.limits import Limits
from blockxmc.tuning.problem import Problem

# Numbers of blocks to try, as shares of the number with the fewest products, and of a limit of products. Not measured.
AROUND, OF_LIMIT = (0.25, 0.5, 1.0, 2.0), (0.5, 0.25)
# Rows are assigned at the lambdas that capture these shares: a large lambda keeps few labels, and other blocks suit these
# better; the search for lambda ends where LEAST is captured. Not measured.
ASSIGNED_FOR, LEAST = (0.98, 0.8, 0.5), 0.1
# Multiples of the lambda that just keeps to the limit: fewer labels may rank better. Not measured.
STEPS = (1.0, 1.5, 2.5)
# So many settings are trained, the most promising ones. Not measured.
TRAINED = 6
# Steps of the bisection for lambda: each halves the interval on a logarithmic scale.
BISECTIONS = 14


@dataclass(frozen=True)
class Reach:
    """One assignment of the rows, and where held-out rows are routed."""

    split: Split
    pair: Pair
    blocks: Blocks
    visited: NDArray[np.int32]  # of as many blocks as any route visits
    high: float  # lambda above which too little is captured

    def found(self, lam: float, route: int) -> tuple[float, float]:
        """Products, router included, and candidate recall of the held-out rows at this lambda."""
        clusters = self.blocks.ranking.clusters(lam, "quadratic")[0].sorted_lists()
        visited = np.ascontiguousarray(self.visited[:, :route])
        empty: list[Weights] = [_no_weights(len(labels)) for labels in clusters]
        scorer = pack_scorer(empty, clusters, n_features=self.split.X.shape[1], n_labels=self.split.Y.shape[1])
        products = (len(clusters) if len(clusters) > 1 else 0) + float(scorer.n_candidates(visited).mean())
        return products, metrics.candidate_recall(self.split.Y_held_out, (visited, clusters))

    def cheapest(self, route: int, recall: float) -> float | None:
        """The largest lambda with at least this recall."""
        low, high = self.pair.lam, self.high
        if self.found(low, route)[1] < recall:
            return None
        if self.found(high, route)[1] >= recall:
            return high
        return self._edge(lambda lam: self.found(lam, route)[1] >= recall)[0]

    def largest(self, route: int, products: float) -> float | None:
        """The smallest lambda with at most so many products."""
        low, high = self.pair.lam, self.high
        if self.found(high, route)[0] > products:
            return None
        if self.found(low, route)[0] <= products:
            return low
        return self._edge(lambda lam: self.found(lam, route)[0] > products)[1]

    def _edge(self, holds: Callable[[float], bool]) -> tuple[float, float]:
        """By bisection, neighboring lambdas of which a condition holds at the first, and not at the second."""
        low, high = self.pair.lam, self.high
        for _ in range(BISECTIONS):
            middle = float(np.sqrt(low * high))
            low, high = (middle, high) if holds(middle) else (low, middle)
        return low, high


def within_reach(
    problem: Problem, split: Split, limits: Limits, routes: list[int], n_blocks: int | str
) -> list[tuple[Pair, int]]:
    """Pairs (in the scale of the split) and routes to train: those that promise most within the limits."""
    found: list[tuple[float, Pair, int]] = []
    nearest: list[tuple[float, Pair, int]] = []  # in case nothing keeps to the limits
    given = limits.given
    sizes = _numbers(problem, split, given.get("products"), n_blocks)
    with problem.reporter.phase("try numbers of blocks", len(sizes)) as phase:
        for done, q in enumerate(sizes):
            for reach in _reaches(split, q, max(routes)):
                nearest.append(_nearest(reach, routes, given))
                for route in sorted({min(route, reach.blocks.clusters.sizes.size) for route in routes}):
                    found += _promising(reach, route, given)
            phase.update(done + 1)
    best = sorted(found, key=lambda one: -one[0]) or [max(nearest, key=lambda one: one[0])]
    if "latency_us" in given and "products" not in given:  # time grows with products: try few and many
        places = np.linspace(0, len(best) - 1, min(TRAINED, len(best))).astype(int)
        best = [best[place] for place in np.unique(places)]
    return [(pair, route) for _, pair, route in best[: 1 if set(given) == {"recall"} else TRAINED]]


def _nearest(reach: Reach, routes: list[int], given: dict[str, float]) -> tuple[float, Pair, int]:
    """The setting with the most recall where that is asked for, else with the fewest products."""
    if "recall" in given:
        return reach.found(reach.pair.lam, max(routes))[1], reach.pair, max(routes)
    return -reach.found(reach.high, min(routes))[0], reach.pair._replace(cut=reach.high), min(routes)


def _promising(reach: Reach, route: int, given: dict[str, float]) -> list[tuple[float, Pair, int]]:
    """Lambdas that keep to limits of products and recall, with a number that is larger for what looks better."""
    if "products" in given:
        lam = reach.largest(route, given["products"])
        lams = [] if lam is None else [lam * step for step in STEPS]
    elif "recall" in given:
        lam = reach.cheapest(route, given["recall"])
        lams = [] if lam is None else [lam]
    else:
        lams = np.geomspace(reach.pair.lam, reach.high, len(STEPS)).tolist()
    out = []
    for at in lams:
        products, recall = reach.found(at, route)
        if recall >= given.get("recall", 0.0):
            pair = reach.pair if at == reach.pair.lam else reach.pair._replace(cut=at)
            out.append((recall if "recall" not in given else -products, pair, route))
    return out


def _numbers(problem: Problem, split: Split, limit: float | None, n_blocks: int | str) -> list[int]:
    """The given number of blocks, or those around the number with the fewest products."""
    if not isinstance(n_blocks, str):
        return [int(n_blocks)]
    start = problem.task.unfitted(n_blocks, "auto").fit(problem.X, problem.Y)
    centre = int(start.choice_["n_blocks"]["start"])
    wanted = [centre * share for share in AROUND] + [limit * share for share in OF_LIMIT if limit is not None]
    most = max(split.X.shape[0] // MIN_ROWS, 1)
    sizes = sorted({min(max(round(size), 1), most) for size in wanted})
    return sizes if limit is None else [size for size in sizes if size < limit] or sizes[:1]


def _reaches(split: Split, q: int, most: int) -> list[Reach]:
    """As many blocks, with rows assigned for many labels and for few."""
    task, reaches = split.task, []
    start = task.unfitted(q, "auto")
    if not isinstance(start.init, str):
        start.set_params(init=np.asarray(start.init)[split.train_rows], n_blocks="auto")
    path: LambdaPath = start.fit(split.X, split.Y).path()
    high = lam_capturing(path, LEAST)
    for share in ASSIGNED_FOR if q > 1 else ASSIGNED_FOR[:1]:
        pair = Pair(q, (max(lam_capturing(path, share), float(path.lam[1]) / 2 if path.lam.size > 1 else 0.0),))
        blocks = split.blocks(pair)
        if blocks is None:
            continue
        alive = blocks.clusters.sizes.size
        visited = split.router(blocks).route(split.X_held_out, min(most, alive), threads=task.threads)[0]
        reaches.append(Reach(split, pair, blocks, visited, max(high, 2 * pair.lam)))
    return reaches


def _no_weights(n_labels: int) -> LinearWeights:
    """Weights of labels that are only counted."""
    nothing: Any = sparse.csr_array((0, n_labels), dtype=np.float32)
    return LinearWeights(nothing, np.zeros(n_labels, np.float32), features=np.zeros(0, np.int32))
