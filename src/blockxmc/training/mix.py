"""What held-out rows say: how to mix a score, whether neighbors help, how many blocks to visit, what a score means."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from blockxmc import metrics
from blockxmc._core.progress import Phase, Reporter, run_in_threads
from blockxmc.linear.weights import F32
from blockxmc.model.calibration import Calibration
from blockxmc.model.reranker import Reranker
from blockxmc.model.routed import RoutedModel
from blockxmc.training.calibration import F64, best_cut, fit_calibration
from blockxmc.training.candidates import Candidates, Mix
from blockxmc.training.companions import fit_companions
from blockxmc.training.job import Form, Job
from blockxmc.training.reranker import fit_reranker, order_of, spread_of, telling_rows
from blockxmc.training.settings import Settings

# What held-out rows promise is measured by parts: each part is judged by what the others have fitted.
FOLDS = 5
# Gives what new rows can expect.
Promise = Callable[[], dict[str, float]]


@dataclass(frozen=True)
class Fitted:
    """All that is fitted on held-out rows."""

    mix: Mix
    reranker: Reranker | None
    top_p: float
    calibration: Calibration

    def state(self) -> dict[str, Any]:
        """Numbers and arrays; see ``from_state``."""
        scores = _scores_state((self.mix, self.reranker))
        return {"scores": scores, "top_p": self.top_p, "calibration": self.calibration.state()}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Take back what ``state`` gave."""
        calibration = Calibration.from_state(state["calibration"])
        return cls(*_restored_scores(state["scores"]), state["top_p"], calibration)


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
        self._hits: dict[float, NDArray[np.float64]] = {}
        self._rerankers: dict[Mix, Reranker | None] = {}
        self._tried = np.array(list(product(settings.slopes, (name,), settings.centroid_weights)))

    def with_threads(self, threads: int) -> Self:
        """The same fitter, and all that it knows, for so many threads."""
        other = copy(self)
        other.threads = threads
        return other

    def fit(self, neighbors: float, rows: NDArray[np.bool_] | None = None) -> tuple[Mix, Reranker | None]:
        """What ranks the labels of these rows best (None: all), if neighbors count so much."""
        mix = self.mix(neighbors, rows)
        return mix, self.reranker(mix, rows)

    def mix(self, neighbors: float, rows: NDArray[np.bool_] | None = None) -> Mix:
        """A mean of the mixes tried, in which those that rank nearly as well as the best count nearly as much.

        A thousand rows tell mixes that are alike apart by chance as often as by merit: the mean is steadier than the best.
        """
        hits = self._hits_of_all(neighbors)
        quality = hits.mean(axis=1) if rows is None else hits[:, rows].mean(axis=1)
        n_rows = hits.shape[1] if rows is None else int(rows.sum())
        votes = np.exp((quality - quality.max()) * np.sqrt(n_rows) / self.settings.noise)
        slope, name, centroid = (votes @ self._tried / votes.sum()).tolist()
        return Mix(slope if slope >= self.settings.slopes[1] / 2 else 0.0, name, centroid, neighbors)

    def reranker(self, mix: Mix, rows: NDArray[np.bool_] | None = None) -> Reranker | None:
        """What puts the best candidates in order if scores are mixed like this."""
        if not self.rerank:
            return None
        if rows is None and mix in self._rerankers:
            return self._rerankers[mix]
        seen, settings = self.candidates, self.settings
        if rows is not None:  # a part of the rows needs its part of the least number, to be like the whole
            seen = seen.of_rows(rows)
            settings = replace(
                settings,
                reranker_least_rows=int(settings.reranker_least_rows * rows.mean()),
                companion_least_rows=int(settings.companion_least_rows * rows.mean()),
            )
        best = seen.best(mix, settings.reranked, settings.reranked, self.threads)
        found = fit_reranker(best.terms, best.scores, best.right, self.log_positives, settings, self.threads)
        if found is not None and seen.companions is not None:
            labels, scores, right = seen.reranked(best, found, self.threads)
            assert labels is not None
            found = fit_companions(found, seen.companions, labels, scores, right, settings, self.threads)
        if rows is None:
            self._rerankers[mix] = found
        return found

    def _hits_of_all(self, neighbors: float) -> NDArray[np.float64]:
        """Mean of P@1, P@3 and P@5 of each row under each mix tried, mixes x rows."""
        if neighbors not in self._hits:
            mixes = np.column_stack([self._tried, np.full(len(self._tried), neighbors)])
            self._hits[neighbors] = self.candidates.hits_of(mixes.astype(np.float32), self.threads)
        return self._hits[neighbors]


