"""Progress of long work: phases with a bar and the remaining time on stderr; Ctrl-C inside kernels; thread counts.

Estimators take ``verbose``: 0 is silent, 1 shows a progress bar and logs what was chosen and why (``logging``, "blockxmc").
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from blockxmc._core.log import LOG, console_for_progress, show_log
from blockxmc.errors import BlockXMCError

T = TypeVar("T")
J = TypeVar("J")


class Phase(Protocol):
    """One named stretch of work with a known or unknown number of steps."""

    def update(self, done: int) -> None:
        """Set the number of finished steps."""


class Shifted:
    """A phase that goes on where earlier pieces of the same work ended."""

    def __init__(self, phase: Phase, done: int) -> None:
        self._phase, self._done = phase, done

    def update(self, done: int) -> None:
        """Set the number of steps finished in this piece."""
        self._phase.update(self._done + done)


class Scaled:
    """A phase of which one step here is several."""

    def __init__(self, phase: Phase, steps: int) -> None:
        self._phase, self._steps = phase, steps

    def update(self, done: int) -> None:
        """Set the number of steps finished, in steps of this size."""
        self._phase.update(self._steps * done)


class Reporter:
    """A silent reporter, and the base of the one that shows something."""

    @contextmanager
    def phase(self, title: str, total: int | None = None) -> Iterator[Phase]:
        """Show ``title`` with a bar up to ``total`` while the block runs."""
        yield _SilentPhase()

    def say(self, text: str, level: int = logging.INFO) -> None:
        """Tell the user one finding; what is wrong with the data is a warning."""


class _SilentPhase:
    def update(self, done: int) -> None: ...


class RichReporter(Reporter):
    """One bar on stderr that shows the present stage (drawn only on a terminal); findings go to the log."""

    def __init__(self) -> None:
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        console = console_for_progress()
        text = TextColumn("{task.description:<28}", markup=False)
        bar = BarColumn(bar_width=28), TaskProgressColumn()
        times = TimeElapsedColumn(), TimeRemainingColumn()
        live = console.is_terminal
        self._display = Progress(text, *bar, *times, console=console, disable=not live, transient=True)
        self._task = self._display.add_task("")
        self._lock = threading.Lock()
        self._open: list[_Stage] = []

    @contextmanager
    def phase(self, title: str, total: int | None = None) -> Iterator[Phase]:
        """Show ``title`` with a bar up to ``total`` while the block runs, unless a stage that began later is shown."""
        stage = _Stage(self, title, total)
        with self._lock:
            self._open.append(stage)
            self.show()
            self._display.start()  # nothing where it is live already
        try:
            yield stage
        finally:
            with self._lock:
                self._open = [other for other in self._open if other is not stage]
                self.show()
                if not self._open:
                    self._display.stop()

    def show(self) -> None:
        """Draw the stage that began last."""
        for stage in self._open[-1:]:
            self._display.tasks[0].total = stage.total  # update would take None for "as before"
            self._display.update(self._task, description=stage.title, completed=stage.done)

    def say(self, text: str, level: int = logging.INFO) -> None:
        """Tell the user one finding."""
        LOG.log(level, "%s", text)


class _Stage:
    """A phase that is open."""

    def __init__(self, reporter: RichReporter, title: str, total: int | None) -> None:
        self.title, self.total, self.done, self._reporter = title, total, 0, reporter

    def update(self, done: int) -> None:
        self.done = done
        self._reporter.show()


def reporter_for(verbose: int) -> Reporter:
    """The reporter an estimator with this ``verbose`` uses; without handlers of the program, the log goes to stderr."""
    if not isinstance(verbose, int | np.integer):  # a bool is one
        raise BlockXMCError(f"verbose must be 0 or 1, got {verbose!r:.60}")
    if verbose <= 0:
        return Reporter()
    show_log(unless_handled=True)
    return RichReporter()


class StopGroup:
    """Worker threads whose kernels stop together.

    A pool that is made with ``initializer=group.join`` runs its kernels in the group; ``stop`` sets the stop flag of
    all that are running, and lets no other begin.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: list[NDArray[np.int64]] = []
        self.stopped = False

    def join(self) -> None:
        """Make this thread a member."""
        _membership.group = self

    def stop(self) -> None:
        """End every running kernel of the group soon."""
        with self._lock:
            self.stopped = True
            for progress in self._running:
                progress[1] = 1

    def check(self) -> None:
        """Raise in a member whose group was stopped."""
        if self.stopped:
            raise StoppedError

    @contextmanager
    def running(self, progress: NDArray[np.int64]) -> Iterator[None]:
        """Stop what uses this array when the group stops; a result that is only half there is never returned."""
        with self._lock:
            self.check()
            self._running.append(progress)
        try:
            yield
        finally:
            with self._lock:
                self._running = [other for other in self._running if other is not progress]
        self.check()

    def update(self, done: int) -> None:
        """A phase for members: shows nothing, but ends learners that report their steps."""
        self.check()


