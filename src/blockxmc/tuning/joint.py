"""The search over pairs of a number of blocks and a lambda.

A path has a number of blocks for each lambda. The first fold goes down each path from the largest lambda, where training is
cheapest, to the first feasible pair. A pair that loses too much there is infeasible, whatever other folds say, so the
products of that pair bound what the path can reach in all folds. Paths go on down from there, the best bound first, until
every fold allows a pair or a path has as many products as another one reached; the fold that refused a pair last is asked
first, and where it refuses again no other fold is asked. The path that reaches the fewest products is tried at every lambda
in every fold, as the protocol wants.

Paths in the first fold, and folds, are worked on side by side. What is tried does not depend on the number of threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from blockxmc._core.progress import Phase, run_in_threads
from blockxmc.training.trials.selection import SLACK
from blockxmc.tuning.fold import COSTS, Fold
from blockxmc.tuning.plan import BlockPlan
from blockxmc.tuning.problem import Problem
from blockxmc.tuning.result import Point, Trial, Tried, TuningResult

# The first fold leaves a path without a feasible pair after so many smaller lambdas in a row that gain less than this many
# points. Not measured: precision hardly ever rises again from there.
_FLAT_STEPS, _FLAT = 2, 0.2
# Products of one fold may differ from the mean of the folds by this factor: bounds are not exact.
_MARGIN = 1.05
# Where the paper's search asks for this many times as many blocks as another path has products, the pair is not tried: the
# router alone costs more.
_TOO_MANY = 2.0
# Halvings of the step between the speed-driven lambda and the next one. Not measured.
_HALVINGS = 2
_MEASURED = ("precision", "candidates", "products", "recall")
Path = tuple[int, ...]
J = TypeVar("J")


class Search:
    """One run of the protocol over the paths of a plan."""

    def __init__(
        self, problem: Problem, folds: list[Fold], plan: BlockPlan, tolerance: float, setting: dict[str, Any]
    ) -> None:
        self.problem, self.folds, self.plan, self.tolerance, self.setting = problem, folds, plan, tolerance, setting
        self.paths = list(dict.fromkeys(plan.paths))
        self.scouted: dict[Path, list[Trial]] = {}
        self._strictest = len(folds) - 1  # the fold that refused a pair last
        self._seen: set[tuple[int, int, tuple[float, ...]]] = set()
        self._counting = threading.Lock()
        self.saving = dict.fromkeys(("naive_trainings", "naive_seconds_estimate", *COSTS), 0.0)

    def run(self) -> TuningResult:
        """Scout, complete the paths that may win, choose, and look between the lambdas."""
        self._side_by_side("base without blocks", self._base, range(len(self.folds)))
        if len(self.paths) == 1:
            done = {self.paths[0]: self._completed(self.paths[0])}
        else:
            self._scout()
            done = self._race({})
            if all(result.speed_driven is None for result in done.values()):
                self._scout(patient=True)
                done = self._race(done)
        result = self._combined(done)
        if self.plan.refine and result.speed_driven is not None:
            result = self._refined(result)
        return replace(result, saving=self.saving)

    def _steps(self, step: int) -> tuple[float, ...]:
        return self.plan.lams[: step + 1]

    def _side_by_side(self, title: str, work: Callable[[J], object], jobs: Sequence[J]) -> None:
        """Do all of the work, as much at a time as there are threads."""
        threads = min(self.problem.task.threads, len(jobs))
        with self.problem.reporter.phase(title, len(jobs)) as phase:
            if threads > 1:

                def quietly(job: J, _: Phase) -> None:
                    work(job)

                run_in_threads(quietly, jobs, threads, phase)
                return
            for done, job in enumerate(jobs):
                work(job)
                phase.update(done + 1)

    # ---- one fold ----
    def _scout(self, patient: bool = False) -> None:
        """What the first fold says of each path; ``patient`` goes to its smallest lambda where nothing is feasible."""

        def scout(path: Path) -> None:
            self.scouted[path] = self._tried(path, patient)

        # The paper's path shares blocks with others, and may ask for very many: it comes last.
        plain = [path for path in self.paths if path != self.plan.paper]
        self._side_by_side("try pairs of blocks and lambda", scout, plain)
        if self.plan.paper in self.paths:
            self._side_by_side("try pairs of the paper's search", scout, [self.plan.paper])

    def _tried(self, path: Path, patient: bool) -> list[Trial]:
        """Down one path, to the first feasible pair or to where precision no longer rises."""
        trials: list[Trial] = []
        least, flat, by_paper = np.inf, 0, path == self.plan.paper
        reached = min((self._bound(other) for other in self.paths if other != path and by_paper), default=np.inf)
        for step in reversed(range(len(path))):
            if path[step] >= _TOO_MANY * reached:
                continue
            trials.append(self._trial(path, step))
            loss = trials[-1].loss
            flat = 0 if loss < least - _FLAT else flat + 1
            least = min(least, loss)
            if loss <= self.tolerance + SLACK or (flat >= _FLAT_STEPS and not by_paper and not patient):
                break
        return trials[::-1]

    def _trial(self, path: Path, step: int) -> Trial:
        """What the first fold says of one pair of a path."""
        q, steps = path[step], self._steps(step)
        found, loss = self._found(0, q, steps), self.folds[0].loss(q, steps)
        measured = {name: found[name] for name in ("candidates", "products", "recall")}
        by_paper = path == self.plan.paper
        return Trial(q, self.plan.lams[step], loss, tuple(found["precision"]), by_paper, **measured)

    def _bound(self, path: Path) -> float:
        kept = [trial.products for trial in self.scouted.get(path, []) if trial.loss <= self.tolerance + SLACK]
        return min(kept, default=np.inf)

    # ---- all folds ----
    def _reach(self, path: Path, limit: float) -> float:
        """Products at the largest lambda of a path that every fold allows; infinite where that takes more than a limit."""
        for step in reversed(range(self.plan.lams.index(self.scouted[path][0].lam) + 1)):
            q, steps = path[step], self._steps(step)
            # The fold that refused a pair last is asked first: where it refuses again, no other fold is asked.
            if self._found(self._strictest, q, steps)["products"] > _MARGIN * limit:
                break
            if not self._allows(self._strictest, q, steps):
                continue
            point = self._point(q, steps)
            if point.products > limit:
                break
            if _loss(point) <= self.tolerance + SLACK:
                return point.products
            self._strictest = int(np.argmax([fold.loss(q, steps) for fold in self.folds]))
        return np.inf

    def _allows(self, number: int, q: int, steps: tuple[float, ...]) -> bool:
        return self.folds[number].loss(q, steps) <= self.tolerance + SLACK

    def _race(self, done: dict[Path, TuningResult]) -> dict[Path, TuningResult]:
        """Complete the path with the fewest products; where none is feasible, the path with the least loss.

        Feasibility may have a gap below the lambda that was reached. Then the next path is completed, too.
        """
        reached: dict[Path, float] = {}
        for path in sorted(self.paths, key=self._bound):
            limit = min(reached.values(), default=np.inf)
            if self._bound(path) == np.inf or self._bound(path) > _MARGIN * limit:
                break
            reached[path] = self._reach(path, limit)
        done, best = dict(done), np.inf
        for path in sorted(reached, key=lambda path: reached[path]):
            if reached[path] == np.inf or reached[path] > best:
                break
            done[path] = done.get(path) or self._completed(path)
            point = done[path].speed_driven
            best = best if point is None else min(best, point.products)
        if best == np.inf:
            tried = [path for path in self.paths if self.scouted[path]]
            least = min(tried, key=lambda path: min(trial.loss for trial in self.scouted[path]))
            if least not in done:
                done[least] = self._completed(least)
        return done

    def _completed(self, path: Path) -> TuningResult:
        """The protocol along one path, in every fold."""
        records: list[dict[str, Any]] = [{} for _ in self.folds]

        def complete(number: int) -> None:
            records[number] = self._record(number, path)

        self._side_by_side(f"folds, {self._named(path)}", complete, range(len(self.folds)))
        tried = Tried(self.plan.lams, path, self.problem.task.ks, self.problem.options.reassign, **self._shape)
        return TuningResult.decide(records, tried, tolerance=self.tolerance, setting=self.setting, notes=self._notes())

    @property
    def _shape(self) -> dict[str, int]:
        return {"n_rows": self.problem.n_rows, "n_labels": int(self.problem.Y.shape[1])}

    def _record(self, number: int, path: Path) -> dict[str, Any]:
        found = [self._found(number, q, self._steps(step)) for step, q in enumerate(path)]
        return {name: [entry[name] for entry in found] for name in _MEASURED} | {"base": self._base(number)}

    def _base(self, number: int) -> Any:
        return self._counted(number, 0, (), self.folds[number].base())["precision"]

    def _found(self, number: int, q: int, steps: tuple[float, ...]) -> dict[str, Any]:
        return self._counted(number, q, steps, self.folds[number].found(q, steps))

    def _counted(self, number: int, q: int, steps: tuple[float, ...], entry: dict[str, Any]) -> dict[str, Any]:
        """Add what a trial cost, once."""
        with self._counting:
            if (number, q, steps) not in self._seen:
                self._seen.add((number, q, steps))
                for name in COSTS:
                    self.saving[name] += entry[name]
                self.saving["naive_trainings"] += 1
                trained = 1 - entry["reused_pairs"] / max(entry["pairs"], 1)
                naive = entry["setup_seconds"] + entry["seconds"] / max(trained, 0.01)
                self.saving["naive_seconds_estimate"] += naive
        return entry

    def _named(self, path: Path) -> str:
        return "blocks by the paper's search" if path == self.plan.paper else f"{path[0]} blocks"

    def _notes(self) -> tuple[str, ...]:
        return (note,) if (note := self.plan.note()) else ()

    # ---- the choice ----
    def _combined(self, done: dict[Path, TuningResult]) -> TuningResult:
        """The path of the speed-driven choice, with the most precise choice of all paths."""
        results = list(done.values())
        fast = [result for result in results if result.speed_driven is not None]
        chosen = min(fast, key=_cost) if fast else min(results, key=lambda result: _loss(result.least_loss))
        least = min((result.least_loss for result in results), key=lambda point: (_loss(point), point.products))
        precise = max(
            [result.accuracy_driven for result in results] + self._most_precise(done),
            key=lambda point: (np.mean(point.precision), -point.products),
        )
        trials = tuple(trial for path in self.paths for trial in self.scouted.get(path, []))
        return replace(chosen, least_loss=least, accuracy_driven=precise, scouted=trials)

    def _most_precise(self, done: dict[Path, TuningResult]) -> list[Point]:
        """The most precise pair of the first fold in all folds, where its path was not completed.

        The fewest blocks at the smallest lambda are among the pairs that the first fold tries for this: they remove least.
        """
        if not any(self.scouted.values()):
            return []
        fewest = min(self.paths, key=lambda path: path[0])
        if all(trial.lam != self.plan.lams[0] for trial in self.scouted[fewest]):
            self.scouted[fewest].insert(0, self._trial(fewest, 0))
        trials = [(trial, path) for path in self.paths for trial in self.scouted[path]]
        best, path = max(trials, key=lambda pair: (pair[0].mean, -pair[0].products))
        return [] if path in done else [self._point(best.n_blocks, self._steps(self.plan.lams.index(best.lam)))]

    def _refined(self, result: TuningResult) -> TuningResult:
        """Larger lambdas between the speed-driven one and the next of the grid, as far as they are feasible."""
        point, tried = result.speed_driven, []
        assert point is not None
        step = self.plan.lams.index(point.lam)
        if step + 1 == len(self.plan.lams):
            return result
        kept, low, high = self._steps(step), point.lam, self.plan.lams[step + 1]
        for _ in range(_HALVINGS):
            middle = float(f"{np.sqrt(low * high):.4g}")
            if not low < middle < high:
                break
            better = self._point(point.n_blocks, (*kept, middle))
            if _loss(better) > self.tolerance + SLACK or better.products > point.products:
                high = middle
            else:
                kept, low, point = (*kept, middle), middle, better
                tried.append(better)
        return replace(result, speed_driven=point, refined=tuple(tried))

    def _point(self, q: int, steps: tuple[float, ...]) -> Point:
        """What all folds say of a pair."""
        numbers = range(len(self.folds))
        self._side_by_side(f"folds, {q} blocks", lambda number: self._found(number, q, steps), numbers)
        losses = [fold.loss(q, steps) for fold in self.folds]
        entries = [fold.found(q, steps) for fold in self.folds]
        tried = Tried(steps, (q,) * len(steps), self.problem.task.ks, self.problem.options.reassign, **self._shape)
        folds = [{name: [entry[name]] for name in _MEASURED} for entry in entries]
        return tried.point(len(steps) - 1, folds, self.setting, max(losses), place=0)


def _loss(point: Point) -> float:
    return np.inf if point.loss is None else point.loss


def _cost(result: TuningResult) -> tuple[float, float]:
    point = result.speed_driven
    assert point is not None
    return point.products, -float(np.mean(point.precision))
