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

def spmm(indptr: I64, indices: I32, data: F32, B: F32, out: F32, threads: int) -> None: ...
def ridge_cg(
    indptr: I64,
    indices: I32,
    data: F32,
    t_indptr: I64,
    t_indices: I32,
    t_data: F32,
    s: F32,
    lam: float,
    T: F32,
    W: F32,
    steps: I32,
    tol: float,
    max_steps: int,
    threads: int,
    progress: I64,
) -> None: ...

# --- frank_wolfe ---

# --- dual_cd ---

# --- fastxml ---

# --- filters ---

def __getattr__(name: str) -> Any: ...
