"""What all tuners share: their options, and the data and learner after checking."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.utils import check_array
from sklearn.utils.validation import check_consistent_length

from blockxmc._core.matrix import as_csr
from blockxmc._core.params import as_seed
from blockxmc._core.progress import Reporter, reporter_for, thread_count
from blockxmc._core.targets import Targets
from blockxmc.errors import BlockXMCError
from blockxmc.learners._learner import Learner
from blockxmc.learners.dismec import DiSMEC
from blockxmc.learners.sklearn_adapter import as_learner
from blockxmc.partition import Partitioner
from blockxmc.training.trials.grid import loosened, one_split
from blockxmc.training.trials.split import KS, Split, Task

# Points of P@k that may be lost, as in the paper.
TOLERANCE = 2.0
# Held-out rows judged in a split. Not measured: with so many, the standard error of a P@1 is below 0.4 points.
MAX_ROWS = 20000


@dataclass(frozen=True)
class TrialOptions:
    """Options of every tuner: how trial models are partitioned, solved and judged, and how a run behaves.

    - ``ks``: precision is judged at these ranks;
    - ``partitioner``: its options make the blocks (None: the defaults); ``n_blocks`` and ``lam`` are set by the tuner;
    - ``random_state``: seed of splits and partitions;
    - ``max_rows``: held-out rows judged in each split, at most (None: no bound);
    - ``fold_tol``: a base with a solver tolerance is solved to this tolerance in trials, which moves precision less than
      another fold would; None: to its own tolerance; "auto": to 0.1 in ``tune_lambda``, else to its own;
    - ``work``: a folder for finished trials, from which the same call goes on after a kill (``tune_lambda`` only);
    - ``stop_at``: no trial of ``tune_lambda`` begins after this time (as ``time.time()`` tells it): OutOfTimeError;
    - ``n_jobs``: threads (None: all cores);
    - ``verbose``: 1 shows progress.

    >>> TrialOptions(ks=(1, 5)).max_rows
    20000
    """

    ks: tuple[int, ...] = KS
    partitioner: Partitioner | None = None
    random_state: int | None = 0
    max_rows: int | None = MAX_ROWS
    fold_tol: float | Literal["auto"] | None = "auto"
    work: str | os.PathLike[str] | None = None
    stop_at: float | None = None
    n_jobs: int | None = None
    verbose: int = 0

    def __post_init__(self) -> None:
        if not self.ks or any(int(k) != k or k < 1 for k in self.ks):
            raise BlockXMCError(f"ks must be whole numbers of at least 1, got {self.ks!r}")


@dataclass(frozen=True)
class Problem:
    """Checked input of a tuning run."""

    X: sparse.csr_array
    Y: sparse.csr_array
    base: Learner  # as given: what the final fit takes
    task: Task
    options: TrialOptions

    @classmethod
    def of(
        cls, X: Any, Y: Any, base: Any, options: TrialOptions | None = None, *, fold_tol: float | None = None
    ) -> Problem:
        """Check and convert what the user gave; ``fold_tol`` is what "auto" stands for."""
        options = TrialOptions() if options is None else options
        matrix = as_csr(check_array(X, accept_sparse="csr", dtype=np.float32))
        Y01 = Targets.encode(Y)[1]
        check_consistent_length(matrix, Y01)
        learner = as_learner(base, DiSMEC)
        learner._check_params()
        task = Task(
            loosened(learner, fold_tol if isinstance(options.fold_tol, str) else options.fold_tol),
            Partitioner() if options.partitioner is None else clone(options.partitioner),
            tuple(options.ks),
            as_seed(options.random_state),
            thread_count(options.n_jobs),
            reporter_for(options.verbose),
        )
        return cls(matrix, Y01, learner, task, options)

    @property
    def n_rows(self) -> int:
        """Rows of the full data."""
        return int(self.X.shape[0])

    @property
    def reporter(self) -> Reporter:
        """Where progress goes."""
        return self.task.reporter

    def say_how_long(self, seconds: float, least: int, most: int) -> None:
        """What the first trial tells of the time that all others take: at least so many are left, and at most so many."""
        if most > 0:
            left = f"{least:,}" if least == most else f"{least:,} to {most:,}"
            time = " to ".join(dict.fromkeys(_duration(number * seconds) for number in (least, most)))
            self.reporter.say(
                f"the first trial took {_duration(seconds)}; {left} are left: about {time} if they take as long"
            )

    def split(self) -> Split:
        """A fifth of the rows held out, of which at most ``max_rows`` are judged."""
        parts = one_split(self.n_rows, self.options.max_rows, seed=self.task.seed, sample=False)
        return Split(self.task, self.X, self.Y, *parts)

    def describe(self) -> dict[str, Any]:
        """What a result must hold so that the final fit can be the same kind of model."""
        return {
            "base": described(self.base),
            "evaluated_base": described(self.task.learner),
            "partitioner": described(self.task.partitioner),
            "seed": self.task.seed,
            "n_rows": self.n_rows,
        }


def _duration(seconds: float) -> str:
    """About how long, for people.

    >>> [_duration(seconds) for seconds in (0.3, 42.0, 200.0, 9000.0)]
    ['less than 1 s', '42 s', '3 min', '2.5 h']
    """
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 1 else "less than 1 s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def described(estimator: Any) -> str:
    """An estimator and those of its parameters that change the model."""
    params = estimator.get_params(deep=False)
    shown = [
        f"{name}={_short(params[name])}" for name in sorted(params) if name not in ("n_jobs", "verbose", "random_state")
    ]
    return f"{type(estimator).__name__}({', '.join(shown)})"


def _short(value: Any) -> str:
    return f"<{value.size} blocks>" if isinstance(value, np.ndarray) else repr(value)
