"""Trainings that are killed again and again: do they end in the same bits, and what does keeping stages cost?

    python bench/resume.py [DIR] [--only kills|files|cost] [--kills 200] [--rounds 7] [--seconds 1800] [--threads 2]

DIR is a data folder; without one, the bundled demo set is trained. Kills come at random moments of a training; a training
that gets to its end is compared with one that nobody killed, and the next one begins. Labels are trained in small batches
there, so that kills fall into all stages; the cost is measured with the usual ones. Every bar is printed with what was
found; the exit code is 1 where one does not hold.
"""

import argparse
import collections
import errno
import json
import os
import random
import re
import shutil
import signal
import statistics
import sys
import tempfile
import time
import traceback
from pathlib import Path

from blockxmc import BlockwiseClassifier
from blockxmc.data import load_demo, read_data_dir
from blockxmc.errors import BlockXMCError
from blockxmc.storage import save_model
from blockxmc.training import settings
from blockxmc.training.job import code_digest

# Labels in up to 32 batches, each a stage of its own, however few there are: else one batch would be longer than the time
# between two kills, and no training would get beyond it.
SMALL_BATCHES = settings.Settings(least_pairs=2**14, least_pairs_per_row=1)
MOST_OVERHEAD = 3.0  # per cent of CPU time
# Where a training is, by the last stage that it has kept.
STAGES = (
    "job",
    "number",
    "start",
    "partition",
    "router",
    "routes",
    "labels",
    "score",
    "top_p",
    "calibration",
    "held",
    "again",
)


class Subject:
    """One training: of these data, into this folder."""

    def __init__(self, folder, place, threads, rows=None):
        self.folder, self.threads, self.rows = folder, threads, rows
        self.work, self.model = place / "work", place / "model"

    def data(self):
        train = load_demo()[0] if self.folder is None else read_data_dir(self.folder)[0]
        return train.X[: self.rows], train.Y[: self.rows]

    def start(self, work=True):
        """Train and save in a new process; returns its id when the training begins."""
        begun, tell = os.pipe()
        pid = os.fork()  # this process has run no kernel yet
        if pid == 0:
            os.close(begun)
            code = 1
            try:
                X, Y = self.data()
                settings.SETTINGS = SMALL_BATCHES
                os.close(tell)
                clf = BlockwiseClassifier(n_jobs=self.threads)
                save_model(clf.fit(X, Y, work=self.work if work else None), self.model)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(tell)
        os.read(begun, 1)
        os.close(begun)
        return pid

    def outcome(self):
        """The saved model: manifest with all checksums, but when it was saved, and the random part of file names."""
        text = re.sub(r"\.[0-9a-f]{12}\.(npy|txt)", r".\1", (self.model / "manifest.json").read_text())
        manifest = json.loads(text)
        del manifest["manifest_sha256"], manifest["provenance"]["created"]
        return manifest

    def stage(self):
        """The last stage that was kept."""
        names = {file.stem for file in self.work.glob("*.json")} if self.work.exists() else set()
        kept = {"again" if name.startswith("labels-again") else re.split("[-.]", name)[0] for name in names}
        return max((STAGES.index(name) for name in kept), default=-1)


