"""Training a system, and the raw row of numbers about it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blockxmc import metrics
from blockxmc.paper.experiments.published import propensity
from blockxmc.paper.experiments.settings import BASE_TITLES, KS, Settings
from blockxmc.paper.experiments.stopwatch import Spent, stopwatch

if TYPE_CHECKING:
    from blockxmc._core.base import XMCEstimator
    from blockxmc.data import Dataset
    from blockxmc.tuning import TuningResult

# What a tuning cell holds besides the fields of its result.
_BESIDE = ("tune_seconds", "tune_cpu_seconds", "explain")


def make_base(name: str, settings: Settings) -> Any:
    """A base classifier, with the rank of the settings."""
    import blockxmc

    base = getattr(blockxmc, BASE_TITLES[name].replace("-", "").replace(" ", ""))()
    return base.set_params(rank=settings.rank) if name == "leml" else base


def plan(train: Dataset, settings: Settings) -> dict[str, Any]:
    """The lambdas and numbers of blocks that all bases try, the paper's search included, and the time it took."""
    from blockxmc.tuning import TrialOptions, plan_blocks

    start = Spent.now()
    shared = TrialOptions(random_state=settings.seed, n_jobs=settings.n_threads)
    found = plan_blocks(train.X, train.Y, n_blocks=settings.blocks, options=shared)
    return found.to_dict() | _spent("search", Spent.now().since(start))


def _planned(row: dict[str, Any], base: Any) -> Any:
    """The plan of a cell; every second lambda for a base that trains labels together, which takes longer."""
    from blockxmc.tuning import BlockPlan

    found = BlockPlan.from_dict(row)
    return found if base.one_vs_all else found.thinned(2)


def tune(
    train: Dataset, base: Any, row: dict[str, Any], settings: Settings, work: Path, stop_at: float | None = None
) -> dict[str, Any]:
    """Blocks and lambda by cross-validation, as a dict of numbers; an interrupted run goes on from ``work``."""
    from blockxmc.tuning import TrialOptions, tune_lambda

    shared = TrialOptions(random_state=settings.seed, n_jobs=settings.n_threads, work=work, stop_at=stop_at)
    what: dict[str, Any] = {"n_blocks": _planned(row, base), "tolerance": settings.tolerance, "folds": settings.folds}
    return _tuning_row(lambda: tune_lambda(train.X, train.Y, base, options=shared, **what))


def tune_quickly(train: Dataset, base: Any, row: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """Lambda by one split of the training rows, blocks by the paper's search at each, as a dict of numbers."""
    from dataclasses import replace

    from blockxmc.tuning import TrialOptions, quick_lambda

    shared = TrialOptions(random_state=settings.seed, n_jobs=settings.n_threads)
    plan = _planned(row, base)
    path = plan.paths[0] if plan.paper is None else plan.paper
    what: dict[str, Any] = {"n_blocks": replace(plan, paths=(path,)), "tolerance": settings.tolerance}
    return _tuning_row(lambda: quick_lambda(train.X, train.Y, base, options=shared, **what))


def _tuning_row(tuned: Callable[[], TuningResult]) -> dict[str, Any]:
    start = Spent.now()
    result = tuned()
    return result.to_dict() | _spent("tune", Spent.now().since(start)) | {"explain": result.explain()}


def as_published(name: str) -> Any:
    """A system as its authors ran it: on rows as the files have them, with their settings."""
    from blockxmc import LEML, PDSparse
    from blockxmc.baselines import LPSR, FastXML

    made: dict[str, Any] = {
        "pd-sparse": lambda: PDSparse(lam=0.1),
        "leml": lambda: LEML(rank=500, lam=0.1, bias=0.0, init="random"),
        "fastxml": FastXML,
        "lpsr": LPSR,
    }
    return made[name]()


def fit_tuned(tuning: dict[str, Any], train: Dataset, base: Any, choice: str, settings: Settings) -> XMCEstimator:
    """The model of a tuned lambda on all training rows."""
    from blockxmc.tuning import TuningResult, fit_tuned

    fields = {key: value for key, value in tuning.items() if key not in _BESIDE}
    options: dict[str, Any] = {"choice": choice, "base": base, "n_jobs": settings.n_threads}
    model: XMCEstimator = fit_tuned(TuningResult.from_dict(fields), train.X, train.Y, **options)
    return model


def train_and_measure(fit: Callable[[], XMCEstimator], test: Dataset, data: str) -> dict[str, Any]:
    """Train a model, and collect what tables show of it."""
    from blockxmc.metrics.report import measure
    from blockxmc.partition import Partitioner
    from blockxmc.routing import Router

    with stopwatch(partition=(Partitioner, "_fit"), router=(Router, "fit")) as parts:
        start = Spent.now()
        model = fit()
        whole = Spent.now().since(start)
    row = _spent("train", whole)
    partition, routers = _total(parts["partition"]), _total(parts["router"])
    if parts["partition"]:
        row |= _spent("partition", partition)
    if parts["router"]:  # the last router is kept; earlier ones were fitted to be assessed
        row |= _spent("router", parts["router"][-1])
        row |= _spent("blocks", whole.since(partition).since(routers))
    a, b = propensity(data)
    return row | measure(model, test, a=a, b=b) | _hits(model, test) | _blocks(model, test) | _size(model)


def _total(calls: list[Spent]) -> Spent:
    return Spent(sum(call.wall for call in calls), sum(call.cpu for call in calls))


def _spent(part: str, spent: Spent) -> dict[str, Any]:
    return {f"{part}_seconds": spent.wall, f"{part}_cpu_seconds": spent.cpu}


def _hits(model: XMCEstimator, test: Dataset) -> dict[str, Any]:
    """Where precision comes from: by label frequency, and by row (a digit: right labels among the first k)."""
    labels, _ = model.predict_topk(test.X, max(KS))
    deciles = metrics.precision_by_frequency(test.Y, labels, max(KS), model.label_counts_)
    keys = labels + np.arange(test.n_rows)[:, None] * test.n_labels
    truth = np.repeat(np.arange(test.n_rows), np.diff(test.Y.indptr)) * test.n_labels + test.Y.indices
    right = np.isin(keys, truth) & (labels >= 0)
    digits = {str(k): "".join(map(str, right[:, :k].sum(axis=1))) for k in KS}
    by_bin = {key: np.asarray(deciles[key]).tolist() for key in ("precision", "recall", "max_count", "min_count")}
    return {"hits": digits, "deciles": by_bin}


def _blocks(model: Any, test: Dataset) -> dict[str, Any]:
    row: dict[str, Any] = {}
    if hasattr(model, "partition_"):
        part = model.partition_
        row |= {"blocks": part.n_blocks_, "lam": part.lam_, "lam_rel": part.lam_rel_, "captured": part.captured_}
    if hasattr(model, "model_"):
        start = time.perf_counter()
        model.model_.visited(test.X, model._threads)
        row["router_predict_seconds"] = time.perf_counter() - start
    return row


def _size(model: XMCEstimator) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        return {"model_mb": sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()) / 1e6}
