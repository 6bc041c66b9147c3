"""Linear weights packed for serving: blocks of labels in one arena, scored by compiled loops."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from blockxmc import _kernels
from blockxmc._core import stored
from blockxmc._core.allowed import Mask
from blockxmc._core.base import TopK
from blockxmc._core.matrix import csr_args, csr_of
from blockxmc._core.stored import INT32_MAX
from blockxmc.errors import BlockXMCError
from blockxmc.linear import compact
from blockxmc.linear.packing import joined, pack_linear
from blockxmc.linear.scorer import I32, I64, Scorer, as_blocks, as_ids, as_row, empty_topk

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
N_COLUMNS = 5  # of offsets: where a chunk starts in labels, keys, buckets, rows and arena
# Arrays whose numbers rise within a chunk, and their columns of offsets: kept as steps.
RISING = {"buckets": 2, "rows": 3}
COLUMN_OF = RISING | {"keys": 1, "arena": 4}  # of the other arrays: 0, a number per label


class PackedScorer(Scorer):
    """Linear weights in one arena; all work is done by the compiled model."""

    def __init__(self, arrays: dict[str, NDArray[Any]], n_features: int, n_labels: int, bits: int) -> None:
        self.n_features, self.n_labels, self.n_blocks = n_features, n_labels, arrays["block_ptr"].size - 1
        self._arrays, self.bits = arrays, bits
        optional: dict[str, Any] = dict.fromkeys(OPTIONAL)
        self._model = _kernels.PackedModel(**(optional | arrays), n_labels=n_labels, n_features=n_features, bits=bits)

    def topk(
        self, X: sparse.csr_array, blocks: I32 | None, k: int, *, threads: int = 1, allowed: Mask | None = None
    ) -> TopK:
        """Best k candidates of each row: best first, ties to the lower label id, padded with -1 / -inf."""
        labels, scores = empty_topk(X.shape[0], k)
        self._model.topk(*self._args(X), as_blocks(blocks), labels, scores, threads, allowed)
        return labels, scores

    def scores(self, X: sparse.csr_array, blocks: I32 | None, *, threads: int = 1) -> sparse.csr_array:
        """Scores of all candidates of each row, by ascending label; explicit zeros are kept."""
        return self._matrix(X, self._model.scores(*self._args(X), as_blocks(blocks), threads))

    def one(
        self, indices: ArrayLike, values: ArrayLike, blocks: ArrayLike | None, k: int, allowed: Mask | None = None
    ) -> TopK:
        """``topk`` of one sparse row, without validation or threads; fastest with int32 and float32 arrays."""
        try:
            return self._model.one(indices, values, blocks, k, allowed)  # type: ignore[arg-type]
        except TypeError:
            return self._model.one(*as_row(indices, values), None if blocks is None else as_ids(blocks), k, allowed)

    def n_candidates(self, blocks: I32 | None, *, threads: int = 1) -> I64:
        """Number of distinct labels in the visited blocks of each row; for None one number that holds for all rows."""
        return self._model.candidates(as_blocks(blocks), threads)

    def touched(self, X: sparse.csr_array, blocks: I32 | None, *, threads: int = 1) -> float:
        """Mean number of stored weights that scoring a row reads (zeros of dense rows and padding too)."""
        counts = self._model.touched(*self._args(X), as_blocks(blocks), threads)
        return float(counts.mean()) if counts.size else 0.0

    def on(self, n_features: int) -> PackedScorer:
        """The same weights where there are more features."""
        return PackedScorer(self._arrays, n_features, self.n_labels, self.bits)

    def with_labels(
        self, vectors: sparse.csr_array, bias: float, block_of: NDArray[np.integer], threads: int
    ) -> PackedScorer:
        """The weights with labels behind their own, each in one block: chunks of theirs stand behind the block's."""
        of_blocks = [np.flatnonzero(block_of == block).astype(np.int32) for block in range(self.n_blocks)]
        order, n_features = joined(of_blocks, np.int32), vectors.shape[1]
        new = pack_linear(csr_args(vectors), order, of_blocks, n_features, self.bits, threads)
        new |= {"labels": order + np.int32(self.n_labels), "bias": np.full(order.size, bias, np.float32)}
        new["mass"] = np.zeros(order.size, np.float32)
        both, arrays = (self._arrays, new), {"block_ptr": self._arrays["block_ptr"] + new["block_ptr"]}

        def mingled(parts: list[NDArray[Any]], ends: list[NDArray[np.int64]]) -> NDArray[Any]:
            pieces = [
                part[a:b]
                for k in range(self.n_blocks)
                for part, at in zip(parts, ends, strict=True)
                for a, b in [at[k : k + 2]]
            ]
            return np.concatenate([parts[0][:0], *pieces])

        for name in self._arrays.keys() - {"block_ptr", "offsets"}:
            ends = [part["offsets"][part["block_ptr"], COLUMN_OF.get(name, 0)] for part in both]
            arrays[name] = mingled([part[name] for part in both], ends)
        sizes = mingled([np.diff(part["offsets"], axis=0) for part in both], [part["block_ptr"] for part in both])
        arrays["offsets"] = np.concatenate([np.zeros((1, N_COLUMNS), np.int64), np.cumsum(sizes, axis=0)])
        return PackedScorer(arrays, n_features, self.n_labels + order.size, self.bits)

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
        """Nested dict of arrays and JSON values for the model directory, in few bytes (compact.py)."""
        arrays, offsets = self._arrays, self._arrays["offsets"]
        short = {"labels": compact.narrowed(arrays["labels"])}
        short["keys"] = compact.short_features(arrays["keys"], self.n_features)
        short |= {name: compact.steps(arrays[name], offsets[:, column]) for name, column in RISING.items()}
        return self.__getstate__() | short

    @classmethod
    def restored(cls, state: dict[str, Any]) -> PackedScorer:
        """Take back what ``state`` gave. Pointers are checked now, a block when it is first visited."""
        arrays: dict[str, NDArray[Any]] = {}
        for name, dtype in ARRAYS.items():
            if name in state or name not in OPTIONAL:
                shape = (None, N_COLUMNS) if name == "offsets" else (None,)
                arrays[name] = _restored(name, state[name], dtype, shape, arrays.get("offsets"))
        n_features, n_labels = (stored.whole(state[name], name) for name in ("n_features", "n_labels"))
        bits = stored.whole(state["bits"], "bits", -INT32_MAX)  # the compiled model knows which there are
        return cls(arrays, n_features, n_labels, bits)

    def __getstate__(self) -> dict[str, Any]:
        facts = {"n_features": self.n_features, "n_labels": self.n_labels, "bits": self.bits}
        return {"kind": "packed", **facts, **self._arrays}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(vars(self.restored(state)))

    def _matrix(self, X: sparse.csr_array, found: tuple[I64, I32, NDArray[np.float32]]) -> sparse.csr_array:
        """What a kernel found of the rows of X."""
        indptr, labels, values = found
        return csr_of(indptr, labels, values, (X.shape[0], self.n_labels))

    def _args(self, X: sparse.csr_array) -> tuple[I64, I32, NDArray[np.float32]]:
        if X.shape[1] != self.n_features:
            raise BlockXMCError(f"X has {X.shape[1]} features, but the model was trained on {self.n_features}")
        return csr_args(X)


def _restored(name: str, value: Any, dtype: Any, shape: tuple[int | None, ...], offsets: I64 | None) -> NDArray[Any]:
    """An array as kernels take it, from that or from its short form."""
    what = f"the array {name!r}"
    if name == "labels":
        return stored.widened(value, what, shape)
    if name == "keys" and getattr(value, "dtype", None) == np.uint16:
        return compact.long_features(stored.array(value, what, np.uint16, shape))
    if name in RISING and offsets is not None and compact.are_steps(value):
        return compact.from_steps(stored.array(value, what, value.dtype, shape), offsets[:, RISING[name]], what)
    return stored.array(value, what, dtype, shape)
