"""From features to blocks: one linear classifier per block, and what to expect of it before any base is trained."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from blockxmc._core.matrix import as_csr, as_indicator, copy_rows, take_rows
from blockxmc._core.progress import Phase, Reporter, Scaled, Shifted, run_in_threads
from blockxmc.errors import BlockXMCError
from blockxmc.linear.one_vs_all import Loss, OneVsAll, train_one_vs_all
from blockxmc.linear.scorer import Scorer
from blockxmc.linear.scorers import pack_scorer
from blockxmc.linear.weights import LinearWeights

I32 = NDArray[np.int32]
F32 = NDArray[np.float32]
_CHUNK = 4096  # rows whose scores of all blocks are held at a time
PARAMS = ("C", "bias", "tol", "prune", "loss", "sample", "bits")
GROUP = 64  # blocks that learn from the same rows where rows are sampled


class Router:
    """Finds the best blocks of a row: one-vs-all linear classifiers over the blocks.

    Parameters
    ----------
    C, tol, prune, bias : as in :class:`blockxmc.DiSMEC`; without a bias by default, as in the paper.
    loss : "logistic" (LIBLINEAR's ``-s 0``, the paper) or "squared_hinge" (``-s 2``; much faster with many blocks).
    sample : None trains every block on all rows; a number trains it on its own rows, those of some other blocks and that
        many random rows, wherever this is less work: what tells a block from thousands of others is told by few of
        their rows, and the time no longer grows with rows times blocks.
    bits : of the weights that are served: 32 (floats), 16 (bfloat16) or 8.

    >>> import numpy as np
    >>> X = np.eye(4, dtype=np.float32)
    >>> router = Router().fit(X, np.array([0, 0, 1, 1]))
    >>> router.route(X, b=1)[0].ravel().tolist()
    [0, 0, 1, 1]
    """

    def __init__(
        self,
        C: float = 1.0,
        bias: float | None = None,
        tol: float = 0.01,
        prune: float = 0.0,
        loss: Loss = "logistic",
        sample: int | None = None,
        bits: int = 32,
    ) -> None:
        self._problem = OneVsAll(loss, C, tol, bias, prune)
        if sample is not None and sample < 1:
            raise BlockXMCError(f"sample must be None (all rows) or a number of rows of at least 1, got {sample}")
        self.C, self.bias, self.tol, self.prune = C, bias, tol, prune
        self.loss: Loss = loss
        self.sample, self.bits = sample, bits
        self.n_blocks = 0
        self.scorer: Scorer | None = None  # None where there is one block only: nothing to decide
        self.learned: LinearWeights | None = None  # what the scorer was packed from

    def fit(
        self,
        X: Any,
        blocks: Any,
        *,
        n_blocks: int | None = None,
        mask: ArrayLike | None = None,
        threads: int = 1,
        reporter: Reporter | None = None,
    ) -> Self:
        """Learn to tell ``blocks`` from the features X.

        ``blocks`` is one block number per row (negative: leave the row out) or a 0-1 matrix n x q in which a row may
        belong to several blocks. Rows where ``mask`` is false are left out as well.
        """
        X, targets = as_csr(X), block_indicator(blocks, n_blocks)
        if X.shape[0] != targets.shape[0]:
            raise BlockXMCError(f"X has {X.shape[0]} rows, but blocks are given for {targets.shape[0]}")
        self.n_blocks = int(targets.shape[1])
        self.scorer = self.learned = None
        if self.n_blocks == 1:
            return self
        kept = np.ones(X.shape[0], bool) if mask is None else np.asarray(mask, bool)
        if kept.shape != (X.shape[0],):
            raise BlockXMCError(f"mask must hold one value per row ({X.shape[0]}), got shape {kept.shape}")
        if not sparse.issparse(blocks):
            kept = kept & (np.diff(targets.indptr) > 0)
        which = None if kept.all() else np.flatnonzero(kept)
        if which is not None:
            targets = take_rows(targets, which)
        with (reporter or Reporter()).phase("train router", self.n_blocks) as phase:
            self.learned = self._train(X, targets, threads, phase, which=which)
        sizes: Any = {"n_features": X.shape[1], "n_labels": self.n_blocks, "bits": self.bits}
        self.scorer = pack_scorer([self.learned], [np.arange(self.n_blocks)], **sizes)
        return self

    def _train(
        self,
        X: sparse.csr_array,
        targets: sparse.csr_array,
        threads: int,
        phase: Phase,
        start: sparse.csr_array | None = None,
        which: NDArray[np.intp] | None = None,
    ) -> LinearWeights:
        """A column of weights per column of ``targets``; ``start`` has vectors near them.

        ``which`` are the rows of X that targets are given for, if not all: of a sample, only its own rows are copied.
        """
        n_rows, n_blocks = targets.shape
        n_groups = -(-n_blocks // GROUP)
        if self.sample is None or (self.sample * n_groups + targets.nnz) > n_rows * n_groups:
            known = X if which is None else copy_rows(X, which, threads)
            return train_one_vs_all(self._problem, known, targets, threads=threads, phase=phase, start=start)
        everywhere = np.random.default_rng(0).choice(n_rows, self.sample, replace=False)
        by_block = sparse.csc_array(targets)
        # Blocks next to each other are alike: a group takes every n_groups-th, so that its rows come from far and wide.
        groups = [np.arange(first, n_blocks, n_groups) for first in range(n_groups)]
        parts: dict[int, LinearWeights] = {}
        # A group keeps four threads busy: sixteen blocks are solved side by side.
        at_once = min(max(threads // (GROUP // 16), 1), n_groups)

        def train(number: int, phase: Phase) -> None:
            own = sparse.csc_array(by_block[:, groups[number]])
            rows = np.union1d(everywhere, own.indices)
            in_X = rows if which is None else which[rows]
            own_rows = copy_rows(X, in_X), take_rows(sparse.csr_array(own), rows)
            how: Any = {"threads": -(-threads // at_once), "phase": phase}
            how["start"] = None if start is None else take_rows(start, groups[number])
            parts[number] = train_one_vs_all(self._problem, *own_rows, **how)

        if at_once == 1:
            for number in range(n_groups):
                train(number, Shifted(phase, sum(groups[done].size for done in parts)))
        else:
            run_in_threads(train, range(n_groups), at_once, Scaled(phase, GROUP))
        back = np.argsort(np.concatenate(groups))
        coef = sparse.hstack([parts[number].coef for number in range(n_groups)], format="csc")
        bias = np.concatenate([parts[number].bias for number in range(n_groups)])
        return LinearWeights(sparse.csc_array(coef)[:, back], bias[back])

    def weights_of(
        self,
        X: Any,
        blocks: Any,
        some: NDArray[np.integer],
        start: sparse.csr_array,
        threads: int = 1,
        reporter: Reporter | None = None,
    ) -> LinearWeights:
        """A column of weights for ``some`` of the blocks, found from a ``start`` (blocks x features) near them."""
        targets = sparse.csr_array(block_indicator(blocks, start.shape[0])[:, some])
        with (reporter or Reporter()).phase("train router", targets.shape[1]) as phase:
            return self._train(as_csr(X), targets, threads, phase, take_rows(start, np.asarray(some, np.intp)))

    def weights(
        self, X: Any, blocks: Any, n_blocks: int, threads: int = 1, reporter: Reporter | None = None
    ) -> LinearWeights:
        """A column of weights per block, as ``fit`` learns them; see ``from_weights``. One block has none."""
        X, targets = as_csr(X), block_indicator(blocks, n_blocks)
        if targets.shape[1] == 1:
            return LinearWeights(sparse.csr_array((X.shape[1], 1), dtype=np.float32), np.zeros(1, np.float32))
        with (reporter or Reporter()).phase("train router", targets.shape[1]) as phase:
            self.n_blocks = int(targets.shape[1])
            return self._train(X, targets, threads, phase)

    @classmethod
    def from_weights(cls, weights: LinearWeights, bits: int = 32) -> Self:
        """A router that was not learned here: one given column of weights per block."""
        router = cls(bits=bits)
        router.n_blocks = weights.n_labels
        if router.n_blocks > 1:
            n_features = weights.coef.shape[0]
            sizes: Any = {"n_features": n_features, "n_labels": router.n_blocks, "bits": bits}
            router.scorer = pack_scorer([weights], [np.arange(router.n_blocks)], **sizes)
        return router

    @property
    def products(self) -> int:
        """Vector products per row: one per block, none where there is nothing to decide."""
        return 0 if self.scorer is None else self.n_blocks

    def route(self, X: Any, b: int, *, threads: int = 1) -> tuple[I32, F32]:
        """The best b blocks of each row, best first, and their probabilities.

        A block's margin z becomes sigma(z) (logistic) or exp(-max(0, 1 - z)^2) (squared hinge), divided by the sum
        over all blocks.
        """
        X = as_csr(X)
        n, b = X.shape[0], self._clipped(b)
        if self.scorer is None:
            return np.zeros((n, b), np.int32), np.ones((n, b), np.float32)
        blocks, margins = self.scorer.topk(X, None, b, threads=threads)
        likely = self._likelihood(margins)
        total = np.empty((n, 1), np.float32)
        for start in range(0, n, _CHUNK):
            scores = self.scorer.scores(X[start : start + _CHUNK], None, threads=threads)
            total[start : start + _CHUNK, 0] = self._likelihood(scores.data).reshape(-1, self.n_blocks).sum(axis=1)
        shares = (likely / np.maximum(total, np.finfo(np.float32).tiny)).astype(np.float32)
        return blocks.astype(np.int32), shares

    def blocks(self, X: Any, b: int, *, threads: int = 1) -> I32:
        """The best b blocks of each row without their probabilities."""
        X, b = as_csr(X), self._clipped(b)
        if self.scorer is None:
            return np.zeros((X.shape[0], b), np.int32)
        return self.scorer.topk(X, None, b, threads=threads)[0].astype(np.int32)

    def _clipped(self, b: int) -> int:
        if self.n_blocks == 0:
            raise BlockXMCError("the router is not fitted yet: call fit first")
        if b < 1:
            raise BlockXMCError(f"at least one block must be visited, got b = {b}")
        return min(b, self.n_blocks)

    def _likelihood(self, margins: F32) -> F32:
        if self.loss == "logistic":
            return np.asarray(0.5 + 0.5 * np.tanh(0.5 * margins), np.float32)
        return np.asarray(np.exp(-(np.maximum(0, 1 - margins) ** 2)), np.float32)

    def unfitted(self) -> Router:
        """A new router with the same parameters."""
        return Router(**{name: getattr(self, name) for name in PARAMS})


def only_block(n_features: int) -> Scorer:
    """A router that sends every row to the only block, with certainty: what scores are mixed with is the same then.

    >>> import numpy as np
    >>> only_block(3).topk(sparse.csr_array(np.eye(3, dtype=np.float32)), None, 1)[1].ravel().tolist()
    [1.0, 1.0, 1.0]
    """
    nothing = np.zeros(0, np.float32), np.zeros(0, np.int32), np.zeros(n_features + 1, np.int32)
    weights = LinearWeights(sparse.csr_array(nothing, shape=(n_features, 1)), np.ones(1, np.float32))
    return pack_scorer([weights], [np.arange(1)], n_features=n_features, n_labels=1)


def block_indicator(blocks: Any, n_blocks: int | None) -> sparse.csr_array:
    """Block numbers, or a 0-1 matrix already, as a 0-1 matrix of rows x blocks."""
    if sparse.issparse(blocks):
        return as_indicator(blocks)
    numbers = np.asarray(blocks)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise BlockXMCError("blocks must be one whole number per row or a sparse 0-1 matrix")
    q = max(int(numbers.max(initial=0)) + 1, n_blocks or 1)
    if n_blocks is not None and q > n_blocks:
        raise BlockXMCError(f"a row is assigned to block {q - 1}, but there are {n_blocks} blocks")
    rows = np.flatnonzero(numbers >= 0)
    return as_indicator(
        sparse.coo_array((np.ones(rows.size, np.float32), (rows, numbers[rows])), shape=(numbers.size, q))
    )
