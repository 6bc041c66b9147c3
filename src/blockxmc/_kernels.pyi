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

# --- filters ---

def __getattr__(name: str) -> Any: ...
