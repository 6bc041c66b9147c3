"""Why a label was suggested, or where it was lost: the parts of its score, which add up."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc import _kernels
from blockxmc._core.shown import printable
from blockxmc.errors import BlockXMCError
from blockxmc.linear.dense import DenseScorer
from blockxmc.linear.scorer import I32
from blockxmc.model.neighbors import Neighbors
from blockxmc.model.routed import RoutedModel

# Features that printing shows; the others are added up in one line.
SHOWN_CHARS = 100
SHOWN_FEATURES, SHOWN_NEIGHBORS = 10, 5
# Scores held at once while features are scored one by one: 64 MB with their labels.
_CELLS = 1 << 23


@dataclass(frozen=True)
class Feature:
    """What one feature of the row adds to the score of a label."""

    feature: int
    name: str | None
    value: float  # in the row
    part: float  # of the score


@dataclass(frozen=True)
class VisitedBlock:
    """A block that the row visits."""

    block: int
    probability: float  # among the visited blocks
    has_label: bool


@dataclass(frozen=True)
class Neighbor:
    """A training row like the row."""

    row: int  # its number among the training rows, from 0
    similarity: float  # cosine
    has_label: bool
    id: str | None = None  # what its file calls it
    title: str | None = None  # its first words
    text: str | None = None  # only of models that keep rows

    def __str__(self) -> str:
        """One line."""
        name = f"row {self.row}" if self.id is None else self.id
        title = "" if self.title is None else f"  {self.title}"
        return printable(f"{self.similarity:9.2f}  {name}{title}{' (has the label)' if self.has_label else ''}")


@dataclass(frozen=True)
class Passage:
    """A piece of the text, and what an encoder's part of the score loses without it."""

    text: str
    part: float


@dataclass(frozen=True)
class Explanation:
    """Why a label was suggested, or where it was lost.

    ``score`` is the sum of ``constant``, the parts of ``features`` and of those that are not listed (``other_features``),
    and the ``terms`` (what blocks, neighbors and reranker added); calibration turns it and the ``rank`` into the
    ``probability``. ``fate`` says what became of it.
    """

    label: int
    name: str | None
    fate: str
    rank: int | None  # 1: the first; None: no candidate
    rank_before_reranker: int | None
    score: float | None  # None: no candidate
    probability: float | None  # None: no candidate, or scores are margins
    constant: float
    features: Sequence[Feature]  # the largest parts first
    terms: dict[str, float]
    blocks: Sequence[VisitedBlock]
    neighbors: Sequence[Neighbor]
    other_features: float = 0.0  # what the features that are not listed add together
    n_other_features: int = 0
    passages: Sequence[Passage] = ()  # of models with an encoder: those that matter most to it

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain numbers, text, lists and dicts."""
        plain = dict(vars(self))
        for part in ("features", "blocks", "neighbors", "passages"):
            plain[part] = [dict(vars(item)) for item in plain[part]]
        return plain | {"terms": dict(self.terms)}

    def __str__(self) -> str:
        """A table of the parts."""
        name = f"label {self.label}" if self.name is None else f"{printable(self.name)} (label {self.label})"
        chance = "" if self.probability is None else f", probability {self.probability:.3f}"
        lines = [f"{name}: {self.fate}{chance}"]
        if self.score is not None:
            lines += [f"  {part:+9.4f}  {what}" for what, part in self._parts()]
            lines.append(f"  {self.score:9.4f}  score")
        for passage in self.passages:
            lines.append(f"  {passage.part:+9.4f}  of the encoder's part: {passage.text[:SHOWN_CHARS]}")
        if self.blocks:
            marks = (f"{b.block} ({b.probability:.0%}{', lists it' if b.has_label else ''})" for b in self.blocks)
            lines.append("  visited blocks: " + ", ".join(marks))
        if self.neighbors:
            lines += ["  training rows like it:", *(f"  {near}" for near in self.neighbors[:SHOWN_NEIGHBORS])]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The same for notebooks."""
        return f"<pre>{escape(str(self))}</pre>"

    def _parts(self) -> list[tuple[str, float]]:
        shown, others = self.features[:SHOWN_FEATURES], self.features[SHOWN_FEATURES:]
        named = [(printable(f.name) if f.name is not None else f"feature {f.feature}", f.part) for f in shown]
        if n_others := len(others) + self.n_other_features:
            named.append((f"{n_others} other features", sum(f.part for f in others) + self.other_features))
        return [*named, ("constant", self.constant), *self.terms.items()]


