"""How good a ranking of labels is, and what it cost: fractions in 0..1, computed in double precision.

Y is a 0-1 label matrix (CSR or dense). ``labels`` is what ``predict_topk`` gives (integers, best first, padded with
-1) or a CSR matrix of scores, of which stored entries only are ranked, ties to the lower label id. A row that offers
fewer than k labels has misses in the rest. Rows without labels count 0 in P@k and are left out of R@k, nDCG@k, F1@k and
mean F1 per row; a mean over no row at all is 0. The F1 of label sets compares 0-1 matrices, as ``predict`` gives them.
"""

from blockxmc.metrics.calibration import calibration_error
from blockxmc.metrics.candidates import candidate_counts, candidate_recall, precision_ceiling, speedups
from blockxmc.metrics.propensity import customary_propensity
from blockxmc.metrics.ranking import (
    coverage_at_k,
    inverse_propensity,
    inverse_propensity_from_counts,
    ndcg_at_k,
    precision_at_k,
    psndcg_at_k,
    psp_at_k,
    recall_at_k,
)
from blockxmc.metrics.sets import f1_at_k, f1_macro, f1_micro, f1_samples
from blockxmc.metrics.summary import TopKScorer, evaluate, precision_by_frequency, scorer

__all__ = [
    "TopKScorer",
    "calibration_error",
    "candidate_counts",
    "candidate_recall",
    "coverage_at_k",
    "customary_propensity",
    "evaluate",
    "f1_at_k",
    "f1_macro",
    "f1_micro",
    "f1_samples",
    "inverse_propensity",
    "inverse_propensity_from_counts",
    "ndcg_at_k",
    "precision_at_k",
    "precision_by_frequency",
    "precision_ceiling",
    "psndcg_at_k",
    "psp_at_k",
    "recall_at_k",
    "scorer",
    "speedups",
]
