"""Training on a Dask cluster of real processes: the same bits as on one machine, whoever dies on the way."""

import logging

import pytest
from helpers import blocky, same_bits

from blockxmc import BlockwiseClassifier, DiSMEC
from blockxmc.data import Dataset, write_npz
from blockxmc.training.shared import settings

distributed = pytest.importorskip("distributed")
from blockxmc.distributed import fit  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
FEW = settings.Settings(least_pairs=1, least_pairs_per_row=0, most_batches=6)


def set_few():
    """Several batches of labels on data that is small, in this process."""
    settings.SETTINGS = FEW


@pytest.fixture(scope="module")
def cluster():
    with distributed.LocalCluster(
        n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=logging.CRITICAL
    ) as cluster:
        yield cluster


@pytest.fixture
def client(cluster, monkeypatch):
    cluster.scale(3)
    monkeypatch.setattr(settings, "SETTINGS", FEW)
    with distributed.Client(cluster) as client:
        client.wait_for_workers(3)
        client.run(set_few)
        yield client


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "train.npz"
    X, Y = blocky(n=600, n_labels=50, n_blocks=5)
    write_npz(path, Dataset(X, Y))
    return path, X, Y


WAYS = {
    "default": lambda: BlockwiseClassifier(n_blocks=8),
    "two": lambda: BlockwiseClassifier(n_blocks=8, n_partitions=2),
    "paper": lambda: BlockwiseClassifier.paper(DiSMEC(), n_blocks=4, lam=0.1),
    "global": lambda: BlockwiseClassifier(DiSMEC(), n_blocks=4, lam=0.1, weights="global"),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_same_bits(client, data, tmp_path, way):
    path, X, Y = data
    clf = fit(WAYS[way](), path, client, work=tmp_path / "work")
    assert same_bits(clf._state(), WAYS[way]().fit(X, Y)._state())
    assert clf.went_on_from_ == ""
    again = fit(WAYS[way](), path, client, work=tmp_path / "work")
    assert "batches of" in again.went_on_from_ or way == "global"
    assert same_bits(clf._state(), again._state())
