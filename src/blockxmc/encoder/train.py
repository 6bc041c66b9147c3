"""Fine-tuning in PyTorch: the encoder and the label vectors learn to tell a row's labels from its other candidates.

What a step costs follows the candidates of its rows, not the number of labels: only the vectors of labels that a batch
looks at are read, and their optimiser's state changes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc._core.progress import Reporter
from blockxmc.encoder.export import Source, torch_of
from blockxmc.encoder.learn import FIRST_ODDS, TAUGHT
from blockxmc.encoder.options import Encoder
from blockxmc.encoder.passes import Passes
from blockxmc.encoder.texts import TOKEN_CHARS
from blockxmc.encoder.vectors import SCALE

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]

# Labels drawn at random for all rows of a batch, wrong for nearly all of them.
DRAWN = 64
# Of label vectors: their learning rate, and how far from their names they begin.
LABEL_RATE, FIRST_SPREAD = 2e-3, 0.02
WEIGHT_DECAY, WARM_UP, LARGEST_NORM, DROPPED = 0.01, 0.06, 1.0, 0.3
BETAS, EPSILON = (0.9, 0.999), 1e-8
# Passes: so many rows are seen in all, within these bounds; long trainings stop at fewer.
ROWS_SEEN, FEWEST_PASSES, MOST_PASSES = 200_000, 2, 10
# Passes without a gain on held-out rows before training ends.
PATIENCE = 2
# Batches whose rows are put in order of length together.
SORTED_TOGETHER = 50
# Rows of which vectors are taken at a time, and steps after which the time left is told.
EMBEDDED_AT_ONCE, STEPS_TIMED = 256, 8


@dataclass(frozen=True)
class Lists:
    """Short lists of numbers, one per row, one after the other."""

    indptr: NDArray[np.int64]
    values: NDArray[np.int32]

    @classmethod
    def of(cls, rows: Sequence[Any]) -> Lists:
        """From a list of lists."""
        sizes = np.fromiter(map(len, rows), np.int64, len(rows))
        values = np.concatenate([np.asarray(row, np.int32) for row in rows]) if rows else np.zeros(0, np.int32)
        return cls(np.concatenate([[0], np.cumsum(sizes)]), values)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How long each list is."""
        return np.diff(self.indptr)

    def padded(self, rows: NDArray[np.intp], empty: int) -> I32:
        """Some lists as a matrix, filled up."""
        sizes = self.sizes[rows]
        columns = np.arange(int(sizes.max(initial=1)))
        there = columns < sizes[:, None]
        out = np.full(there.shape, empty, np.int32)
        out[there] = self.values[(self.indptr[rows, None] + columns)[there]]
        return out


@dataclass(frozen=True)
class Lessons:
    """What rows teach: their tokens, and labels that are right (as they are) or wrong (-2 less than minus them)."""

    tokens: Lists
    labels: Lists

    @classmethod
    def of(cls, tokens: Lists, Y: sparse.csr_array, candidates: NDArray[np.integer]) -> Lessons:
        """The labels of rows, and the first of their candidates that are none."""
        rows = []
        for i in range(Y.shape[0]):
            right = Y.indices[Y.indptr[i] : Y.indptr[i + 1]]
            wrong = candidates[i][(candidates[i] >= 0) & ~np.isin(candidates[i], right)][:TAUGHT]
            rows.append(np.concatenate([right, -2 - wrong]))
        return cls(tokens, Lists.of(rows))


