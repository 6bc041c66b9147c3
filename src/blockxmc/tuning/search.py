"""The search over pairs of a number of blocks and a lambda, in folds.

Pairs are tried from the fewest products on, as the training rows tell them before anything is trained. A pair that loses
too much in one fold is not tried in the others, and the fold that refused last is asked first. The path of the cheapest
pair that every fold allows is then tried at every lambda in every fold, as the paper's protocol wants.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from blockxmc.training.trials.plan import BlockPlan, Path
from blockxmc.training.trials.selection import SLACK
from blockxmc.training.trials.split import Pair
from blockxmc.tuning.fold import Fold
from blockxmc.tuning.problem import Problem
from blockxmc.tuning.result import FoldRecord, Point, Trial, TuningResult

# Products of held-out rows may be so many times those expected of training rows, or so many times fewer: where a pair was
# found, pairs that may still have fewer are tried, too. Not measured.
MARGIN = 1.2


class Search:
    """One run of the protocol over the paths of a plan."""

    def __init__(self, problem: Problem, folds: list[Fold], plan: BlockPlan, tolerance: float) -> None:
        self.problem, self.folds, self.plan, self.tolerance = problem, folds, plan, tolerance
        self._strictest = 0  # the fold that refused a pair last
        self._tried: dict[Pair, Trial] = {}  # by the first fold that was asked

    def run(self, setting: dict[str, object], notes: tuple[str, ...] = ()) -> TuningResult:
        """Find the cheapest pair that every fold allows, try its path in full, and choose by the paper's rule."""
        self._say_how_long()
        chosen = self.plan.paths[0] if len(self.plan.paths) == 1 else self._cheapest_path()
        paths = [chosen]
        fewest = min(self.plan.paths, key=lambda path: path[0])
        pairs = {path: self.plan.pairs(path) for path in (chosen, fewest)}
        with self.problem.reporter.phase("folds", len(self.folds)) as phase:
            for done, fold in enumerate(self.folds):
                for pair in pairs[chosen]:
                    fold.found(pair)
                fold.found(pairs[fewest][0])  # the fewest blocks at the smallest lambda remove least
                phase.update(done + 1)
        others = [] if fewest in paths else [self.point(pairs[fewest][0])]
        return TuningResult.decide(
            self.plan.lams,
            chosen,
            [self._record(fold, pairs[chosen]) for fold in self.folds],
            [self.point(pair) for pair in pairs[chosen]],
            others,
            n_labels=int(self.problem.Y.shape[1]),
            ks=self.problem.task.ks,
            tolerance=self.tolerance,
            setting=setting,
            tried=tuple(self._tried.values()),
            notes=notes,
        )

    def _say_how_long(self) -> None:
        """The first trial is the base on all labels: one with blocks trains fewer of them, but a router, too."""
        seconds = self.folds[0].base_seconds()
        trials = [len(self.plan.pairs(path)) for path in self.plan.paths]
        of_path, all_of_them = (len(self.folds) * (1 + number) - 1 for number in (min(trials), sum(trials)))
        self.problem.say_how_long(seconds, of_path, all_of_them)

    def _cheapest_path(self) -> Path:
        """The path of the pair with the fewest products that every fold allows; else that of the least loss."""
        path_of = {pair: path for path in self.plan.paths for pair in self.plan.pairs(path)}
        with self.problem.reporter.phase("partition at each pair", len(path_of)) as phase:
            expected = {}
            for done, pair in enumerate(path_of):
                expected[pair] = self.folds[0].expected_products(pair)
                phase.update(done + 1)
        best: Point | None = None
        with self.problem.reporter.phase("try pairs of blocks and lambda", len(path_of)) as phase:
            for done, pair in enumerate(sorted(path_of, key=lambda pair: expected[pair])):
                if expected[pair] > (self.problem.Y.shape[1] if best is None else MARGIN * best.products):
                    break
                if self._allowed(pair):
                    point = self.point(pair)
                    best = min(best or point, point, key=lambda point: point.products)
                phase.update(done + 1)
        if best is not None:
            return path_of[Pair(best.n_blocks, best.assigned_at)]
        least = min(self._tried or path_of, key=lambda pair: self._tried[pair].loss if self._tried else expected[pair])
        return path_of[least]

    def _allowed(self, pair: Pair) -> bool:
        """Whether every fold allows a pair; the fold that refused last is asked first."""
        order = [self._strictest, *(number for number in range(len(self.folds)) if number != self._strictest)]
        for number in order:
            loss = self.folds[number].loss(pair)
            self._tried.setdefault(pair, self._trial(number, pair, loss))
            if loss > self.tolerance + SLACK:
                self._strictest = number
                return False
        return True

    def _trial(self, number: int, pair: Pair, loss: float) -> Trial:
        found = self.folds[number].found(pair)
        by_paper = self.plan.paper is not None and pair in self.plan.pairs(self.plan.paper)
        measured = {name: found[name] for name in ("candidates", "products", "recall")}
        return Trial(pair.n_blocks, pair.lam, number, loss, tuple(found["precision"]), by_paper, **measured)

    def point(self, pair: Pair) -> Point:
        """What all folds say of a pair."""
        found = [fold.found(pair) for fold in self.folds]
        mean: Any = {
            name: float(np.mean([one[name] for one in found])) for name in ("candidates", "products", "recall")
        }
        precision = np.mean([one["precision"] for one in found], axis=0)
        loss = max(fold.loss(pair) for fold in self.folds)
        return Point(pair.n_blocks, pair.lam, pair.steps, tuple(precision.tolist()), loss=loss, **mean)

    def _record(self, fold: Fold, pairs: list[Pair]) -> FoldRecord:
        return FoldRecord.of(fold.base(), [fold.found(pair) for pair in pairs], self.plan.lams, self.tolerance)
