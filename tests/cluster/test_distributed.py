"""Training and scoring on a Dask cluster of real processes: the same bits as on one machine, whoever dies on the way."""

import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from threading import Thread

import numpy as np
import pytest
from helpers import blocky, same_bits

from blockxmc import LEML, BlockwiseClassifier, DiSMEC, TextClassifier, load, metrics
from blockxmc.data import Dataset, load_demo_texts, write_npz, write_shards, write_xc
from blockxmc.data.corpus import Corpus, write_jsonl
from blockxmc.errors import BlockXMCError
from blockxmc.training import settings

distributed = pytest.importorskip("distributed")
from distributed.comm import CommClosedError  # noqa: E402

from blockxmc.distributed import connected, evaluate, fit, predict_topk, scoring  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")]
WORKERS = 3


# Workers that die or lie: real processes and their clocks, which a busy machine may upset.
faults = pytest.mark.skipif("BLOCKXMC_CLUSTER" not in os.environ, reason="make test-cluster runs this")


@pytest.fixture(scope="module")
def cluster():
    quiet = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with distributed.LocalCluster(n_workers=WORKERS, threads_per_worker=1, processes=True, **quiet) as cluster:
        yield cluster


@pytest.fixture
def client(cluster, monkeypatch):
    # Ranges come from the driver: workers need not know that batches are small here.
    few = settings.Settings(least_pairs=1, least_pairs_per_row=0, most_batches=6)
    monkeypatch.setattr(settings, "SETTINGS", few)
    with distributed.Client(cluster) as client:
        client.wait_for_workers(WORKERS)
        yield client


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "train.npz"
    X, Y = blocky(n=600, n_labels=50, n_blocks=5)
    write_npz(path, Dataset(X, Y))
    return path, X, Y


WAYS = {
    "default": lambda: BlockwiseClassifier(n_blocks=8),
    "paper": lambda: BlockwiseClassifier.paper(DiSMEC(), n_blocks=4, lam=0.1),
    "low rank": lambda: BlockwiseClassifier.paper(LEML(rank=5), n_blocks=3, lam=0.1),
    "global": lambda: BlockwiseClassifier(DiSMEC(), n_blocks=4, lam=0.1, weights="global"),
}


@contextmanager
def changed(client, change, workers=None):
    """Workers in which something was changed; they get back what they had."""
    client.run(change, workers=workers)
    try:
        yield
    finally:
        client.run(undo)


def replace(module, name, new):
    """Replace a name in a worker."""
    import importlib

    import blockxmc

    owner = importlib.import_module(module)
    changes = blockxmc.__dict__.setdefault("_changes", [])
    changes.append((owner, name, getattr(owner, name)))
    setattr(owner, name, new)


def undo():
    import blockxmc

    while blockxmc.__dict__.get("_changes"):
        owner, name, old = blockxmc._changes.pop()
        setattr(owner, name, old)


def other_code():
    replace("blockxmc.training.job", "code_digest", lambda: "another")


def other_data():
    from blockxmc.data import read_dataset

    def read(*args, **options):
        data = read_dataset(*args, **options)
        data.X.data[0] += 1
        return data

    replace("blockxmc.distributed.worker", "read_dataset", read)


def addresses(client):
    return sorted(client.scheduler_info(n_workers=-1)["workers"])


@pytest.mark.parametrize("way", WAYS)
def test_the_same_bits(client, data, tmp_path, monkeypatch, way):
    path, X, Y = data
    whole = WAYS[way]().fit(X, Y)._state()
    if way != "global":
        monkeypatch.setattr(DiSMEC, "_train", None)  # workers do that
    clf = fit(WAYS[way](), path, client, work=tmp_path / "work")
    assert same_bits(clf._state(), whole)
    assert clf.went_on_from_ == ""
    again = fit(WAYS[way](), path, client, work=tmp_path / "work")
    assert again.went_on_from_
    assert same_bits(again._state(), whole)


@faults
def test_a_worker_of_other_data_or_code_is_named(client, data, tmp_path):
    for number, (change, words) in enumerate([(other_code, "code another, the job needs"), (other_data, "data was")]):
        with changed(client, change), pytest.raises(BlockXMCError, match=f"worker .*: .*{words}"):
            fit(WAYS["default"](), data[0], client, work=tmp_path / str(number))
        assert "partition" in fit(WAYS["default"](), data[0], client, work=tmp_path / str(number)).went_on_from_


