"""Weights packed for serving: blocks of labels, each scored only for the rows that visit it.

A :class:`Scorer` holds q blocks of labels. Linear weights are packed feature-major and scored by compiled loops
(:class:`PackedScorer`); anything else scores itself, tile by tile, and only the selection is ours
(:class:`DenseScorer`). A label that several visited blocks hold gets the highest of its scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from blockxmc import _kernels
from blockxmc._base import TopK
from blockxmc._matrix import csr_args
from blockxmc.errors import BlockXMCError, ModelFormatError
from blockxmc.packing import by_label, joined, pack_linear
from blockxmc.weights import LinearWeights, Weights

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]


class Scorer:
    """q blocks of labels with their weights; ``pack`` and ``from_state`` choose the implementation.

    >>> weights = LinearWeights(sparse.csr_array(np.eye(2, dtype=np.float32)), np.zeros(2, np.float32))
    >>> scorer = Scorer.pack([weights], [np.array([0, 1])], n_features=2, n_labels=2)
    >>> labels, scores = scorer.topk(sparse.csr_array(np.array([[3, 4]], np.float32)), None, 2)
    >>> labels.tolist(), scores.tolist()
    ([[1, 0]], [[4.0, 3.0]])
    """

    n_features: int
    n_labels: int
    n_blocks: int

    @staticmethod
    def pack(
        weights: Sequence[Weights],
        label_ids: Sequence[NDArray[Any]],
        *,
        n_features: int,
        n_labels: int,
        bits: int = 32,
        threads: int = 1,
    ) -> Scorer:
        """Pack the weights of each block; ``label_ids[l]`` are the global ids of block l's labels, ascending.

        Linear weights are kept as floats (32 ``bits``), as the upper halves of floats, rounded (16), or as integers with
        one scale per label, its largest weight over 127 (8).
        """
        from blockxmc._dense_scoring import DenseScorer

        clusters = _checked_ids(label_ids, n_labels)
        if len(clusters) != len(weights):
            raise BlockXMCError(f"{len(weights)} blocks of weights, but {len(clusters)} sets of label ids")
        for block, (w, ids) in enumerate(zip(weights, clusters, strict=True)):
            if ids.shape != (w.n_labels,):
                raise BlockXMCError(f"block {block} has weights of {w.n_labels} labels, but {ids.size} label ids")
        linear = [w for w in weights if isinstance(w, LinearWeights)]
        if len(linear) < len(weights):
            return DenseScorer(list(weights), clusters, n_features, n_labels)
        arrays = pack_linear(by_label(linear, n_features), None, clusters, n_features, bits, threads)
        arrays["bias"] = joined([w.bias for w in linear], np.float32)
        if any(w.mass is not None for w in linear):
            zeros = np.zeros(max(w.n_labels for w in linear), np.float32)
            arrays["mass"] = joined([zeros[: w.n_labels] if w.mass is None else w.mass for w in linear], np.float32)
        return PackedScorer(arrays, n_features, n_labels, bits)

    @staticmethod
    def pack_shared(
        weights: LinearWeights,
        label_ids: Sequence[NDArray[Any]],
        common: NDArray[Any],
        *,
        n_features: int,
        n_labels: int,
        bits: int = 32,
        threads: int = 1,
    ) -> PackedScorer:
        """Pack one vector per label, which all its blocks share.

        Where there are ``common`` labels, theirs stand in one more block, the last; in its other blocks a common label
        is an empty name: no weights, and a score that never counts.
        """
        if weights.n_labels != n_labels:
            raise BlockXMCError(f"weights of {weights.n_labels} labels, but there are {n_labels}")
        blocks = _checked_ids([*label_ids, *([common] if common.size else [])], n_labels)
        rows = joined(blocks, np.int32)
        name_only = np.zeros(rows.size, bool)
        name_only[: rows.size - common.size] = np.isin(rows[: rows.size - common.size], common)
        vectors = np.where(name_only, np.int32(-1), rows)
        arrays = pack_linear(by_label([weights], n_features), vectors, blocks, n_features, bits, threads)
        arrays["bias"] = np.where(name_only, -np.inf, weights.bias[rows]).astype(np.float32)
        if weights.mass is not None:
            arrays["mass"] = weights.mass[rows].astype(np.float32)
        return PackedScorer(arrays, n_features, n_labels, bits)

    @staticmethod
    def from_state(state: dict[str, Any]) -> Scorer:
        """Take back what ``state`` gave; arrays may be read-only memory maps, which are read when first needed."""
        from blockxmc._dense_scoring import DenseScorer

        kinds: dict[str, type[PackedScorer] | type[DenseScorer]] = {"packed": PackedScorer, "dense": DenseScorer}
        kind = kinds.get(state.get("kind", ""))
        if kind is None:
            raise ModelFormatError(f"the model has blocks of an unknown kind: {state.get('kind')!r}")
        try:
            return kind.restored(state)
        except (KeyError, TypeError) as error:
            raise ModelFormatError(f"the model's blocks are incomplete or have wrong types: {error}") from None

    def topk(self, X: sparse.csr_array, blocks: I32 | None, k: int, *, threads: int = 1) -> TopK:
        """Best k candidates of each row: best first, ties to the lower label id, padded with -1 / -inf.

        ``blocks`` (rows x b, -1 pads) are the visited blocks; None: all.
        """
        raise NotImplementedError

    def scores(self, X: sparse.csr_array, blocks: I32 | None, *, threads: int = 1) -> sparse.csr_array:
        """Scores of all candidates of each row, by ascending label; explicit zeros are kept."""
        raise NotImplementedError

    def one(self, indices: ArrayLike, values: ArrayLike, blocks: ArrayLike | None, k: int) -> TopK:
        """``topk`` of one sparse row, without validation or threads; 1-d ``blocks`` and results."""
        raise NotImplementedError

    def n_candidates(self, blocks: I32 | None) -> I64:
        """Number of distinct labels in the visited blocks of each row; for None one number that holds for all rows."""
        raise NotImplementedError

    def touched(self, X: sparse.csr_array, blocks: I32 | None, *, threads: int = 1) -> float:
        """Mean number of stored weights that scoring a row reads."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Nested dict of arrays and JSON values for the model directory."""
        raise NotImplementedError

    @property
    def label_clusters(self) -> list[I32]:
        """Label ids of each block, ascending."""
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        raise NotImplementedError


