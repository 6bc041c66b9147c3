"""Steps of the default training that run side by side where there are threads to share."""

import numpy as np
import pytest
from helpers import blocky, same_bits

from blockxmc import BlockwiseClassifier
from blockxmc._core.matrix import csr_args, without_rows
from blockxmc.partition import start
from blockxmc.training import blocks
from blockxmc.training.centroids import KnownSums
from blockxmc.training.fit import Training
from blockxmc.training.job import Job, opened

KNOWN_OF = KnownSums.of


def state_of(model):
    state = model._state()
    del state["partition"]["params"]["n_jobs"]
    return state


@pytest.fixture
def trees(monkeypatch):
    """The numbers of leaves from which trees went on; small ones have a top, too."""
    monkeypatch.setattr(start, "MAX_LLOYD", 1)
    monkeypatch.setattr(start, "TOP", 2)
    monkeypatch.setattr(start, "TOP_LABELS", 4)
    went_on, watched = [], start.watched
    monkeypatch.setattr(
        start,
        "watched",
        lambda *args, **options: went_on.append(options.get("n_grown", 1)) or watched(*args, **options),
    )
    return went_on


def test_the_model_is_the_same_with_steps_side_by_side(trees, monkeypatch):
    X, Y = blocky(n=2000, n_features=80, n_labels=162, n_blocks=16)
    alone = BlockwiseClassifier(n_jobs=1).fit(X, Y)
    assert set(trees) == {1}
    begun = []
    begin_again = Training.begin_again
    monkeypatch.setattr(
        Training, "begin_again", lambda self, beside: begun.append(beside.at_once) or begin_again(self, beside)
    )
    for n_jobs in (2, 5):
        assert same_bits(state_of(BlockwiseClassifier(n_jobs=n_jobs).fit(X, Y)), state_of(alone))
    assert 2 in trees  # the labels' tree went on from its top
    assert begun == [True, True]


def test_nothing_runs_beside_others_where_stages_are_kept(tmp_path):
    with Job().beside(4) as beside:
        assert beside.at_once
    with Job().beside(4, spare=False) as beside:
        assert not beside.at_once
    with opened(tmp_path / "work", {}) as job, job.beside(4) as beside:
        assert not beside.at_once


def test_label_clusters_go_on_from_what_was_begun():
    X, Y = blocky(n=500, n_features=300, n_labels=302, n_blocks=20)
    how = {"seed": 3, "threads": 2, "reporter": Job().reporter}
    for n_clusters in (64, 128, 100):
        begun = start.begin_labels(X, Y, **how, top=True)
        assert (begun.top is None) == (begun.labels.size < start.TOP_LABELS)
        begun = begun._replace(top=start.balanced_tree(begun.vectors, start.TOP, seed=3, threads=1, phase=_Silent()))
        found = start.label_first(X, Y, n_clusters, **how, begun=begun)
        np.testing.assert_array_equal(found, start.label_first(X, Y, n_clusters, **how))


def test_sums_of_labels_are_known_or_made():
    X, Y = blocky(n=300, n_features=60, n_labels=62, n_blocks=5)
    held_out = np.arange(300) % 7 == 0
    shown, how = without_rows(Y, held_out), {"threads": 2, "phase": _Silent()}
    begun = start.begin_labels(X, shown, seed=0, threads=2, reporter=Job().reporter, top=False)
    known = KnownSums.of(begun, Y.shape[1])
    now = known.without(Y[held_out].indices)
    assert 0 < np.count_nonzero(now.place < 0) < Y.shape[1]
    labels = np.random.default_rng(0).permutation(Y.shape[1])[:50]
    untouched = np.flatnonzero(now.place >= 0)
    for sums, of, wanted in (
        (known, shown, labels),
        (now, Y, labels),
        (now, Y, untouched),
        (now.without(labels), Y, labels),
        (KnownSums.of(None, Y.shape[1]), Y, labels),
    ):
        found = sums.of_labels(X, of, wanted, **how)
        made = start.label_vectors(X, of, wanted.astype(np.int32), **how)
        assert same_bits(csr_args(found), csr_args(made))


def test_the_model_is_the_same_where_vectors_of_labels_are_not_kept(monkeypatch):
    X, Y = blocky(n=1500, n_features=80, n_labels=82, n_blocks=8)
    taken = []
    monkeypatch.setattr(KnownSums, "of", lambda begun, n: taken.append(begun is None) or KNOWN_OF(begun, n))
    kept = BlockwiseClassifier(n_jobs=2).fit(X, Y)
    assert kept.partition_._begun is None
    monkeypatch.setattr(blocks, "MOST_KEPT", 0)
    assert same_bits(BlockwiseClassifier(n_jobs=2).fit(X, Y)._state(), kept._state())
    assert taken == [False, True]


class _Silent:
    def update(self, done): ...
