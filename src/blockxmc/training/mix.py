"""What held-out rows say: how to mix a score, whether neighbors help, what a score means, and what new rows can expect."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from blockxmc import metrics
from blockxmc.linear.weights import F32
from blockxmc.model.calibration import Calibration
from blockxmc.model.reranker import Reranker
from blockxmc.model.routed import RoutedModel
from blockxmc.training.calibration import F64, best_cut, fit_calibration
from blockxmc.training.candidates import Candidates, Mix
from blockxmc.training.companions import fit_companions
from blockxmc.training.job import Form
from blockxmc.training.reranker import fit_reranker, order_of, spread_of, telling_rows
from blockxmc.training.settings import Settings

Promise = dict[str, float]


@dataclass(frozen=True)
class Fitted:
    """All that is fitted on held-out rows."""

    mix: Mix
    reranker: Reranker | None
    calibration: Calibration

    def state(self) -> dict[str, Any]:
        """Numbers and arrays; see ``from_state``."""
        reranker = None if self.reranker is None else self.reranker.state()
        return {"mix": vars(self.mix), "reranker": reranker, "calibration": self.calibration.state()}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Take back what ``state`` gave."""
        reranker = None if state["reranker"] is None else Reranker.from_state(state["reranker"])
        return cls(Mix(**state["mix"]), reranker, Calibration.from_state(state["calibration"]))


FITTED: Form[tuple[Fitted, Promise]] = Form(
    lambda found: {"fitted": found[0].state(), "promised": found[1]},
    lambda state: (Fitted.from_state(state["fitted"]), state["promised"]),
)


class Fitter:
    """Fits a score mix and a reranker to candidates of held-out rows."""

    def __init__(
        self,
        candidates: Candidates,
        log_positives: F32,
        settings: Settings,
        *,
        name: float = 0.0,
        rerank: bool = True,
        threads: int,
    ) -> None:
        self.candidates, self.settings, self.rerank, self.threads = candidates, settings, rerank, threads
        self.log_positives, self.name = log_positives, name

    def fit(self, neighbors: float) -> tuple[Mix, Reranker | None]:
        """What ranks the labels of these rows best, if neighbors count so much."""
        mix = self.mix(neighbors)
        return mix, self.reranker(mix)

    def mix(self, neighbors: float) -> Mix:
        """A mean of the mixes tried, in which those that rank nearly as well as the best count nearly as much.

        A thousand rows tell mixes that are alike apart by chance as often as by merit: the mean is steadier than the best.
        """
        tried = np.array(list(product(self.settings.slopes, (self.name,), self.settings.centroid_weights)))
        mixes = np.column_stack([tried, np.full(len(tried), neighbors)]).astype(np.float32)
        hits = self.candidates.hits_of(mixes, self.threads)
        quality = hits.mean(axis=1)
        votes = np.exp((quality - quality.max()) * np.sqrt(hits.shape[1]) / self.settings.noise)
        slope, name, centroid = (votes @ tried / votes.sum()).tolist()
        return Mix(slope, name, centroid, neighbors)

    def reranker(self, mix: Mix) -> Reranker | None:
        """What puts the best candidates in order if scores are mixed like this."""
        if not self.rerank:
            return None
        seen, settings = self.candidates, self.settings
        best = seen.best(mix, settings.reranked, settings.reranked, self.threads)
        found = fit_reranker(best.terms, best.scores, best.right, self.log_positives, settings, self.threads)
        if found is None or seen.companions is None:
            return found
        labels, scores, right = seen.reranked(best, found, self.threads)
        return fit_companions(found, seen.companions, labels, scores, right, settings, self.threads)

    def counting(self, name: float) -> Fitter:
        """The same where names count so much."""
        options: Any = {"name": name, "rerank": self.rerank, "threads": self.threads}
        return Fitter(self.candidates, self.log_positives, self.settings, **options)

    def of_rows(self, rows: NDArray[np.bool_]) -> Fitter:
        """The same for a part of the rows, which needs its part of the least numbers, to be like the whole."""
        settings = replace(
            self.settings,
            reranker_least_rows=int(self.settings.reranker_least_rows * rows.mean()),
            companion_least_rows=int(self.settings.companion_least_rows * rows.mean()),
        )
        candidates = self.candidates.of_rows(rows)
        options: Any = {"name": self.name, "rerank": self.rerank, "threads": self.threads}
        return Fitter(candidates, self.log_positives, settings, **options)


def fit_held_out(
    candidates: Candidates, log_positives: F32, settings: Settings, *, routed: bool, threads: int
) -> tuple[Fitted, Promise]:
    """Mix, reranker and calibration, and what new rows can expect of them."""
    fitter, gained = names_gain(Fitter(candidates, log_positives, settings, rerank=routed, threads=threads))
    mix, reranker = fitter.fit(1.0)
    if candidates.terms.neighbors.any():
        without = fitter.fit(0.0)
        hits, others = (candidates.hits(*each, threads=threads) for each in ((mix, reranker), without))
        # Neighbors count as much as margins do, or, where they clearly mislead, not at all: there is little in between.
        if clearly_better(others, hits, settings):
            mix, reranker = without
    else:
        mix = replace(mix, neighbors=0.0)
    scores, right = candidates.ranked(mix, reranker, settings.candidates, threads)
    fitted = Fitted(mix, reranker, fit_calibration(scores, right, threads=threads))
    return fitted, expected(fitter, mix.neighbors) | gained