class Explainer:
    """Takes the answer of a routed model to one row apart."""

    def __init__(self, model: RoutedModel, row: sparse.csr_array, worth: NDArray[np.float32] | None = None) -> None:
        """``worth`` is what ranks multiply the probability of each label by; None: by nothing."""
        self.model, self.row = model, row
        self._clusters = model.scorer.label_clusters
        # Scores after each step, of all candidates; the last one is what calibration sees.
        plain = replace(model, calibration=None, reranker=None, neighbors=None, slope=0.0, offset=None)
        self.own = _of_row(plain, row)
        self.with_blocks = _of_row(replace(plain, slope=model.slope), row)
        self.before = _of_row(replace(plain, slope=model.slope, neighbors=model.neighbors), row)
        self.after = _of_row(replace(model, calibration=None, offset=None), row)
        self.offset = 0.0 if model.offset is None else float(model._offset_of(row, 1)[0])
        self.listed = {label for label, score in self.after.items() if score > _kernels.UNLISTED / 2}
        chances = {} if model.calibration is None else _of_row(model, row)
        self.probability = {label: chances.get(label) for label in self.listed}
        # Answers are in the order of probabilities, of which several may be equal.
        self.likeliest = _ranked(chances or self.after, self.listed)
        weighed = {} if worth is None else {label: chance * float(worth[label]) for label, chance in chances.items()}
        self.ranking = _ranked(weighed, self.listed) if weighed else self.likeliest
        self.before_ranking = self.likeliest if model.reranker is None else _ranked(self.before, self.listed)
        self.visited, self.weights = self._visits()
        self.nearest = self._neighbors()

    def explain(self, labels: list[int], k: int, names: Any, features: Any, most: int | None) -> list[Explanation]:
        """Of each label, where k are suggested; ``names`` of labels and of ``features`` may be None."""
        parts = self._parts([label for label in labels if label in self.listed])
        return [self._explained(label, k, names, features, parts.get(label), most) for label in labels]

    def _explained(
        self, label: int, k: int, names: Any, features: Any, scores: NDArray[np.float64] | None, most: int | None
    ) -> Explanation:
        name = None if names is None else str(names[label])
        blocks = [
            VisitedBlock(int(block), float(weight), self._has(int(block), label))
            for block, weight in zip(self.visited, self.weights, strict=True)
        ]
        neighbors = [Neighbor(row, cosine, label in labels) for row, cosine, labels in self.nearest]
        what: dict[str, Any] = {"label": label, "name": name, "blocks": blocks, "neighbors": neighbors}
        if scores is None:
            nothing: dict[str, Any] = dict.fromkeys(("rank", "rank_before_reranker", "score", "probability"))
            return Explanation(fate=self._lost(label), constant=0.0, features=[], terms={}, **what, **nothing)
        constant, parts = float(scores[-1]), scores[:-1] - scores[-1]
        order = np.argsort(-np.abs(parts), kind="stable")
        row, first, rest = self.row, order[:most], order[len(order[:most]) :]
        columns = (row.indices[first].tolist(), row.data[first].tolist(), parts[first].tolist())
        return Explanation(
            fate=self._fate(label, k),
            rank=self.ranking[label],
            rank_before_reranker=self.before_ranking[label],
            score=self.after[label] + self.offset,
            probability=self.probability[label],
            constant=constant,
            features=[
                Feature(f, None if features is None else str(features[f]), *of) for f, *of in zip(*columns, strict=True)
            ],
            other_features=float(parts[rest].sum()),
            n_other_features=rest.size,
            terms=self._terms(label),
            **what,
        )

    def _fate(self, label: int, k: int) -> str:
        rank, likeliest, before = self.ranking[label], self.likeliest[label], self.before_ranking[label]
        place = f"rank {rank} of {len(self.listed)} candidates"
        by_probability = f", by probability {likeliest}" if likeliest != rank else ""
        if rank <= k:
            return f"suggested: {place}{by_probability}" + (
                f", before the reranker {before}" if before != likeliest else ""
            )
        if likeliest <= k:
            return f"behind rarer labels: {place}{by_probability}"
        lost = "cut by the reranker" if before <= k else "scored low"
        return f"{lost}: {place}{by_probability}" + (f", before it rank {before}" if before <= k else "")

    def _lost(self, label: int) -> str:
        n_routed = len(self._clusters) if self.model.router is None else self.model.router.n_labels
        holding = [str(block) for block in range(n_routed) if self._has(block, label)]
        more = f" and {len(holding) - 8} more" if len(holding) > 8 else ""
        where = f"it is in {', '.join(holding[:8])}{more}" if holding else "no block has it: it has no training row"
        return f"not in a visited block: {where}"

    def _terms(self, label: int) -> dict[str, float]:
        """What is added to the score of the weights, by name; only what the model has."""
        model, terms = self.model, {}
        if model.slope:
            terms["probability of its blocks"] = self.with_blocks[label] - self.own[label]
        if model.neighbors is not None:
            terms["training rows like it"] = self.before[label] - self.with_blocks[label]
        if model.reranker is not None:
            terms["reranker"] = self.after[label] - self.before[label]
        if model.offset is not None:
            terms["offset of all labels"] = self.offset
        return terms

    def _parts(self, labels: list[int]) -> dict[int, NDArray[np.float64]]:
        """The score of each label for every feature of the row alone, and at last for an empty row."""
        scorer = self.model.scorer
        if isinstance(scorer, DenseScorer) and not scorer.is_linear:
            raise BlockXMCError("the base is not linear: its scores are no sums of parts and cannot be explained")
        by_block: dict[int, list[int]] = {}
        for label in dict.fromkeys(labels):
            by_block.setdefault(self._holding(label), []).append(label)
        n = self.row.indices.size
        alone = sparse.csr_array(
            (self.row.data, self.row.indices, np.append(np.arange(n + 1), n)), shape=(n + 1, self.row.shape[1])
        )
        found: dict[int, NDArray[np.float64]] = {}
        for block, ids in by_block.items():
            step = max(1, _CELLS // max(1, self._clusters[block].size))
            scores = [
                scorer.scores(alone[i : i + step], np.full((min(step, n + 1 - i), 1), block, np.int32))[
                    :, ids
                ].toarray()
                for i in range(0, n + 1, step)
            ]
            found |= zip(ids, np.concatenate(scores).T.astype(np.float64), strict=True)
        return found

    def _holding(self, label: int) -> int:
        """The visited block that has the weights behind the label's score."""
        scorer, router = self.model.scorer, self.model.router
        if router is None:
            return 0
        if scorer.n_blocks > router.n_labels and self._has(scorer.n_blocks - 1, label):
            return scorer.n_blocks - 1
        holding = [int(block) for block in self.visited if self._has(int(block), label)]
        if len(holding) == 1:
            return holding[0]
        # Blocks with vectors of their own: the highest score counts.
        return max(holding, key=lambda block: scorer.scores(self.row, np.array([[block]], np.int32))[0, label])

    def _has(self, block: int, label: int) -> bool:
        ids = self._clusters[block]
        at = bisect_left(ids, label)
        return at < ids.size and bool(ids[at] == label)

    def _visits(self) -> tuple[I32, NDArray[np.float32]]:
        if self.model.router is None:
            return np.zeros(0, np.int32), np.zeros(0, np.float32)
        blocks, weights = self.model.visits(self.row, 1)
        own = (blocks[0] >= 0) & (blocks[0] < self.model.router.n_labels)
        return blocks[0][own], weights[0][own] / max(weights[0][own].sum(), np.finfo(np.float32).tiny)

    def _neighbors(self) -> list[tuple[int, float, set[int]]]:
        neighbors: Neighbors | None = self.model.neighbors
        visited = self.model.visited(self.row, 1)
        if neighbors is None or visited is None:
            return []
        rows, dots = neighbors.rows.topk(neighbors.compared(self.row, 1), visited, neighbors.count)
        length = float(np.linalg.norm(self.row.data)) or 1.0
        pairs = [(int(row), float(dot) / length) for row, dot in zip(rows[0], dots[0], strict=True) if row >= 0 < dot]
        ends = neighbors.indptr
        return [(row, dot, set(neighbors.labels[ends[row] : ends[row + 1]].tolist())) for row, dot in pairs]


def _of_row(model: RoutedModel, row: sparse.csr_array) -> dict[int, float]:
    found = model.scores(row, 1)
    return dict(zip(found.indices.tolist(), found.data.tolist(), strict=True))


def _ranked(scores: dict[int, float], among: set[int]) -> dict[int, int]:
    """Rank of each label, ties to the lower id."""
    order = sorted(among, key=lambda label: (-scores[label], label))
    return {label: rank for rank, label in enumerate(order, 1)}


def explain_row(
    model: Any,
    row: sparse.csr_array,
    labels: Iterable[int] | None,
    k: int,
    *,
    names: Any = None,
    features: Any = None,
    worth: NDArray[np.float32] | None = None,
    most: int | None = None,
) -> list[Explanation]:
    """Explanations of these labels, or of the first k, of one row, with at most so many features each."""
    if row.shape[0] != 1:
        raise BlockXMCError(f"explain takes one row at a time, got {row.shape[0]}")
    explainer = Explainer(model, row, worth)
    wanted = list(explainer.ranking)[:k] if labels is None else [int(label) for label in labels]
    return explainer.explain(wanted, k, names, features, most)
