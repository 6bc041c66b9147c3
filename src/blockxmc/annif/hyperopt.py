"""The best parameters on held-out documents: each trial trains on the rows of the last ``annif train``."""

from __future__ import annotations

from typing import Any

from annif.backend.hyperopt import HPObjective, HPRecommendation, HyperparameterOptimizer
from annif.eval import EvaluationBatch

# Subjects per document that are looked at; Annif's own optimizers take as many.
LIMIT = 10


class Objective(HPObjective):  # type: ignore[misc]
    """The metric of one choice of parameters."""

    @classmethod
    def objective(cls, trial: Any, args: dict[str, Any]) -> float:
        """Train with what the trial asks for, and look."""
        backend = args["backend"]
        chosen = {
            "ngram": trial.suggest_int("ngram", 1, 2),
            "min_df": trial.suggest_int("min_df", 1, 5),
            "C": trial.suggest_float("C", 0.25, 4.0, log=True),
        }
        model = backend.fit(args["rows"], backend.params | chosen, args["jobs"])
        found = EvaluationBatch(backend.project.subjects)
        for documents in args["batches"]:
            batch = backend.suggestions(model, [document.text for document in documents], LIMIT)
            found.evaluate_many(batch, [document.subject_set for document in documents])
        return float(found.results(metrics=[args["metric"]])[args["metric"]])


class Optimizer(HyperparameterOptimizer):  # type: ignore[misc]
    """Annif's optimizer for :class:`Objective`."""

    def __init__(self, backend: Any, corpus: Any, metric: str) -> None:
        super().__init__(backend, corpus, metric, Objective)

    def _prepare(self, n_jobs: int = 1) -> dict[str, Any]:
        return {
            "backend": self._backend,
            "rows": self._backend.kept_rows(),
            "batches": list(self._corpus.doc_batches),
            "metric": self._metric,
            # One trial at a time has all cores; of several, each has one.
            "jobs": 0 if n_jobs == 1 else 1,
        }

    def _normalize(self, hps: dict[str, Any]) -> dict[str, Any]:
        return hps | {"C": round(hps["C"], 4)}

    def _postprocess(self, study: Any) -> HPRecommendation:
        lines = [f"{name}={value}" for name, value in self._normalize(study.best_params).items()]
        return HPRecommendation(lines=lines, score=study.best_value)