def only_calibrated(trial: RoutedModel, X: Any, Y: Any, settings: Settings, threads: int) -> tuple[Fitted, Promise]:
    """The same where weights are no vectors, which are not mixed."""
    labels, scores = trial.topk(X, min(settings.candidates, Y.shape[1]), threads)
    rows = np.repeat(np.arange(X.shape[0]), labels.shape[1])
    right = np.asarray(Y[rows, np.maximum(labels, 0).ravel()]).reshape(labels.shape) > 0
    right &= labels >= 0
    calibration = fit_calibration(scores, right, threads=threads)
    return Fitted(Mix(), None, calibration), promises(calibration.probabilities(scores), right, np.diff(Y.indptr))


def expected(fitter: Fitter, neighbors: float) -> Promise:
    """What new rows can expect: each half of the rows is judged by what the other half has fitted.

    P@k, the calibration error of the first five labels, and the cut for the best mean F1 with that F1. Rows that are
    judged by what they have fitted themselves look up to a point too good (bench/optimism.py).
    """
    candidates, threads = fitter.candidates, fitter.threads
    n_rows, few = candidates.right.shape
    hits, found, right = np.zeros((n_rows, 3)), np.zeros((n_rows, few)), np.zeros((n_rows, few), bool)
    for half in (0, 1):
        own = np.arange(n_rows) % 2 == half
        other = fitter.of_rows(~own)
        mix, reranker = other.fit(neighbors)
        calibration = fit_calibration(*other.candidates.ranked(mix, reranker, few, threads), threads=threads)
        judged = candidates.of_rows(own)
        scores, right[own] = judged.ranked(mix, reranker, few, threads)
        hits[own] = judged.hits(mix, reranker, threads=threads)
        found[own] = calibration.probabilities(scores)
    values = {f"expected_P@{k}": float(value) for k, value in zip((1, 3, 5), hits.mean(axis=0), strict=True)}
    return values | promises(found, right, candidates.n_true)


def promises(probabilities: F64, right: NDArray[np.bool_], n_true: NDArray[np.integer]) -> Promise:
    """Calibration error of the first five labels of each row, and where label sets are cut for the best F1."""
    first = probabilities[:, :5] > 0
    error = metrics.calibration_error(right[:, :5][first], probabilities[:, :5][first])
    cut = best_cut(probabilities, right, n_true)
    return {
        "expected_calibration_error": error,
        "expected_F1": cut.f1_by_size,
        "f1_threshold": cut.threshold,
        "f1_labels": float(cut.n_labels),
        "f1_size": cut.size,
    }


def names_gain(plain: Fitter) -> tuple[Fitter, dict[str, float]]:
    """A fitter that counts names, and what its rows gain in P@1, P@3 and P@5; or ``plain`` where they gain nothing.

    Where names are wanted anyway, they count ``least_name`` at least.
    """
    seen, threads, least = plain.candidates, plain.threads, plain.settings.least_name
    if not seen.terms.name.any():
        return plain, {}
    weight = max(name_weight(seen, plain.settings, threads), least)
    named = plain.counting(weight)
    gained = np.subtract(*(seen.hits(each.mix(0.0), threads=threads).mean(axis=0) for each in (named, plain)))
    if not least and gained.mean() <= 0:
        return plain, {}
    return named, {f"names_gained_P@{k}": float(value) for k, value in zip((1, 3, 5), gained, strict=True)}


def name_weight(seen: Candidates, settings: Settings, threads: int) -> float:
    """How much names count beside margins where right labels most likely come first, 0 at least.

    Hits of the first few, by which the rest of the mix is chosen, tell weights apart by chance: three seeds of debian-small
    ask for 1.6, 1.9 and 1.5, where the likeliest order asks for 1.0, 1.0 and 1.0.
    """
    terms = seen.terms
    there = terms.margin > -np.inf
    parts = terms.name, terms.centroid, terms.block, terms.neighbors, terms.margin
    features = np.where(there[..., None], np.stack(parts, axis=-1), 0).astype(np.float64)
    spread = spread_of(features[there])
    spread[-1] = 1.0
    telling = telling_rows(seen.right, there)
    found = order_of((features / spread)[telling], seen.right[telling], there[telling], settings, threads) / spread
    return max(float(found[0] / found[-1]), 0.0)


def clearly_better(some: NDArray[np.float64], others: NDArray[np.float64], settings: Settings) -> bool:
    """Whether rows are served better by some answers than by others, by more than chance; by the mean of their hits."""
    change = (some - others).mean(axis=1)
    return bool(change.mean() > settings.clearly * change.std() / np.sqrt(change.size))


def recall_of(model: RoutedModel, X: Any, Y: Any, clusters: Any, threads: int) -> float:
    """Share of the labels that the visited blocks list."""
    visited = model.visited(X, threads)
    # The block of the frequent labels comes first where there is one: all rows visit it, and it lists nothing.
    return 1.0 if visited is None else metrics.candidate_recall(Y, (visited[:, -model.route :], clusters))
