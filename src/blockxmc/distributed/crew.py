"""The workers of a Dask cluster that compute the parts of a job, and the job that has them do it."""

from __future__ import annotations

import hashlib
import logging
import pickle
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import cloudpickle
from distributed import Client, Future, KilledWorker, wait

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

cloudpickle.register_pickle_by_value(admission)
log = logging.getLogger("blockxmc.distributed")


class Crew:
    """The workers of a client that are ready for one job; those that join later are asked, too."""

    def __init__(self, client: Client, task: Task) -> None:
        if client.asynchronous:
            raise BlockXMCError("the client is asynchronous: give one that was made with asynchronous=False")
        self._client, self._task = client, pickle.dumps(task)
        self._name = f"blockxmc-{uuid.uuid4().hex[:12]}"
        self._refused: dict[str, str] = {}  # address: name and reason
        self._waiting = False

    def __enter__(self) -> Self:
        """Ask all workers."""
        version = f"blockxmc {__version__}, code {code_digest()}"
        self._client.subscribe_topic(self._name, self._heard)
        self._client.register_plugin(admission.Admission(self._name, version, self._task), name=self._name)
        return self

    def __exit__(self, *_: object) -> None:
        """Let them go."""
        with suppress(Exception):  # the cluster may be gone: there is nothing to be tidied up then
            self._client.unregister_worker_plugin(self._name)
            self._client.unsubscribe_topic(self._name)

    def keep(self, stage: str, parts: Sequence[Range], finished: Callable[[Range, Done], None]) -> None:
        """Have parts of a stage computed; returns when all of them are kept."""
        token = uuid.uuid4().hex[:8]
        pending: dict[Future, Range] = {}
        try:
            for part in parts:
                key = f"{stage.replace('-', ' ')}-{token}-{part[0]}-{part[1]}"
                how: Any = {"key": key, "resources": {self._name: 1}, "pure": False}
                pending[self._client.submit(keep_part, self._task, stage, *part, **how)] = part
            while pending:
                for future in self._next(set(pending)):
                    finished(pending[future], self._result(future, pending[future], stage))
                    del pending[future]
        except BaseException:
            with suppress(Exception):
                self._client.cancel(list(pending))
            raise

    def _next(self, futures: set[Future]) -> set[Future]:
        """Those that are finished, of which there may be none yet."""
        self._look_for_workers()
        try:
            done: set[Future] = wait(futures, timeout=LOOK_EVERY, return_when="FIRST_COMPLETED").done
        except TimeoutError:
            return set()
        return done

    def _result(self, future: Future, part: Range, stage: str) -> Done:
        place = f"{stage} {part[0]}-{part[1]}"
        try:
            done: Done = future.result()
        except KilledWorker as error:
            deaths = f"it ended {error.allowed_failures + 1} workers that had begun it; are they short of memory?"
            raise BlockXMCError(f"{place}: {deaths} Finished parts are kept: the same call goes on from them") from None
        return done

    def _look_for_workers(self) -> None:
        """Say that nobody is there to work, once, and go on waiting; refuse to wait for those who cannot."""
        workers: dict[str, Any] = self._client.scheduler_info(n_workers=-1)["workers"]
        if any(worker["resources"].get(self._name) for worker in workers.values()):
            self._waiting = False
            return
        refused = [self._refused[address] for address in workers if address in self._refused]
        if workers and len(refused) == len(workers):
            raise BlockXMCError(f"no worker can do this: {'; '.join(sorted(refused))}")
        if not workers and not self._waiting:
            self._waiting = True
            log.warning("no worker at %s: waiting for one", self._client.scheduler.address)

    def _heard(self, event: tuple[float, dict[str, Any]]) -> None:
        """What a worker has answered."""
        answer = event[1]
        if answer["refused"] is not None:
            reason = f"worker {answer['worker']} ({answer['address']}) is refused: {answer['refused']}"
            self._refused[answer["address"]] = reason
            log.warning("%s", reason)


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
        with held(self.folder, identity) as kept, Crew(self.client, self.task) as crew:
            yield ClusterJob(kept, identity, reporter, crew)
