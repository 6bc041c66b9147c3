"""The paper's tables and figures on any data sets.

A run is a set of cells, (data set, system, base) -> one raw row of numbers, each computed once and stored at once
(``cells``, ``store``). Tables, figures, conclusions and the report are pure functions of these rows, so
that they can be drawn again without training anything.
"""

from blockxmc.paper.experiments.results import Results
from blockxmc.paper.experiments.runner import EXPERIMENTS, run
from blockxmc.paper.experiments.settings import Settings

__all__ = ["EXPERIMENTS", "Results", "Settings", "run"]
