"""Cells in their order, in this process or in several, with the time left as far as it can be told."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from blockxmc._core.progress import Phase, Reporter
from blockxmc.experiments.cells import LEFT_OUT, Bench, Cell
from blockxmc.experiments.settings import Settings
from blockxmc.experiments.store import Store

# What a cell of each kind costs beside one training of its base, roughly. Measured on bibtex and debian-small.
_TRAININGS = {
    "data": 0.1,
    "plan": 5.0,
    "tune": 20.0,
    "quick": 3.0,
    "blocks": 0.5,
    "q": 3.0,
    "lpsr": 0.5,
    "fastxml": 2.0,
}
# What a training of a base costs beside one of DiSMEC, roughly. Measured there, too.
_BASES = {"dismec": 1.0, "pd-sparse": 2.5, "ppd-sparse": 1.0, "leml": 0.8, "naive-bayes": 0.1}

Contents = dict[str, dict[str, Any]]


class TimeLeft:
    """An estimate from what is done: a cell counts by its kind, its base and the size of its data.

    >>> left = TimeLeft([Cell("a", "full", "dismec"), Cell("a", "full", "leml")], {"a": 1.0})
    >>> left.done(Cell("a", "full", "dismec"), seconds=10.0)
    >>> left.seconds()
    8.0
    """

    def __init__(self, cells: Sequence[Cell], sizes: dict[str, float]) -> None:
        self._weights = {cell: self._weight(cell, sizes.get(cell.data, 1.0)) for cell in cells}
        self._done = self._spent = 0.0

    @staticmethod
    def _weight(cell: Cell, size: float) -> float:
        return _TRAININGS.get(cell.system, 1.0) * _BASES.get(cell.base, 1.0) * size

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
    """The contents of all cells, by id."""
    sizes = {data: _size(bench.row(Cell(data, "data"))) for data in {cell.data for cell in cells}}
    left, contents = TimeLeft(cells, sizes), {}
    with reporter.phase("cells", len(cells)) as phase:
        for cell, content, seconds in _computed(bench, cells, jobs):
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
    reporter.say(f"{cell.id}: {content.get('error') or format(content['seconds'], '.1f') + ' s'}{rest}")
    phase.update(done)


def _computed(bench: Bench, cells: Sequence[Cell], jobs: int) -> Any:
    """Cells with their contents and the seconds they took now (None: they were there), as they are finished."""
    if jobs == 1:
        for cell in cells:
            yield cell, *_timed(bench, cell)
        return
    waiting, done = list(cells), set()
    # Fresh processes: a forked one would inherit threads of kernels in an unknown state.
    made_of = bench.folders, bench.settings, bench.store
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_start, initargs=made_of) as pool:
        running: dict[Future[Any], Cell] = {}
        while waiting or running:
            ready = [cell for cell in waiting if all(need in done or need not in cells for need in cell.needs)]
            for cell in ready:
                waiting.remove(cell)
                running[pool.submit(_in_worker, cell)] = cell
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                cell = running.pop(future)
                done.add(cell)
                yield cell, *future.result()


def _timed(bench: Bench, cell: Cell) -> tuple[dict[str, Any], float | None]:
    start, known = time.perf_counter(), bench.is_stored(cell)
    content = bench.content(cell)
    idle = known or content.get("error") == LEFT_OUT
    return content, None if idle else time.perf_counter() - start


_BENCH: list[Bench] = []  # of a worker process


def _start(folders: dict[str, Path], settings: Settings, store: Store) -> None:
    _BENCH[:] = [Bench(folders, settings, store)]


def _in_worker(cell: Cell) -> tuple[dict[str, Any], float | None]:
    return _timed(_BENCH[0], cell)
