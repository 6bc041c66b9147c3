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

# --- spmm ---

# --- frank_wolfe ---

# --- dual_cd ---

# --- fastxml ---
I8 = NDArray[np.int8]

def fastxml_grow(
    x_ptr: I64,
    x_idx: I32,
    x_val: F32,
    n_features: int,
    y_ptr: I64,
    y_idx: I32,
    n_labels: int,
    n_trees: int,
    max_leaf: int,
    leaf_labels: int,
    cost: float,
    bias: float,
    seed: int,
    threads: int,
    progress: I64 | None = None,
) -> dict[str, Any]: ...
def fastxml_split(y_ptr: I64, y_idx: I32, n_labels: int, start: I8) -> tuple[I8, F64]: ...
def fastxml_separator(
    col_ptr: I64,
    rows: I32,
    values: F32,
    side: I8,
    cost_plus: float,
    cost_minus: float,
    tolerance: float,
    max_newton: int,
    max_passes: int,
    seed: int,
) -> F64: ...

class Forest:
    def __init__(
        self,
        roots: I32,
        children: I32,
        feature_ptr: I64,
        features: I32,
        weights: F32,
        bias: F32,
        label_ptr: I64,
        labels: I32,
        label_scores: F32,
        n_features: int,
        n_labels: int,
    ) -> None: ...
    def leaves(self, indptr: I64, indices: I32, values: F32, out: I32, threads: int) -> None: ...
    def topk(self, indptr: I64, indices: I32, values: F32, labels: I64, scores: F32, threads: int) -> None: ...
    def scores(self, indptr: I64, indices: I32, values: F32, threads: int) -> tuple[I64, I32, F32]: ...

# --- filters ---
def filters_direction(
    x_ptr: I64,
    x_idx: I32,
    x_val: F32,
    n_features: int,
    y_ptr: I64,
    y_idx: I32,
    n_labels: int,
    lower: F32,
    upper: F32,
    projections: F32,
    own: float,
    decay: float,
    n_steps: int,
    n_negatives: int,
    rank_every: int,
    seed: int,
    progress: I64 | None = None,
) -> F64: ...
def filters_project(x_ptr: I64, x_idx: I32, x_val: F32, directions: F32, out: F32, threads: int) -> None: ...
def filters_bounds(
    y_ptr: I64,
    y_idx: I32,
    n_labels: int,
    label_ptr: I64,
    label_rows: I32,
    lower: F32,
    upper: F32,
    projections: F32,
    projection: F32,
    sample: I64,
    own: float,
    new_lower: F32,
    new_upper: F32,
    threads: int,
    progress: I64 | None = None,
) -> tuple[int, int]: ...

class FilterIndex:
    def __init__(self, lower: F32, upper: F32) -> None: ...
    def candidates(self, projections: F32, threads: int) -> tuple[I64, I32]: ...

class LabelWeights:
    def __init__(self, indptr: I64, indices: I32, values: F32, n_features: int) -> None: ...
    def score(self, x_ptr: I64, x_idx: I32, x_val: F32, cand_ptr: I64, cand: I32, out: F32, threads: int) -> None: ...

def topk_of_pairs(indptr: I64, candidates: I32, scores: F32, labels: I64, best: F32, threads: int) -> None: ...
def __getattr__(name: str) -> Any: ...
