"""LEML's problem min |Y - X W H'|^2 / 2 + lam (|W|^2 + |H|^2) / 2, and the steps that solve it (BLAS on one thread)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy import sparse

from blockxmc import _kernels
from blockxmc._core.matrix import csr_args
from blockxmc._core.progress import Phase, watched
from blockxmc.paper._tall import gram, half, inner, inverse_root, orthonormal, solve_rows, spmm, times, transpose

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

# The W-step is a warm start for the next one, not an end: it stops early.
_CG_TOL = 0.01
_CG_STEPS = 20
# Turning costs about ten cubes of the smaller side once; a dense product runs some ten times faster than a sparse one.
_TURN, _DENSE = 10, 0.1
_MOST_DIRECTIONS = 4000


class Design(Protocol):
    """X, as the alternation sees it: W has a row for each of its ``width`` coordinates."""

    width: int

    def product(self, W: F32) -> F32:
        """X W."""

    def ridge(self, s: F64, lam: float, T: F32, W: F32, phase: Phase) -> F32:
        """The columns w_c of (s_c X'X + lam) w_c = X' t_c, searched from W where that is of use."""

    def on_features(self, W: F32) -> F32:
        """W, features x rank."""


class SparseDesign:
    """X as it is; ridge problems by conjugate gradients."""

    def __init__(self, X: sparse.csr_array, threads: int) -> None:
        self.X, self.Xt, self.threads, self.width = X, transpose(X), threads, int(X.shape[1])

    def product(self, W: F32) -> F32:
        """X W."""
        return spmm(self.X, W, self.threads)

    def ridge(
        self, s: F64, lam: float, T: F32, W: F32, phase: Phase, tol: float = _CG_TOL, max_steps: int = _CG_STEPS
    ) -> F32:
        """Improves W, in its place."""
        watched(
            _kernels.ridge_cg,
            *csr_args(self.X),
            *csr_args(self.Xt),
            np.maximum(s, 0).astype(np.float32),
            lam,
            T,
            W,
            np.zeros(s.size, np.int32),
            tol,
            max_steps,
            self.threads,
            phase=phase,
        )
        return W

    def on_features(self, W: F32) -> F32:
        """W itself."""
        return W


class TurnedDesign:
    """X of few rows or few features, turned into its principal directions: there ridge problems are divisions.

    With X = U S V' the turned rows are U S, whose columns are orthogonal, and W = V W'. Norms stay as they are, so the
    problem is the same one.
    """

    def __init__(self, X: sparse.csr_array, threads: int) -> None:
        few_rows = X.shape[0] < X.shape[1]
        # Single precision, as X is: half the time, and what it loses lies far below any lam of use.
        products = (X @ X.T if few_rows else X.T @ X).toarray()
        squares, vectors = scipy.linalg.eigh(products, driver="evd", overwrite_a=True)
        kept = squares > max(squares.max(initial=0.0), 1e-30) * 1e-5  # the rest is rounding
        self.squares, vectors = squares[kept], np.ascontiguousarray(vectors[:, kept])
        self.threads, self.width = threads, int(kept.sum())
        self._Xt: sparse.csr_array | None
        if few_rows:
            self.rows = vectors * np.sqrt(self.squares)
            self._Xt, self._back = transpose(X), vectors / np.sqrt(self.squares)
        else:
            self.rows = spmm(X, vectors, threads)
            self._Xt, self._back = None, vectors

    def product(self, W: F32) -> F32:
        """X W."""
        return times(self.rows, W, self.threads)

    def ridge(self, s: F64, lam: float, T: F32, W: F32, phase: Phase) -> F32:
        """Exact, wherever W stands."""
        solved: F32 = times(np.ascontiguousarray(self.rows.T), T, self.threads)
        solved /= self.squares[:, None] * np.maximum(s, 0) + lam
        phase.update(s.size)
        return solved

    def on_features(self, W: F32) -> F32:
        """W, features x rank."""
        turned_back = times(self._back, W, self.threads)
        return turned_back if self._Xt is None else spmm(self._Xt, turned_back, self.threads)


def design_for(X: sparse.csr_array, rank: int, n_iter: int, threads: int) -> Design:
    """The cheaper of the two for so many iterations."""
    n, width = X.shape[0], min(X.shape)
    turned = _TURN * width**3 + 4 * n_iter * n * width * rank
    searched = 4 * n_iter * X.nnz * rank * (_CG_STEPS / 2) / _DENSE
    fits = 0 < width <= _MOST_DIRECTIONS and turned < searched
    return TurnedDesign(X, threads) if fits else SparseDesign(X, threads)


@dataclass(frozen=True)
class View:
    """Y seen through A = X W: all that the H-step and the objective need to know of W."""

    gram: F64  # A'A
    cross: F32  # Y'A


@dataclass(frozen=True)
class Bilinear:
    """The problem and its two half-steps."""

    design: Design
    Y: sparse.csr_array
    Yt: sparse.csr_array
    lam: float
    threads: int

    def start(self, rank: int, init: str, rng: np.random.Generator) -> F32:
        """A first H (labels x rank)."""
        n_labels, threads = self.Y.shape[1], self.threads
        if rank == n_labels and init == "svd":
            return np.eye(n_labels, dtype=np.float32)  # any basis of the whole space will do
        if init == "random":
            return rng.standard_normal((n_labels, rank), np.float32) / np.float32(np.sqrt(max(rank, 1)))
        # Randomised SVD: a random subspace, drawn by two power iterations towards the leading singular vectors.
        Q = rng.standard_normal((n_labels, min(rank + 10, n_labels)), np.float32)
        for _ in range(3):
            Q = orthonormal(spmm(self.Yt, spmm(self.Y, Q, threads), threads), threads)
        _, vectors = scipy.linalg.eigh(gram(spmm(self.Y, Q, threads), threads))
        return times(Q, vectors[:, ::-1][:, :rank], threads)

    def w_step(self, W: F32, H: F32, s: F64, phase: Phase) -> F32:
        """Improve W for an H with H'H = diag(s): then the columns of W are ridge problems on one X."""
        return self.design.ridge(s, self.lam, spmm(self.Y, H, self.threads), W, phase)

    def seen_through(self, W: F32) -> View:
        """What the H-step and the objective need of X W."""
        A = self.design.product(W)
        return View(gram(A, self.threads), spmm(self.Yt, A, self.threads))

    def h_step(self, view: View) -> F32:
        """The best H for this W: Y'A (A'A + lam I)^-1."""
        return solve_rows(view.cross, view.gram + self.lam * np.eye(view.gram.shape[0]), self.threads)

    def loss(self, H: F32, gram_H: F64, view: View) -> float:
        """|Y - X W H'|^2 / 2, without forming the rows x labels matrix."""
        return 0.5 * (self.Y.nnz - 2 * inner(view.cross, H) + float(np.sum(view.gram * gram_H)))

    def objective(self, W: F32, H: F32, gram_H: F64, view: View) -> float:
        """The value being minimised."""
        return self.loss(H, gram_H, view) + 0.5 * self.lam * (inner(W, W) + float(np.trace(gram_H)))


def decouple(W: F32, H: F32, threads: int) -> tuple[F32, F32, F64]:
    """The factors turned (same product, same norms) to where H'H is the diagonal that comes third."""
    s, U = scipy.linalg.eigh(gram(H, threads))
    return times(W, U, threads), times(H, U, threads), np.maximum(s, 0)


def balance(W: F32, H: F32, gram_H: F64, threads: int) -> tuple[F32, F32, F64]:
    """The factors of the same product with the smallest |W|^2 + |H|^2: W'W = H'H = its singular values, third.

    >>> W, H = np.array([[8.0]], np.float32), np.array([[2.0]], np.float32)
    >>> [abs(part).round(5).tolist() for part in balance(W, H, np.array([[4.0]]), threads=1)]
    [[[4.0]], [[4.0]], [16.0]]
    """
    root, inverse = half(gram_H)  # H = Q root' for Q = H inverse with orthonormal columns, so W H' = (W root) Q'
    squares, turn = scipy.linalg.eigh(root.T @ gram(W, threads) @ root)
    s = np.sqrt(np.maximum(squares, 0))
    scale = inverse_root(s**2) ** 0.5  # directions lost in rounding become zero columns
    W = times(W, root @ (turn * scale), threads)
    H = times(H, inverse @ (turn / np.where(scale > 0, scale, np.inf)), threads)
    return W, H, np.where(scale > 0, s, 0.0)
