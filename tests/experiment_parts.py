"""Stand-ins for experiments: a tiny data folder, a tuner that takes no time, hand-made cells."""

import sys
from dataclasses import dataclass, field
from types import ModuleType

from helpers import blocky

import blockxmc.tuning
from blockxmc import BlockwiseClassifier
from blockxmc.data import write_xc
from blockxmc.paper.experiments import Results, Settings


def write_folder(where, name="tiny", seed=0):
    folder = where / name
    folder.mkdir()
    X, Y = blocky(n=240, seed=seed)
    write_xc(folder / "train.txt", X[:180], Y[:180])
    write_xc(folder / "test.txt", X[180:], Y[180:])
    return folder


@dataclass
class Tuner:
    """Counts what is asked of it; lambdas of the two choices are given."""

    speed: float | None = 0.5  # None: no lambda is feasible
    accuracy: float = 0.1
    tuned: list = field(default_factory=list)
    fitted: list = field(default_factory=list)

    def install(self, monkeypatch):
        tuner = self

        class TuningResult(dict):
            to_dict = dict.copy
            from_dict = classmethod(lambda cls, values: cls(values))
            setting = property(lambda self: self["setting"])

            def explain(self):
                return "as told"

        def tune_lambda(X, Y, base, *, folds, options, **more):
            letter = options.partitioner.letter
            tuner.tuned.append((type(base).__name__, letter))
            fold = {
                "base": [60.0, 40.0, 30.0],
                "precision": [[59.0, 39.0, 29.5], [58.5, 38.0, 28.0]],
                "candidates": [10.0, 5.0],
                "feasible": [True, True],
                "interval": [0.1, 0.5],
            }
            measured = {"precision": [58.5, 38.0, 28.0], "recall": 0.9, "loss": 1.5, "products": 7.0, "n_blocks": 2}
            lams = {"speed_driven": tuner.speed, "accuracy_driven": tuner.accuracy, "least_loss": 0.1}
            points = {
                name: None if lam is None else {"lam": lam, "assigned_at": [lam]} | measured
                for name, lam in lams.items()
            }
            return TuningResult(
                lams=[0.1, 0.5],
                blocks=[2, 2],
                feasible=[tuner.speed is not None] * 2,
                n_labels=Y.shape[1],
                folds=[fold] * folds,
                interval=None if tuner.speed is None else [0.1, 0.5],
                setting={"seed": options.random_state, "partitioner": f"Partitioner(letter={letter})"},
                **points,
            )

        def fit_tuned(result, X, Y, choice, base, partitioner, n_jobs):
            tuner.fitted.append((type(base).__name__, choice, partitioner.letter, result.setting["seed"]))
            lam = result["least_loss" if choice == "least-loss" else f"{choice}_driven"]["lam"]
            seed = result.setting["seed"]
            model = BlockwiseClassifier(base, partitioner, n_blocks=2, lam=lam, weights="per-block", n_jobs=n_jobs)
            return model.set_params(random_state=seed).fit(X, Y)

        module = ModuleType("blockxmc.tuning")
        module.__path__ = blockxmc.tuning.__path__  # its modules can still be imported
        module.TuningResult, module.tune_lambda, module.fit_tuned = TuningResult, tune_lambda, fit_tuned
        module.TrialOptions = blockxmc.tuning.TrialOptions
        module.plan_blocks, module.BlockPlan = blockxmc.tuning.plan_blocks, blockxmc.tuning.BlockPlan
        monkeypatch.setitem(sys.modules, "blockxmc.tuning", module)
        return self


def system_row(precision, hits="5", **more):
    """A raw row as training a system leaves it, with every metric set to round numbers."""
    row = {
        f"{metric}@{k}": value for metric in ("P", "PSP", "R") for k, value in zip((1, 3, 5), precision, strict=True)
    }
    row |= {"speedup_paper": 1.0, "speedup": 1.0, "batch_us": 100.0, "rows": 4, "train_seconds": 10.0}
    row |= {"train_cpu_seconds": 10.0, "propensity_a": 0.55, "propensity_b": 1.5, "candidates": 10.0, "products": 12.0}
    row["hits"] = {"1": "1110", "3": "3210", "5": hits * 4}
    row["deciles"] = {"precision": [0.1] * 10}
    return row | more


def made_results(rows, errors=None, data=("bibtex",), bases=("leml",), **settings):
    contents = {cell: {"row": row, "seconds": 1.0} for cell, row in rows.items()}
    contents |= {cell: {"error": error, "seconds": 1.0} for cell, error in (errors or {}).items()}
    return Results(data, Settings(bases=bases, threads=2, **settings), contents, {"blockxmc": "0", "date": "today"})
