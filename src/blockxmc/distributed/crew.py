"""The workers of a Dask cluster that compute the parts of a job, and the job that has them do it."""

from __future__ import annotations

import hashlib
import logging
import pickle
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Self, TypeVar

import cloudpickle
from distributed import CancelledError, Client, Future, wait
from distributed.comm import CommClosedError

from blockxmc._core.kept import Kept
from blockxmc._core.progress import Phase, Reporter
from blockxmc._version import __version__
from blockxmc.distributed import admission
from blockxmc.distributed.worker import Done, Task, keep_part
from blockxmc.errors import BlockXMCError
from blockxmc.training.job import Form, Identity, Job, Range, code_digest, held

T = TypeVar("T")
# Seconds between two looks at whether there are workers.
LOOK_EVERY = 1.0
# Seconds in which a worker that has finished says so.
ANSWER_WITHIN = 10.0
# Threads for which labels are cut into parts, at least: workers may come later.
LEAST_THREADS = 2
# Workers that may end while they have a part, before it is held to be its fault.
MOST_DEATHS = 3

cloudpickle.register_pickle_by_value(admission)
log = logging.getLogger("blockxmc.distributed")


class Crew:
    """The workers of a client that are ready for one job; those that join later are asked, too.

    Each has as many parts as it has threads, and one more, so that it never waits: a fast worker is given more of them,
    and when one dies, these few are given to others. The last parts wait for whoever is free first.
    """

    def __init__(self, client: Client, task: Task, folder: Path) -> None:
        if client.asynchronous:
            raise BlockXMCError("the client is asynchronous: give one that was made with asynchronous=False")
        self._client, self._task = client, pickle.dumps(task)
        # A folder has one crew: that of a driver which was killed ends when the next one comes.
        self._name = f"blockxmc-{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"
        self._run = uuid.uuid4().hex
        self._ready: dict[str, int] = {}  # address: threads
        self._refused: dict[str, str] = {}  # address: name and reason
        self._present: frozenset[str] = frozenset()
        self._looked = -LOOK_EVERY
        self._waiting = False

    def __enter__(self) -> Self:
        """Ask all workers."""
        version = f"blockxmc {__version__}, code {code_digest()}"
        self._client.subscribe_topic(self._name, self._heard)
        admitting = admission.Admission(self._name, self._run, version, self._task)
        for attempt in count(1):
            try:
                self._client.register_plugin(admitting, name=self._name)
                break
            except OSError:  # a worker has died while it was asked, and nobody after it was
                if attempt == MOST_DEATHS:
                    raise
                time.sleep(LOOK_EVERY)
        return self

    def __exit__(self, *_: object) -> None:
        """Let them go."""
        with suppress(Exception):  # the cluster may be gone: there is nothing to be tidied up then
            self._client.unregister_worker_plugin(self._name)
            self._client.unsubscribe_topic(self._name)

    def keep(self, stage: str, parts: Sequence[Range], finished: Callable[[Range, Done], None]) -> None:
        """Have parts of a stage computed; returns when all of them are kept."""
        left, deaths = deque(parts), Counter[Range]()
        given: dict[Future, tuple[str, Range]] = {}  # to whom, and what
        try:
            while left or given:
                with _scheduler_there(OSError, RuntimeError):
                    self._look()
                    for part in self._taken_back(given):
                        deaths[part] += 1
                        _check_deaths(stage, part, deaths[part])
                        left.appendleft(part)
                    for address in self._free(Counter(address for address, _ in given.values()), len(left)):
                        part = left.popleft()
                        given[self._give(stage, part, address)] = address, part
                    ended = self._ended(list(given))
                for future in ended:
                    # Its worker may have ended, and the answer with it: then the part is given again.
                    with suppress(TimeoutError):
                        with _scheduler_there():  # other errors are those of the part
                            done = future.result(timeout=ANSWER_WITHIN)
                        finished(given.pop(future)[1], done)
        finally:
            with suppress(Exception):
                self._client.cancel(list(given))

    def threads(self) -> int:
        """How many parts the workers that are ready compute at a time; one more may come."""
        with _scheduler_there(OSError, RuntimeError):
            self._look()
        return max(sum(threads for address, threads in self._ready.items() if address in self._present), LEAST_THREADS)

    def _taken_back(self, given: dict[Future, tuple[str, Range]]) -> list[Range]:
        """The parts of workers that are gone, which have them no more."""
        lost = [future for future, (address, _) in given.items() if address not in self._present]
        self._client.cancel(lost)
        return [given.pop(future)[1] for future in lost]

    def _free(self, busy: Counter[str], most: int) -> list[str]:
        """Who takes the next parts, at most so many: those that have fewest come first."""
        there = {address: threads for address, threads in self._ready.items() if address in self._present}
        more = int(most > sum(there.values()))
        places = [
            (number - threads, address)
            for address, threads in there.items()
            for number in range(busy[address], threads + more)
        ]
        return [address for _, address in sorted(places)[:most]]

    def _give(self, stage: str, part: Range, address: str) -> Future:
        key = (
            f"{stage.replace('-', ' ')}-{uuid.uuid4().hex}"  # the dashboard groups tasks by what stands before the dash
        )
        return self._client.submit(keep_part, self._task, stage, *part, key=key, workers=[address], pure=False)

    def _ended(self, futures: list[Future]) -> set[Future]:
        """Those that are finished, as soon as there are any; none after a while."""
        if not futures:
            time.sleep(LOOK_EVERY / 10)
            return set()
        try:
            done: set[Future] = wait(futures, timeout=LOOK_EVERY, return_when="FIRST_COMPLETED").done
        except TimeoutError:
            return set()
        return done

    def _look(self) -> None:
        """See who is there, every now and then; say that nobody is, once; do not wait for those who cannot."""
        if time.monotonic() < self._looked + LOOK_EVERY:
            return
        self._present = frozenset(self._client.scheduler_info(n_workers=-1)["workers"])
        # A worker may have answered before the scheduler knew that somebody listens.
        for event in self._client.get_events(self._name):
            self._heard(event)
        self._looked = time.monotonic()
        if not self._present and not self._waiting:
            log.warning("no worker at %s: waiting for one", self._client.scheduler.address)
        self._waiting = not self._present
        if self._present and self._present <= self._refused.keys():
            reasons = sorted(self._refused[address] for address in self._present)
            raise BlockXMCError(f"no worker can do this: {'; '.join(reasons)}")

    def _heard(self, event: tuple[float, dict[str, Any]]) -> None:
        """What a worker has answered."""
        answer = event[1]
        if answer["run"] != self._run:
            return
        address: str = answer["address"]
        if address in self._ready or address in self._refused:  # heard already
            return
        if answer["refused"] is None:
            self._ready[address] = answer["threads"]
            return
        self._refused[address] = f"worker {answer['worker']} ({address}) is refused: {answer['refused']}"
        log.warning("%s", self._refused[address])


