"""Why a label is suggested, where an encoder looked too: its part of the score, and the passages that matter most to it."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc.encoder.fuse import logits_of
from blockxmc.encoder.model import Encoded
from blockxmc.encoder.texts import TOKEN_CHARS
from blockxmc.model.explanations import Explanation, Passage

# Passages that a text is cut into at most, and how many are told; a sentence by itself is cut after so many words.
MOST_PASSAGES, TOLD_PASSAGES, SENTENCE_WORDS = 12, 3, 8
_SENTENCE = re.compile(r"(?<=[.!?;:])\s+|\n+")


def passages(text: str) -> list[str]:
    """The sentences of a text, or of one sentence some words at a time; neighbors together where there are many.

    >>> passages("Banks set rates. People save."), passages("a b c d e f g h i j")
    (['Banks set rates.', 'People save.'], ['a b c d e f g h', 'i j'])
    """
    found = [part for part in _SENTENCE.split(text.strip()) if part]
    if len(found) < 2:
        words = text.split()
        found = [" ".join(words[at : at + SENTENCE_WORDS]) for at in range(0, len(words), SENTENCE_WORDS)]
    bounds = np.linspace(0, len(found), min(len(found), MOST_PASSAGES) + 1).astype(int)
    return [" ".join(found[a:b]) for a, b in pairwise(bounds)]


def explained(
    encoded: Encoded, classifier: Any, X: sparse.csr_array, text: str, label: Any, k: int, **options: Any
) -> list[Explanation]:
    """Explanations by the linear model, with what calibration of its score and the encoder add."""
    threads = classifier._threads
    first, chances = (part[0] for part in encoded.first(classifier.model_, X, [text], threads))
    wanted = first[first >= 0][:k].tolist() if label is None else label
    found: list[Explanation] = classifier.explain(X, label=wanted, k=k, **options)
    ranks = {int(j): rank for rank, j in enumerate(first.tolist(), 1) if j >= 0}
    looked_at = [why for why in found if why.label in ranks]
    ids = np.array([[why.label for why in looked_at]], np.int64)
    scores, parts = _parts(encoded, text, ids, threads)
    linear = np.array([[why.probability for why in looked_at]], np.float32)
    logits = encoded.fusion.linear * logits_of(linear)[0]
    out, at = [], {why.label: number for number, why in enumerate(looked_at)}
    for why in found:
        if (number := at.get(why.label)) is None:
            last = f"behind the {len(ranks)} labels that the encoder looks at: {why.fate}"
            out.append(why if why.rank is None else replace(why, fate=last))
            continue
        rank, by_encoder = ranks[why.label], encoded.fusion.encoder * float(scores[0, number])
        own = float(logits[number]) + encoded.fusion.shift
        terms = why.terms | {"its probability instead": own - float(why.score or 0), "the encoder": by_encoder}
        place = f"rank {rank} of {len(ranks)} that the encoder looked at, {why.rank} by the linear model"
        told = [Passage(said, float(part)) for said, part in _told(passages(text), parts[:, number])]
        how: dict[str, Any] = {"terms": terms, "passages": told, "score": own + by_encoder, "rank": rank}
        fate = f"{'suggested' if rank <= k else 'scored low'}: {place}"
        out.append(replace(why, fate=fate, probability=float(chances[rank - 1]), **how))
    return out


def _parts(
    encoded: Encoded, text: str, ids: NDArray[np.int64], threads: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """What the encoder scores labels, and what the fused score loses without each passage (passages x labels)."""
    pieces = passages(text[: encoded.encoder.max_tokens * TOKEN_CHARS])
    without = [" ".join([*pieces[:at], *pieces[at + 1 :]]) for at in range(len(pieces))]
    vectors = encoded.encoder.embed([text, *without], threads)
    scores = encoded.labels.scores(vectors, np.repeat(ids, len(vectors), axis=0))
    return scores[:1], np.float32(encoded.fusion.encoder) * (scores[:1] - scores[1:])


def _told(pieces: list[str], parts: NDArray[np.float32]) -> list[tuple[str, float]]:
    """The passages that count most, and what they add."""
    best = np.argsort(-parts, kind="stable")[:TOLD_PASSAGES]
    return [(pieces[at], float(parts[at])) for at in best.tolist() if parts[at] > 0]
