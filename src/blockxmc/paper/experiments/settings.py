"""What a run is asked to do, and where it ran."""

from __future__ import annotations

import datetime
import os
import platform
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from blockxmc._core.progress import thread_count
from blockxmc.metrics import customary_propensity

# Precision is shown at these ranks, as in the paper.
KS = (1, 3, 5)
BASE_TITLES = {
    "dismec": "DiSMEC",
    "pd-sparse": "PD-Sparse",
    "ppd-sparse": "PPD-Sparse",
    "leml": "LEML",
    "naive-bayes": "Naive Bayes",
}


@dataclass(frozen=True)
class Settings:
    """Options of a run; the defaults are the paper's where the paper has them.

    >>> Settings(bases=("leml",)).folds
    5
    """

    bases: tuple[str, ...] = ("dismec", "pd-sparse", "leml")
    folds: int = 5
    tolerance: float = 2.0  # points of P@k that the speed-driven model may lose
    blocks: int | str = "auto"  # pairs of blocks and lambda, chosen together; "paper": its search at each lambda
    normalise: bool = True  # rows scaled to unit length, as for every published figure
    max_test_rows: int | None = None
    max_train_rows: tuple[tuple[str, int], ...] = ()  # data set, rows: a stated sample where a base is too slow
    skip: tuple[str, ...] = ()  # patterns of cells that are left out, like "yso-finna-en/*/leml"
    rank: int = 500  # of LEML, which lowers it to what the data allow
    trees: int = 50  # of FastXML
    seeds: int = 3  # of models whose seed counts: a verdict tells their spread
    propensity: tuple[float, float] | None = None  # A and B of PSP; None: those customary for the data
    threads: int | None = None
    seed: int = 0

    @property
    def n_threads(self) -> int:
        """Threads really used; times depend on it, results do not."""
        return thread_count(self.threads)

    def propensity_of(self, data: str, n_labels: int) -> tuple[float, float]:
        """A and B for a data set."""
        return self.propensity or customary_propensity(n_labels, data)

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        lists = {"bases": list(self.bases), "skip": list(self.skip), "max_train_rows": dict(self.max_train_rows)}
        return asdict(self) | lists | {"threads": self.n_threads}


def provenance() -> dict[str, Any]:
    """Versions, machine and date: what numbers depend on besides the settings."""
    import numpy
    import scipy
    import sklearn

    from blockxmc import __version__

    return {
        "blockxmc": __version__,
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
