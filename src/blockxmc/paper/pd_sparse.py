"""PD-Sparse: one max-margin problem over all labels, sparse in the primal and in the dual."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc import _kernels
from blockxmc._core.matrix import csr_args
from blockxmc._core.params import require_number, require_whole
from blockxmc._core.progress import Phase, watched
from blockxmc.errors import BlockXMCError
from blockxmc.learners._learner import Context, Learner
from blockxmc.linear.weights import LinearWeights

# Tables of all features start direct (slot = label) below this size, hashed above it.
_DIRECT_BYTES = 1 << 30


@dataclass(frozen=True)
class ScaledPhase:
    """Reports ``done`` of ``steps`` as the same share of ``total`` in the phase behind it."""

    behind: Phase
    steps: int
    total: int

    def update(self, done: int) -> None:
        """Set the number of finished steps."""
        self.behind.update(min(self.total, self.total * done // max(self.steps, 1)))


class PDSparse(Learner):
    """Every label of a row should beat every other label by a margin of one; L1 and L2 keep the weights sparse.

    Minimises ``sum_k (|w_k|^2 / 2 + lam |w_k|_1) + C sum_i max(0, 1 + best wrong score - worst right score)`` by
    block-coordinate Frank-Wolfe in the dual. One block is trained on one thread. Rows without a label, and rows that
    carry every label, say nothing about the order of labels and are left out; there is no bias. A single label is
    trained against its absence.

    Parameters
    ----------
    C : weight of the loss.
    lam : weight of the L1 norm; larger means sparser, 0 is allowed.
    max_iter : at most so many passes over the rows (and as many again for the post-solve).
    tol : stop when the duality gap falls below this share of the objective.
    early_stopping : share of the rows held out to judge by top-1 accuracy when to stop (0: none). The best pass is
        kept. The post-solve is undone where it clearly lowers that accuracy, and else includes the held-out rows.
    patience : passes without better held-out accuracy before stopping.
    importance_sampling : search for violating labels with a sample of each row's features (faster, less exact).
    post_solve : fit the weights that survived once more without L1.
    n_jobs, random_state, verbose : as everywhere (one block uses one thread whatever ``n_jobs`` says).

    Attributes
    ----------
    gap_trace_ : duality gap per pass, summed over the rows as they were visited.
    gap_, objective_ : exact gap and primal objective at the end of the main phase.
    n_iter_ : passes of the main phase.
    held_out_trace_ : top-1 accuracy on the held-out rows per pass.

    >>> X = np.array([[1, 0], [1, 0.1], [0, 1], [0.1, 1]])
    >>> clf = PDSparse(early_stopping=0).fit(X, [["a"], ["a"], ["b"], ["b", "c"]])
    >>> clf.predict_topk(X, k=1)[0].ravel().tolist()
    [0, 0, 1, 1]
    """

    def __init__(
        self,
        C: float = 1.0,
        lam: float = 0.01,
        max_iter: int = 50,
        *,
        tol: float = 0.001,
        early_stopping: float = 0.1,
        patience: int = 3,
        importance_sampling: bool = False,
        post_solve: bool = True,
        n_jobs: int | None = None,
        random_state: int | None = 0,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.lam = lam
        self.max_iter = max_iter
        self.tol = tol
        self.early_stopping = early_stopping
        self.patience = patience
        self.importance_sampling = importance_sampling
        self.post_solve = post_solve
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _check_params(self) -> None:
        require_number(self, "C")
        require_number(self, "lam", zero=True)
        require_number(self, "tol", zero=True)
        require_whole(self, "max_iter")
        require_whole(self, "patience")
        if not 0 <= self.early_stopping < 1:
            raise BlockXMCError(f"early_stopping must be a share of the rows in [0, 1), got {self.early_stopping!r}")

    def _train(self, X: sparse.csr_array, Y: sparse.csr_array, job: Context) -> LinearWeights:
        n_labels = int(Y.shape[1])
        if n_labels == 1:  # no other label to be beaten: the complement stands in for one
            Y = sparse.csr_array(sparse.hstack([Y, sparse.csr_array(1 - Y.toarray())]))
        features, columns = np.unique(X.indices, return_inverse=True)
        indptr, _, values = csr_args(X)
        y_indptr, y_indices, _ = csr_args(Y)
        steps = self.max_iter * int(X.shape[0]) * (3 if self.post_solve else 1)
        coef_indptr, labels, weights, gap_trace, held_out_trace, gap, primal = watched(
            _kernels.pd_sparse,
            indptr,
            columns.astype(np.int32),
            values,
            features.size,
            y_indptr,
            y_indices,
            Y.shape[1],
            self._held_out(Y, job.seed),
            C=float(self.C),
            lam=float(self.lam),
            tol=float(self.tol),
            max_iter=int(self.max_iter),
            patience=int(self.patience),
            importance_sampling=bool(self.importance_sampling),
            post_solve=bool(self.post_solve),
            direct_bytes=_DIRECT_BYTES,
            seed=job.seed,
            phase=ScaledPhase(job.phase, steps, n_labels),
        )
        self.gap_trace_, self.held_out_trace_, self.gap_, self.objective_ = gap_trace, held_out_trace, gap, primal
        self.n_iter_ = max(1, gap_trace.size)
        counts = np.zeros(X.shape[1] + 1, np.int64)
        counts[features + 1] = np.diff(coef_indptr)
        coef = sparse.csr_array((weights, labels, np.cumsum(counts)), shape=(X.shape[1], Y.shape[1]))
        if n_labels == 1:
            coef = sparse.csr_array(coef[:, [0]] - coef[:, [1]])
        return LinearWeights(coef, np.zeros(n_labels, np.float32))

    def _held_out(self, Y: sparse.csr_array, seed: int) -> NDArray[np.uint8]:
        """Marks the rows that judge when to stop: too few of them would judge by luck, so then none."""
        held_out = np.zeros(Y.shape[0], np.uint8)
        labelled = np.flatnonzero(np.diff(Y.indptr))
        count = int(self.early_stopping * labelled.size)
        if count >= 50:
            held_out[np.random.default_rng(seed).choice(labelled, count, replace=False)] = 1
        return held_out
