"""Types of the compiled module. Every array argument must have exactly this dtype and be C-contiguous."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

# --- parse ---

class XcParser:
    """Reads blocks of whole XC lines; ``feed`` returns (finding or 0, row, byte offset of the token)."""

    n_rows: int
    trailing_empty: int
    max_feature: int
    max_label: int
    def __init__(self, n_features: int, n_labels: int) -> None: ...
    def feed(self, block: NDArray[np.uint8], n_threads: int) -> tuple[int, int, int]: ...
    def finish(self, n_rows: int) -> tuple[I64, I32, F32, I64, I32]: ...

def format_xc(indptr: I64, indices: I32, data: F32, label_indptr: I64, label_indices: I32, n_threads: int) -> bytes: ...

# --- partition ---

# --- newton ---

# --- predict ---

# --- spmm ---

# --- frank_wolfe ---

# --- dual_cd ---

# --- fastxml ---

# --- filters ---

def __getattr__(name: str) -> Any: ...
