import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from helpers import blocky
from tiny_learner import TinyRidge

from blockxmc._core import progress
from blockxmc._core.log import LOG
from blockxmc._core.progress import (
    Reporter,
    RichReporter,
    StopGroup,
    StoppedError,
    reporter_for,
    run_in_threads,
    thread_count,
    watched,
)
from blockxmc.errors import BlockXMCError
from blockxmc.training.job import Job
from blockxmc.training.per_block import train_blocks


class Recorder:
    def __init__(self):
        self.seen = []

    def update(self, done):
        self.seen.append(done)


def test_watched_returns_the_result_and_reports_steps():
    def kernel(a, *, progress):
        for _ in range(3):
            progress[0] += 1
            time.sleep(0.02)
        return a + 1

    phase = Recorder()
    assert watched(kernel, 1, phase=phase) == 2
    assert phase.seen[-1] == 3
    assert phase.seen == sorted(phase.seen)


def test_watched_passes_errors_on():
    def kernel(*, progress):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        watched(kernel, phase=Recorder())


def test_interrupt_stops_the_kernel_and_goes_on():
    stopped = threading.Event()

    def kernel(*, progress):
        while not progress[1]:
            time.sleep(0.005)
        stopped.set()

    class Interrupt:
        def update(self, done):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watched(kernel, phase=Interrupt())
    assert stopped.is_set()


@pytest.fixture
def interrupt_soon():
    """Ctrl-C half a second after it is asked for, even if tests run as a background job, which ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])
    yield timer.start
    timer.join()
    signal.signal(signal.SIGINT, before)


class SlowLearner(TinyRidge):
    """Every block takes ten seconds, in a kernel or in steps that it reports."""

    in_kernel = True

    def _train(self, X, Y, job):
        if self.in_kernel:
            watched(self._kernel, phase=job.phase)
        else:
            for step in range(500):
                time.sleep(0.02)
                job.phase.update(step)
        return super()._train(X, Y, job)

    @staticmethod
    def _kernel(*, progress):
        for _ in range(500):
            if progress[1]:
                return
            time.sleep(0.02)


@pytest.mark.parametrize("in_kernel", [True, False], ids=["kernel", "steps"])
def test_an_interrupt_stops_all_running_blocks(interrupt_soon, in_kernel):
    X, Y = blocky(n=120)
    learner = SlowLearner()
    learner.in_kernel = in_kernel
    clusters = [np.arange(10)] * 6
    began = time.monotonic()
    interrupt_soon()
    with pytest.raises(KeyboardInterrupt):
        train_blocks(learner, X, Y, np.arange(120) % 6, clusters, Job(), threads=2, seed=0)
    assert time.monotonic() - began < 5


def test_a_failed_block_stops_the_others():
    class Failing(SlowLearner):
        def _train(self, X, Y, job):
            if X.shape[0] == 20:
                return super()._train(X, Y, job)
            raise ValueError("this block fails")

    X, Y = blocky(n=121)
    began = time.monotonic()
    with pytest.raises(ValueError, match="this block fails"):
        train_blocks(Failing(), X, Y, np.arange(121) % 6, [np.arange(10)] * 6, Job(), threads=2, seed=0)
    assert time.monotonic() - began < 5


def test_a_stopped_group_starts_no_kernel_and_returns_no_half_result():
    group = StopGroup()
    with ThreadPoolExecutor(1, initializer=group.join) as pool:
        assert pool.submit(watched, lambda *, progress: 7, phase=group).result() == 7
        running = pool.submit(watched, SlowLearner._kernel, phase=group)
        time.sleep(0.1)
        group.stop()
        with pytest.raises(StoppedError):
            running.result(timeout=5)
        with pytest.raises(StoppedError):
            pool.submit(watched, lambda *, progress: 7, phase=group).result()
    group.join()
    try:
        assert watched(lambda *, progress: 7, phase=Recorder()) == 7  # the main thread is no worker
    finally:
        del progress._membership.group


def test_reporters():
    assert type(reporter_for(0)) is Reporter
    with RichReporter().phase("outer", 2) as outer:
        outer.update(1)


def test_one_bar_shows_the_stage_that_began_last(capsys):
    reporter = RichReporter()
    [task] = reporter._display.tasks
    with reporter.phase("outer", 5) as outer, reporter.phase("inner", 3) as inner:
        outer.update(4)
        inner.update(2)
        assert (task.description, task.total, task.completed) == ("inner", 3, 2)
    with reporter.phase("reading"):  # nobody knows how much: no "0/?"
        assert (task.description, task.total) == ("reading", None)
    assert reporter._display.tasks == [task]


def test_findings_go_to_the_log(caplog, monkeypatch, capsys):
    reporter_for(1).say("found [brackets]")
    assert [(r.name, r.levelname, r.getMessage()) for r in caplog.records] == [("blockxmc", "INFO", "found [brackets]")]
    monkeypatch.setattr(LOG, "propagate", False)  # a program without handlers of its own
    monkeypatch.setattr(LOG, "handlers", [])
    reporter_for(1).say("seen [too]")
    reporter_for(1).say("once")
    assert capsys.readouterr().err == "seen [too]\nonce\n"


def test_thread_count():
    assert thread_count(1) == 1
    assert thread_count(-1) == thread_count(None)
    with pytest.raises(ValueError, match="n_jobs"):
        thread_count(0)


def test_a_failure_ends_the_jobs_of_other_jobs():
    begun = []

    def inner(number, phase):
        begun.append(number)
        time.sleep(0.15)

    def outer(number, phase):
        if number == 0:
            time.sleep(0.05)
            raise BlockXMCError("the first job fails")
        run_in_threads(inner, range(40), 2, phase)

    with pytest.raises(BlockXMCError, match="first job"):
        run_in_threads(outer, range(2), 2, StopGroup())
    assert len(begun) < 10


def test_phases_of_several_threads_share_one_display():
    reporter, inside, done = RichReporter(), threading.Event(), threading.Event()

    def other():
        with reporter.phase("beside", 2), reporter.phase("inner"):
            inside.set()
            assert done.wait(10)

    worker = threading.Thread(target=other)
    with reporter.phase("first"):
        worker.start()
        assert inside.wait(10)
    with reporter.phase("second") as phase:  # the display of the first is still live
        phase.update(1)
    assert reporter._open
    done.set()
    worker.join()
    assert not reporter._open
