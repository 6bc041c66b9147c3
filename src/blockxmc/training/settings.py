"""Every number that shapes the default model: what it does, and where it was measured.

"Ablation" is docs/results/ablation.md: bench/ablation.py changes one number at a time and judges by rows that are held out
of training sets. The words in quotes are in the names of its variants.
"""

from __future__ import annotations

from dataclasses import dataclass

from blockxmc.model.neighbors import DEFAULT_NEIGHBORS

# Newton's steps on held-out rows end where the next one promises less than this of the mean loss: far below what they can
# tell.
NEWTON_TOLERANCE = 1e-11


@dataclass(frozen=True)
class Settings:
    """The numbers of shared training; ``SETTINGS`` has the default."""

    # ---- blocks ----
    # Share of the positives that label clusters keep where lambda is left open (ablation: "positives captured").
    # Less cuts labels from blocks, and with them rows that teach; a third negative block then costs no more than is saved.
    captured_floor: float = 0.8
    # Rounds of the alternation (ablation: "rounds of the alternation"). It starts from good clusters of labels, and where
    # rows have many labels, a block that wins some of them wins more in each round: premises of 30,000 theorems (19 a row)
    # ended after 20 rounds with a fifth of all rows in one block, mean P@k 1.25 lower, at twice the CPU time. On ten other
    # sets two rounds change mean P@k by -0.07 to +0.09 (one to six seeds each).
    rounds: int = 2
    # Blocks pay where a row takes at most this share of the full classifier's products; else there is one block. Neighbors
    # are asked within the same share.
    most_products: float = 0.5
    # Blocks that a row visits on average; counts in the choice of the number of blocks (ablation: "blocks visited").
    usual_blocks: int = 4
    # A row stops to visit blocks at this share of the router's probability (ablation: "blocks until") ...
    top_p: float = 0.7
    # ... or at one of these, where held-out rows are clearly served better.
    top_ps: tuple[float, ...] = (0.5, 0.6, 0.7, 0.8, 0.9)
    # ... and after so many blocks in any case (ablation: "most blocks").
    most_blocks: int = 16
    # A label in more than few_blocks is frequent: its weights are kept once for all blocks. Where frequent labels would not
    # fit into one chunk, it takes more than many_blocks (ablation: "frequent beyond").
    few_blocks: int = 4
    many_blocks: int = 8

    # ---- router ----
    # Weights below this are dropped: the router only has to rank blocks (ablation: "router prune"). What it learns of other
    # blocks makes it larger; 0.15 makes up for that. 0.2 does better still on debian-small and yso-finna-en (+0.3), and
    # worse on gutenberg-lcsh (-0.2), where rows are long and weights small.
    router_prune: float = 0.15
    # Bits of its weights, at least: as many as labels have, where they have more (ablation: "router of").
    router_bits: int = 16
    # How tightly the router is solved (ablation: "router tol").
    router_tol: float = 0.1
    # Random rows that show a block what is not its own, beside the rows of some other blocks (ablation: "router learns").
    router_sample: int | None = 4096
    # A row teaches the router its own block and up to so many where its labels are at home (ablation: "router taught") ...
    # Mean of P@1/3/5 on held-out rows of two seeds, parts of the larger sets, beside the own block alone: +0.26
    # debian-small, +0.08 citeulike-t-tags, -0.15 elife-keywords, +0.01 tate-subjects, +0.07 gutenberg-lcsh, +0.14
    # commit-files-xl, +0.25 yso-finna-en; with three: +0.35, +0.05, -0.03, 0.00, +0.06, +0.07, +0.22, for 4 % more bytes.
    # Two routers of different samples in one mean gain nothing.
    router_targets: int = 2
    # ... at least this times as much as in its own block, by the shares of the labels' positives there: 0.5 gains half as
    # much, 0.1 a third ...
    router_near: float = 0.25
    # ... where a share below this counts as none, or frequent labels would be a little at home everywhere.
    router_home: float = 0.03

    # ---- labels ----
    # Of the blocks that the router would send a row to, so many are its negative blocks: their labels learn from the row.
    # Fewer than serving visits (ablation: "labels learn from"). Three with 80 % captured, beside two with 90 %: mean of
    # P@1/3/5 on held-out rows +0.13 debian-small, +0.14 citeulike-t-tags, +0.03 elife-keywords, +0.19 tate-subjects, -0.06
    # gutenberg-lcsh, -0.05 commit-files-xl, 0.00 yso-finna-en, for 0, 6, 2, 14, 4, -2 and -10 % more training.
    negative_blocks: int = 3
    # A row with m labels counts m to the power of minus this as a positive of each (ablation: "a row's labels share"). Mean
    # of P@1/3/5 on held-out rows, in the same order: +0.30, +0.13, +0.14, -0.05, +0.03, +0.22, -0.05; 0.25 and 0.35 do
    # nearly as well on the first five.
    shared_positive: float = 0.5
    # A label with no more than so many positives learns from few of its rows (ablation: "few positives"). Up to eight: 0.03
    # less of the CPU time of debian-small, mean of P@1/3/5 of elife-keywords -0.16 and +0.02 (two seeds) ...
    few_positives: int = 4
    # ... its positives and so many that are most like them, one by one; the others are one row that has nothing but the
    # bias. Beside all rows one by one, mean of P@1/3/5 on held-out rows, parts of the larger sets: -0.01 and +0.08
    # debian-small (two seeds), -0.08 and -0.02 citeulike-t-tags, +0.08 and -0.10 elife-keywords, -0.14 and -0.07
    # tate-subjects, +0.09 gutenberg-lcsh, -0.05 commit-files-xl, -0.06 yso-finna-en; 0.9 of the CPU time of debian-small.
    # With up to eight positives: without the row for the others -0.45 (debian-small) and -0.30 (elife-keywords); with that
    # row along the sum of the positives -0.42 (elife-keywords); 64 rows as good as 32.
    nearest: int = 32
    # Labels are trained in batches. At most so many ...
    most_batches: int = 32
    # ... of no fewer (label, row) pairs, and no fewer for each row: a batch looks through all rows once, and its threads
    # wait for the last of its labels (commit-files-xl, 2**18 pairs: 12.0 s on 16 threads, 110 s on one).
    least_pairs: int = 2**25
    least_pairs_per_row: int = 128
    # ... and of no more: a quarter of a gigabyte.
    pairs_at_a_time: int = 2**26
    # Parts of a label's centroid, at unit length, that are smaller than this count only where the label has a weight anyway
    # (ablation: "centroid prune").
    centroid_prune: float = 0.1

    # ---- held-out rows ----
    # With fewer rows nothing is held out: a tenth of them could not tell two settings apart.
    least_rows: int = 200
    # One row in so many is held out, at most held_out_most and, where a fifth of the rows allows, at least held_out_least
    # (ablation: "held out"). Twice as many lost tate-subjects 0.08 points of mean P@k, and took twice the time
    # to look at.
    held_out_one_in: int = 40
    held_out_most: int = 2048
    held_out_least: int = 800
    # A label that has lost more than this part of its positives to the held-out rows is trained again with them
    # (ablation: "trained again") ...
    lost: float = 0.1
    # ... and a label with more than many_positives that has lost more than this part: most right answers are such labels.
    # Mean of P@1/3/5 on held-out rows of two seeds (debian-small four), parts of the larger sets: +0.10 debian-small, -0.01
    # citeulike-t-tags, +0.11 and -0.05 elife-keywords (all rows, 8,000), +0.16 tate-subjects, +0.10 gutenberg-lcsh; nothing
    # on commit-files-xl and yso-finna-en, for 4 to 8 % more CPU time. All labels that lost any row: +0.19, +0.08, +0.19 and
    # -0.07, +0.15, +0.19, +0.02, 0.00, for 4 to 25 %; from their present weights they end worse on three of four sets.
    # Labels that lost less, changed by the held-out rows as in an update: +0.02 to +0.12 on seven sets, +0.06 on the test
    # rows of debian-small (eight seeds), for 2 to 5 %. Left out: that is within the noise of one seed, and models that keep
    # their rows could not have it.
    lost_of_many: float = 0.03
    many_positives: int = 300

    # ---- score mix ----
    # What is tried: weight of the blocks' log probability, of the centroid (ablation: "block probabilities", "centroids").
    slopes: tuple[float, ...] = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8)
    centroid_weights: tuple[float, ...] = (0.0, 0.5, 1.0)
    # All of these rank the same candidates of a row: the first few by the slope and the weight of names in the middle
    # (ablation: "candidates mixed").
    middle_slope: float = 0.2
    middle_name: float = 1.5
    # Where names are to count in any case, they count so much at least.
    least_name: float = 0.5
    mixed_candidates: int = 32
    # A difference in mean P@k (0..1) is taken for chance below this over the root of the number of rows: two mixes that
    # differ less count alike (ablation: "noise").
    noise: float = 0.05
    # The default is left only for what serves held-out rows better by so many standard errors: the usual two.
    clearly: float = 2.0

    # ---- neighbors ----
    # Training rows that are asked for their labels (ablation: "neighbors").
    n_neighbors: int = DEFAULT_NEIGHBORS
    # Bits of their features, at most (ablation: "neighbors of"): with 16 mean P@k was 0.02 lower over seven sets.
    neighbor_bits: int = 8

    # ---- reranker ----
    # Labels of a row that are reranked (ablation: "reranker of").
    reranked: int = 8
    # With fewer telling rows there is no reranker: it would learn their chance (ablation: "reranker rows").
    reranker_least_rows: int = 500
    # Pull of the curve towards zero, and what the weight of the score itself is pulled to (ablation: "reranker pull").
    reranker_pull: float = 0.01
    reranker_score_weight: float = 4.0
    # Labels with fewer positives count as if they had so many: one row more or less changes them too much to tell.
    reranker_few_positives: int = 4
    # Terms are held within all but this share of those seen on either side, where the curve would be guessing.
    reranker_outermost: float = 0.002

    # ---- companions ----
    # A pair of labels is counted where so many rows carry both. With one, mean P@3 and P@5 on held-out rows are 0.02
    # higher, for three to five times as many pairs.
    companion_rows: int = 2
    # Rows with more labels are not counted: their pairs are many, and say little.
    companion_labels: int = 256
    # Of more pairs (of all rows, each in both orders), those of every second, third, ... row are counted.
    companion_pairs: int = 2**24
    # What pairs say has one weight, which fewer rows can tell than the reranker's curve.
    companion_least_rows: int = 100

    # ---- updates ----
    # A new row tells a label something if it is a positive, or a negative with a margin above this ...
    update_margin: float = -0.5
    # ... and a label learns when it was told something by more rows than this share of its positives. In an update of 10 %
    # a share of 0 gains nothing (elife-keywords, two seeds: P@1/3/5 by 0.01 / -0.02 / 0.00, 0.01 of a training's CPU time).
    update_share: float = 0.05
    # An update that brings more than this share of the rows changes labels by its own rows (lessons.py); a smaller one
    # solves the labels that it touches anew.
    update_shift: float = 0.05
    # ... and so does a larger one for new labels, and for those with more than so many times as many new positives as old
    # ones (0.2, 0.5 and 1 times differ by less than two seeds do on debian-small and elife-keywords, and cost more).
    update_times: int = 4
    # ... or than so many times, where only so many rows concern the label, and to solve it costs little. With 512 rows,
    # P@1/3/5 beside training are -0.08 / -0.22 / -0.26 instead of -0.10 / -0.27 / -0.41 on elife-keywords (two seeds), for
    # 0.02 of a training's CPU time; on gutenberg-lcsh it gains 0.02 for 0.03.
    update_times_few: float = 0.5
    update_few_rows: int = 256
    # The rows of an update are positives, and negatives with a margin above this (debian-small, -0.7 and -0.8: P@3/5
    # -0.1) ...
    update_lesson: float = -0.9
    # ... while old positives hold, and one in so many of the old negatives, each for as many ...
    update_hold: int = 16
    # ... times this, since not all of them lie inside the margin. Mean of P@1/3/5 with 1, 0.5 and 0.2, beside a training:
    # -0.24, -0.21 and -0.23 on elife-keywords (four seeds), -0.25, -0.21 and -0.14 on gutenberg-lcsh (one); 0.5 and 0.2
    # alike on debian-small, 0.05 worse on elife-keywords. One row in 32 is worse, one in 8 costs 0.02 of a training's CPU
    # time.
    update_hold_weight: float = 0.2
    # How tightly, as a share of the first gradient. 0.05 costs 0.03 of a training's CPU time on debian-small, and gains
    # nothing.
    update_tol: float = 0.4
    # A label that came after the fit is also listed by so many of the blocks to which the router sends its rows. R@10 of
    # new labels on elife-keywords, two seeds: 0.033 with none, 0.066 with one, 0.098 with four; 0.090 after a training.
    update_lists: int = 4
    # ... and, while it has no more than so many positives ...
    update_new: int = 8
    # ... learns from no more rows than so many: its positives, and those that are most like them. It has four times the
    # rows of a label that a training lists in one block, and those that lie far away only lower its bias. With 512, 128 and
    # 64, R@10 of new labels after 10 % is 0.066, 0.082 and 0.107 on elife-keywords (two seeds; 0.082 in a training), 0.09,
    # 0.09 and 0.23 on debian-small (one; 0.07); P@1/3/5 differ by 0.04 at most. After twenty updates of debian-small
    # (one seed) they are -0.03 / +0.39 / +0.01, -0.11 / +0.01 / -0.40 and -0.25 / -0.37 / -0.59. Only the rows of its home
    # block, which are as few, lose P@5 of debian-small 1.4 points: it comes up elsewhere.
    update_negatives: int = 128
    # The router is solved again, as a whole, when more than this share of the rows is new to it, and the update is large.
    # After 10 % it changes P@1/3/5 by -0.03 / -0.05 / +0.05 on debian-small (four seeds) for 0.10 of a training's CPU time.
    update_router: float = 0.15
    # ... or small: new labels are found by it (elife-keywords after twenty updates, one seed, the router solved once more:
    # R@10 of new labels 0.143 to 0.179, mean of P@1/3/5 by +0.04).
    update_router_small: float = 0.05

    # ---- calibration ----
    # Labels of a row, the best, that show what a score means: so many that the candidates behind them are hardly ever right
    # (bench/label_sets.py; ablation: "calibrated"). Of 6,000 rows of commit-files-xl, a third of the labels that are found
    # at all come after the first 256.
    calibrated: int = 1024
    # ... and so many are looked at to judge what is promised, and where label sets are cut.
    judged: int = 128


SETTINGS = Settings()
