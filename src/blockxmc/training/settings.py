"""Every number that shapes the default model: what it does, and the row of docs/results/ablation.md that carries it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from blockxmc.errors import BlockXMCError
from blockxmc.model.neighbors import DEFAULT_NEIGHBORS

# Newton's steps on held-out rows end where the next one promises less than this of the mean loss: far below what they can
# tell.
NEWTON_TOLERANCE = 1e-11
Effort = Literal["normal", "low"]


@dataclass(frozen=True)
class Settings:
    """The numbers of shared training; ``SETTINGS`` has the default."""

    # ---- blocks ----
    captured: float = 1.0  # share of the positives that blocks keep where lambda is open ("80 % captured")
    rounds: int = 2  # of the alternation: with many labels a row, more let one block grow ("rounds")
    most_products: float = 0.5  # of the full classifier's: where a row takes more, there is one block, and no neighbors
    usual_blocks: int = 4  # that a row visits on average, where their number is chosen ("number of blocks")
    top_p: float = 0.7  # a row visits blocks up to this share of the router's probability ("blocks until") ...
    most_blocks: int = 16  # ... and no more than so many ("most blocks")
    few_blocks: int = 4  # a label in more blocks is kept once for all ("no frequent labels") ...
    many_blocks: int = 8  # ... or in more than so many, where frequent labels would not fit into one chunk

    # ---- router ----
    router_prune: float = 0.15  # weights below are dropped ("router prune")
    router_bits: int = 16  # of its weights, at least: as many as those of labels
    router_tol: float = 0.1  # how tightly it is solved ("router tol")
    router_sample: int | None = 4096  # random rows that show a block what is not its own ("router learns")

    # ---- labels ----
    negative_blocks: int = 3  # blocks by the router whose labels learn from a row ("negative blocks")
    shared_positive: float = 0.5  # a row with m labels counts m to the power of minus this ("a row's labels share")
    centroid_prune: float = 0.1  # smaller parts of a centroid count only where the label has a weight
    # Labels are trained in batches: at most so many, of no fewer (label, row) pairs, and of no more (memory).
    most_batches: int = 32
    least_pairs: int = 2**25
    least_pairs_per_row: int = 128
    pairs_at_a_time: int = 2**26

    # ---- names of labels (bench/label_texts.py) ----
    name_part: float = 0.4  # length of a name beside a typical row, where the router learns it
    name_decay: float = 0.125  # a name counts the less the more rows its label has, by this power
    middle_name: float = 1.5  # weight of names where candidates of held-out rows are found
    least_name: float = 0.5  # ... and at least, where they are wanted in any case

    # ---- held-out rows ----
    least_rows: int = 200  # with fewer rows nothing is held out
    held_out_one_in: int = 40  # one row in so many is held out ("held out") ...
    held_out_most: int = 2048  # ... at most so many ...
    held_out_least: int = 800  # ... and, where a fifth of the rows allows, at least so many
    lost: float = 0.03  # a label that lost more of its positives is trained again with them ("trained again")

    # ---- scores ----
    candidates: int = 64  # labels of a held-out row that all of this is fitted on ("candidates")
    middle_slope: float = 0.2  # of the log probability of blocks, where these are found
    slopes: tuple[float, ...] = (0.0, 0.15, 0.4)  # of it that are tried ("no block probabilities")
    centroid_weights: tuple[float, ...] = (0.0, 0.5, 1.0)  # that are tried ("no centroids")
    noise: float = (
        0.05  # mixes whose mean P@k differs by less than this over the root of the rows count alike ("noise")
    )
    clearly: float = 2.0  # standard errors by which neighbors must mislead to be left out

    # ---- neighbors ----
    n_neighbors: int = DEFAULT_NEIGHBORS  # training rows that are asked for their labels ("neighbors")
    neighbor_bits: int = 8  # of their features, at most

    # ---- reranker ----
    reranked: int = 8  # labels of a row that are reranked ("reranker")
    reranker_least_rows: int = 500  # with fewer telling rows there is none: it would learn their chance
    reranker_pull: float = 0.01  # of its curve towards zero ...
    reranker_score_weight: float = 4.0  # ... and of the score itself towards this
    reranker_few_positives: int = 4  # labels with fewer count as if they had so many
    reranker_outermost: float = 0.002  # terms are held within all but this share of those seen on either side

    # ---- companions ----
    companion_rows: int = 2  # rows that must carry a pair of labels ("companions")
    companion_labels: int = 256  # rows with more labels are not counted
    companion_pairs: int = 2**24  # of more pairs, those of every second, third, ... row are counted
    companion_least_rows: int = 100  # held-out rows that their one weight needs

    # ---- updates (bench/update.py) ----
    update_margin: float = -0.5  # a new row tells a label something as a positive, or with a margin above this ...
    update_share: float = 0.05  # ... and the label learns when more rows than this share of its positives did
    update_shift: float = 0.05  # an update of more than this share of the rows changes labels by its own rows ...
    update_times: int = 4  # ... but not those with more than so many times as many new positives as old ones ...
    update_times_few: float = 0.5  # ... or than so many times ...
    update_few_rows: int = 256  # ... where no more than so many rows concern the label
    update_lesson: float = -0.9  # the rows that change a label: positives, and negatives with a margin above this ...
    update_hold: int = 16  # ... while one in so many of the old negatives holds, each for as many ...
    update_hold_weight: float = 0.2  # ... times this
    update_tol: float = 0.4  # how tightly, as a share of the first gradient
    update_lists: int = 4  # blocks by the router that list a label which came after the fit
    update_new: int = 8  # while it has no more positives than this, it learns from no more than ...
    update_negatives: int = 128  # ... so many rows: those most like its positives
    update_router: float = 0.15  # the router is solved again when more than this share of the rows is new to it ...
    update_router_small: float = 0.05  # ... or than this, in a small update


SETTINGS = Settings()
# Positives that blocks keep where less effort is asked for (ablation: "80 % captured").
CAPTURED_LOW = 0.8


def settings_of(effort: str) -> Settings:
    """The numbers of a training of this effort.

    >>> settings_of("normal").captured, settings_of("low").captured
    (1.0, 0.8)
    """
    if effort not in ("normal", "low"):
        raise BlockXMCError(f'effort must be "normal" or "low", got {effort!r}')
    return replace(SETTINGS, captured=CAPTURED_LOW) if effort == "low" else SETTINGS