def test_the_scheduler_is_gone_while_it_answers(client, data, tmp_path):
    def lost(self, timeout=None):
        raise CommClosedError("Stream is closed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distributed.Future, "result", lost)
        with pytest.raises(BlockXMCError, match="the Dask scheduler is gone"):
            fit(WAYS["default"](), data[0], client, work=tmp_path / "work")
    assert "partition, router, routes" in fit(WAYS["default"](), data[0], client, work=tmp_path / "work").went_on_from_


def test_what_cannot_be_trained(client, data, tmp_path):
    texts = tmp_path / "texts.jsonl"
    texts.write_text('{"text": "a", "labels": ["b"]}\n')
    with pytest.raises(BlockXMCError, match="holds features, not texts"):
        fit(TextClassifier(), data[0], client, work=tmp_path / "work")
    with pytest.raises(BlockXMCError, match="not a DiSMEC"):
        fit(TextClassifier(DiSMEC()), texts, client, work=tmp_path / "work")
    with pytest.raises(BlockXMCError, match="extra columns"):
        fit(TextClassifier(extra=len), texts, client, work=tmp_path / "work")
    with pytest.raises(BlockXMCError, match="holds text; give a TextClassifier"):
        fit(BlockwiseClassifier(), texts, client, work=tmp_path / "work")
    with pytest.raises(FileNotFoundError):
        fit(BlockwiseClassifier(), tmp_path / "none.npz", client, work=tmp_path / "work")
    with pytest.raises(BlockXMCError, match="no Dask scheduler answers"), connected("tcp://127.0.0.1:9"):
        pass
    assert not (tmp_path / "work").exists()


def test_answers(client, data, tmp_path, monkeypatch):
    _, X, Y = data
    monkeypatch.setattr(scoring, "ROWS_AT_A_TIME", 100)
    clf = BlockwiseClassifier(n_blocks=8).fit(X, Y)
    clf.save(tmp_path / "model")
    write_xc(tmp_path / "test.txt", X, Y)
    place = {"out": tmp_path / "out"}
    with monkeypatch.context() as patch:
        patch.setattr(BlockwiseClassifier, "predict_topk", None)  # workers do that
        answers = predict_topk(tmp_path / "model", tmp_path / "test.txt", client, k=5, **place)
    read = load(tmp_path / "model").predict_topk(X, 5)
    assert same_bits(answers.joined(), read)
    assert [labels.shape for labels, _ in answers] == 6 * [(100, 5)]
    assert len(answers) == 600
    times = {file: file.stat().st_mtime_ns for file in (tmp_path / "out").glob("rows-*")}
    lost = tmp_path / "out" / "rows-200-300.json"
    lost.unlink()
    assert same_bits(predict_topk(tmp_path / "model", tmp_path / "test.txt", client, k=5, **place).joined(), read)
    written = [file.name for file, then in times.items() if file.stat().st_mtime_ns != then]
    assert sorted(written) == ["rows-200-300.json", "rows-200-300.npy"]
    found = evaluate(tmp_path / "model", tmp_path / "test.txt", client, **place)
    weights = metrics.inverse_propensity(Y)
    constants = {"propensity_a": 0.55, "propensity_b": 1.5}
    assert found == metrics.evaluate(Y, read[0], inverse_propensity=weights) | constants
    with pytest.raises(BlockXMCError, match="k was 5, now 3"):
        predict_topk(tmp_path / "model", tmp_path / "test.txt", client, k=3, **place)
    write_npz(tmp_path / "other.npz", Dataset(X[:, :2], Y))
    with pytest.raises(BlockXMCError, match="has 2 features, but the model was trained on 60"):
        predict_topk(tmp_path / "model", tmp_path / "other.npz", client, out=tmp_path / "more")


def test_shards(client, data, tmp_path, monkeypatch):
    _, X, Y = data
    monkeypatch.setattr(scoring, "ROWS_AT_A_TIME", 150)
    write_shards(tmp_path / "rows", Dataset(X, Y), n_shards=4)
    clf = fit(WAYS["default"](), tmp_path / "rows", client, work=tmp_path / "work")
    assert same_bits(clf._state(), WAYS["default"]().fit(X, Y)._state())
    clf.save(tmp_path / "model")
    answers = predict_topk(tmp_path / "model", tmp_path / "rows", client, k=5, out=tmp_path / "out")
    assert same_bits(answers.joined(), clf.predict_topk(X, 5))


def test_texts(client, tmp_path):
    corpus = load_demo_texts()[0]
    some = Corpus(corpus.texts[:300], corpus.labels[:300])
    write_jsonl(tmp_path / "texts.jsonl", some)
    new = lambda: TextClassifier(BlockwiseClassifier(n_blocks=6), min_df=2)  # noqa: E731
    clf = fit(new(), tmp_path / "texts.jsonl", client, work=tmp_path / "work")
    alone = new().fit(some.texts, some.labels, label_texts=None)
    assert same_bits(clf.classifier_._state(), alone.classifier_._state())
    assert clf.suggest(some.texts[:9]) == alone.suggest(some.texts[:9])
    made = (tmp_path / "work.rows" / "X.data.npy").stat().st_mtime_ns
    again = fit(new(), tmp_path / "texts.jsonl", client, work=tmp_path / "work")
    assert "labels" in again.classifier_.went_on_from_
    assert (tmp_path / "work.rows" / "X.data.npy").stat().st_mtime_ns == made
    clf.save(tmp_path / "model")
    answers = predict_topk(tmp_path / "model", tmp_path / "texts.jsonl", client, k=4, out=tmp_path / "out")
    assert same_bits(answers.joined(), clf.predict_topk(some.texts, 4))
    found = evaluate(tmp_path / "model", tmp_path / "work.rows", client, out=tmp_path / "measured")
    assert 0 < found["P@1"] <= 1
    write_jsonl(tmp_path / "texts.jsonl", Corpus(some.texts[:200], some.labels[:200]))
    with pytest.raises(BlockXMCError, match="holds another job"):
        fit(new(), tmp_path / "texts.jsonl", client, work=tmp_path / "work")
    shutil.rmtree(tmp_path / "model")
    BlockwiseClassifier(n_blocks=2).fit(clf.vectorizer_.transform(some.texts), some.labels).save(tmp_path / "model")
    with pytest.raises(BlockXMCError, match="was trained on features"):
        predict_topk(tmp_path / "model", tmp_path / "texts.jsonl", client, out=tmp_path / "others")


DRIVER = """
import sys
from blockxmc import BlockwiseClassifier
from blockxmc.distributed import connected, fit
from blockxmc.training import settings
settings.SETTINGS = settings.Settings(least_pairs=1, least_pairs_per_row=0, most_batches=6)
with connected(sys.argv[1]) as client:
    fit(BlockwiseClassifier(n_blocks=8), sys.argv[2], client, work=sys.argv[3])
"""


def slow_labels():
    """A tenth of a second more for every batch of labels."""
    from blockxmc import DiSMEC

    def train(self, *args, train=DiSMEC._train, **options):
        time.sleep(0.1)
        return train(self, *args, **options)

    import blockxmc

    blockxmc.__dict__.setdefault("_changes", []).append((DiSMEC, "_train", DiSMEC._train))
    DiSMEC._train = train


@faults
def test_the_driver_is_killed(client, data, tmp_path, cluster):
    path, X, Y = data
    work = tmp_path / "work"
    with changed(client, slow_labels):
        driver = subprocess.Popen([sys.executable, "-c", DRIVER, cluster.scheduler_address, str(path), str(work)])
        while driver.poll() is None and not (work / "routes.json").exists():
            time.sleep(0.05)
        assert driver.poll() is None
        driver.kill()
        driver.wait()
    clf = fit(WAYS["default"](), path, client, work=work)
    assert clf.went_on_from_.startswith("partition, router, routes")
    assert same_bits(clf._state(), WAYS["default"]().fit(X, Y)._state())


@faults
def test_a_worker_is_killed(client, data, tmp_path):
    path, X, Y = data
    work = tmp_path / "work"
    pids = client.run(os.getpid)
    victim = pids[addresses(client)[0]]
    found = []
    with changed(client, slow_labels):
        thread = Thread(target=lambda: found.append(fit(WAYS["default"](), path, client, work=work)))
        thread.start()
        while thread.is_alive() and not (work / "routes.json").exists():
            time.sleep(0.05)
        os.kill(victim, signal.SIGKILL)
        thread.join()
    assert same_bits(found[0]._state(), WAYS["default"]().fit(X, Y)._state())
    assert np.count_nonzero([victim == pid for pid in client.run(os.getpid).values()]) == 0


@faults
def test_all_workers_are_gone_and_one_joins(client, data, tmp_path, cluster, caplog):
    path, X, Y = data
    cluster.scale(0)
    while client.scheduler_info(n_workers=-1)["workers"]:
        time.sleep(0.1)
    found = []
    thread = Thread(target=lambda: found.append(fit(WAYS["default"](), path, client, work=tmp_path / "work")))
    thread.start()
    while thread.is_alive() and "waiting for one" not in caplog.text:
        time.sleep(0.1)
    cluster.scale(1)
    thread.join()
    assert caplog.text.count("waiting for one") == 1
    assert same_bits(found[0]._state(), WAYS["default"]().fit(X, Y)._state())
