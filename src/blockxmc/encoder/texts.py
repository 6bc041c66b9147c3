"""Texts to vectors by ONNX Runtime: what a model with an encoder needs to answer. PyTorch is never imported here."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from blockxmc._core import stored
from blockxmc.encoder.graph import refuse_external
from blockxmc.errors import MissingExtraError, ModelFormatError

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]

# What a token takes of a text at most, in characters: what lies behind is not looked at, however long a text is.
TOKEN_CHARS = 32
# Weights in as many bytes are larger than any encoder that answers in a second.
MOST_BYTES = 1 << 32


@dataclass(frozen=True)
class TextEncoder:
    """The graph of an encoder (token ids in, the mean over tokens out) and its tokenizer, as bytes.

    Each text is answered by itself, on one thread: no padding, and the same bits whatever stands beside it.
    """

    graph: U8
    tokenizer: U8
    digest: str  # SHA-256 of both
    size: int  # of a vector
    max_tokens: int
    prefix: str

    @classmethod
    def of(cls, graph: bytes, tokenizer: bytes, size: int, max_tokens: int, prefix: str) -> Self:
        """An encoder that was just exported."""
        parts = np.frombuffer(graph, np.uint8), np.frombuffer(tokenizer, np.uint8)
        return cls(*parts, _digest(*parts), size, max_tokens, prefix)

    def embed(self, texts: Sequence[str], threads: int = 1) -> F32:
        """A vector of length 1 for each text."""
        out = np.zeros((len(texts), self.size), np.float32)
        self._session, self._tokens  # made once, before threads ask for them  # noqa: B018

        def fill(row: int) -> None:
            out[row] = self._one(texts[row])

        if len(texts) == 1 or threads == 1:
            for row in range(len(texts)):
                fill(row)
            return out
        longest_first = sorted(range(len(texts)), key=lambda row: -len(texts[row]))
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(fill, longest_first):
                pass
        return out

    def _one(self, text: str) -> F32:
        begin = self.prefix + text[: self.max_tokens * TOKEN_CHARS]
        ids = np.array([self._tokens.encode(begin).ids], np.int64)
        if not ids.size:
            return np.zeros(self.size, np.float32)
        found: F32 = self._session.run(None, {"ids": ids})[0][0]
        length = float(np.linalg.norm(found))
        return found / np.float32(length) if 0 < length < np.inf else np.zeros(self.size, np.float32)

    @cached_property
    def _session(self) -> Any:
        try:
            import onnxruntime
        except ImportError:
            raise MissingExtraError("onnxruntime", "encoder") from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.enable_cpu_mem_arena = False  # it would keep what the longest text took
        options.log_severity_level = 3
        try:
            session = onnxruntime.InferenceSession(self.graph.tobytes(), options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise ModelFormatError(f"the model's encoder cannot be opened: {stored.short(str(error))}") from None
        taken, made = session.get_inputs(), session.get_outputs()
        fits = [put.name for put in taken] == ["ids"] and len(made) == 1 and made[0].shape[-1:] == [self.size]
        stored.require(fits, f"its encoder does not turn token ids into vectors of {self.size} numbers")
        return session

    @cached_property
    def _tokens(self) -> Any:
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise MissingExtraError("tokenizers", "encoder") from None
        try:
            found = Tokenizer.from_buffer(self.tokenizer.tobytes())
        except Exception as error:
            raise ModelFormatError(f"the model's tokenizer cannot be opened: {stored.short(str(error))}") from None
        found.no_padding()
        found.enable_truncation(self.max_tokens)
        return found

    def __getstate__(self) -> dict[str, Any]:
        """What is copied and sent to other processes: all but what is opened anew."""
        return {name: value for name, value in vars(self).items() if name not in ("_session", "_tokens")}

    def open(self) -> None:
        """Check that the bytes are those that were saved, and open the graph."""
        stored.require(_digest(self.graph, self.tokenizer) == self.digest, "its encoder was changed")
        refuse_external(self.graph.data)  # no copy: memory is what a process of a service is short of
        self._session, self._tokens  # noqa: B018

    def state(self) -> dict[str, Any]:
        """What the model directory keeps."""
        names = ("graph", "tokenizer", "digest", "size", "max_tokens", "prefix")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Take back what ``state`` gave; the graph is opened when the first text comes, or by ``open``."""
        parts = [
            stored.array(state[name], f"the encoder's {name}", np.uint8, (None,)) for name in ("graph", "tokenizer")
        ]
        stored.require(all(part.size < MOST_BYTES for part in parts), "its encoder is too large")
        digest, prefix = state["digest"], state["prefix"]
        stored.require(isinstance(digest, str) and isinstance(prefix, str), "its encoder is described in another form")
        sizes = (
            stored.whole(state["size"], "size of a vector", 1, 1 << 16),
            stored.whole(state["max_tokens"], "max_tokens", 4),
        )
        return cls(parts[0], parts[1], digest, *sizes, prefix)


def _digest(graph: U8, tokenizer: U8) -> str:
    digest = hashlib.sha256()
    for part in (graph, tokenizer):
        digest.update(part.data)
    return digest.hexdigest()
