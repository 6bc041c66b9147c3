"""Label vectors learn on vectors of texts that do not change: without PyTorch, for frozen encoders and updates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit

from blockxmc._core.progress import Reporter
from blockxmc.encoder.vectors import SCALE

F32 = NDArray[np.float32]

# Passes, rows of a step, learning rate and its end, how strongly vectors are drawn to where they began.
# Paper titles, MiniLM as it is: P@1/3/5 44.5/28.1/20.7 by names alone, 45.4/28.6/21.0 with these, 44.7/28.4/20.8 with a
# tenth of the pull.
PASSES, BATCH, RATE, PULL = 5, 512, 2e-3, 1e-2
# Candidates of a row that teach what is wrong, and the logarithm of the odds at which they begin.
TAUGHT, FIRST_ODDS = 60, -4.0
BETAS, EPSILON = (0.9, 0.999), 1e-8


@dataclass(frozen=True)
class Pairs:
    """Texts, and labels that are right or wrong for them (rows x few; -1: none)."""

    texts: F32
    labels: NDArray[np.int64]
    right: NDArray[np.bool_]

    def first_bias(self, vectors: F32) -> float:
        """The bias by which the wrong labels of some rows begin at these odds, however alike all texts are."""
        some = np.unique(np.linspace(0, len(self.texts) - 1, min(len(self.texts), BATCH)).astype(np.intp))
        wrong = (self.labels[some] >= 0) & ~self.right[some]
        rows, columns = np.nonzero(wrong)
        cosines = np.einsum("ij,ij->i", vectors[self.labels[some[rows], columns]], self.texts[some[rows]])
        return FIRST_ODDS - SCALE * float(cosines.mean()) if rows.size else FIRST_ODDS


def learned(
    pairs: Pairs, vectors: F32, bias: F32, seed: int, reporter: Reporter, passes: int = PASSES
) -> tuple[F32, F32]:
    """Vectors and biases of labels that tell the right ones of each text from the wrong ones, begun where these are."""
    first, vectors, bias = vectors, vectors.copy(), bias.copy()
    moments = [np.zeros_like(part) for part in (vectors, vectors, bias, bias)]
    n_rows = len(pairs.texts)
    steps, step = passes * -(-n_rows // BATCH), 0
    with reporter.phase("label vectors", steps) as phase:
        for number in range(passes):
            order = np.random.default_rng([seed, number]).permutation(n_rows)
            for begin in range(0, n_rows, BATCH):
                rows, rate = order[begin : begin + BATCH], np.float32(RATE * (1 - step / steps))
                step += 1
                touched, slope = _slopes(pairs, rows, vectors, bias)
                pull = np.float32(PULL) * (vectors[touched] - first[touched])
                of_vectors = slope @ pairs.texts[rows] * np.float32(SCALE / len(rows)) + pull
                of_bias = np.asarray(slope.sum(axis=1), np.float32) / np.float32(len(rows))
                vectors[touched] -= rate * _change(moments[:2], touched, of_vectors, step)
                bias[touched] -= rate * _change(moments[2:], touched, of_bias, step)
                phase.update(step)
    return vectors, bias


def _change(moments: list[F32], touched: NDArray[np.int64], grad: F32, step: int) -> F32:
    """What Adam makes of a gradient; the state of labels that are not touched stays as it is."""
    mean, square = moments
    mean[touched] = BETAS[0] * mean[touched] + (1 - BETAS[0]) * grad
    square[touched] = BETAS[1] * square[touched] + (1 - BETAS[1]) * grad * grad
    change = mean[touched] / np.float32(1 - BETAS[0] ** step)
    change /= np.sqrt(square[touched] / np.float32(1 - BETAS[1] ** step)) + np.float32(EPSILON)
    return np.asarray(change, np.float32)


def _slopes(
    pairs: Pairs, rows: NDArray[np.intp], vectors: F32, bias: F32
) -> tuple[NDArray[np.int64], sparse.csr_array]:
    """The labels that these rows look at, and what each row's loss changes by with their scores (labels x rows)."""
    labels, right = pairs.labels[rows], pairs.right[rows]
    there = labels >= 0
    at, _ = np.nonzero(there)
    touched, place = np.unique(labels[there], return_inverse=True)
    scores = np.empty(at.size, np.float32)
    own = vectors[touched]
    for begin in range(0, at.size, 1 << 13):
        part = slice(begin, begin + (1 << 13))
        scores[part] = np.einsum("ij,ij->i", own[place[part]], pairs.texts[rows[at[part]]])
    slopes = expit(scores * np.float32(SCALE) + bias[touched][place]) - right[there]
    return touched, sparse.csr_array((slopes.astype(np.float32), (place, at)), shape=(touched.size, rows.size))
