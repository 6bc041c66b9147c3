"""From features to blocks: one linear classifier per block, and what to expect of it before any base is trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from blockxmc._linear import Loss, check_linear_params, train_one_vs_all
from blockxmc._matrix import as_csr, as_indicator, take_rows
from blockxmc.errors import BlockXMCError
from blockxmc.progress import Phase, Reporter, Shifted
from blockxmc.scoring import Scorer
from blockxmc.weights import LinearWeights

I32 = NDArray[np.int32]
F32 = NDArray[np.float32]
_CHUNK = 4096  # rows whose scores of all blocks are held at a time
PARAMS = ("C", "bias", "tol", "prune", "loss", "sample")
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
    ) -> None:
        check_linear_params(C, tol, prune, bias)
        if sample is not None and sample < 1:
            raise BlockXMCError(f"sample must be None (all rows) or a number of rows of at least 1, got {sample}")
        if loss not in ("logistic", "squared_hinge"):
            raise BlockXMCError(f"loss must be 'logistic' or 'squared_hinge', got {loss!r}")
        self.C, self.bias, self.tol, self.prune = C, bias, tol, prune
        self.loss: Loss = loss
        self.sample = sample
        self.n_blocks = 0
        self.scorer: Scorer | None = None  # None where there is one block only: nothing to decide

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
        X, targets = as_csr(X), _block_indicator(blocks, n_blocks)
        if X.shape[0] != targets.shape[0]:
            raise BlockXMCError(f"X has {X.shape[0]} rows, but blocks are given for {targets.shape[0]}")
        self.n_blocks = int(targets.shape[1])
        self.scorer = None
        if self.n_blocks == 1:
            return self
        kept = np.ones(X.shape[0], bool) if mask is None else np.asarray(mask, bool)
        if kept.shape != (X.shape[0],):
            raise BlockXMCError(f"mask must hold one value per row ({X.shape[0]}), got shape {kept.shape}")
        if not sparse.issparse(blocks):
            kept = kept & (np.diff(targets.indptr) > 0)
        if not kept.all():
            X, targets = take_rows(X, np.flatnonzero(kept)), take_rows(targets, np.flatnonzero(kept))
        with (reporter or Reporter()).phase("train router", self.n_blocks) as phase:
            weights = self._train(X, targets, threads, phase)
        self.scorer = Scorer.pack([weights], [np.arange(self.n_blocks)], n_features=X.shape[1], n_labels=self.n_blocks)
        return self

    def _train(self, X: sparse.csr_array, targets: sparse.csr_array, threads: int, phase: Phase) -> LinearWeights:
        options: Any = {name: getattr(self, name) for name in ("loss", "C", "tol", "bias", "prune")}
        options["threads"] = threads
        n_groups = -(-self.n_blocks // GROUP)
        if self.sample is None or (self.sample * n_groups + targets.nnz) > X.shape[0] * n_groups:
            return train_one_vs_all(X, targets, phase=phase, **options)
        everywhere = np.random.default_rng(0).choice(X.shape[0], self.sample, replace=False)
        by_block = sparse.csc_array(targets)
        # Blocks next to each other are alike: a group takes every n_groups-th, so that its rows come from far and wide.
        groups = [np.arange(first, self.n_blocks, n_groups) for first in range(n_groups)]
        parts: list[LinearWeights] = []
        for blocks in groups:
            own = sparse.csc_array(by_block[:, blocks])
            rows = np.union1d(everywhere, own.indices)
            done = Shifted(phase, sum(part.n_labels for part in parts))
            parts.append(train_one_vs_all(take_rows(X, rows), sparse.csr_array(own)[rows], phase=done, **options))
        back = np.argsort(np.concatenate(groups))
        coef = sparse.csc_array(sparse.hstack([part.coef for part in parts], format="csc"))[:, back]
        return LinearWeights(sparse.csr_array(coef), np.concatenate([part.bias for part in parts])[back])

    @classmethod
    def from_weights(cls, weights: LinearWeights) -> Self:
        """A router that was not learned here: one given column of weights per block."""
        router = cls()
        router.n_blocks = weights.n_labels
        if router.n_blocks > 1:
            n_features = weights.coef.shape[0]
            ids = np.arange(router.n_blocks)
            router.scorer = Scorer.pack([weights], [ids], n_features=n_features, n_labels=router.n_blocks)
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

    def state(self) -> dict[str, Any]:
        """Parameters and weights as a nested dict of JSON values and arrays."""
        params = {name: getattr(self, name) for name in (*PARAMS, "n_blocks")}
        return params | ({} if self.scorer is None else {"scorer": self.scorer.state()})

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Take back what ``state`` gave."""
        router = cls(**{name: state[name] for name in PARAMS if name in state})
        router.n_blocks = int(state["n_blocks"])
        router.scorer = Scorer.from_state(state["scorer"]) if "scorer" in state else None
        return router


