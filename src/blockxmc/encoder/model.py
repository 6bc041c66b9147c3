"""A linear model and an encoder that answer together: the encoder looks at the linear model's best candidates again.

The score of a label: of the linear model's first labels (``candidates`` of them), the fused one. All other labels come
behind these in the linear model's order, with its probability, or that of the last of the first where that is lower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc._core import stored
from blockxmc._core.allowed import Mask
from blockxmc._core.base import TopK
from blockxmc._core.matrix import take_rows
from blockxmc.encoder.fuse import Fusion, logits_of
from blockxmc.encoder.texts import TextEncoder
from blockxmc.encoder.vectors import LabelVectors
from blockxmc.model.routed import RoutedModel

F32 = NDArray[np.float32]


@dataclass(frozen=True)
class Encoded:
    """What is added to a linear model: an encoder, vectors of labels, and the fusion."""

    encoder: TextEncoder
    labels: LabelVectors
    fusion: Fusion
    candidates: int
    summary: dict[str, float]  # what held-out rows said
    rows: LabelVectors | None = None  # of models that keep their rows: the vectors of training texts

    def topk(
        self, linear: RoutedModel, X: sparse.csr_array, texts: Sequence[str], k: int, threads: int, allowed: Mask | None
    ) -> TopK:
        """The best k allowed labels of each text, with the probabilities that they have among all labels."""
        labels, scores = self.first(linear, X, texts, threads)
        if allowed is not None or k > labels.shape[1]:
            labels, scores = self._with_more(linear, X, (labels, scores), k, threads, allowed)
        return labels[:, :k], scores[:, :k]

    def first(self, linear: RoutedModel, X: sparse.csr_array, texts: Sequence[str], threads: int) -> TopK:
        """The candidates of each text, best first (-1 / -inf: none), with their probabilities."""
        labels, chances = linear.topk(X, min(self.candidates, linear.n_labels), threads)
        scores = self.labels.scores(self.encoder.embed(texts, threads), labels)
        found = self.fusion.ranked(labels, logits_of(chances), scores)
        self.fusion.calibration.apply_topk(found, threads)
        return found

    def _with_more(
        self, linear: RoutedModel, X: sparse.csr_array, first: TopK, k: int, threads: int, allowed: Mask | None
    ) -> TopK:
        """The allowed of the candidates, and behind them as many others as it takes."""
        labels, scores = first
        last = np.where(labels >= 0, scores, np.inf).min(axis=1, initial=np.inf)
        kept = (labels >= 0) & (True if allowed is None else allowed[np.maximum(labels, 0)])
        order = np.argsort(~kept, axis=1, kind="stable")
        ids, chances = np.full((len(labels), k), -1, np.int64), np.full((len(labels), k), -np.inf, np.float32)
        width = min(k, labels.shape[1])
        there = np.take_along_axis(kept, order, 1)[:, :width]
        ids[:, :width] = np.where(there, np.take_along_axis(labels, order, 1)[:, :width], -1)
        chances[:, :width] = np.where(there, np.take_along_axis(scores, order, 1)[:, :width], -np.inf)
        short = np.flatnonzero(kept.sum(axis=1) < k)
        if short.size:
            asked = min(k + labels.shape[1], linear.n_labels)
            more = linear.topk(take_rows(X, short), asked, threads, allowed)
            for row, others, theirs in zip(short.tolist(), *more, strict=True):
                new = (others >= 0) & ~np.isin(others, labels[row])
                known = int(kept[row].sum())
                n = min(int(new.sum()), k - known)
                ids[row, known : known + n] = others[new][:n]
                chances[row, known : known + n] = np.minimum(theirs[new][:n], last[row])
        return ids, chances

    def scores(self, linear: RoutedModel, X: sparse.csr_array, texts: Sequence[str], threads: int) -> sparse.csr_array:
        """Probabilities of all labels that the linear model scores."""
        first, chances = self.first(linear, X, texts, threads)
        found = linear.scores(X, threads)
        last = np.where(first >= 0, chances, np.inf).min(axis=1, initial=np.inf).astype(np.float32)
        for row in range(found.shape[0]):
            part = slice(found.indptr[row], found.indptr[row + 1])
            there = first[row] >= 0
            fused = dict(zip(first[row][there].tolist(), chances[row][there].tolist(), strict=True))
            behind = np.minimum(found.data[part], last[row]).tolist()
            labels = found.indices[part].tolist()
            found.data[part] = [fused.get(label, chance) for label, chance in zip(labels, behind, strict=True)]
        return found

    @classmethod
    def opened(cls, state: Any, classifier: Any) -> Self:
        """Take back what ``state`` gave beside this classifier, and open the encoder."""
        found = cls.from_state(state, classifier.targets_.n_labels, classifier.n_train_rows_)
        found.encoder.open()
        return found

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        kept = 0 if self.rows is None else self.rows.nbytes
        return self.encoder.graph.nbytes + self.encoder.tokenizer.nbytes + self.labels.nbytes + kept

    def state(self) -> dict[str, Any]:
        """Nested dict of arrays and JSON values for the model directory."""
        parts = {name: getattr(self, name).state() for name in ("encoder", "labels", "fusion")}
        rows = None if self.rows is None else self.rows.state()
        return {**parts, "candidates": self.candidates, "summary": dict(self.summary), "rows": rows}

    @classmethod
    def from_state(cls, state: Any, n_labels: int, n_rows: int) -> Self:
        """Take back what ``state`` gave, if its parts fit each other."""
        stored.mapping(state, "the encoder")
        encoder = TextEncoder.from_state(stored.mapping(state["encoder"], "the encoder's graph"))
        labels = LabelVectors.from_state(stored.mapping(state["labels"], "vectors of labels"), n_labels, encoder.size)
        fusion = Fusion.from_state(stored.mapping(state["fusion"], "the fusion"))
        candidates = stored.whole(state["candidates"], "candidates", 1, 1000)
        summary, rows = stored.numbers(state["summary"], "summary"), state["rows"]
        kept = (
            None if rows is None else LabelVectors.from_state(stored.mapping(rows, "kept rows"), n_rows, encoder.size)
        )
        return cls(encoder, labels, fusion, candidates, summary, kept)
