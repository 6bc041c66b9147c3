"""What is asked of a shared training."""

from __future__ import annotations

from dataclasses import dataclass, field

from blockxmc.learners._learner import Learner
from blockxmc.training.job import Job
from blockxmc.training.shared.hints import NO_HINTS, Hints
from blockxmc.training.shared.settings import SETTINGS, Settings


@dataclass(frozen=True)
class Request:
    """What is asked of a shared training.

    ``route`` is a number of blocks to visit, a share of the router's probability to reach, or ``"auto"``; ``n_neighbors``
    how many training rows like it a row asks, unless held-out rows say that they mislead.
    """

    learner: Learner
    route: float | str = "auto"
    n_neighbors: int | str = "auto"
    bits: int = 16
    seed: int = 0
    threads: int = 1
    settings: Settings = SETTINGS
    hints: Hints = NO_HINTS
    job: Job = field(default_factory=Job)
    keep_rows: bool = False