def ended(pid):
    """Wait for a process; returns its exit code, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed(subject, kills, seconds):
    """Kill at random moments; returns kills by stage, finished trainings, and how many of them differ."""
    rng, end = random.Random(0), time.monotonic() + seconds
    begin = time.perf_counter()
    assert ended(subject.start(work=False)) == 0
    usual = time.perf_counter() - begin
    expected = subject.outcome()
    by_stage, finished, different = collections.Counter(), 0, 0
    while by_stage.total() < kills and time.monotonic() < end:
        pid = subject.start()
        time.sleep(rng.random() * usual / 3)
        os.kill(pid, signal.SIGKILL)  # nothing happens to a process that has ended and was not waited for
        code = ended(pid)
        if code == -signal.SIGKILL:
            by_stage[subject.stage()] += 1
            continue
        assert code == 0
        finished, different = finished + 1, different + (subject.outcome() != expected)
        shutil.rmtree(subject.work)
        shutil.rmtree(subject.model)
    if subject.work.exists():  # the last one must end, too
        assert ended(subject.start()) == 0
        finished, different = finished + 1, different + (subject.outcome() != expected)
    return by_stage, finished, different


def damaged(subject):
    """Flip a byte in each kept file, one after the other; returns how many there are, and how many changed the model."""
    assert ended(subject.start()) == 0
    expected, rng, wrong = subject.outcome(), random.Random(0), 0
    files = sorted(file for file in subject.work.iterdir() if file.suffix in (".json", ".npy"))
    for file in files:
        content = bytearray(file.read_bytes())
        content[rng.randrange(len(content))] ^= 1 + rng.randrange(255)
        file.write_bytes(content)
        wrong += ended(subject.start()) != 0 or subject.outcome() != expected
    return len(files), wrong


def full_disk(X, Y, place, threads):
    """Let the disk be full at one stage after the other; returns at how many, and how often it ended as it should not."""
    from blockxmc._core import files

    flush, written = files.flush_to_disk, []
    at = unclear = 0

    def full_at_next(file):
        if len(written) == 2:  # the arrays of a stage and its record
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        flush(file)
        written.append(1)

    files.flush_to_disk = full_at_next
    try:
        while True:
            written.clear()
            try:
                BlockwiseClassifier(n_jobs=threads).fit(X, Y, work=place)
                return at, unclear
            except BlockXMCError as error:
                at, unclear = at + 1, unclear + ("No space left on device" not in str(error))
    finally:
        files.flush_to_disk = flush


def cpu_times(X, Y, rounds, place, threads):
    """CPU seconds of trainings with labels all at once, in batches, and kept: interleaved, a list for each way."""
    usual = settings.SETTINGS
    at_once = settings.Settings(least_pairs=usual.pairs_at_a_time)
    times = {"at once": [], "in batches": [], "kept": []}
    for _ in range(rounds):
        for way, spent in times.items():
            settings.SETTINGS = at_once if way == "at once" else usual
            clf, work = BlockwiseClassifier(n_jobs=threads), place if way == "kept" else None
            start = time.process_time()
            clf.fit(X, Y, work=work)
            spent.append(time.process_time() - start)
            shutil.rmtree(place, ignore_errors=True)
    return times


def more_than(some, others):
    """By how many per cent some times exceed others of the same rounds: the median."""
    return 100 * (statistics.median(a / b for a, b in zip(some, others, strict=True)) - 1)


def bar(holds, what, found):
    print(f"{'holds' if holds else 'FAILS'}  {what}: {found}", flush=True)
    return holds


def bars_of_kills(subject, args):
    by_stage, finished, different = killed(subject, args.kills, args.seconds)
    told = ", ".join(f"{n} after {STAGES[at] if at >= 0 else 'nothing'}" for at, n in sorted(by_stage.items()))
    yield bar(by_stage.total() >= args.kills, f"{args.kills} kills in {args.seconds:.0f} s", told)
    yield bar(finished and not different, "bits as without a kill", f"{different} of {finished} trainings differ")


def bars_of_files(subject, args):
    n_files, wrong = damaged(subject)
    yield bar(not wrong, "a damaged file is made again", f"{wrong} of {n_files} files changed the model")
    at, unclear = full_disk(*subject.data(), subject.work.with_name("full"), args.threads)
    yield bar(at and not unclear, "a full disk is one clear line", f"{unclear} of {at} were not")


def bars_of_cost(subject, args):
    cpu = cpu_times(*subject.data(), args.rounds, subject.work.with_name("timed"), args.threads)
    more, batches = (more_than(cpu[way], cpu["at once"]) for way in ("kept", "in batches"))
    text = f"{more:+.1f} % of {statistics.median(cpu['at once']):.2f} s, of which {batches:+.1f} % for batches"
    yield bar(more < MOST_OVERHEAD, f"CPU time of kept stages below {MOST_OVERHEAD:g} %", text)


# Kernels of this process run last: the others fork.
PARTS = {"kills": bars_of_kills, "files": bars_of_files, "cost": bars_of_cost}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--only", choices=PARTS, help="One part of the bars.")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--rows", type=int, help="Train on so many rows only.")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    code_digest()  # once: of the code that all trainings here run
    with tempfile.TemporaryDirectory() as place:
        subject = Subject(args.folder, Path(place), args.threads, args.rows)
        parts = PARTS if args.only is None else [args.only]
        good = [holds for part in parts for holds in PARTS[part](subject, args)]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
