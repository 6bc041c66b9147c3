"""Steps of the default training that run side by side where there are threads to share."""

import numpy as np
import pytest
from helpers import blocky, same_bits

from blockxmc import BlockwiseClassifier
from blockxmc._core import memory
from blockxmc.partition import start
from blockxmc.training.job import Job, opened
from blockxmc.training.shared.fit import Training


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


def test_nothing_runs_beside_others_where_stages_are_kept_or_memory_is_short(tmp_path):
    with Job().beside(4) as beside:
        assert beside.at_once
    with Job().beside(4, spare=False) as beside:
        assert not beside.at_once
    with opened(tmp_path / "work", {}) as job, job.beside(4) as beside:
        assert not beside.at_once
    X, Y = blocky()
    with memory.within_memory(X, Y, memory.used_memory() / 1e9 + 1e-6, None), Job().beside(4) as beside:
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


class _Silent:
    def update(self, done): ...
