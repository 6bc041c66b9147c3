import threading
import time

import pytest

from blockxmc._core.progress import Reporter, RichReporter, reporter_for, thread_count, watched


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


def test_reporters():
    assert type(reporter_for(0)) is Reporter
    with RichReporter().phase("outer", 2) as outer:
        outer.update(1)


def test_nested_phases_share_one_display(capsys):
    reporter = RichReporter()
    with reporter.phase("outer"), reporter.phase("inner", 3) as inner:
        inner.update(2)
    reporter.say("found [brackets]")
    assert "found [brackets]" in capsys.readouterr().err


def test_thread_count():
    assert thread_count(1) == 1
    assert thread_count(-1) == thread_count(None)
    with pytest.raises(ValueError, match="n_jobs"):
        thread_count(0)
