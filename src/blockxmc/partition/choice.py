"""How many blocks, and which lambda, where the user leaves it to the data. Both are read off the closed-form path."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from blockxmc._core.matrix import copy_rows, take_rows
from blockxmc._core.progress import Reporter
from blockxmc.errors import BlockXMCError
from blockxmc.partition.alternation import Blocks
from blockxmc.partition.ranking import I32, ObjectiveName, Ranking
from blockxmc.partition.start import balanced_tree

# A choice may give up this much of the positives that could be captured.
FLOOR = 0.98
# Fewer rows per block than this teach neither a router nor the labels of a block anything.
MIN_ROWS = 32
# The paper's search goes on until blocks have fewer rows than this.
PAPER_ROWS = 16
# Searches at many lambdas go up to this number of blocks at most: k-means takes rows times blocks, and a router of more
# blocks costs more products than any choice on our sets has.
PAPER_MOST = 256
# Numbers of products that differ by no more than this part are alike: more blocks then train faster. On 76,728 short texts
# with 27,905 labels 1,024 blocks take as many products as 512; mean P@k -0.03, 0.8 of the CPU time.
TIE = 0.01
# Rows on which the number of blocks is chosen.
SAMPLE_ROWS = 2**17
# Passes over the rows of a node, at most, where the tree is made for this choice alone. On nine sets five choose the same
# number of blocks as twenty; planted groups of which a sample is seen want ten.
PASSES = 10
# Seeds that must all lose a block before the paper's search gives up on a number of blocks.
PAPER_SEEDS = 3


@dataclass(frozen=True)
class Choice:
    """A number of blocks and what spoke for it."""

    n_blocks: int
    rule: str
    tried: list[dict[str, Any]]
    unbounded: bool = False  # the paper's search ended at its limit, and not because a pair died


def lam_at_floor(ranking: Ranking, objective: ObjectiveName, floor: float = FLOOR) -> float:
    """The largest lambda at which the ranked blocks still hold ``floor`` of the positives that they hold at 0."""
    falling, captured = ranking.falling(objective)
    share = captured / max(int(captured[-1]), 1)
    at = int(np.searchsorted(share, floor * share[-1]))  # so many must stay
    # Labels of one critical value go together, and first labels that always stay have none.
    if at < falling.size and (np.isinf(falling[at]) or (at > 0 and falling[at] == falling[at - 1])):
        at = int(np.searchsorted(-falling, -falling[at], side="right"))
    return float(falling[at]) if at < falling.size else 0.0


def fewest_products(
    X: sparse.csr_array,
    Y: sparse.csr_array,
    lam: float | None,
    objective: ObjectiveName,
    *,
    seed: int,
    threads: int,
    visited: int = 1,
) -> Choice:
    """The number of blocks q with the smallest q + visited * E|L| among those that capture enough.

    A row that visits several blocks meets the labels of them all, so the more it visits, the smaller they should be.

    One balanced tree gives the partitions into 1, 2, 4, ... blocks, and the closed-form path the labels each of them
    needs: at the given lambda, or, where that is open too, at the lambda that captures ``FLOOR`` of the positives. With
    lambda given, captured must reach ``FLOOR`` times the best of the grid. On very many rows a sample is used whose blocks
    have as many rows as those of the full data would have, since that is what the labels in a block depend on most.
    """
    whole = _products(Y, np.zeros(Y.shape[0], np.int32), 1, lam, objective, threads, n_blocks=1, visited=1)
    tried = [{"n_blocks": 1, **whole}]
    n_rows = Y.shape[0]
    share = 1.0
    if n_rows > SAMPLE_ROWS:
        rows = np.sort(np.random.default_rng(seed).choice(n_rows, SAMPLE_ROWS, replace=False))
        X, Y, share = copy_rows(X, rows, threads), take_rows(Y, rows), SAMPLE_ROWS / n_rows
    # With every label in one block only, sqrt(visited * labels) blocks would be best; overlap moves that up, but not by
    # more than 8.
    limit = min(Y.shape[0] // MIN_ROWS, int(8 * (visited * whole["products"]) ** 0.5 * share))
    depth = max(limit, 1).bit_length() - 1
    with Reporter().phase("") as silent:
        leaves = balanced_tree(X, 2**depth, seed=seed, threads=threads, phase=silent, iterations=PASSES)
    at_once = max(1, min(threads, depth))

    def at_level(level: int) -> dict[str, float]:
        n_blocks = round(2**level / share)
        assignment = leaves >> np.int32(depth - level)
        # lambda is per row count of a block, which the sample keeps: no rescaling.
        how: Any = {"n_blocks": n_blocks, "visited": visited}
        return {"n_blocks": n_blocks, **_products(Y, assignment, 2**level, lam, objective, threads // at_once, **how)}

    with ThreadPoolExecutor(at_once) as pool:
        tried += pool.map(at_level, range(1, depth + 1))
    enough = FLOOR * max(t["captured"] for t in tried) if lam is not None else 0.0
    able = [t for t in tried if t["captured"] >= enough]
    most = (1 + TIE) * min(t["products"] for t in able)
    best = max((t for t in able if t["products"] <= most), key=lambda t: t["n_blocks"])
    return Choice(
        int(best["n_blocks"]), "fewest products (blocks + labels of those visited) at the captured share", tried
    )


def _products(
    Y: sparse.csr_array,
    assignment: I32,
    n_groups: int,
    lam: float | None,
    objective: ObjectiveName,
    threads: int,
    *,
    n_blocks: int,
    visited: int,
) -> dict[str, float]:
    """What it costs to serve from a partition into ``n_groups``, of which all rows would give ``n_blocks``."""
    ranking = Ranking.of(Y, assignment, n_groups, threads=threads)
    at = lam_at_floor(ranking, objective) if lam is None else lam
    path = ranking.path(objective, Y.nnz, [at])
    return {
        "lam": at,
        "captured": float(path.captured[0]),
        "labels_per_row": float(path.cost[0]),
        "products": n_blocks + min(visited, n_blocks) * float(path.cost[0]),
    }


def most_blocks(Y: sparse.csr_array, letter: bool) -> int:
    """Where the paper's search ends if no pair dies: the paper has no other end than the rows and the labels.

    >>> Y = sparse.csr_array((320, 30))
    >>> most_blocks(Y, letter=False), most_blocks(Y, letter=True)
    (20, 30)
    """
    return max(min(Y.shape) if letter else Y.shape[0] // PAPER_ROWS, 1)


def paper_search(run: Callable[[int, int], Blocks], limit: int, n_positives: int) -> tuple[Blocks, Choice]:
    """The paper's search: raise q from 2 while no pair dies; of the q seen, take the one that captures most.

    ``run(q, attempt)`` partitions into q blocks with the seed of that attempt; q fails when every attempt loses a block.
    Up to 16 every q is tried, beyond that each next one is half as large again, and the last failure is bisected. The
    search ends at ``limit`` blocks.
    """
    tried: list[dict[str, Any]] = []
    best: tuple[int, Blocks] | None = None

    def survives(q: int) -> bool:
        nonlocal best
        for attempt in range(PAPER_SEEDS):
            blocks = _or_none(run, q, attempt)
            alive = 0 if blocks is None else blocks.clusters.sizes.size
            captured = 0 if blocks is None else blocks.captured
            tried.append({"n_blocks": q, "attempt": attempt, "alive": alive, "captured": captured / n_positives})
            if blocks is not None and alive == q:
                if best is None or captured > best[1].captured:
                    best = q, blocks
                return True
        return False

    good, q = 1, 2
    while q <= limit:
        if not survives(q):
            while q - good > 1:
                middle = (good + q) // 2
                good, q = (middle, q) if survives(middle) else (good, middle)
            break
        good, q = q, q + 1 if q < 16 else min(q * 3 // 2, max(limit, q + 1))
    if best is None:
        best = 1, run(1, 0)
    rule, unbounded = "the paper's search: most captured while no pair is empty", 1 < limit < q
    if unbounded:
        rule += f"; no pair died up to {good} blocks, where it ends"
    return best[1], Choice(best[0], rule, tried, unbounded)


def _or_none(run: Callable[[int, int], Blocks], q: int, attempt: int) -> Blocks | None:
    """A lambda that empties every block of q is a failure of q, not of the search."""
    try:
        return run(q, attempt)
    except BlockXMCError:
        return None
