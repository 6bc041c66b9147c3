"""Types of the compiled module. Every array argument must have exactly this dtype and be C-contiguous."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

# --- parse ---

# --- partition ---

# --- newton ---

# --- predict ---
U32 = NDArray[np.uint32]
MAX_CHUNK_LABELS: int

class PackedModel:
    def __init__(
        self,
        block_ptr: I64,
        offsets: I64,
        labels: I32,
        bias: F32,
        mass: F32 | None,
        keys: I32,
        buckets: U32,
        rows: U32,
        arena: U32,
        n_labels: int,
    ) -> None: ...
    def one(self, indices: I32, values: F32, blocks: I32 | None, k: int) -> tuple[I64, F32]: ...
    def one_routed(self, router: PackedModel, indices: I32, values: F32, b: int, k: int) -> tuple[I64, F32]: ...
    def topk(
        self, indptr: I64, indices: I32, data: F32, blocks: I32 | None, labels: I64, scores: F32, threads: int
    ) -> None: ...
    def topk_routed(
        self,
        router: PackedModel,
        indptr: I64,
        indices: I32,
        data: F32,
        b: int,
        labels: I64,
        scores: F32,
        threads: int,
    ) -> None: ...
    def candidates(self, blocks: I32 | None, threads: int) -> I64: ...
    def scores(
        self,
        indptr: I64,
        indices: I32,
        data: F32,
        blocks: I32 | None,
        out_indptr: I64,
        labels: I32,
        values: F32,
        threads: int,
    ) -> None: ...
    def touched(self, indptr: I64, indices: I32, data: F32, blocks: I32 | None, threads: int) -> I64: ...

def pack_chunk(indptr: I64, indices: I32, data: F32, first: int, width: int) -> tuple[I32, U32, U32, U32]: ...
def low_rank_scores(indptr: I64, indices: I32, data: F32, W: F32, H: F32, out: F32) -> None: ...
def dense_topk(scores: F32, label_ids: I32, labels: I64, best: F32) -> None: ...

# --- spmm ---

# --- frank_wolfe ---

# --- dual_cd ---

# --- fastxml ---

# --- filters ---

def __getattr__(name: str) -> Any: ...
