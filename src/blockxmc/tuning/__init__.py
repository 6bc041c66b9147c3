"""Choosing lambda, the number of blocks and how a model is served: by tolerance, by budget, on held-out rows."""

from blockxmc.tuning.budget import tune_budget
from blockxmc.tuning.final import fit_tuned
from blockxmc.tuning.knobs import Knobs, KnobsResult, tune_knobs
from blockxmc.tuning.protocol import tune_lambda
from blockxmc.tuning.quick import quick_lambda
from blockxmc.tuning.result import BudgetResult, FoldRecord, Point, TuningResult

__all__ = [
    "BudgetResult",
    "FoldRecord",
    "Knobs",
    "KnobsResult",
    "Point",
    "TuningResult",
    "fit_tuned",
    "quick_lambda",
    "tune_budget",
    "tune_knobs",
    "tune_lambda",
]
