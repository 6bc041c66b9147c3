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
def pd_sparse(
    x_indptr: I64,
    x_indices: I32,
    x_data: F32,
    n_features: int,
    y_indptr: I64,
    y_indices: I32,
    n_labels: int,
    held_out: NDArray[np.uint8],
    *,
    C: float,
    lam: float,
    tol: float,
    max_iter: int,
    patience: int,
    importance_sampling: bool,
    post_solve: bool,
    direct_bytes: int,
    seed: int,
    progress: I64,
) -> tuple[I64, I32, F32, F64, F64, float, float]:
    """Weights (features x labels), gap and held-out traces, exact gap and primal objective."""

def project_bisimplex(b: F64, c: F64, C: float) -> tuple[F64, F64]:
    """Projection on {x, y >= 0, sum x = sum y = t, 0 <= t <= C}."""

# --- dual_cd ---
def dual_cd(
    x_indptr: I64,
    x_indices: I32,
    x_data: F32,
    n_features: int,
    p_indptr: I64,
    p_indices: I32,
    r_indptr: I64 | None,
    r_indices: I32 | None,
    *,
    C: float,
    lam: float,
    bias: float,
    tol: float,
    max_rounds: int,
    max_passes: int,
    prune: float,
    seed: int,
    threads: int,
    progress: I64,
) -> tuple[I64, I32, F32, F32, I64, NDArray[np.uint8]]:
    """Weights (labels x features), biases, rounds, and which labels were certified."""

# --- fastxml ---

# --- filters ---

def __getattr__(name: str) -> Any: ...