def assess_routing(
    X: Any,
    Y: Any,
    assignment: ArrayLike,
    label_clusters: Sequence[NDArray[Any]],
    b: int = 1,
    *,
    router: Router | None = None,
    targets: sparse.csr_array | None = None,
    mask: ArrayLike | None = None,
    held_out: float = 0.2,
    max_rows: int = 20_000,
    seed: int = 0,
    threads: int = 1,
) -> dict[str, float]:
    """What a partition can reach through a router, measured on rows held out of the router's fit.

    A router with the parameters of ``router`` is fitted on the other rows (to ``targets``, a 0-1 matrix of rows x
    blocks, or else to ``assignment``). Fractions in 0..1:

    - ``candidate_recall``: mean share of a row's labels among its candidates (rows without labels left out);
    - ``router_accuracy``: share of rows whose best block is the assigned one (rows of ``mask`` and assignment >= 0);
    - ``candidates``: mean number of labels scored; ``products``: that plus one per block;
    - ``precision_ceiling@1``, ``@3``, ``@5``: P@k if the candidates were ranked perfectly;
    - ``rows``: number of rows measured.

    >>> import numpy as np
    >>> X, Y = np.eye(2, dtype=np.float32)[[0, 1] * 20], np.eye(2)[[0, 1] * 20]
    >>> found = assess_routing(X, Y, [0, 1] * 20, [np.array([0]), np.array([1])])
    >>> found["candidate_recall"], found["candidates"], found["products"]
    (1.0, 1.0, 3.0)
    """
    X, Y = as_csr(X), as_indicator(Y)
    blocks = np.asarray(assignment)
    n, q = X.shape[0], len(label_clusters)
    if n < 2 or not 0 < held_out < 1:
        raise BlockXMCError("assessing a router needs at least two rows and 0 < held_out < 1")
    order = np.random.default_rng(seed).permutation(n)
    size = min(max(1, round(held_out * n)), max_rows, n - 1)
    test, fit = np.sort(order[:size]), np.sort(order[size:])
    wanted = _block_indicator(blocks, q) if targets is None else targets
    usable = (np.ones(n, bool) if mask is None else np.asarray(mask, bool)) & (blocks >= 0)

    fresh = Router.from_state((router or Router()).state() | {"n_blocks": 0})
    fresh.fit(take_rows(X, fit), take_rows(wanted, fit), mask=usable[fit], threads=threads)
    visited = fresh.blocks(take_rows(X, test), b, threads=threads)

    candidates = _candidates(visited, label_clusters, Y.shape[1])
    truth = take_rows(Y, test)
    hits = np.asarray(candidates.multiply(truth).sum(axis=1)).ravel()
    counts = np.diff(truth.indptr)
    judged = usable[test]
    labels_scored = float(np.diff(candidates.indptr).mean())
    return {
        "candidate_recall": _mean(hits[counts > 0] / counts[counts > 0]),
        "router_accuracy": _mean(visited[judged, 0] == blocks[test][judged]),
        "candidates": labels_scored,
        "products": labels_scored + (q if q > 1 else 0),
        **{f"precision_ceiling@{k}": _mean(np.minimum(hits, k) / k) for k in (1, 3, 5)},
        "rows": float(size),
    }


def _mean(values: NDArray[Any]) -> float:
    return float(values.mean()) if values.size else 0.0


def _block_indicator(blocks: Any, n_blocks: int | None) -> sparse.csr_array:
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


def _candidates(visited: I32, label_clusters: Sequence[NDArray[Any]], n_labels: int) -> sparse.csr_array:
    """Rows x labels: the union of the label clusters of the visited blocks."""
    n, b = visited.shape
    chosen = sparse.csr_array(
        (np.ones(n * b, np.float32), visited.ravel(), np.arange(0, n * b + 1, b)), shape=(n, len(label_clusters))
    )
    starts = np.concatenate([[0], np.cumsum([len(cluster) for cluster in label_clusters])])
    flat = np.concatenate([np.asarray(cluster, np.int64) for cluster in label_clusters])
    held = sparse.csr_array((np.ones(flat.size, np.float32), flat, starts), shape=(len(label_clusters), n_labels))
    union = sparse.csr_array(chosen @ held)
    union.data[:] = 1
    return union
