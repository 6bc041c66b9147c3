"""The threads of the kernels: kept between calls, safe with fork and several callers, and done without where none start."""

import os
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
from scipy import sparse

from blockxmc.linear.scorers import pack_scorer
from blockxmc.linear.weights import LinearWeights

D, M, ROWS = 50, 400, 2000


@pytest.fixture(scope="module")
def scorer():
    rng = np.random.default_rng(0)
    weights = LinearWeights(sparse.csr_array(rng.random((D, M)), dtype=np.float32), np.zeros(M, np.float32))
    return pack_scorer([weights], [np.arange(M)], n_features=D, n_labels=M)


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(1)
    return sparse.csr_array(rng.random((ROWS, D)) * (rng.random((ROWS, D)) < 0.3), dtype=np.float32)


def same(found, expected):
    return all((a == b).all() for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("threads", [2, 3, 64, 1000, 2**31 - 1])
def test_more_threads_than_cores(scorer, X, threads):
    assert same(scorer.topk(X, None, 5, threads=threads), scorer.topk(X, None, 5))


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="needs /proc")
def test_threads_are_kept(scorer, X):
    scorer.topk(X, None, 5, threads=4)
    before = len(os.listdir("/proc/self/task"))
    for _ in range(20):
        scorer.topk(X, None, 5, threads=4)
    assert len(os.listdir("/proc/self/task")) == before


def test_several_python_threads_at_once(scorer, X):
    expected = scorer.topk(X, None, 5)
    right = []

    def work():
        right.extend(same(scorer.topk(X, None, 5, threads=3), expected) for _ in range(10))

    callers = [threading.Thread(target=work) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert right == [True] * 40


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_predicts(scorer, X):
    expected = scorer.topk(X, None, 5, threads=4)
    for _ in range(3):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                signal.alarm(30)  # a child that waits for threads it does not have ends here
                code = 0 if same(scorer.topk(X, None, 5, threads=4), expected) else 2
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
    assert same(scorer.topk(X, None, 5, threads=4), expected)


SETUP = """
import sys, threading, time
import numpy as np
from scipy import sparse
from blockxmc.linear.scorers import pack_scorer
from blockxmc.linear.weights import LinearWeights

rng = np.random.default_rng(0)
weights = LinearWeights(sparse.csr_array(rng.random((50, 400)), dtype=np.float32), np.zeros(400, np.float32))
scorer = pack_scorer([weights], [np.arange(400)], n_features=50, n_labels=400)
X = sparse.csr_array(rng.random((2000, 50)), dtype=np.float32)
"""


def run(code):
    whole = SETUP + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", whole],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's limits")
def test_a_thread_that_cannot_be_started_is_done_without():
    """The stacks of new threads find no room in the address space."""
    done = run("""
    import resource
    expected = scorer.topk(X, None, 5, threads=1)
    pages = int(open("/proc/self/statm").read().split()[0])
    used = pages * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (6 << 20), resource.RLIM_INFINITY))
    try:
        threading.Thread(target=print).start()
        print("started")
    except RuntimeError:
        pass
    found = scorer.topk(X, None, 5, threads=8)
    print(all((a == b).all() for a, b in zip(found, expected)))
    """)
    if "started" in done.stdout:
        pytest.skip("threads start all the same here")
    assert (done.returncode, done.stdout.strip()) == (0, "True"), done.stderr


def test_kernels_still_work_in_exit_handlers():
    done = run("""
    import atexit
    def last():
        print(scorer.topk(X, None, 5, threads=2)[0].shape)
    atexit.register(last)
    scorer.topk(X, None, 5, threads=2)
    """)
    assert (done.returncode, done.stdout.strip()) == (0, "(2000, 5)"), done.stderr
