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
def train_one_vs_all(
    indptr: I64,
    indices: I32,
    data: F32,
    n_features: int,
    positive_indptr: I64,
    positive_indices: I32,
    member_indptr: I64 | None,
    member_indices: I32 | None,
    *,
    loss: str,
    C: float,
    tol: float,
    bias: float,
    prune: float,
    threads: int,
    progress: I64,
) -> tuple[I64, I32, F32, F32]: ...

# --- predict ---

# --- spmm ---

# --- frank_wolfe ---

# --- dual_cd ---

# --- fastxml ---

# --- filters ---

def __getattr__(name: str) -> Any: ...
