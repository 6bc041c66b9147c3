"""Choose lambda, the number of blocks and how a model is served, on held-out rows: within a tolerance or limits."""

from blockxmc.training.trials.plan import BlockPlan
from blockxmc.tuning.final import fit_tuned
from blockxmc.tuning.limits import Limits
from blockxmc.tuning.notebook import OutOfTimeError
from blockxmc.tuning.problem import TrialOptions
from blockxmc.tuning.protocol import plan_blocks, tune_lambda
from blockxmc.tuning.result import FoldRecord, Point, Trial, TuningResult
from blockxmc.tuning.within import KnobGrid, WithinResult, tune_within

__all__ = [
    "BlockPlan",
    "FoldRecord",
    "KnobGrid",
    "Limits",
    "OutOfTimeError",
    "Point",
    "Trial",
    "TrialOptions",
    "TuningResult",
    "WithinResult",
    "fit_tuned",
    "plan_blocks",
    "tune_lambda",
    "tune_within",
]