def fit_held_out(
    seen: dict[float, Candidates],
    many: Callable[[float], Iterable[Candidates]],
    log_positives: F32,
    settings: Settings,
    *,
    top_p: float,
    routed: bool,
    threads: int,
    job: Job,
) -> tuple[Fitted, Promise]:
    """Mix, reranker, top_p and calibration, and what finds out what to expect of them on new rows.

    ``seen`` has the candidates at each top_p that may be chosen; ``top_p`` is kept unless another is clearly better.
    ``many`` has more candidates at a top_p, as new rows would have them, some rows at a time: they show what scores mean.
    """
    fitter = Fitter(seen[top_p], log_positives, settings, rerank=routed, threads=threads)
    fitter, gained = names_gain(fitter)
    mix, reranker = job.stage("score mix", lambda: fitter.fit(_neighbors_count(fitter, settings)), _SCORES)
    best = job.stage("top_p", lambda: _best_top_p(seen, mix, reranker, top_p, settings, threads))
    ranked, first = [], []
    for part in many(best):
        ranked.append(part.ranked(mix, reranker, settings.calibrated, threads))
        first.append(part.first(settings.judged))
    scores, right = (np.concatenate(parts) for parts in zip(*ranked, strict=True))
    calibration = job.stage("calibration", lambda: fit_calibration(scores, right, threads=threads), _CALIBRATION)
    fitted = Fitted(mix, reranker, best, calibration)
    judged = replace_candidates(fitter, seen[best]), Candidates.joined(first), mix.neighbors, calibration
    return fitted, lambda: expected(*judged, job.reporter) | gained


def only_calibrated(trial: RoutedModel, X: Any, Y: Any, settings: Settings, threads: int) -> tuple[Fitted, Promise]:
    """The same where weights are no vectors, which are not mixed."""
    labels, scores = trial.topk(X, min(settings.calibrated, Y.shape[1]), threads)
    rows = np.repeat(np.arange(X.shape[0]), labels.shape[1])
    right = np.asarray(Y[rows, np.maximum(labels, 0).ravel()]).reshape(labels.shape) > 0
    right &= labels >= 0
    calibration = fit_calibration(scores, right, threads=threads)
    expected = promises(calibration.probabilities(scores), right, np.diff(Y.indptr))
    return Fitted(Mix(), None, trial.top_p, calibration), lambda: expected


def _scores_state(scores: tuple[Mix, Reranker | None]) -> dict[str, Any]:
    mix, reranker = scores
    return {"mix": vars(mix), "reranker": None if reranker is None else reranker.state()}


def _restored_scores(state: dict[str, Any]) -> tuple[Mix, Reranker | None]:
    reranker = state["reranker"]
    return Mix(**state["mix"]), None if reranker is None else Reranker.from_state(reranker)


_SCORES = Form(_scores_state, _restored_scores)
FITTED: Form[tuple[Fitted, Promise]] = Form(
    lambda found: {"fitted": found[0].state(), "promised": found[1]()},
    lambda state: (Fitted.from_state(state["fitted"]), lambda: state["promised"]),
)
_CALIBRATION = Form(Calibration.state, Calibration.from_state)


def replace_candidates(fitter: Fitter, candidates: Candidates) -> Fitter:
    """The same fitter for candidates at another top_p; what it knows already stays where they are the same."""
    if candidates is fitter.candidates:
        return fitter
    options: Any = {"name": fitter.name, "rerank": fitter.rerank, "threads": fitter.threads}
    return Fitter(candidates, fitter.log_positives, fitter.settings, **options)