def tokenized(source: Source, texts: Sequence[str]) -> Lists:
    """The tokens of texts, as the model that is served reads them."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_buffer(source.tokenizer)
    tokenizer.no_padding()
    tokenizer.enable_truncation(source.max_tokens)
    begins = [source.prefix + text[: source.max_tokens * TOKEN_CHARS] for text in texts]
    found: list[Any] = []
    for begin in range(0, len(begins), 4096):
        found += [encoding.ids or [0] for encoding in tokenizer.encode_batch(begins[begin : begin + 4096])]
    return Lists.of(found)


def passes_for(n_rows: int, epochs: int | str) -> int:
    """How often the rows are gone through.

    >>> [passes_for(n, "auto") for n in (10_000, 22_000, 42_000, 500_000)], passes_for(10, 3)
    ([10, 9, 5, 2], 3)
    """
    if epochs != "auto":
        return int(epochs)
    return min(max(round(ROWS_SEEN / max(n_rows, 1)), FEWEST_PASSES), MOST_PASSES)


class FineTuning:
    """An encoder and label vectors in training."""

    def __init__(self, source: Source, encoder: Encoder, n_labels: int, reporter: Reporter) -> None:
        torch = torch_of()
        self.source, self.encoder, self.reporter = source, encoder, reporter
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
        self.device = torch.device(wanted if encoder.device == "auto" else encoder.device)
        torch.manual_seed(encoder.seed)
        self.module = source.module.to(self.device)
        self.n_labels, self.names = n_labels, None
        spread = FIRST_SPREAD / math.sqrt(source.size)
        self.own = torch.randn(n_labels, source.size, device=self.device) * spread
        self.gain = torch.ones(n_labels, 1, device=self.device)
        self.bias = torch.full((n_labels, 1), FIRST_ODDS, device=self.device)
        how: Any = {"lr": encoder.learning_rate, "betas": BETAS, "eps": EPSILON, "weight_decay": WEIGHT_DECAY}
        self.optimizer = torch.optim.AdamW(self.module.parameters(), fused=self.device.type == "cuda", **how)
        tables = self.own, self.gain, self.bias
        self.moments = [(torch.zeros_like(table), torch.zeros_like(table)) for table in tables]
        self.step = 0

    def begin_with_names(self, names: Lists, known: NDArray[np.bool_]) -> None:
        """Have label vectors begin where the encoder puts the names; labels of no ``known`` name begin anywhere."""
        torch = torch_of()
        vectors = self.embed(names)
        vectors[~known] = 0
        self.names = torch.from_numpy(vectors).to(self.device)
        unnamed = torch.from_numpy(~known).to(self.device)
        self.own[unnamed] *= 1 / FIRST_SPREAD

    def embed(self, tokens: Lists) -> F32:
        """Vectors of length 1, by the encoder as it is now."""
        return vectors_of(self.source, tokens)

    def vectors(self) -> tuple[F32, F32]:
        """The label vectors as they are served, and their biases."""
        found = self.own if self.names is None else self.names * self.gain + self.own
        return (found * SCALE).cpu().numpy(), self.bias[:, 0].cpu().numpy()

    def run(self, lessons: Lessons, passes: Passes, gained: Callable[[F32, F32, F32], float], held_out: Lists) -> None:
        """Train; ``gained`` says how well held-out rows are ranked by their vectors, and those of labels."""
        n_rows = lessons.tokens.sizes.size
        n_passes, batch = passes_for(n_rows, self.encoder.epochs), self.encoder.batch_size
        steps = n_passes * -(-n_rows // batch)
        self._level(lessons)
        first = passes.resume(self)
        with self.reporter.phase("fine-tune the encoder", steps) as phase:
            for number in range(first, n_passes):
                started, loss = time.perf_counter(), torch_of().zeros((), device=self.device)
                for rows in self._batches(lessons.tokens.sizes, number):
                    loss += self._learn(lessons, rows, self.step / steps)
                    self.step += 1
                    phase.update(self.step)
                    if self.step == STEPS_TIMED and not first:
                        self._tell(steps, started)
                total = float(loss)
                seconds = time.perf_counter() - started
                found = gained(self.embed(held_out), *self.vectors())
                self.reporter.say(
                    f"pass {number + 1} of {n_passes}: loss {total / n_rows:.3f}, {n_rows / seconds:,.0f} rows/s, mean of"
                    f" P@1/3/5 on held-out rows {100 * found:.2f}"
                )
                if passes.ended(self, number, found) >= PATIENCE:
                    break
        passes.take_best(self)

    def _level(self, lessons: Lessons) -> None:
        """Have the candidates of rows begin at the same odds on average, however alike an encoder finds all texts."""
        torch = torch_of()
        n_rows = lessons.tokens.sizes.size
        rows = np.unique(np.linspace(0, n_rows - 1, min(n_rows, EMBEDDED_AT_ONCE)).astype(np.intp))
        listed = lessons.labels.padded(rows, -1)
        wrong = torch.from_numpy(np.where(listed <= -2, -2 - listed, 0)).to(self.device).long()
        self.module.eval()
        with torch.no_grad():
            texts = _forward(self.source, lessons.tokens, rows)
            vectors = self.own[wrong] if self.names is None else self.names[wrong] + self.own[wrong]
            scores = (vectors @ texts[:, :, None])[..., 0] * SCALE
            there = torch.from_numpy(listed <= -2).to(self.device)
            self.bias.fill_(FIRST_ODDS - float((scores * there).sum() / there.sum().clamp(min=1)))

    def _tell(self, steps: int, started: float) -> None:
        each = (time.perf_counter() - started) / STEPS_TIMED
        self.reporter.say(f"fine-tuning on {self.device.type}: {steps:,} steps, about {each * steps / 60:,.1f} minutes")

    def _batches(self, sizes: NDArray[np.int64], number: int) -> Iterator[NDArray[np.intp]]:
        """Rows of like length together, in an order of chance that is the pass's own."""
        torch_of().manual_seed(self.encoder.seed + 1000 * (number + 1))
        self._rng = np.random.default_rng([self.encoder.seed, number])
        order, size = self._rng.permutation(sizes.size), self.encoder.batch_size
        parts = [order[at : at + size * SORTED_TOGETHER] for at in range(0, order.size, size * SORTED_TOGETHER)]
        order = np.concatenate([part[np.argsort(sizes[part], kind="stable")] for part in parts])
        batches = [order[at : at + size] for at in range(0, order.size, size)]
        for at in self._rng.permutation(len(batches)):
            yield batches[at]

    def _learn(self, lessons: Lessons, rows: NDArray[np.intp], done: float) -> Any:
        """One step; returns the loss of its rows, added up, where it was computed: nobody waits for it."""
        torch = torch_of()
        self.module.train()
        listed = torch.from_numpy(lessons.labels.padded(rows, -1)).to(self.device).long()
        wrong = listed <= -2
        ids = torch.where(wrong, -2 - listed, listed)
        drawn = torch.from_numpy(self._rng.integers(0, self.n_labels, DRAWN)).to(self.device)
        known = (ids[:, :, None] == drawn).any(1)  # these count already, or are right
        ids = torch.cat([ids, drawn.expand(len(rows), -1)], 1)
        right = torch.cat([~wrong & (listed >= 0), torch.zeros_like(known)], 1).float()
        counts = torch.cat([listed != -1, ~known], 1)
        touched, at = torch.unique(ids.clamp(min=0), return_inverse=True)
        parts = [table[touched].requires_grad_() for table in (self.own, self.gain, self.bias)]
        own, gain, bias = parts
        vectors = own if self.names is None else self.names[touched] * gain + own
        texts = torch.nn.functional.dropout(_forward(self.source, lessons.tokens, rows), DROPPED)
        scores = (vectors[at] @ texts[:, :, None])[..., 0] * SCALE + bias[at][..., 0]
        losses = torch.nn.functional.binary_cross_entropy_with_logits(scores, right, reduction="none")
        loss = (losses * counts).sum() / len(rows)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if self.names is None:
            gain.grad = torch.zeros_like(gain)
        every = [*self.module.parameters(), *parts]
        torch.nn.utils.clip_grad_norm_(every, LARGEST_NORM)
        rate = min(done / WARM_UP, (1 - done) / (1 - WARM_UP)) if done > 0 else 0.5 / WARM_UP / 1e3
        for group in self.optimizer.param_groups:
            group["lr"] = self.encoder.learning_rate * rate
        self.optimizer.step()
        self._adam(touched, parts, LABEL_RATE * rate)
        return loss.detach() * len(rows)

    def _adam(self, touched: Any, parts: list[Any], rate: float) -> None:
        """AdamW of the labels that were looked at; the state of all others stays as it is."""
        torch = torch_of()
        one, two = (1 - beta ** (self.step + 1) for beta in BETAS)
        with torch.no_grad():
            for table, part, moments in zip((self.own, self.gain, self.bias), parts, self.moments, strict=True):
                grad = part.grad
                mean, square = (moment[touched] for moment in moments)
                mean = mean.lerp_(grad, 1 - BETAS[0])
                square = square.mul_(BETAS[1]).addcmul_(grad, grad, value=1 - BETAS[1])
                moments[0][touched], moments[1][touched] = mean, square
                change = (mean / one) / ((square / two).sqrt() + EPSILON)
                kept = part if table is not self.own else part * (1 - rate * WEIGHT_DECAY)
                table[touched] = kept - rate * change


def vectors_of(source: Source, tokens: Lists) -> F32:
    """Vectors of length 1, by PyTorch."""
    source.module.eval()
    out = np.zeros((tokens.sizes.size, source.size), np.float32)
    order = np.argsort(tokens.sizes, kind="stable")
    with torch_of().no_grad():
        for begin in range(0, order.size, EMBEDDED_AT_ONCE):
            rows = order[begin : begin + EMBEDDED_AT_ONCE]
            out[rows] = _forward(source, tokens, rows).cpu().numpy()
    return out


def _forward(source: Source, tokens: Lists, rows: NDArray[np.intp]) -> Any:
    """The vectors of some rows, in 16 bits where a GPU works."""
    torch = torch_of()
    device = next(source.module.parameters()).device
    padded = tokens.padded(rows, -1)
    mask = torch.from_numpy(padded >= 0).to(device).long()
    ids = torch.from_numpy(np.maximum(padded, 0)).to(device).long()
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        found = source.module(ids, mask)
    return torch.nn.functional.normalize(found.float(), dim=1)
