"""What an encoder adds on test texts: the linear model, the encoder and both together, in one table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from blockxmc import metrics
from blockxmc.encoder.fuse import logits_of

# Texts that are answered one by one to see how long one takes.
TIMED = 50


def compared(model: Any, texts: Sequence[str], Y: sparse.csr_array, ks: Sequence[int]) -> dict[str, dict[str, float]]:
    """P, nDCG and F1 at ``ks`` in points of each of the three, and milliseconds of one text on one core."""
    encoded, classifier = model.encoder_, model.classifier_
    X = model.vectorizer_.transform(texts, classifier.n_jobs)
    n = min(encoded.candidates, classifier.targets_.n_labels)
    labels, chances = classifier.model_.topk(X, n, classifier._threads)
    scores = encoded.labels.scores(encoded.encoder.embed(texts, classifier._threads), labels)
    alone = np.take_along_axis(labels, np.argsort(-np.where(labels >= 0, scores, -np.inf), axis=1, kind="stable"), 1)
    both = encoded.fusion.ranked(labels, logits_of(chances), scores)[0]
    found = {}
    for name, answers in (("linear", labels), ("encoder", alone), ("fused", both)):
        known = metrics.evaluate(Y, answers[:, : max(ks)], ks, percent=True)
        found[name] = {key: known[f"{key}"] for k in ks for key in (f"P@{k}", f"nDCG@{k}", f"F1@{k}") if key in known}
    for name, encoder in (("linear", False), ("fused", True)):
        some = texts[:TIMED]
        started = time.thread_time()
        for text in some:
            model.predict_topk(text, min(max(ks), n), encoder=encoder)
        found[name]["ms_per_text"] = 1e3 * (time.thread_time() - started) / max(len(some), 1)
    return found
