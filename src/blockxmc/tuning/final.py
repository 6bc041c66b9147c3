"""The final fit: the model that tuning chose, on all rows."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone

from blockxmc.classifier import BlockwiseClassifier
from blockxmc.errors import BlockXMCError
from blockxmc.learners._learner import Learner
from blockxmc.learners.dismec import DiSMEC
from blockxmc.learners.sklearn_adapter import as_learner
from blockxmc.partition import Partitioner
from blockxmc.tuning.problem import described
from blockxmc.tuning.result import TuningResult


def fit_tuned(
    result: TuningResult,
    X: Any,
    Y: Any,
    choice: str = "speed",
    *,
    base: Any = None,
    partitioner: Partitioner | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> BlockwiseClassifier:
    """Fit the model that was tuned: the same way of assigning rows, on all rows.

    The choice "speed" raises BlockXMCError where no lambda was feasible; "least-loss" is what comes nearest.
    ``base`` and ``partitioner`` must be those of the tuning run: a result holds only their descriptions.

    >>> from blockxmc import NaiveBayes
    >>> from blockxmc.tuning import tune_lambda
    >>> from blockxmc.data import make_synthetic
    >>> train, _ = make_synthetic(n_train=300, n_test=10, n_features=60, n_labels=12, seed=0)
    >>> result = tune_lambda(train.X, train.Y, NaiveBayes(), n_blocks=2, folds=2)
    >>> model = fit_tuned(result, train.X, train.Y, "accuracy", base=NaiveBayes())
    >>> model.partition_.lam_ == result.accuracy_driven.lam
    True
    """
    learner: Learner = as_learner(base, DiSMEC)
    options = Partitioner() if partitioner is None else clone(partitioner)
    for what, mine in {"base": described(learner), "partitioner": described(options)}.items():
        if mine != result.setting[what]:
            raise BlockXMCError(
                f"the result was tuned with {what} {result.setting[what]}, not {mine}: pass the same {what}"
            )
    point = result.choice(choice)
    rows = len(X) if isinstance(X, list) else X.shape[0]
    share = rows / result.setting["n_rows"]  # lambda grows with the number of rows
    common: dict[str, Any] = {"n_jobs": n_jobs, "verbose": verbose, "random_state": result.setting["seed"]}
    steps = [at * share for at in point.assigned_at]
    partition = options.set_params(n_blocks=point.n_blocks, lam=steps[-1], assign_at=steps, **common)
    return BlockwiseClassifier(learner, partition, weights="per-block", route=1, **common).fit(X, Y)