# The flat arrays of a packed scorer (what they mean: chunk.hpp).
ARRAYS = {
    "block_ptr": np.int64,
    "offsets": np.int64,
    "labels": np.int32,
    "bias": np.float32,
    "mass": np.float32,
    "keys": np.int32,
    "buckets": np.uint32,
    "rows": np.uint32,
    "arena": np.uint32,
    "scale": np.float32,
}
OPTIONAL = ("mass", "scale")  # scale is there where weights have 8 bits


class PackedScorer(Scorer):
    """Linear weights in one arena; all work is done by the compiled model."""

    def __init__(self, arrays: dict[str, NDArray[Any]], n_features: int, n_labels: int, bits: int) -> None:
        self.n_features, self.n_labels, self.n_blocks = n_features, n_labels, arrays["block_ptr"].size - 1
        self._arrays, self.bits = arrays, bits
        optional: dict[str, Any] = dict.fromkeys(OPTIONAL)
        self._model = _kernels.PackedModel(**(optional | arrays), n_labels=n_labels, n_features=n_features, bits=bits)

    def topk(self, X: sparse.csr_array, blocks: I32 | None, k: int, *, threads: int = 1) -> TopK:
        """Best k candidates of each row: best first, ties to the lower label id, padded with -1 / -inf."""
        labels, scores = empty_topk(X.shape[0], k)
        self._model.topk(*self._args(X), as_blocks(blocks), labels, scores, threads)
        return labels, scores

    def scores(self, X: sparse.csr_array, blocks: I32 | None, *, threads: int = 1) -> sparse.csr_array:
        """Scores of all candidates of each row, by ascending label; explicit zeros are kept."""
        return self._matrix(X, self._model.scores(*self._args(X), as_blocks(blocks), threads))

    def one(self, indices: ArrayLike, values: ArrayLike, blocks: ArrayLike | None, k: int) -> TopK:
        """``topk`` of one sparse row, without validation or threads; fastest with int32 and float32 arrays."""
        try:
            return self._model.one(indices, values, blocks, k)  # type: ignore[arg-type]
        except TypeError:
            return self._model.one(*as_row(indices, values), None if blocks is None else as_ids(blocks), k)

    def n_candidates(self, blocks: I32 | None) -> I64:
        """Number of distinct labels in the visited blocks of each row; for None one number that holds for all rows."""
        return self._model.candidates(as_blocks(blocks), 1)

    def touched(self, X: sparse.csr_array, blocks: I32 | None, *, threads: int = 1) -> float:
        """Mean number of stored weights that scoring a row reads (zeros of dense rows and padding too)."""
        counts = self._model.touched(*self._args(X), as_blocks(blocks), threads)
        return float(counts.mean()) if counts.size else 0.0

    @property
    def label_clusters(self) -> list[I32]:
        """Label ids of each block, ascending."""
        ends = self._arrays["offsets"][self._arrays["block_ptr"], 0]
        return [self._arrays["labels"][a:b] for a, b in pairwise(ends)]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self._arrays.values())

    def state(self) -> dict[str, Any]:
        """Nested dict of arrays and JSON values for the model directory."""
        facts = {"n_features": self.n_features, "n_labels": self.n_labels, "bits": self.bits}
        return {"kind": "packed", **facts, **self._arrays}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> PackedScorer:
        """Take back what ``state`` gave. Pointers are checked now, a block when it is first visited."""
        arrays = {name: state[name] for name in ARRAYS if name not in OPTIONAL or name in state}
        for name, array in arrays.items():
            if array.dtype != ARRAYS[name]:
                raise ModelFormatError(
                    f"the model's array {name!r} has type {array.dtype}, not {ARRAYS[name].__name__}"
                )
        # Models of format 1 say whether weights are halved, or nothing.
        bits = int(state.get("bits", 16 if state.get("half") else 32))
        return cls(arrays, int(state["n_features"]), int(state["n_labels"]), bits)

    def __getstate__(self) -> dict[str, Any]:
        return self.state()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(vars(self.restored(state)))

    def _matrix(self, X: sparse.csr_array, found: tuple[I64, I32, NDArray[np.float32]]) -> sparse.csr_array:
        """What a kernel found of the rows of X."""
        indptr, labels, values = found
        return sparse.csr_array((values, labels, indptr), shape=(X.shape[0], self.n_labels))

    def _args(self, X: sparse.csr_array) -> tuple[I64, I32, NDArray[np.float32]]:
        if X.shape[1] != self.n_features:
            raise BlockXMCError(f"X has {X.shape[1]} features, but the model was trained on {self.n_features}")
        return csr_args(X)


