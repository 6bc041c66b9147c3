"""Cells in their order, in this process or in several, with the time left as far as it can be told."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from blockxmc._core.progress import Phase, Reporter
from blockxmc.paper.experiments.cells import LEFT_OUT, NOT_COMPUTED, Bench, Cell
from blockxmc.paper.experiments.settings import Settings
from blockxmc.paper.experiments.store import Store

# What a cell of each kind costs beside one training of its base, roughly. Measured on bibtex and debian-small.
_TRAININGS = {
    "data": 0.1,
    "plan": 5.0,
    "tune": 20.0,
    "plan-letter": 20.0,
    "tune-letter": 40.0,
    "bp-quick": 4.0,
    "blocks": 0.5,
    "q": 3.0,
    "lpsr": 0.5,
    "fastxml": 2.0,
}
# What a training of a base costs beside one of DiSMEC, roughly. Measured there, too.
_BASES = {"dismec": 1.0, "pd-sparse": 2.5, "ppd-sparse": 1.0, "leml": 0.8, "naive-bayes": 0.1}

# Systems and bases of the pages about the library, which are not in the paper.
_LAST = ("bp-quick", "cbmlc-default", "lpsr-over", "published", "ppd-sparse", "naive-bayes")

Contents = dict[str, dict[str, Any]]


class Order:
    """Which cell comes next: what the paper's tables need before the rest, and the longest way to an end first.

    >>> cells = [Cell("a", kind, "leml") for kind in ("cbmlc-default", "full", "tune", "bp-accuracy")]
    >>> [cell.system for cell in sorted(cells, key=Order(cells, {}).of)]
    ['tune', 'full', 'bp-accuracy', 'cbmlc-default']
    """

    def __init__(self, cells: Sequence[Cell], sizes: dict[str, float]) -> None:
        self._longest: dict[Cell, float] = {}
        for cell in reversed(cells):  # a cell comes after the cells it needs
            own = self._longest.setdefault(cell, 0.0) + weight(cell, sizes.get(cell.data, 1.0))
            self._longest[cell] = own
            for need in cell.needs:
                self._longest[need] = max(self._longest.get(need, 0.0), own)

    def of(self, cell: Cell) -> tuple[bool, float]:
        """Smaller comes first."""
        return cell.system in _LAST or cell.base in _LAST, -self._longest[cell]


def weight(cell: Cell, size: float) -> float:
    """What a cell costs, up to a factor."""
    return _TRAININGS.get(cell.system, 1.0) * _BASES.get(cell.base, 1.0) * size


class TimeLeft:
    """An estimate from what is done: a cell counts by its kind, its base and the size of its data.

    >>> left = TimeLeft([Cell("a", "full", "dismec"), Cell("a", "full", "leml")], {"a": 1.0})
    >>> left.done(Cell("a", "full", "dismec"), seconds=10.0)
    >>> left.seconds()
    8.0
    """

    def __init__(self, cells: Sequence[Cell], sizes: dict[str, float]) -> None:
        self._weights = {cell: weight(cell, sizes.get(cell.data, 1.0)) for cell in cells}
        self._done = self._spent = 0.0

    def done(self, cell: Cell, seconds: float | None) -> None:
        """A cell is finished; None: it was there already and says nothing about speed."""
        weight = self._weights.pop(cell, 0.0)
        if seconds is not None:
            self._done += weight
            self._spent += seconds

    def seconds(self) -> float | None:
        """Seconds of work left, or None before anything was computed."""
        return None if not self._done else sum(self._weights.values()) * self._spent / self._done


def compute(bench: Bench, cells: Sequence[Cell], reporter: Reporter, jobs: int) -> Contents:
    """The contents of all cells, by id; after the time at which the bench stops, only of those that are finished."""
    sizes = {data: _size(bench.row(Cell(data, "data"))) for data in {cell.data for cell in cells}}
    left, contents = TimeLeft(cells, sizes), {}
    work = _one_by_one(bench, cells) if jobs == 1 else _side_by_side(bench, cells, jobs, Order(cells, sizes))
    with reporter.phase("cells", len(cells)) as phase:
        for cell, content, seconds in work:
            contents[cell.id] = content
            left.done(cell, seconds)
            _tell(reporter, phase, cell, content, left, jobs, len(contents))
    return {cell.id: contents[cell.id] for cell in cells}


def _size(row: dict[str, Any]) -> float:
    """What one training of a base costs on a data set, up to a factor: stored values times labels, less than in full."""
    return float((row["train_rows"] * row["nnz_per_row"]) * row["labels"] ** 0.5)


def _tell(
    reporter: Reporter, phase: Phase, cell: Cell, content: dict[str, Any], left: TimeLeft, jobs: int, done: int
) -> None:
    more = left.seconds()
    rest = "" if more is None else f"; about {max(more / jobs / 60, 0):.0f} minutes left"
    if content.get("error") != NOT_COMPUTED:
        reporter.say(f"{cell.id}: {content.get('error') or format(content['seconds'], '.1f') + ' s'}{rest}")
    phase.update(done)


def _in_time(bench: Bench) -> bool:
    return bench.stop_at is None or time.time() < bench.stop_at


Finished = tuple[Cell, dict[str, Any], float | None]


def _one_by_one(bench: Bench, cells: Sequence[Cell]) -> Iterator[Finished]:
    """Cells with their contents and the seconds they took now (None: they were there), as they are finished."""
    for cell in cells:
        yield cell, *(_timed(bench, cell) if _in_time(bench) else (bench.finished(cell), None))


def _side_by_side(bench: Bench, cells: Sequence[Cell], jobs: int, order: Order) -> Iterator[Finished]:
    """The same in several processes. What is stored comes first, and no more cells wait in the pool than it can take."""
    waiting, done = [], set()
    for cell in cells:
        if bench.is_stored(cell):
            done.add(cell)
            yield cell, bench.content(cell), None
        else:
            waiting.append(cell)
    waiting.sort(key=order.of)
    # Fresh processes: a forked one would inherit threads of kernels in an unknown state.
    made_of = bench.folders, bench.settings, bench.store, bench.stop_at
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_start, initargs=made_of) as pool:
        running: dict[Future[Any], Cell] = {}
        while running or (waiting and _in_time(bench)):
            ready = [cell for cell in waiting if all(need in done or need not in cells for need in cell.needs)]
            for cell in ready[: jobs - len(running)] if _in_time(bench) else []:
                waiting.remove(cell)
                running[pool.submit(_in_worker, cell)] = cell
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                cell = running.pop(future)
                done.add(cell)
                yield cell, *future.result()
    for cell in waiting:
        yield cell, bench.finished(cell), None


def _timed(bench: Bench, cell: Cell) -> tuple[dict[str, Any], float | None]:
    start, known = time.perf_counter(), bench.is_stored(cell)
    content = bench.content(cell)
    idle = known or content.get("error") in (LEFT_OUT, NOT_COMPUTED)
    return content, None if idle else time.perf_counter() - start


_BENCH: list[Bench] = []  # of a worker process


def _start(folders: dict[str, Path], settings: Settings, store: Store, stop_at: float | None) -> None:
    _BENCH[:] = [Bench(folders, settings, store, stop_at)]


def _in_worker(cell: Cell) -> tuple[dict[str, Any], float | None]:
    return _timed(_BENCH[0], cell)
