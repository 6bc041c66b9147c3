"""A scorer behind its router: routing and scoring in one compiled call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from blockxmc import _kernels
from blockxmc._core.allowed import Mask
from blockxmc._core.base import TopK
from blockxmc.errors import BlockXMCError
from blockxmc.linear.packed import PackedScorer
from blockxmc.linear.scorer import I32, Scorer, as_blocks, as_row, empty_topk


@dataclass(frozen=True)
class RoutedScorer:
    """A scorer behind its router: each row visits the b blocks its router ranks highest (the router's labels).

    With a ``slope``, a label's score gains slope times the logarithm of the summed probabilities of the visited blocks
    that hold it (``exp(-max(0, 1 - margin)^2)``: a squared hinge router's), so labels of likelier blocks come first;
    blocks must then score a label alike, as shared and global weights do. A scorer with one block more than the router
    knows keeps the weights of labels that live in many blocks in that last block, which every row visits. Where both
    are packed, routing and scoring are one call without Python in between. With a ``top_p`` below 1, a row visits only as
    many of the b blocks, best first, as it takes to reach that share of their probability; the others are -1. With
    ``neighbors``, labels of the training rows most like a row gain what these say; with a ``reranker``, the best labels are
    put in order by a second reranker.
    """

    router: Scorer
    scorer: Scorer
    b: int
    slope: float = 0.0
    top_p: float = 1.0
    neighbors: _kernels.Neighbors | None = None
    reranker: _kernels.Reranker | None = None

    def __post_init__(self) -> None:
        frequent = self.scorer.n_blocks > self.router.n_labels
        extras = self.slope or self.top_p < 1 or self.neighbors or self.reranker or frequent
        if extras and not self._fused:
            raise BlockXMCError("a slope, a top_p, neighbors, a reranker and frequent labels need linear weights")

    @property
    def _fused(self) -> bool:
        return isinstance(self.router, PackedScorer) and isinstance(self.scorer, PackedScorer)

    def topk(self, X: sparse.csr_array, k: int, *, threads: int = 1, allowed: Mask | None = None) -> TopK:
        """Best k allowed labels of each row."""
        if isinstance(self.router, PackedScorer) and isinstance(self.scorer, PackedScorer):
            labels, scores = empty_topk(X.shape[0], k)
            how = *self.scorer._args(X), self.b, self.slope, self.top_p
            self.scorer._model.topk_routed(
                self.router._model, *how, labels, scores, threads, self.neighbors, self.reranker, allowed
            )
            return labels, scores
        return self.scorer.topk(X, self.visits(X, threads=threads)[0], k, threads=threads, allowed=allowed)

    def one(self, indices: ArrayLike, values: ArrayLike, k: int, allowed: Mask | None = None) -> TopK:
        """``topk`` of one sparse row, without validation or threads: the latency path; 1-d results."""
        if isinstance(self.router, PackedScorer) and isinstance(self.scorer, PackedScorer):
            router, model = self.router._model, self.scorer._model
            how: Any = (self.b, self.slope, self.top_p, k, self.neighbors, self.reranker, allowed)
            try:
                return model.one_routed(router, indices, values, *how)  # type: ignore[arg-type]
            except TypeError:
                return model.one_routed(router, *as_row(indices, values), *how)
        return self.scorer.one(indices, values, self.router.one(indices, values, None, self.b)[0], k, allowed)

    def scores(self, X: sparse.csr_array, *, threads: int = 1) -> sparse.csr_array:
        """Scores of all candidates of each row."""
        if isinstance(self.router, PackedScorer) and isinstance(self.scorer, PackedScorer):
            how = *self.scorer._args(X), self.b, self.slope, self.top_p, threads, self.neighbors, self.reranker
            return self.scorer._matrix(X, self.scorer._model.scores_routed(self.router._model, *how))
        return self.scorer.scores(X, self.visits(X, threads=threads)[0], threads=threads)

    def visits(self, X: sparse.csr_array, *, threads: int = 1) -> tuple[I32, NDArray[np.float32] | None]:
        """The blocks each row visits, best first, and their weights (None where they have none)."""
        if isinstance(self.router, PackedScorer) and isinstance(self.scorer, PackedScorer):
            args = self.scorer._args(X)
            found = self.scorer._model.routes(self.router._model, *args, self.b, self.slope, self.top_p, threads)
            shape = (X.shape[0], found[0].size // max(X.shape[0], 1))
            return found[0].reshape(shape), found[1].reshape(shape)
        blocks = as_blocks(self.router.topk(X, None, self.b, threads=threads)[0])
        assert blocks is not None
        return blocks, None
