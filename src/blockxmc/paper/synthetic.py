"""Made-up data sets with the sizes and the skew of the real ones, and blocks planted in them.

Every row belongs to a block. Its labels come from the block's own (labels belong to one or two blocks, so that blocks
overlap) or, now and then, from anywhere; its words come from its labels, from its block and from a background. With
decoys, some words tell of labels that a row could have, but does not have. Labels and background words follow Zipf's
law. Rows are made in batches with a random stream each: the result depends on the seed and the sizes alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.preprocessing import normalize

from blockxmc._core.matrix import as_csr, as_indicator
from blockxmc.data.dataset import Dataset
from blockxmc.errors import BlockXMCError

Int = NDArray[np.int64]
Rng = np.random.Generator


@dataclass(frozen=True)
class Shape:
    """Sizes of a data set; ``label_skew`` is the exponent of Zipf's law for labels."""

    n_train: int
    n_test: int
    n_features: int
    n_labels: int
    labels_per_row: float
    nnz_per_row: float
    label_skew: float = 0.8
    n_blocks: int | None = None
    decoys: float = 0.0

    @property
    def dense(self) -> bool:
        """Whether rows hold most features: numbers measured rather than words counted."""
        return self.nnz_per_row > self.n_features / 2

    def scaled(self, scale: float) -> Shape:
        """Fewer (or more) rows, features and labels at the same rows per label.

        Dense features are kept, and so are enough features and labels to tell rows apart.
        """
        if not 0 < scale < float("inf"):
            raise BlockXMCError(f"scale must be a positive number, got {scale}")
        enough_features = min(self.n_features, round(4 * self.nnz_per_row))
        enough_labels = min(self.n_labels, round(20 * self.labels_per_row))
        return replace(
            self,
            n_train=max(20, round(self.n_train * scale)),
            n_test=max(10, round(self.n_test * scale)),
            n_features=self.n_features if self.dense else max(enough_features, round(self.n_features * scale)),
            n_labels=max(enough_labels, round(self.n_labels * scale)),
        )


class Sizes(TypedDict, total=False):
    """The sizes that a caller may set; None keeps the one of ``like``."""

    n_train: int | None
    n_test: int | None
    n_features: int | None
    n_labels: int | None
    labels_per_row: float | None
    nnz_per_row: float | None
    n_blocks: int | None
    decoys: float | None


# Sizes and labels per row as in the paper's data table (mediamill: as published); words per row are approximate.
SHAPES = {
    "amazoncat-13k": Shape(1_186_239, 306_782, 203_882, 13_330, 5.04, 71, 1.0),
    "wiki10-31k": Shape(14_146, 6_616, 101_938, 30_938, 18.64, 673, 1.0),
    "delicious-200k": Shape(196_606, 100_095, 782_585, 205_443, 75.54, 301, 1.0),
    "wikilshtc-325k": Shape(1_778_351, 587_084, 1_617_899, 325_056, 3.19, 42, 0.8),
    "amazon-670k": Shape(490_449, 153_025, 135_909, 670_091, 5.45, 75, 0.6),
    "mediamill": Shape(30_993, 12_914, 120, 101, 4.38, 120, 1.0),
}

ROWS_PER_BATCH = 1 << 15
HOME = 0.85  # share of labels drawn from the row's own block
FROM_LABELS, FROM_BLOCK = 0.45, 0.25  # where words come from; the rest is background


