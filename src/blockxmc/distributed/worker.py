"""What a worker does: it opens the data and the finished stages of a job, computes a part, and keeps it in the work folder.

A training is not described to workers. A worker calls the same ``fit``, which finds every stage up to the wanted one in the
work folder; there it stops, with the function that computes parts in its hands.
"""

from __future__ import annotations

import hashlib
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from sklearn.base import clone

from blockxmc import _kernels
from blockxmc._core.kept import Kept
from blockxmc._core.progress import Phase, Reporter
from blockxmc.data import Dataset, read_dataset
from blockxmc.errors import BlockXMCError
from blockxmc.training.job import PLAIN, WHAT, Form, Identity, Job, Range, refuse_another

T = TypeVar("T")


class Task(Protocol):
    """A job as workers are told of it: addresses and parameters."""

    def checked(self) -> Callable[[str], Parts]:
        """Raise where data or work folder are not those of the job; then, the parts of a stage by its name."""


class Done(NamedTuple):
    """What a worker says of a part it has kept."""

    name: str
    digest: str
    size: int
    worker: str


class Parts(NamedTuple):
    """A stage whose parts can be computed here."""

    job: Job
    name: str
    compute: Callable[[int, int], Any]
    form: Form[Any]

    def keep(self, part: Range, worker: str) -> Done:
        """Compute a part and keep it; when this returns, it is on the disk."""
        Job.stage(self.job, self.name, partial(self.compute, *part), self.form, part)
        assert self.job.kept is not None
        place = self.job.place(self.name, part)
        path = self.job.kept.path(place)
        arrays = path.with_suffix(".npy")
        size = path.stat().st_size + (arrays.stat().st_size if arrays.exists() else 0)
        return Done(place, hashlib.sha256(path.read_bytes()).hexdigest(), size, worker)


class Reached(BaseException):
    """The wanted stage has been reached: nothing else of the job is done here."""

    def __init__(self, parts: Parts | None) -> None:
        super().__init__()
        self.parts = parts


class Replay(Job):
    """A job whose stages are all there, up to the one that is wanted."""

    def __init__(self, kept: Kept, identity: Identity, wanted: str) -> None:
        super().__init__(kept, identity)
        self._wanted = wanted

    def stage(self, name: str, compute: Callable[[], T], form: Form[T] = PLAIN, part: Range | None = None) -> T:
        """The kept result; a worker computes nothing but parts."""

        def missing() -> T:
            assert self.kept is not None
            raise BlockXMCError(f"{self.place(name, part)} is not in {self.kept.folder}")

        return super().stage(name, missing, form, part)

    def ahead(
        self,
        name: str,
        ranges: Sequence[Range],
        compute: Callable[[int, int], T],
        form: Form[T],
        phase: Phase | None = None,
    ) -> None:
        """Stop where the wanted parts can be computed."""
        if self.seeks(name):
            raise Reached(Parts(self, name, compute, form))

    def cut(self, name: str, ranges: Callable[[int], list[Range]]) -> list[Range]:
        """Workers are told which parts they compute."""
        return ranges(0)

    def seeks(self, name: str) -> bool:
        """Whether this is the wanted stage."""
        return self.place(name) == self._wanted


@dataclass(frozen=True)
class Reading:
    """The work folder of a job that another process holds."""

    folder: Path
    wanted: str | None = None  # None: only see whether the folder is that of the job

    @contextmanager
    def opened(self, identity: dict[str, str], reporter: Reporter | None) -> Iterator[Job]:
        """The job, if it is the same in the folder."""
        kept = checked_folder(self.folder, identity)
        if self.wanted is None:
            raise Reached(None)
        yield Replay(kept, identity, self.wanted)


def checked_folder(folder: Path, identity: Identity) -> Kept:
    """The kept stages of a folder, which must be those of this job."""
    kept = Kept(folder)
    known = kept.get(WHAT)
    if known is None:
        raise BlockXMCError(f"{folder} is not the work folder of the job here: every worker must see the same one")
    refuse_another(folder, known, identity)
    return kept


@dataclass(frozen=True)
class Training:
    """``fit`` of an estimator on a data file, with stages in a folder."""

    estimator: Any
    data: Path
    folder: Path
    max_memory_gb: float | None = None  # of each process

    def checked(self) -> Callable[[str], Parts]:
        """Read the data, and see that they are the job's."""
        data = read_dataset(self.data, n_jobs=1)
        self._replay(data, None)

        def parts(stage: str) -> Parts:
            found = self._replay(data, stage)
            if found is None:
                raise BlockXMCError(f"this training has no stage {stage!r} with parts")
            return found

        return parts

    def _replay(self, data: Dataset, stage: str | None) -> Parts | None:
        # As many tasks as the worker has threads run side by side: each takes one.
        estimator = clone(self.estimator).set_params(n_jobs=1, verbose=0)
        try:
            estimator.fit(data.X, data.Y, work=Reading(self.folder, stage), max_memory_gb=self.max_memory_gb)
        except Reached as reached:
            return reached.parts
        return None


@dataclass
class _Prepared:
    """A job that this process is ready to work on."""

    parts: Callable[[str], Parts]
    stages: dict[str, Parts] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def stage(self, name: str) -> Parts:
        with self.lock:
            if name not in self.stages:
                self.stages.clear()  # stages come one after the other: what the last one needed is not needed again
                self.stages[name] = self.parts(name)
            return self.stages[name]


_jobs: dict[bytes, _Prepared] = {}
_lock = threading.Lock()


def prepare(task: bytes) -> _Prepared:
    """Open what a job needs, once in this process; raises where it is not the same as elsewhere."""
    with _lock:
        if task not in _jobs:
            if not _jobs:
                # Dask tells its workers to give back all memory at once, and the solver asks for the same pages again and
                # again: 5 % of the CPU time of elife-keywords.
                _kernels.keep_freed_memory()
            described: Task = pickle.loads(task)
            _jobs[task] = _Prepared(described.checked())
        return _jobs[task]


def forget(task: bytes) -> None:
    """Let go of what a job needed."""
    _jobs.pop(task, None)


def keep_part(task: bytes, stage: str, begin: int, end: int) -> Done:
    """Compute a part of a stage and keep it in the work folder."""
    from distributed import get_worker

    worker = str(get_worker().name)
    try:
        return prepare(task).stage(stage).keep((begin, end), worker)
    except BlockXMCError as error:
        raise BlockXMCError(f"worker {worker}: {error}") from None
