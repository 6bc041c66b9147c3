"""The training of an encoder beside a linear model, from top to bottom.

A trial of the linear model, which does not know the held-out rows, gives candidates of all rows. On those of the training
rows the encoder and the label vectors learn; on those of the held-out rows fusion and calibration are fitted. What is
served is the linear model that knows all rows: its probabilities are calibrated, and mean what those of the trial mean.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone

from blockxmc._core.matrix import take_rows
from blockxmc._core.progress import Reporter, reporter_for, thread_count
from blockxmc.encoder.export import Source, exported, open_source
from blockxmc.encoder.fuse import HeldOut, fit_fusion, fused_precision, gain, logits_of
from blockxmc.encoder.learn import TAUGHT, Pairs, learned
from blockxmc.encoder.learn_on import rows_kept
from blockxmc.encoder.model import Encoded
from blockxmc.encoder.options import Encoder, as_encoder
from blockxmc.encoder.passes import Passes
from blockxmc.encoder.texts import TextEncoder
from blockxmc.encoder.vectors import SCALE, LabelVectors
from blockxmc.errors import BlockXMCError
from blockxmc.training.held_out import held_out_rows

F32 = NDArray[np.float32]

# Mean P@1/3/5 that weights of 8 bits may cost on held-out rows; where they cost more, they stay as they are.
MOST_LOST = 0.001
# Mean P@1/3/5 that held-out rows must gain by the encoder, or the linear model answers alone.
LEAST_GAIN = 0.0005
# Training texts that a frozen encoder reads at most, and on how many the time it takes is measured.
MOST_EMBEDDED, TIMED = 50_000, 32
# What distinguishes the choice of held-out rows from that of the linear model itself.
_OTHER_SEED = 7919


@dataclass(frozen=True)
class Texts:
    """The rows to learn from: texts, their labels, what labels are called ("": nothing), candidates by the trial."""

    texts: Sequence[str]
    Y: sparse.csr_array
    names: Sequence[str]
    held_out: NDArray[np.bool_]
    labels: NDArray[np.int64]  # rows x candidates, best first, -1: none
    chances: F32
    keep: bool = False  # vectors of all texts, for updates

    def those_held_out(self) -> HeldOut:
        """What the fusion is fitted on."""
        rows = np.flatnonzero(self.held_out)
        Y, labels = take_rows(self.Y, rows), self.labels[rows]
        right = np.zeros(labels.shape, bool)
        for row in range(rows.size):
            right[row] = np.isin(labels[row], Y.indices[Y.indptr[row] : Y.indptr[row + 1]])
        return HeldOut(labels, logits_of(self.chances[rows]), right, np.diff(Y.indptr).astype(np.int64))

    def pairs(self, rows: NDArray[np.intp], vectors: F32) -> Pairs:
        """The labels of some rows, and their candidates that are none; with the vectors of their texts."""
        Y, wrong = take_rows(self.Y, rows), self.labels[rows][:, :TAUGHT].copy()
        sizes = np.diff(Y.indptr)
        right = np.full((rows.size, int(sizes.max(initial=0))), -1, np.int64)
        right[np.arange(right.shape[1]) < sizes[:, None]] = Y.indices
        for row in range(rows.size):
            wrong[row, np.isin(wrong[row], right[row])] = -1
        labels = np.concatenate([right, wrong], axis=1)
        return Pairs(vectors, labels, (np.arange(labels.shape[1]) < right.shape[1]) & (labels >= 0))

    def of(self, rows: NDArray[np.intp]) -> list[str]:
        """Some of the texts."""
        return [self.texts[row] for row in rows.tolist()]

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which labels are called something."""
        return np.array([bool(name.strip()) for name in self.names], bool)


def rows_apart(Y: sparse.csr_array, encoder: Encoder) -> NDArray[np.bool_]:
    """The rows that neither the trial nor the encoder learns from."""
    return held_out_rows(Y, encoder.seed + _OTHER_SEED)


def fit_beside(
    model: Any, texts: Sequence[str], Y: sparse.csr_array, options: dict[str, Any], about: Mapping[Any, Sequence[str]]
) -> Encoded | None:
    """The encoder of a text classifier whose linear model is fitted, with these ``options``; None where it has none.

    ``about`` has texts of labels where they were given; all others are called by their names.
    """
    if model.encoder is None:
        return None
    encoder, classifier, trial = as_encoder(model.encoder), model.classifier_, clone(model).set_params(encoder=None)
    if getattr(getattr(classifier, "model_", None), "calibration", None) is None:
        raise BlockXMCError("an encoder needs probabilities to add to: use BlockwiseClassifier with shared weights")
    reporter, threads = reporter_for(classifier.verbose), thread_count(classifier.n_jobs)
    apart = rows_apart(Y, encoder)
    shown = np.flatnonzero(~apart)
    if hasattr(trial.classifier, "keep_rows"):
        trial.classifier.set_params(keep_rows=False)
    weight = options.get("sample_weight")
    more: dict[str, Any] = {} if weight is None else {"sample_weight": np.asarray(weight)[shown]}
    more |= {"label_texts": options.get("label_texts"), "label_names": list(model.classes_), "titles": False}
    reporter.say("a trial of the linear model, without the rows that are held out")
    trial.fit([texts[row] for row in shown.tolist()], take_rows(Y, shown), **more)
    labels, chances = trial.predict_topk(texts, min(encoder.candidates, Y.shape[1]))
    names = [(about.get(name) or [name if isinstance(name, str) else ""])[0] for name in model.classes_.tolist()]
    rows = Texts(texts, Y, names, apart, labels, chances, keep=bool(classifier.keep_rows))
    return fit_encoder(encoder, rows, reporter, threads, options.get("work"))


