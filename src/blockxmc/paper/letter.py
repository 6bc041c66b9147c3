"""The parameters of the bases as their authors and the paper have them, where ours are others."""

from __future__ import annotations

from typing import Any

# LEML: rank 500 and 5 iterations by the paper, the rest of the authors' program. PD-Sparse: the lambda of the authors'
# scripts. DiSMEC's own defaults (C 1, weights below 0.01 dropped) are ours, too.
AUTHORS: dict[str, dict[str, Any]] = {
    "leml": {"rank": 500, "lam": 0.1, "n_iter": 5, "bias": 0.0, "init": "random"},
    "pd-sparse": {"lam": 0.1},
}