@contextmanager
def _scheduler_there(*more: type[Exception]) -> Iterator[None]:
    """One clear line where the client has lost its scheduler, or by ``more`` says so."""
    try:
        yield
    except (CancelledError, CommClosedError, *more):
        raise BlockXMCError(
            "the Dask scheduler is gone; finished parts are kept: the same call goes on when there is one again"
        ) from None


def _check_deaths(stage: str, part: Range, deaths: int) -> None:
    """Give up a part that ends one worker after the other."""
    if deaths > MOST_DEATHS:
        raise BlockXMCError(
            f"{stage} {part[0]}-{part[1]}: {deaths} workers ended while they had it; are they short of memory? "
            "Finished parts are kept: the same call goes on from them"
        )


class ClusterJob(Job):
    """A job whose parts a crew computes."""

    def __init__(self, kept: Kept, identity: Identity, reporter: Reporter | None, crew: Crew) -> None:
        super().__init__(kept, identity, reporter)
        self._crew = crew

    def ahead(
        self,
        name: str,
        ranges: Sequence[Range],
        compute: Callable[[int, int], T],
        form: Form[T],
        phase: Phase | None = None,
    ) -> None:
        """Have the parts that are not kept yet computed by the crew."""
        if phase is None:
            with self.reporter.phase(name, sum(end - begin for begin, end in ranges)) as own:
                self.ahead(name, ranges, compute, form, own)
            return
        assert self.kept is not None
        missing = [part for part in ranges if not self.kept.path(self.place(name, part)).exists()]
        steps = sum(end - begin for begin, end in ranges) - sum(end - begin for begin, end in missing)
        workers, size = set(), 0

        def finished(part: Range, done: Done) -> None:
            nonlocal steps, size
            self._see(done)
            steps, size = steps + part[1] - part[0], size + done.size
            workers.add(done.worker)
            phase.update(steps)

        if missing:
            self._crew.keep(self.place(name), missing, finished)
            found = f"{len(missing)} parts from {len(workers)} workers, {size / 1e6:,.1f} MB"
            self.reporter.say(f"{self.place(name)}: {found}")

    def _helpers(self) -> int:
        return self._crew.threads()

    def _see(self, done: Done) -> None:
        """What a worker has kept must be here, too."""
        assert self.kept is not None
        path = self.kept.path(done.name)
        if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != done.digest:
            raise BlockXMCError(
                f"worker {done.worker} has kept {done.name}, but {path} is not what it says: is this the same folder?"
            )
        self._made.add(done.name)


@dataclass(frozen=True)
class Cluster:
    """A work folder, and a Dask cluster whose workers see it under the same name."""

    client: Client
    folder: Path
    task: Task

    @contextmanager
    def opened(self, identity: dict[str, str], reporter: Reporter | None) -> Iterator[Job]:
        """The job of the folder; this process leads it."""
        with held(self.folder, identity) as kept, Crew(self.client, self.task, self.folder) as crew:
            yield ClusterJob(kept, identity, reporter, crew)