def expected(
    fitter: Fitter, many: Candidates, neighbors: float, whole: Calibration, reporter: Reporter
) -> dict[str, float]:
    """What new rows can expect: each part of the rows is judged by what the others have fitted.

    P@k, the calibration error of the first five labels, and the cut for the best mean F1 with that F1. Rows that are
    judged by what they have fitted themselves look up to a point too good (bench/optimism.py). The curve of the
    ``whole`` is where the curves of the parts are sought.
    """
    n_rows, few, threads = fitter.candidates.n_rows, fitter.settings.judged, min(fitter.threads, FOLDS)
    parts = np.arange(n_rows) % FOLDS
    hits, found = np.zeros((n_rows, 3)), np.zeros((n_rows, min(few, many.right.shape[1])))
    right = np.zeros(found.shape, bool)
    fitter.mix(neighbors)  # what all parts ask for is made once, by all threads
    fitter = fitter.with_threads(-(-fitter.threads // FOLDS))

    def judge(part: int, _: Phase) -> None:
        others, own = parts != part, parts == part
        mix, reranker = fitter.fit(neighbors, others)
        scores, shown = many.ranked(mix, reranker, few, fitter.threads)
        calibration = fit_calibration(scores[others], shown[others], near=whole, threads=fitter.threads)
        hits[own] = fitter.candidates.of_rows(own).hits(mix, reranker, threads=fitter.threads)
        found[own], right[own] = calibration.probabilities(scores[own]), shown[own]

    with reporter.phase("judge what was fitted", FOLDS) as phase:
        run_in_threads(judge, range(FOLDS), threads, phase)
    values = {f"expected_P@{k}": float(value) for k, value in zip((1, 3, 5), hits.mean(axis=0), strict=True)}
    return values | promises(found, right, many.n_true)


def promises(probabilities: F64, right: NDArray[np.bool_], n_true: NDArray[np.integer]) -> dict[str, float]:
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
    options: Any = {"name": weight, "rerank": plain.rerank, "threads": threads}
    named = Fitter(seen, plain.log_positives, plain.settings, **options)
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


def _neighbors_count(fitter: Fitter, settings: Settings) -> float:
    """1 where neighbors count as much as margins do, 0 where they clearly mislead: there is little in between."""
    if not fitter.candidates.terms.neighbors.any():
        return 0.0
    mix = fitter.mix(1.0)
    both = mix, replace(mix, neighbors=0.0)
    with_them, without = (fitter.candidates.hits(each, fitter.reranker(each), threads=fitter.threads) for each in both)
    return 0.0 if clearly_better(without, with_them, settings) else 1.0


def _best_top_p(
    seen: dict[float, Candidates],
    mix: Mix,
    reranker: Reranker | None,
    usual: float,
    settings: Settings,
    threads: int,
) -> float:
    """The top_p that ranks the labels of new rows best; the usual one if no other is clearly better."""
    hits = {top_p: candidates.hits(mix, reranker, threads=threads) for top_p, candidates in sorted(seen.items())}
    best = max(hits, key=lambda top_p: hits[top_p].mean())
    return best if clearly_better(hits[best], hits[usual], settings) else usual


def clearly_better(some: NDArray[np.float64], others: NDArray[np.float64], settings: Settings) -> bool:
    """Whether rows are served better by some answers than by others, by more than chance; by the mean of their hits."""
    change = (some - others).mean(axis=1)
    return bool(change.mean() > settings.clearly * change.std() / np.sqrt(change.size))


def recall_of(model: RoutedModel, X: Any, Y: Any, clusters: Any, threads: int) -> float:
    """Share of the labels that the visited blocks list."""
    visited = model.visited(X, threads)
    # The block of the frequent labels comes first where there is one: all rows visit it, and it lists nothing.
    return 1.0 if visited is None else metrics.candidate_recall(Y, (visited[:, -model.route :], clusters))


def lost_to_rounding(rounded: Candidates, margins: Any, fitted: Fitted, threads: int) -> float:
    """Points of the mean of P@1, P@3 and P@5 that full precision of the weights would gain."""
    terms = rounded.terms
    exact = replace(terms, margin=np.where(terms.margin > -np.inf, margins, -np.inf).astype(np.float32))
    how = fitted.mix, fitted.reranker
    kept, lost = (replace(rounded, terms=each).hits(*how, threads=threads).mean() for each in (exact, terms))
    return 100 * float(kept - lost)
