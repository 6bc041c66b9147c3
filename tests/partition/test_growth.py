"""Label clusters of a partition that goes on: an open lambda keeps what blocks capture, a given one keeps its price."""

import numpy as np
import pytest
from scipy import sparse

from blockxmc import BlockwiseClassifier
from blockxmc.data import make_synthetic
from blockxmc.partition.growth import CAPTURED_SLACK, repartitioned


@pytest.fixture(scope="module")
def rows():
    train, _ = make_synthetic(scale=0.1, seed=0)
    return train.X, sparse.csr_array(train.Y)


@pytest.mark.parametrize("lam", ["auto", 0.02])
def test_what_blocks_capture_after_an_update(rows, lam):
    X, Y = rows
    clf = BlockwiseClassifier(n_blocks=16, lam=lam, keep_rows=True, n_jobs=1).fit(X[:-300], Y[:-300])
    fit, before = clf.history_[0], clf.partition_
    for first in (-300, -290):
        clf.update(X[first : first + 10], Y[first : first + 10])
        if lam == "auto":
            assert clf.history_[-1]["captured"] >= fit["captured"] - CAPTURED_SLACK
            assert clf.partition_.lam_ <= before.lam_ * clf.n_train_rows_ / (X.shape[0] - 300) * (1 + 1e-9)
        else:
            assert clf.partition_.lam_ == pytest.approx(before.lam_ * clf.n_train_rows_ / (X.shape[0] - 300))
    assert clf.history_[-1]["listed"] == pytest.approx(
        np.mean([len(clf.partition_.label_clusters_[block]) for block in clf.partition_.assignment_])
    )


def test_an_open_lambda_falls_only_as_far_as_it_must(rows):
    X, Y = rows
    p = BlockwiseClassifier(n_blocks=16, effort="low", keep_rows=True, n_jobs=1).fit(X, Y).partition_
    same = repartitioned(p, Y, p.assignment_, p.n_blocks_, 1, p.captured_)
    less = repartitioned(p, Y, p.assignment_, p.n_blocks_, 1, 0.95)
    assert same.lam_ == p.lam_
    assert p.captured_ <= same.captured_ < 0.95 - CAPTURED_SLACK <= less.captured_
    assert less.lam_ < p.lam_
