"""Clusters of programs, as users start them; `make test-cluster` runs this."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from helpers import same_bits

from blockxmc import BlockwiseClassifier, load
from blockxmc.data import Dataset, load_demo, write_npz
from blockxmc.training import settings

pytest.importorskip("distributed")
pytestmark = pytest.mark.skipif("BLOCKXMC_CLUSTER" not in os.environ, reason="make test-cluster runs this")
BIN = Path(sys.executable).parent
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "cluster.md"
# Labels of so small a set are one batch, else; workers take ranges from the driver, and need not know.
SMALL_BATCHES = {"least_pairs": 1, "least_pairs_per_row": 0, "most_batches": 12}
COMMAND_LINE = f"""
from blockxmc.cli import main
from blockxmc.training import settings

settings.SETTINGS = settings.Settings(**{SMALL_BATCHES})
main()
"""


def start(*words, **options):
    """A program, in a process group of its own."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([str(word) for word in words], start_new_session=True, **(quiet | options))


def end(process):
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


class Programs:
    """A scheduler and its workers."""

    def __init__(self, folder):
        self.file, self.started = folder / "scheduler.json", []
        self.start_scheduler()

    def start_scheduler(self):
        self.file.unlink(missing_ok=True)
        options = "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", self.file
        self.scheduler = start(BIN / "dask", "scheduler", *options)
        self.started.append(self.scheduler)
        while not self.file.exists():
            time.sleep(0.1)
        time.sleep(0.2)
        self.address = json.loads(self.file.read_text())["address"]

    def add_worker(self):
        options = "--nthreads", "1", "--no-nanny", "--no-dashboard"
        self.started.append(start(BIN / "dask", "worker", self.address, *options))
        return self.started[-1]


@contextmanager
def programs(folder, workers):
    cluster = Programs(folder)
    try:
        cluster.workers = [cluster.add_worker() for _ in range(workers)]
        yield cluster
    finally:
        for process in cluster.started:
            end(process)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "train.npz"
    train, _ = load_demo()  # some seconds of work, most of it for labels
    write_npz(path, Dataset(train.X, train.Y))
    with pytest.MonkeyPatch.context() as patch:  # weights depend a little on who shares a batch
        patch.setattr(settings, "SETTINGS", settings.Settings(**SMALL_BATCHES))
        return path, BlockwiseClassifier().fit(train.X, train.Y)._state()


def train(cluster, path, folder):
    words = "--model", folder / "model", "--work", folder / "work", "--scheduler", cluster.address
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return start(sys.executable, "-c", COMMAND_LINE, "train", path, *words, "--json", **pipes)


def result(process, timeout=200):
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == 0, err.decode()[-2000:]
    return json.loads(out), err.decode()


def kept(work, stage=""):
    """Results of a stage, or of all, and when each was written."""
    return {path.name: path.stat().st_mtime_ns for path in work.glob(f"{stage}*.json")}


def wait_for(work, count, process, stage=""):
    """Wait until so many results are kept; False where the process ended before."""
    while len(kept(work, stage)) < count:
        if process.poll() is not None:
            return False
        time.sleep(0.01)
    return True


def test_a_worker_is_killed_in_every_stage(data, tmp_path):
    path, whole = data
    rng = random.Random(0)
    with programs(tmp_path, workers=2) as cluster:
        running, count = train(cluster, path, tmp_path), 1
        while wait_for(tmp_path / "work", count, running):
            victim = cluster.workers.pop(rng.randrange(len(cluster.workers)))
            end(victim)
            cluster.workers.append(cluster.add_worker())  # it joins late
            count = len(kept(tmp_path / "work")) + 2
        result(running)
    assert count > 6
    assert same_bits(load(tmp_path / "model")._state(), whole)


def until_it_waits(process):
    """Until a driver says that there is no worker."""
    os.set_blocking(process.stderr.fileno(), False)
    said = b""
    while b"waiting for one" not in said:
        assert process.poll() is None
        said += process.stderr.read() or b""
        time.sleep(0.1)


def test_all_workers_then_driver_then_scheduler(data, tmp_path):
    path, whole = data
    work = tmp_path / "work"
    with programs(tmp_path, workers=2) as cluster:
        running = train(cluster, path, tmp_path)
        assert wait_for(work, 1, running, "router")
        for worker in cluster.workers:
            end(worker)
        until_it_waits(running)
        end(running)
        finished = kept(work)
        running = train(cluster, path, tmp_path)
        until_it_waits(running)
        end(cluster.scheduler)
        _, said = running.communicate(timeout=120)
        assert running.returncode == 2
        assert said.splitlines()[-1].startswith(b"error: the Dask scheduler is gone")
        cluster.start_scheduler()
        cluster.add_worker()
        found, _ = result(train(cluster, path, tmp_path))
    assert found["went_on_from"].startswith("partition, router, routes")
    assert finished.items() <= kept(work).items()  # no stage that was finished was written again
    assert same_bits(load(tmp_path / "model")._state(), whole)


def test_a_slow_worker_gets_less(data, tmp_path):
    path, whole = data
    with programs(tmp_path, workers=2) as cluster:
        running = train(cluster, path, tmp_path)
        wait_for(tmp_path / "work", 5, running)
        for _ in range(40):  # half of the time, it stands still
            if running.poll() is not None:
                break
            os.killpg(cluster.workers[0].pid, signal.SIGSTOP)
            time.sleep(0.2)
            os.killpg(cluster.workers[0].pid, signal.SIGCONT)
            time.sleep(0.2)
        result(running)
    assert same_bits(load(tmp_path / "model")._state(), whole)


@pytest.mark.timeout(900)
def test_the_page(tmp_path):
    """What docs/howto/cluster.md says, word for word, but for the installation."""
    blocks = [
        text.split("```")[0] for text in PAGE.read_text().replace("```python\n", "```sh\nPYTHON\n").split("```sh\n")
    ]
    script = ["set -eo pipefail"]
    for block in blocks[1:]:
        if block.startswith("PYTHON"):
            script.append(f"python - <<'END'\n{block.removeprefix('PYTHON')}END")
        elif "pip install" not in block:
            script.append(block)
    path = {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    bash = start("bash", "-c", "\n".join(script), cwd=tmp_path, env=os.environ | path, **pipes)
    try:
        _, said = bash.communicate(timeout=850)
        assert bash.returncode == 0, said.decode()[-3000:]
    finally:
        with suppress(ProcessLookupError):  # what it has started goes on
            os.killpg(bash.pid, signal.SIGKILL)
        end(bash)
    assert (tmp_path / "answers.jsonl").read_text().count("\n") > 100
