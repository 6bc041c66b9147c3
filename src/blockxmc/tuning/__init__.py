"""Choose lambda, the number of blocks and how a model is served, on held-out rows: within a tolerance or limits."""

from blockxmc.tuning.budget import tune_budget
from blockxmc.tuning.final import fit_tuned
from blockxmc.tuning.knobs import KnobGrid, Knobs, KnobsResult, tune_knobs
from blockxmc.tuning.limits import Limits
from blockxmc.tuning.notebook import OutOfTimeError
from blockxmc.tuning.plan import BlockPlan, plan_blocks
from blockxmc.tuning.problem import TrialOptions
from blockxmc.tuning.protocol import tune_lambda
from blockxmc.tuning.quick import quick_lambda
from blockxmc.tuning.result import BudgetResult, FoldRecord, Point, Trial, TuningResult
from blockxmc.tuning.within import WholeBase, WithinResult, tune_within

__all__ = [
    "BlockPlan",
    "BudgetResult",
    "FoldRecord",
    "KnobGrid",
    "Knobs",
    "KnobsResult",
    "Limits",
    "OutOfTimeError",
    "Point",
    "Trial",
    "TrialOptions",
    "TuningResult",
    "WholeBase",
    "WithinResult",
    "fit_tuned",
    "plan_blocks",
    "quick_lambda",
    "tune_budget",
    "tune_knobs",
    "tune_lambda",
    "tune_within",
]