def make_synthetic(
    like: str | None = None, scale: float = 1.0, seed: int = 0, **sizes: Unpack[Sizes]
) -> tuple[Dataset, Dataset]:
    """A training and a test set with planted blocks: the size of a known set (``like``), or sizes of your own.

    ``like`` is one of amazoncat-13k, wiki10-31k, delicious-200k, wikilshtc-325k, amazon-670k, mediamill; ``scale``
    multiplies its rows, features and labels. ``sizes`` replace single ones: n_train, n_test, n_features, n_labels,
    labels_per_row, nnz_per_row, n_blocks, and decoys: the mean number of labels that the words of a row tell of though
    the row does not have them. With as many decoys as labels, no classifier is right much more often than every other
    time.

    >>> train, test = make_synthetic(like="amazon-670k", scale=0.001, seed=1)
    >>> train.n_rows, test.n_rows, train.n_features, train.n_labels
    (490, 153, 300, 670)
    >>> train.digest == make_synthetic(like="amazon-670k", scale=0.001, seed=1)[0].digest
    True
    """
    shape = _shape_like(like).scaled(scale) if scale != 1.0 else _shape_like(like)
    unknown = sorted(set(sizes) - set(Sizes.__annotations__))
    if unknown:
        raise BlockXMCError(f"there is no size {', '.join(unknown)}; choose from {', '.join(Sizes.__annotations__)}")
    given: dict[str, Any] = {name: size for name, size in sizes.items() if size is not None}
    shape = replace(shape, **given)
    _check(shape)
    return _World(shape, seed).make()


def _shape_like(like: str | None) -> Shape:
    if like is None:
        return Shape(10_000, 2_500, 20_000, 2_000, 4.0, 50)
    if like.lower() not in SHAPES:
        raise BlockXMCError(f"no data set is called {like!r}; choose one of {', '.join(SHAPES)}")
    return SHAPES[like.lower()]


def _check(shape: Shape) -> None:
    for name in ("n_train", "n_test", "n_features", "n_labels"):
        if not 1 <= getattr(shape, name) < 2**31:
            raise BlockXMCError(f"{name} must be at least 1 and below 2^31, got {getattr(shape, name)}")
    if not 0 < shape.labels_per_row <= shape.n_labels:
        raise BlockXMCError(f"labels_per_row must lie between 0 and n_labels, got {shape.labels_per_row}")
    if not 0 < shape.nnz_per_row <= shape.n_features:
        raise BlockXMCError(f"nnz_per_row must lie between 0 and n_features, got {shape.nnz_per_row}")
    if not 0 <= shape.decoys <= shape.n_labels:
        raise BlockXMCError(f"decoys must lie between 0 and n_labels, got {shape.decoys}")
    if shape.n_blocks is not None and not 1 <= shape.n_blocks <= shape.n_labels:
        raise BlockXMCError(f"n_blocks must lie between 1 and n_labels, got {shape.n_blocks}")


