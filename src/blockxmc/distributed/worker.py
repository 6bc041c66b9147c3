"""What a worker does: it opens the data and the finished stages of a job, and computes a range of a stage.

A training is not described to workers. A worker calls the same ``fit``, which finds every stage up to the wanted one in the
work folder; there it stops, with the function that computes ranges in its hands.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sklearn.base import clone

from blockxmc import _kernels
from blockxmc._core.progress import Reporter
from blockxmc._core.results import ResultFolder
from blockxmc.data import Dataset, read_dataset
from blockxmc.errors import BlockXMCError
from blockxmc.training.job import PLAIN, WHAT, Form, Identity, Job, Range, refuse_another, version

T = TypeVar("T")
Compute = Callable[[int, int], Any]


class ClusterTask(Protocol):
    """A job as workers are told of it: addresses and parameters."""

    def checked(self) -> Callable[[str], Compute]:
        """Raise where data or work folder are not those of the job; then, what computes a stage, by its name."""


class Reached(BaseException):
    """The wanted stage has been reached: nothing else of the job is done here."""

    def __init__(self, compute: Compute) -> None:
        super().__init__()
        self.compute = compute


class Replay(Job):
    """A job whose stages are all there, up to the one that is wanted."""

    elsewhere = True

    def __init__(self, kept: ResultFolder, identity: Identity, wanted: str) -> None:
        super().__init__(kept, identity)
        self._wanted = wanted

    def stage(self, name: str, compute: Callable[[], T], form: Form[T] = PLAIN) -> T:
        """The kept result; a worker computes nothing but ranges."""

        def missing() -> T:
            if self.seeks(name):
                return compute()
            assert self.kept is not None
            raise BlockXMCError(f"{self.place(name)} is not in {self.kept.folder}")

        return super().stage(name, missing, form)

    def ranges(self, name: str, ranges: Sequence[Range], compute: Callable[[int, int], T]) -> Iterator[T]:
        """Stop where the wanted ranges can be computed."""
        raise Reached(compute)

    def seeks(self, name: str) -> bool:
        """Whether this is the wanted stage."""
        return self.place(name) == self._wanted


@dataclass(frozen=True)
class FinishedStages:
    """The work folder of a job that another process holds."""

    folder: Path
    wanted: str

    @contextmanager
    def opened(self, identity: dict[str, str], reporter: Reporter | None) -> Iterator[Job]:
        """The job, if it is the same in the folder."""
        yield Replay(checked_folder(self.folder, identity), identity, self.wanted)


def checked_folder(folder: Path, identity: Identity) -> ResultFolder:
    """The kept stages of a folder, which must be those of this job."""
    kept = ResultFolder(folder)
    known = kept.get(WHAT)
    if known is None:
        raise BlockXMCError(f"{folder} is not the work folder of the job here: every worker must see the same one")
    refuse_another(folder, known, identity)
    return kept


@dataclass(frozen=True)
class FitTask:
    """``fit`` of an estimator on a data file, with stages in a folder."""

    estimator: Any
    data: Path
    folder: Path
    max_memory_gb: float | None = None  # of each process

    def checked(self) -> Callable[[str], Compute]:
        """Read the data; then, what computes a stage."""
        data = read_dataset(self.data, n_jobs=1)
        return lambda stage: self._reached(data, stage)

    def _reached(self, data: Dataset, stage: str) -> Compute:
        # As many tasks as the worker has threads run side by side: each takes one.
        estimator = clone(self.estimator).set_params(n_jobs=1, verbose=0)
        try:
            estimator.fit(data.X, data.Y, work=FinishedStages(self.folder, stage), max_memory_gb=self.max_memory_gb)
        except Reached as reached:
            return reached.compute
        raise BlockXMCError(f"this training has no stage {stage!r} with ranges")


@dataclass
class _Prepared:
    """A job that this process is ready to work on."""

    compute_of: Callable[[str], Compute]
    stages: dict[str, Compute] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def stage(self, name: str) -> Compute:
        with self.lock:
            if name not in self.stages:
                self.stages.clear()  # stages come one after the other: what the last one needed is not needed again
                self.stages[name] = self.compute_of(name)
            return self.stages[name]


_jobs: dict[bytes, _Prepared] = {}
_lock = threading.Lock()


def _prepared(task: bytes) -> _Prepared:
    """Open what a job needs, once in this process; raises where it is not the same as elsewhere."""
    with _lock:
        if task not in _jobs:
            # Dask tells its workers to give back all memory at once, and the solver asks for the same pages again and
            # again: 5 % of the CPU time of elife-keywords.
            _kernels.keep_freed_memory()
            described: ClusterTask = pickle.loads(task)[1]
            _jobs.clear()
            _jobs[task] = _Prepared(described.checked())
        return _jobs[task]


def forget(task: bytes) -> None:
    """Let go of what a job needed."""
    _jobs.pop(task, None)


def compute_range(task: bytes, wanted: str, stage: str, begin: int, end: int) -> Any:
    """A range of a stage; ``wanted`` is the version of the program that the job needs."""
    from distributed import get_worker

    try:
        if version() != wanted:
            raise BlockXMCError(f"it has {version()}, the job needs {wanted}")
        return _prepared(task).stage(stage)(begin, end)
    except Exception as error:
        said = str(error) or type(error).__name__
        raise BlockXMCError(f"worker {get_worker().name}: {said}") from None