class StoppedError(RuntimeError):
    """A worker ended early because its group was stopped; whoever stopped it knows why."""


_membership = threading.local()


def watched(kernel: Callable[..., T], *args: Any, phase: Phase, **kwargs: Any) -> T:
    """Run a kernel that takes ``progress`` (int64[2]: steps done, stop flag) while the main thread stays alive.

    The kernel releases the GIL and runs in its own thread, so bars move and Ctrl-C works: the stop flag is set, the
    kernel returns early, and KeyboardInterrupt goes on to the caller. In a worker thread, which no interrupt reaches,
    the kernel runs directly, and stops with the ``StopGroup`` of its pool.
    """
    progress = np.zeros(2, dtype=np.int64)
    if threading.current_thread() is not threading.main_thread():
        group: StopGroup | None = getattr(_membership, "group", None)
        with nullcontext() if group is None else group.running(progress):
            return kernel(*args, progress=progress, **kwargs)
    outcome: list[T] = []
    failure: list[BaseException] = []
    finished = threading.Event()  # not Thread.join: an interrupt inside join can make a live thread look dead

    def run() -> None:
        try:
            outcome.append(kernel(*args, progress=progress, **kwargs))
        except BaseException as error:
            failure.append(error)
        finally:
            finished.set()

    worker = threading.Thread(target=run, name="blockxmc-kernel")
    worker.start()
    try:
        wait = 0.002  # short jobs return at once; long ones are polled ten times a second
        while not finished.wait(wait):
            wait = min(2 * wait, 0.1)
            phase.update(int(progress[0]))
        phase.update(int(progress[0]))
    except BaseException:  # an interrupt, as a rule: the kernel must not run on behind the caller's back
        progress[1] = 1
        finished.wait()
        raise
    if failure:
        raise failure[0]
    return outcome[0]


def run_in_threads(work: Callable[[J, Phase], None], jobs: Sequence[J], threads: int, phase: Phase) -> None:
    """Do all jobs, so many at a time; ``phase`` counts those that are finished. Work gets a phase that says nothing.

    An interrupt, or a job that fails, stops the kernels of all others: they are of no use any more. Jobs that have jobs
    of their own stop these, too.
    """
    group, outer = StopGroup(), getattr(_membership, "group", None)
    with ThreadPoolExecutor(threads, initializer=group.join) as pool:
        pending = {pool.submit(work, job, group) for job in jobs}
        try:
            while pending:  # not one long wait: a signal that another thread received would not end it
                finished, pending = wait(pending, timeout=0.1, return_when=FIRST_COMPLETED)
                for future in finished:
                    future.result()
                phase.update(len(jobs) - len(pending))
                if outer is not None:
                    outer.check()
        except BaseException:
            group.stop()
            pool.shutdown(cancel_futures=True)
            raise


def useful_threads(threads: int, n_rows: int, rows_per_item: int) -> int:
    """No more threads than have rows to work on: each costs memory.

    >>> useful_threads(8, 100, 64)
    2
    """
    return max(1, min(threads, -(-n_rows // rows_per_item)))


def thread_count(n_jobs: object) -> int:
    """Number of threads for ``n_jobs``: None or -1 means every core this process may use; -2 all but one; and so on.

    >>> thread_count(3)
    3
    """
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else (os.cpu_count() or 1)
    if n_jobs is None:
        return cores
    if not isinstance(n_jobs, (int, np.integer)) or n_jobs == 0:
        raise BlockXMCError(f"n_jobs must be None for all cores or a whole number other than 0, got {n_jobs!r}")
    return int(n_jobs) if n_jobs > 0 else max(1, cores + 1 + int(n_jobs))