@dataclass(frozen=True)
class Routed:
    """A scorer behind its router: each row visits the b blocks its router ranks highest (the router's labels).

    With a ``slope``, a label's score gains slope times the logarithm of the summed probabilities of the visited blocks
    that hold it (``exp(-max(0, 1 - margin)^2)``: a squared hinge router's), so labels of likelier blocks come first;
    blocks must then score a label alike, as shared and global weights do. A scorer with one block more than the router
    knows keeps the weights of labels that live in many blocks in that last block, which every row visits. Where both
    are packed, routing and scoring are one call without Python in between. With a ``mass`` below 1, a row visits only as
    many of the b blocks, best first, as it takes to reach that share of their probability; the others are -1. With
    ``neighbours``, labels of the training rows most like a row gain what these say; with a ``look``, the best labels are
    put in order by a second look.
    """

    router: Scorer
    scorer: Scorer
    b: int
    slope: float = 0.0
    mass: float = 1.0
    neighbours: _kernels.Neighbors | None = None
    look: _kernels.Reranker | None = None

    def __post_init__(self) -> None:
        common = self.scorer.n_blocks > self.router.n_labels
        extras = self.slope or self.mass < 1 or self.neighbours or self.look or common
        if extras and not self._fused:
            raise BlockXMCError("a slope, a mass, neighbours, a second look and common labels need linear weights")

    @property
    def _fused(self) -> bool:
        return isinstance(self.router, PackedScorer) and isinstance(self.scorer, PackedScorer)

    def topk(self, X: sparse.csr_array, k: int, *, threads: int = 1) -> TopK:
        """Best k labels of each row."""
        if isinstance(self.router, PackedScorer) and isinstance(self.scorer, PackedScorer):
            labels, scores = empty_topk(X.shape[0], k)
            how = *self.scorer._args(X), self.b, self.slope, self.mass
            self.scorer._model.topk_routed(
                self.router._model, *how, labels, scores, threads, self.neighbours, self.look
            )
            return labels, scores
        return self.scorer.topk(X, self.visits(X, threads=threads)[0], k, threads=threads)

    def one(self, indices: ArrayLike, values: ArrayLike, k: int) -> TopK:
        """``topk`` of one sparse row, without validation or threads: the latency path; 1-d results."""
        if isinstance(self.router, PackedScorer) and isinstance(self.scorer, PackedScorer):
            router, model = self.router._model, self.scorer._model
            how: Any = (self.b, self.slope, self.mass, k, self.neighbours, self.look)
            try:
                return model.one_routed(router, indices, values, *how)  # type: ignore[arg-type]
            except TypeError:
                return model.one_routed(router, *as_row(indices, values), *how)
        return self.scorer.one(indices, values, self.router.one(indices, values, None, self.b)[0], k)

    def scores(self, X: sparse.csr_array, *, threads: int = 1) -> sparse.csr_array:
        """Scores of all candidates of each row."""
        if isinstance(self.router, PackedScorer) and isinstance(self.scorer, PackedScorer):
            how = *self.scorer._args(X), self.b, self.slope, self.mass, threads, self.neighbours, self.look
            return self.scorer._matrix(X, self.scorer._model.scores_routed(self.router._model, *how))
        return self.scorer.scores(X, self.visits(X, threads=threads)[0], threads=threads)

    def visits(self, X: sparse.csr_array, *, threads: int = 1) -> tuple[I32, NDArray[np.float32] | None]:
        """The blocks each row visits, best first, and their weights (None where they have none)."""
        if isinstance(self.router, PackedScorer) and isinstance(self.scorer, PackedScorer):
            args = self.scorer._args(X)
            found = self.scorer._model.routes(self.router._model, *args, self.b, self.slope, self.mass, threads)
            shape = (X.shape[0], found[0].size // max(X.shape[0], 1))
            return found[0].reshape(shape), found[1].reshape(shape)
        blocks = as_blocks(self.router.topk(X, None, self.b, threads=threads)[0])
        assert blocks is not None
        return blocks, None


def _checked_ids(label_ids: Sequence[NDArray[Any]], n_labels: int) -> list[I32]:
    clusters = [np.ascontiguousarray(ids, dtype=np.int32) for ids in label_ids]
    for block, ids in enumerate(clusters):
        if ids.size and (ids[0] < 0 or ids[-1] >= n_labels or (np.diff(ids) <= 0).any()):
            raise BlockXMCError(f"label ids of block {block} must ascend within 0..{n_labels - 1}")
    return clusters


def empty_topk(n_rows: int, k: int) -> TopK:
    """Result arrays for a kernel to fill."""
    if k < 1:
        raise BlockXMCError(f"k must be at least 1, got {k}")
    return np.empty((n_rows, k), np.int64), np.empty((n_rows, k), np.float32)


def as_ids(ids: ArrayLike) -> I32:
    """Feature or block numbers as a kernel takes them."""
    return np.ascontiguousarray(ids, dtype=np.int32)


def as_blocks(blocks: ArrayLike | None) -> I32 | None:
    """Visited blocks as a kernel takes them."""
    return None if blocks is None else as_ids(blocks)


def as_row(indices: ArrayLike, values: ArrayLike) -> tuple[I32, NDArray[np.float32]]:
    """One sparse row as a kernel takes it."""
    return as_ids(indices), np.ascontiguousarray(values, dtype=np.float32)
