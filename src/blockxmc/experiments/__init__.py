"""The paper's tables and figures on any data sets.

A run is a set of cells, (data set, system, base) -> one raw row of numbers, each computed once and stored at once
(:mod:`~blockxmc.experiments.cells`, :mod:`~blockxmc.experiments.store`). Tables, figures, conclusions and the report
are pure functions of these rows, so that they can be drawn again without training anything.
"""

from blockxmc.experiments.results import Results
from blockxmc.experiments.runner import EXPERIMENTS, run
from blockxmc.experiments.settings import Settings

__all__ = ["EXPERIMENTS", "Results", "Settings", "run"]
