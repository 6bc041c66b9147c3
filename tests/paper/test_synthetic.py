"""Made-up data sets."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from blockxmc.data import Dataset, make_synthetic
from blockxmc.errors import BlockXMCError
from blockxmc.paper.synthetic import SHAPES


def precision_at_1(train: Dataset, test: Dataset) -> tuple[float, float]:
    """Of a linear model, and of always naming the commonest label."""
    model = Ridge(alpha=1.0, solver="lsqr").fit(train.X, train.Y.toarray())
    truth = test.Y.toarray()
    best = model.predict(test.X).argmax(axis=1)
    return truth[np.arange(best.size), best].mean(), truth[:, train.Y.sum(axis=0).argmax()].mean()


def test_a_linear_model_finds_signal() -> None:
    sizes = {"n_features": 1500, "n_labels": 60, "labels_per_row": 2.5, "nnz_per_row": 30}
    model, prior = precision_at_1(*make_synthetic(n_train=1500, n_test=500, **sizes))
    assert model > prior + 0.3
    model, prior = precision_at_1(*make_synthetic(like="mediamill", scale=0.05))
    assert model > prior + 0.1


def test_decoys_hide_the_labels_and_change_nothing_else() -> None:
    sizes = {"n_features": 1500, "n_labels": 60, "labels_per_row": 2.5, "nnz_per_row": 30}
    plain, hidden = (make_synthetic(n_train=1500, n_test=500, **sizes, decoys=decoys) for decoys in (0, 2.5))
    assert (plain[0].Y != hidden[0].Y).nnz == 0
    clear, blurred = precision_at_1(*plain)[0], precision_at_1(*hidden)[0]
    assert 0.3 < blurred < clear - 0.2


@pytest.mark.parametrize("like", SHAPES)
def test_sizes_and_skew_of_the_known_sets(like: str) -> None:
    scale = {"wiki10-31k": 0.04, "delicious-200k": 0.008, "mediamill": 0.1}.get(like, 0.003)
    shape = SHAPES[like].scaled(scale)
    train, test = make_synthetic(like=like, scale=scale)
    assert train.X.shape == (shape.n_train, shape.n_features)
    assert test.Y.shape == (shape.n_test, shape.n_labels)
    assert train.labels_per_row == pytest.approx(shape.labels_per_row, rel=0.05)
    assert train.features_per_row == pytest.approx(shape.nnz_per_row, rel=0.12)
    frequency = np.sort(np.bincount(train.Y.indices, minlength=shape.n_labels))[::-1]
    top_tenth = frequency[: max(1, frequency.size // 10)].sum() / frequency.sum()
    assert top_tenth > 0.2  # uniform labels would give 0.1
    assert (train.Y.data == 1).all()
    assert np.isfinite(train.X.data).all()
    assert train.X.has_canonical_format


def test_same_seed_same_data_and_blocks_are_planted() -> None:
    sizes = {"n_train": 2000, "n_test": 10, "n_features": 1000, "n_labels": 100, "labels_per_row": 4, "nnz_per_row": 20}
    one, two = make_synthetic(**sizes, n_blocks=5), make_synthetic(**sizes, n_blocks=5)
    assert one[0].digest == two[0].digest
    assert one[1].digest == two[1].digest
    assert make_synthetic(**sizes, n_blocks=5, seed=1)[0].digest != one[0].digest

    def lift(data: Dataset) -> float:
        """How much oftener labels share a row than independent ones would."""
        together = (data.Y.T @ data.Y).toarray()
        counts = together.diagonal()
        expected = np.outer(counts, counts) / data.n_rows
        off = ~np.eye(counts.size, dtype=bool)
        return float((together[off] ** 2).sum() / (expected[off] ** 2).sum())

    assert lift(one[0]) > 1.5 * lift(make_synthetic(**sizes, n_blocks=1)[0])


@pytest.mark.parametrize(
    "sizes",
    [
        {"n_train": 1, "n_test": 1, "n_features": 1, "n_labels": 1, "labels_per_row": 1, "nnz_per_row": 1},
        {"n_train": 30, "n_test": 1, "n_features": 9, "n_labels": 3, "labels_per_row": 3, "nnz_per_row": 2},
        {"n_train": 30, "n_test": 1, "n_features": 40, "n_labels": 9, "labels_per_row": 0.5, "nnz_per_row": 30},
    ],
)
def test_tiny_sizes(sizes: dict[str, float]) -> None:
    train, _ = make_synthetic(**sizes)  # type: ignore[arg-type]
    assert train.Y.shape == (sizes["n_train"], sizes["n_labels"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"like": "nope"}, "no data set is called"),
        ({"scale": 0}, "scale"),
        ({"n_train": 0}, "n_train"),
        ({"labels_per_row": 0}, "labels_per_row"),
        ({"nnz_per_row": 10**6}, "nnz_per_row"),
        ({"n_blocks": 10**6}, "n_blocks"),
        ({"decoys": -1}, "decoys"),
    ],
)
def test_refusals(options: dict[str, object], message: str) -> None:
    with pytest.raises(BlockXMCError, match=message):
        make_synthetic(**options)  # type: ignore[arg-type]
