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

def rank_labels(
    indptr: I64, indices: I32, n_labels: int, assignment: I32, n_blocks: int, min_count: int, threads: int
) -> tuple[I64, I32, I32]: ...
def choose_blocks(
    indptr: I64,
    indices: I32,
    n_labels: int,
    cluster_indptr: I64,
    cluster_labels: I32,
    assignment: I32,
    price: float,
    small: bool,
    threads: int,
) -> tuple[I32, int]: ...
def nearest_centroids(
    indptr: I64,
    indices: I32,
    data: F32,
    n_features: int,
    assignment: I32,
    n_clusters: int,
    query_indptr: I64,
    query_indices: I32,
    query_data: F32,
    budget: int,
    threads: int,
    progress: I64,
) -> tuple[I32, F32]: ...
def balanced_tree(
    indptr: I64,
    indices: I32,
    data: F32,
    n_features: int,
    n_leaves: int,
    seed: int,
    sample: int,
    max_iter: int,
    threads: int,
    progress: I64,
) -> I32: ...

# --- newton ---

# --- predict ---

# --- spmm ---

# --- frank_wolfe ---

# --- dual_cd ---

# --- fastxml ---

# --- filters ---

def __getattr__(name: str) -> Any: ...
