"""Training a system, and the raw row of numbers about it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blockxmc import metrics
from blockxmc.metrics.report import scored_labels
from blockxmc.paper.experiments.settings import BASE_TITLES, KS, Settings
from blockxmc.paper.experiments.stopwatch import Spent, stopwatch
from blockxmc.paper.letter import AUTHORS

if TYPE_CHECKING:
    from blockxmc._core.base import XMCEstimator
    from blockxmc.data import Dataset
    from blockxmc.tuning import TrialOptions

# What other seeds are judged by.
RANKED = tuple(f"P@{k}" for k in KS)
# What a tuning cell holds besides the fields of its result.
_BESIDE = ("tune_seconds", "tune_cpu_seconds", "explain")


def make_base(name: str, settings: Settings, *, letter: bool = False) -> Any:
    """A base classifier, with the rank of the settings, or to the letter with its authors' parameters."""
    import blockxmc

    base = getattr(blockxmc, BASE_TITLES[name].replace("-", "").replace(" ", ""))()
    base = base.set_params(rank=settings.rank) if name == "leml" else base
    return base.set_params(**AUTHORS.get(name, {})) if letter else base


def _options(settings: Settings, letter: bool, **more: Any) -> TrialOptions:
    from blockxmc.partition import Partitioner
    from blockxmc.tuning import TrialOptions

    shared: dict[str, Any] = {"random_state": settings.seed, "n_jobs": settings.n_threads}
    return TrialOptions(partitioner=Partitioner(letter=letter), **shared, **more)


def plan(train: Dataset, settings: Settings, *, letter: bool = False) -> dict[str, Any]:
    """The lambdas and numbers of blocks that all bases try, the paper's search included, and the time it took."""
    from blockxmc.tuning import plan_blocks

    start, options = Spent.now(), _options(settings, letter)
    found = plan_blocks(train.X, train.Y, n_blocks="paper" if letter else settings.blocks, options=options)
    return found.to_dict() | _spent("search", Spent.now().since(start))


def tune(
    train: Dataset, base: Any, row: dict[str, Any], settings: Settings, work: Path, stop_at: float | None = None
) -> dict[str, Any]:
    """Blocks and lambda by cross-validation, as a dict of numbers; an interrupted run goes on from ``work``.

    Every second lambda for a base that trains labels together, which takes longer, and to the letter.
    """
    from blockxmc.tuning import BlockPlan, tune_lambda

    found = BlockPlan.from_dict(row)
    found = found if base.one_vs_all and not found.letter else found.thinned(2)
    options = _options(settings, found.letter, work=work, stop_at=stop_at)
    what: dict[str, Any] = {"n_blocks": found, "tolerance": settings.tolerance, "folds": settings.folds}
    start = Spent.now()
    result = tune_lambda(train.X, train.Y, base, options=options, **what)
    return result.to_dict() | _spent("tune", Spent.now().since(start)) | {"explain": result.explain()}


def fit_tuned(
    tuning: dict[str, Any], train: Dataset, base: Any, choice: str, settings: Settings, seed: int
) -> XMCEstimator:
    """The model of a tuned lambda on all training rows."""
    from blockxmc.partition import Partitioner
    from blockxmc.tuning import TuningResult, fit_tuned

    fields = {key: value for key, value in tuning.items() if key not in _BESIDE}
    found = TuningResult.from_dict(fields | {"setting": tuning["setting"] | {"seed": seed}})
    how: dict[str, Any] = {"partitioner": Partitioner(letter="letter=True" in found.setting["partitioner"])}
    model: XMCEstimator = fit_tuned(found, train.X, train.Y, choice, base=base, n_jobs=settings.n_threads, **how)
    return model


def precision(model: XMCEstimator, test: Dataset) -> dict[str, float]:
    """P@k in points."""
    labels = scored_labels(model, test, max(KS))
    return {f"P@{k}": 100 * metrics.precision_at_k(test.Y, labels, k) for k in KS}


def train_and_measure(
    fit: Callable[[], XMCEstimator], test: Dataset, propensity: tuple[float, float]
) -> dict[str, Any]:
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
    a, b = propensity
    return row | measure(model, test, a=a, b=b) | _hits(model, test) | _blocks(model, test) | _size(model)


def _total(calls: list[Spent]) -> Spent:
    return Spent(sum(call.wall for call in calls), sum(call.cpu for call in calls))


def _spent(part: str, spent: Spent) -> dict[str, Any]:
    return {f"{part}_seconds": spent.wall, f"{part}_cpu_seconds": spent.cpu}


def _hits(model: XMCEstimator, test: Dataset) -> dict[str, Any]:
    """Where precision comes from: by label frequency, and by row (a digit: right labels among the first k)."""
    labels = scored_labels(model, test, max(KS))
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