def fit_encoder(
    encoder: Encoder, rows: Texts, reporter: Reporter, threads: int, work: str | os.PathLike[str] | None = None
) -> Encoded | None:
    """The encoder, label vectors and fusion of these rows; None where held-out rows gain nothing by them."""
    held_out = rows.those_held_out()
    if not len(held_out.labels):
        reporter.say("too few rows to hold any out: the linear model answers without an encoder")
        return None
    source = open_source(encoder)
    texts = rows.of(np.flatnonzero(rows.held_out))
    if encoder.epochs == 0:
        with reporter.phase("export the encoder"):
            served = exported(source)
        vectors, bias = _frozen(served, encoder, rows, reporter, threads)
    else:
        vectors, bias = _fine_tuned(source, encoder, rows, held_out, reporter, work)
        with reporter.phase("export the encoder"):
            served = exported(source)
    labels = LabelVectors.rounded(vectors, bias)
    with reporter.phase("held-out rows"):
        served, scores = _precise_enough(source, served, labels, (texts, held_out), threads)
    before, after = gain(held_out, scores)
    reporter.say(f"held-out rows: mean of P@1/3/5 {100 * before:.2f} without the encoder, {100 * after:.2f} with it")
    if after < before + LEAST_GAIN:
        reporter.say("the encoder does not help here: the linear model answers alone")
        return None
    fusion = fit_fusion(held_out, scores, threads)
    kept = rows_kept(served.embed(rows.texts, threads)) if rows.keep else None
    summary = {"held_out_rows": float(len(texts)), "linear": before, "fused": after}
    return Encoded(served, labels, fusion, int(encoder.candidates), summary, kept)


def _frozen(served: TextEncoder, encoder: Encoder, rows: Texts, reporter: Reporter, threads: int) -> tuple[F32, F32]:
    """Label vectors and biases for an encoder that stays as it is: the names', then what training rows teach."""
    shown = np.flatnonzero(~rows.held_out)
    shown = shown[np.unique(np.linspace(0, shown.size - 1, min(shown.size, MOST_EMBEDDED)).astype(np.intp))]
    with reporter.phase("label names"):
        vectors = served.embed(rows.names, threads)
    vectors[~rows.known] = 0
    started = time.perf_counter()
    timed = served.embed(rows.of(shown[:: max(shown.size // TIMED, 1)]), threads)
    minutes = (time.perf_counter() - started) / max(len(timed), 1) * shown.size / 60
    reporter.say(f"reading {shown.size:,} training texts with the encoder takes about {minutes:,.1f} minutes")
    with reporter.phase("training texts"):
        pairs = rows.pairs(shown, served.embed(rows.of(shown), threads))
    bias = np.full(len(vectors), pairs.first_bias(vectors), np.float32)
    vectors, bias = learned(pairs, vectors, bias, encoder.seed, reporter)
    return vectors * SCALE, bias


def _fine_tuned(
    source: Source,
    encoder: Encoder,
    rows: Texts,
    held_out: HeldOut,
    reporter: Reporter,
    work: str | os.PathLike[str] | None,
) -> tuple[F32, F32]:
    """Label vectors and biases; the source's weights change."""
    from blockxmc.encoder.train import FineTuning, Lessons, tokenized

    shown = np.flatnonzero(~rows.held_out)
    with reporter.phase("tokens"):
        lessons = Lessons.of(tokenized(source, rows.of(shown)), take_rows(rows.Y, shown), rows.labels[shown])
        apart = tokenized(source, rows.of(np.flatnonzero(rows.held_out)))
    tuning = FineTuning(source, encoder, len(rows.names), reporter)
    with reporter.phase("label names"):
        tuning.begin_with_names(tokenized(source, rows.names), rows.known)
    tuning.run(lessons, Passes(work, _identity(encoder, rows)), partial(_gained, held_out), apart)
    return tuning.vectors()


def _gained(held_out: HeldOut, texts: F32, vectors: F32, bias: F32) -> float:
    labels = LabelVectors.rounded(vectors, bias)
    return gain(held_out, labels.scores(texts, held_out.labels))[1]


def _precise_enough(
    source: Source, served: TextEncoder, labels: LabelVectors, rows: tuple[list[str], HeldOut], threads: int
) -> tuple[TextEncoder, F32]:
    """The encoder in 8 bits, or as it is where held-out rows lose by these; and what it says of their candidates."""
    from blockxmc.encoder.train import tokenized, vectors_of

    texts, held_out = rows
    scores = labels.scores(served.embed(texts, threads), held_out.labels)
    exact = labels.scores(vectors_of(source, tokenized(source, texts)), held_out.labels)
    lost = fused_precision(held_out, exact) - fused_precision(held_out, scores)
    if lost.mean() <= MOST_LOST + 2 * lost.std() / np.sqrt(lost.size):  # a thousand rows lose as much by chance
        return served, scores
    return exported(source, bits=32), exact


def _identity(encoder: Encoder, rows: Texts) -> str:
    """The digest of all that fine-tuning depends on."""
    digest = hashlib.sha256(repr(sorted(encoder.get_params().items())).encode())
    for part in (*rows.texts, *rows.names):
        digest.update(part.encode(errors="surrogatepass") + b"\0")
    for array in (rows.Y.indptr, rows.Y.indices, rows.labels):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]
