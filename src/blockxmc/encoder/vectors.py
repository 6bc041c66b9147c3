"""The vectors of labels: a text's vector times a label's vector is what the encoder says of the pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from blockxmc._core import stored

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]

# Vectors of texts have length 1; times this, a label's score is about as wide as the logarithm of its odds.
SCALE = 16.0
# Rows that are scored at a time.
_AT_ONCE = 64


@dataclass(frozen=True)
class LabelVectors:
    """Vectors of labels in 8 bits, with a scale and a bias for each label."""

    vectors: NDArray[np.int8]  # labels x size
    scales: F32
    bias: F32

    @classmethod
    def rounded(cls, vectors: F32, bias: F32) -> Self:
        """From vectors in 32 bits."""
        largest = np.abs(vectors).max(axis=1, initial=0.0)
        scales = np.where(largest > 0, largest / 127, 1.0).astype(np.float32)
        out = np.empty(vectors.shape, np.int8)
        for begin in range(0, len(vectors), 1 << 16):
            part = slice(begin, begin + (1 << 16))
            np.rint(vectors[part] / scales[part, None], out=out[part], casting="unsafe")
        return cls(out, scales, bias.astype(np.float32))

    def exact(self, labels: I64) -> F32:
        """The vectors of some labels in 32 bits."""
        found = self.vectors[labels].astype(np.float32)
        found *= self.scales[labels, None]
        return found

    def replaced(self, labels: I64, vectors: F32, bias: F32) -> LabelVectors:
        """With other vectors of some labels, of which those beyond the last are new."""
        made = LabelVectors.rounded(vectors, bias)
        size = max(len(self.vectors), int(labels.max(initial=-1)) + 1)
        out = [np.zeros((size, *part.shape[1:]), part.dtype) for part in (self.vectors, self.scales, self.bias)]
        for whole, old, new in zip(out, vars(self).values(), vars(made).values(), strict=True):
            whole[: len(old)] = old
            whole[labels] = new
        return LabelVectors(*out)

    def scores(self, texts: F32, labels: I64) -> F32:
        """Of the labels of each text (rows x few; -1: none, which scores nothing)."""
        out = np.zeros(labels.shape, np.float32)
        for begin in range(0, len(labels), _AT_ONCE):
            part = slice(begin, begin + _AT_ONCE)
            ids = np.maximum(labels[part], 0)
            products = np.einsum("nld,nd->nl", self.vectors[ids].astype(np.float32), texts[part])
            out[part] = products * self.scales[ids] + self.bias[ids]
        return np.where(labels >= 0, out, np.float32(0))

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return self.vectors.nbytes + self.scales.nbytes + self.bias.nbytes

    def state(self) -> dict[str, Any]:
        """What the model directory keeps."""
        return dict(vars(self))

    @classmethod
    def from_state(cls, state: dict[str, Any], n_labels: int, size: int) -> Self:
        """Take back what ``state`` gave."""
        vectors = stored.array(state["vectors"], "vectors of labels", np.int8, (n_labels, size))
        rest = [stored.array(state[name], f"{name} of labels", np.float32, (n_labels,)) for name in ("scales", "bias")]
        for part in rest:
            stored.finite(part, "what the encoder knows of labels")
        return cls(vectors, *rest)