class _World:
    """The planted truth: who belongs to which block, and which words tell of what."""

    def __init__(self, shape: Shape, seed: int) -> None:
        self.shape, self.seed = shape, seed
        m, d = shape.n_labels, shape.n_features
        rng = np.random.default_rng([seed, 0])
        self.n_blocks = shape.n_blocks or max(1, min(m // 4, round(m**0.5)))
        weight = _zipf(m, 3.0, shape.label_skew)
        rng.shuffle(weight)
        self.labels = _Categorical(weight, np.array([0, m]))
        self._plant_blocks(weight, rng)
        self.background = _Categorical(_zipf(d, 2.7, 1.0), np.array([0, d]))
        self.word_order = rng.permutation(d)
        # The most frequent words tell of no label and no block.
        rare = self.word_order[d // 50 :]
        self.signature = max(8, round(shape.nnz_per_row / shape.labels_per_row))  # words that tell of a label
        self.topic = max(64, round(shape.nnz_per_row))  # words that tell of a block
        self.signatures = rare[rng.integers(rare.size, size=(m, self.signature))].astype(np.int32)
        self.topics = rare[rng.integers(rare.size, size=(self.n_blocks, self.topic))].astype(np.int32)

    def _plant_blocks(self, weight: NDArray[np.float64], rng: Rng) -> None:
        """Every label has a home block; three in ten have a second one, where they are as frequent."""
        m, q = weight.size, self.n_blocks
        home = rng.integers(q, size=m)
        home[rng.permutation(m)[:q]] = np.arange(q)  # no block is empty
        second = np.flatnonzero(rng.random(m) < 0.3)
        label = np.concatenate([np.arange(m), second])
        block = np.concatenate([home, rng.integers(q, size=second.size)])
        order = np.lexsort((label, block))
        self.block_labels = label[order]
        starts = np.searchsorted(block[order], np.arange(q + 1))
        share = np.ones(m)
        share[second] = 0.5
        member_weight = (weight * share)[self.block_labels]
        self.members = _Categorical(member_weight, starts)
        # A block is visited as often as its labels are frequent, so that each label keeps its global frequency.
        self.blocks = _Categorical(self.members.totals, np.array([0, q]))

    def make(self) -> tuple[Dataset, Dataset]:
        """All rows, then features weighted by how rare they are in training."""
        shape = self.shape
        n = shape.n_train + shape.n_test
        starts = range(0, n, ROWS_PER_BATCH)
        parts = [self._batch(i, min(ROWS_PER_BATCH, n - start)) for i, start in enumerate(starts)]
        X = sparse.csr_array(sparse.vstack([x for x, _ in parts], format="csr"))
        Y = as_indicator(sparse.vstack([y for _, y in parts], format="csr"))
        parts.clear()
        if not shape.dense:
            X = _tfidf(X, shape.n_train)
        cut = shape.n_train
        return Dataset(as_csr(X[:cut]), Y[:cut]), Dataset(as_csr(X[cut:]), Y[cut:])

    def _batch(self, number: int, n: int) -> tuple[sparse.csr_array, sparse.csr_array]:
        rng = np.random.default_rng([self.seed, 1, number])
        block = self.blocks.draw(np.zeros(n, np.int64), rng)
        Y = told = self._label_rows(block, self.shape.labels_per_row, rng)
        if self.shape.decoys:
            told = as_csr(Y.maximum(self._label_rows(block, self.shape.decoys, rng)))
        X = self._dense_rows(block, told, rng) if self.shape.dense else self._word_rows(block, told, rng)
        return X, Y

    def _label_rows(self, block: Int, average: float, rng: Rng) -> sparse.csr_array:
        """Distinct labels of each row: at least one where the average allows it."""
        m = self.shape.n_labels
        wanted = 1 + rng.poisson(average - 1, block.size) if average >= 1 else rng.binomial(1, average, block.size)
        wanted = np.minimum(wanted, m)
        rows = np.empty(0, np.int64)
        labels = np.empty(0, np.int64)
        missing = wanted.astype(np.int64)
        for attempt in range(12):  # repeats are drawn again, each time more of them from other blocks
            row = np.repeat(np.arange(block.size), missing)
            at_home = rng.random(row.size) < HOME * 0.7**attempt
            drawn = self.labels.draw(np.zeros(row.size, np.int64), rng)
            drawn[at_home] = self.block_labels[self.members.draw(block[row[at_home]], rng)]
            keys = _distinct(np.concatenate([rows * m + labels, row * m + drawn]))[0]
            rows, labels = keys // m, keys % m
            missing = wanted - np.bincount(rows, minlength=block.size)
            if not missing.any():
                break
        return _counts(rows, labels, (block.size, m))

    def _word_rows(self, block: Int, Y: sparse.csr_array, rng: Rng) -> sparse.csr_array:
        """Counts of words: from a random label of the row, from its block, from the background."""
        d, average = self.shape.n_features, self.shape.nnz_per_row
        # Rows differ in length; words are drawn again until enough of them are distinct.
        wanted = np.clip(np.rint(average * rng.gamma(4.0, 0.25, block.size)), 1, d).astype(np.int64)
        keys = np.empty(0, np.int64)
        missing = wanted
        for _ in range(5):
            row = np.repeat(np.arange(block.size), missing)
            keys = np.concatenate([keys, row * d + self._words(row, block, Y, rng)])
            distinct, _ = _distinct(keys)
            missing = np.maximum(wanted - np.bincount(distinct // d, minlength=block.size), 0)
            if missing.sum() < 0.01 * wanted.sum():
                break
        return _counts(keys // d, keys % d, (block.size, d))

    def _words(self, row: Int, block: Int, Y: sparse.csr_array, rng: Rng) -> Int:
        """A word for each entry of ``row``."""
        source = rng.random(row.size)
        words = self.word_order[self.background.draw(np.zeros(row.size, np.int64), rng)]
        from_block = (source >= FROM_LABELS) & (source < FROM_LABELS + FROM_BLOCK)
        # The product of two uniform numbers is skewed: the first words of a topic are its most frequent ones.
        rank = (rng.random(int(from_block.sum())) * rng.random(int(from_block.sum())) * self.topic).astype(np.int64)
        words[from_block] = self.topics[block[row[from_block]], rank]
        size = np.diff(Y.indptr)
        from_label = np.flatnonzero((source < FROM_LABELS) & (size[row] > 0))
        r = row[from_label]
        entry = Y.indptr[r] + (rng.random(r.size) * size[r]).astype(np.int64)
        words[from_label] = self.signatures[Y.indices[entry], rng.integers(self.signature, size=r.size)]
        return words

    def _dense_rows(self, block: Int, Y: sparse.csr_array, rng: Rng) -> sparse.csr_array:
        """Measurements between 0 and 1: a sum of what labels and block contribute, and noise."""
        d = self.shape.n_features
        truth = np.random.default_rng([self.seed, 2])
        of_label = truth.normal(size=(self.shape.n_labels, d)).astype(np.float32)
        of_block = truth.normal(size=(self.n_blocks, d)).astype(np.float32)
        signal = Y @ of_label / np.sqrt(np.maximum(self.shape.labels_per_row, 1)) + 0.7 * of_block[block]
        X = 1 / (1 + np.exp(-(signal + 0.5 * rng.standard_normal(signal.shape, dtype=np.float32))))
        if self.shape.nnz_per_row < d:
            X[rng.random(X.shape) >= self.shape.nnz_per_row / d] = 0
        return sparse.csr_array(X.astype(np.float32))


def _zipf(size: int, shift: float, exponent: float) -> NDArray[np.float64]:
    """Weights that fall with rank; the shift keeps the first few from taking everything."""
    return np.asarray((np.arange(size) + shift) ** -exponent, dtype=np.float64)


class _Categorical:
    """Draws from many discrete distributions stored end to end: group g holds items starts[g]..starts[g+1]."""

    def __init__(self, weights: NDArray[np.float64], starts: Int) -> None:
        self._cumulative = np.concatenate([[0.0], np.cumsum(weights)])
        self._starts = starts
        self.totals = np.diff(self._cumulative[starts])

    def draw(self, group: Int, rng: Rng) -> Int:
        """One item (a position in the weights) for each entry of ``group``."""
        low, high = self._cumulative[self._starts[group]], self._cumulative[self._starts[group + 1]]
        found = np.searchsorted(self._cumulative, low + rng.random(group.size) * (high - low), side="right") - 1
        return np.asarray(np.clip(found, self._starts[group], self._starts[group + 1] - 1), dtype=np.int64)


def _distinct(keys: Int) -> tuple[Int, Int]:
    """The different keys in order, and how often each occurs (sorts in place: far faster here than numpy.unique)."""
    keys.sort()
    first = np.flatnonzero(np.diff(keys, prepend=keys[:1] - 1))
    return keys[first], np.diff(first, append=keys.size)


def _counts(rows: Int, columns: Int, shape: tuple[int, int]) -> sparse.csr_array:
    """How often each pair occurs, as canonical float32 CSR."""
    keys, counts = _distinct(rows * shape[1] + columns)
    indptr = np.searchsorted(keys, np.arange(shape[0] + 1) * shape[1]).astype(np.int32)
    indices = (keys % shape[1]).astype(np.int32)
    return sparse.csr_array((counts.astype(np.float32), indices, indptr), shape=shape)


def _tfidf(counts: sparse.csr_array, n_train: int) -> sparse.csr_array:
    """1 + ln(count), times the idf of the training rows, rows of length one."""
    in_rows = np.bincount(counts.indices[: counts.indptr[n_train]], minlength=counts.shape[1])
    idf = (np.log((1 + n_train) / (1 + in_rows)) + 1).astype(np.float32)
    counts.data = (1 + np.log(counts.data)) * idf[counts.indices]
    return sparse.csr_array(normalize(counts, copy=False))
