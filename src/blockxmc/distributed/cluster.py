"""A job on a Dask cluster: workers compute ranges of a stage, as futures that outlive a worker."""

from __future__ import annotations

import logging
import pickle
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from distributed import CancelledError, Client, Future, KilledWorker
from distributed.comm import CommClosedError

from blockxmc._core.progress import Reporter
from blockxmc._core.results import ResultFolder
from blockxmc.distributed.worker import ClusterTask, compute_range, forget
from blockxmc.errors import BlockXMCError
from blockxmc.training.job import Identity, Job, Range, held, version

T = TypeVar("T")
# Seconds between two looks at whether there are workers.
LOOK_EVERY = 1.0
# How often a range is computed again where a worker says that it cannot.
RETRIES = 2
# Threads for which labels are cut into ranges, at least: workers may come later.
LEAST_THREADS = 2
GONE = "the Dask scheduler is gone; finished stages are kept: the same call goes on when there is one again"

log = logging.getLogger("blockxmc.distributed")


class ClusterJob(Job):
    """A job whose ranges workers compute."""

    elsewhere = True

    def __init__(
        self, kept: ResultFolder, identity: Identity, reporter: Reporter | None, client: Client, task: bytes
    ) -> None:
        super().__init__(kept, identity, reporter)
        self._client, self._task = client, task

    @property
    def helpers(self) -> int:
        """Threads of all workers; more may come."""
        with _in_one_line():
            there: dict[str, int] = self._client.nthreads()
            return max(sum(there.values()), LEAST_THREADS)

    def ranges(self, name: str, ranges: Sequence[Range], compute: Callable[[int, int], T]) -> Iterator[T]:
        """What workers compute of a stage, in the order of the ranges."""
        futures: deque[Future] = deque()
        try:
            with _in_one_line():
                futures.extend(self._given(name, each) for each in ranges)
            while futures:
                found: T = self._result(futures[0])
                futures.popleft()
                yield found
        finally:
            with suppress(Exception):
                self._client.cancel(list(futures))

    def _given(self, name: str, part: Range) -> Future:
        # The dashboard groups tasks by what stands before the dash.
        key = f"{name.replace('-', ' ')}-{uuid.uuid4().hex}"
        options = {"key": key, "pure": False, "retries": RETRIES}
        return self._client.submit(compute_range, self._task, version(), self.place(name), *part, **options)

    def _result(self, future: Future) -> Any:
        """Wait for a result; say once that there is no worker."""
        waiting = False
        while True:
            with _in_one_line(), suppress(TimeoutError):
                return future.result(timeout=LOOK_EVERY)
            with _in_one_line():
                there = bool(self._client.scheduler_info(n_workers=-1)["workers"])
            if not there and not waiting:
                log.warning("no worker at %s: waiting for one", self._client.scheduler.address)
            waiting = not there


@contextmanager
def _in_one_line() -> Iterator[None]:
    """One clear line for what Dask says."""
    try:
        yield
    except (BlockXMCError, TimeoutError):
        raise
    except (CancelledError, CommClosedError, OSError, RuntimeError):
        raise BlockXMCError(GONE) from None
    except KilledWorker as error:
        raise BlockXMCError(
            f"{error.allowed_failures + 1} workers ended while they had one part of the job; are they short of memory? "
            "Finished stages are kept: the same call goes on from them"
        ) from None
    except Exception as error:  # a worker that has no such program cannot even read what it is asked for
        raise BlockXMCError(f"a worker cannot do this: {type(error).__name__}: {error}") from None


@dataclass(frozen=True)
class Cluster:
    """A work folder, and a Dask cluster whose workers see it under the same name."""

    client: Client
    folder: Path
    task: ClusterTask

    @contextmanager
    def opened(self, identity: dict[str, str], reporter: Reporter | None) -> Iterator[Job]:
        """The job of the folder; this process leads it."""
        if self.client.asynchronous:
            raise BlockXMCError("the client is asynchronous: give one that was made with asynchronous=False")
        task = pickle.dumps((uuid.uuid4().hex, self.task))  # what workers know of another run is not for this one
        with held(self.folder, identity) as kept:
            try:
                yield ClusterJob(kept, identity, reporter, self.client, task)
            finally:
                with suppress(Exception):  # the cluster may be gone
                    self.client.run(forget, task, wait=False)
