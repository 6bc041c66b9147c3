"""New labels by what they are called, into a fitted model: no row has them, and nothing is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.preprocessing import normalize

from blockxmc._core.base import XMCEstimator
from blockxmc._core.matrix import as_csr
from blockxmc._core.versions import draft, swapped
from blockxmc.errors import BlockXMCError
from blockxmc.linear.one_vs_all import typical_length
from blockxmc.linear.packed import PackedScorer
from blockxmc.model.routed import RoutedModel
from blockxmc.training.candidates import log_positives_of
from blockxmc.training.kept import stacked, widened
from blockxmc.training.learning_on import LearningOn
from blockxmc.training.settings import SETTINGS
from blockxmc.training.update import grown


def with_new_labels(classifier: XMCEstimator, names: Sequence[str], features: sparse.csr_array) -> LearningOn:
    """A copy of the classifier that has labels of these names, too, in order, known by features of their texts alone."""
    model = getattr(classifier, "model_", None)
    if not (isinstance(classifier, LearningOn) and getattr(classifier, "takes_names", False)):
        raise BlockXMCError("add_labels needs a BlockwiseClassifier with shared weights of DiSMEC, the default")
    assert isinstance(model, RoutedModel)
    targets, _ = classifier.targets_.extended([list(names)])
    assert targets.names is not None  # they are text
    kept, n_features, n_labels = classifier.kept_, features.shape[1], targets.n_labels
    weight = classifier.cost_.get("names_weight") or SETTINGS.least_name
    length = 1.0 if kept is None else typical_length(kept.rows(n_features, n_labels)[0])
    rows = as_csr(normalize(features)).astype(np.float32)
    nothing = features.data[:0], features.indices[:0], np.zeros(model.n_labels + 1, features.indptr.dtype)
    before = sparse.csr_array(nothing, shape=(model.n_labels, n_features))  # names of others do not count
    if classifier.names_ is not None:
        before = widened(classifier.names_, n_features)
    if kept is not None:
        blocks = grown(kept.blocks, kept.blocks.n_labels, n_features)
        kept = kept.with_labels(grown(kept.labels, n_labels, n_features))
        kept = replace(kept, blocks=blocks, mix=replace(kept.mix, name=weight))
    out = draft(classifier)
    swapped(
        out,
        model_=_with_names(
            model, rows * np.float32(length), weight / length**2, _bias(classifier, model), out._threads
        ),
        kept_=kept,
        names_=stacked([before, features]),
        targets_=targets,
        classes_=targets.names,
        label_counts_=np.pad(classifier.label_counts_, (0, len(names))),
        n_features_in_=n_features,
    )
    return out


def _bias(classifier: Any, model: RoutedModel) -> float:
    """Of labels without rows: that of one that the model has, or else of a wrong label."""
    assert isinstance(model.scorer, PackedScorer)
    arrays = model.scorer._arrays
    found = arrays["bias"][(classifier.label_counts_[arrays["labels"]] == 0) & np.isfinite(arrays["bias"])]
    return float(found[0]) if classifier.names_ is not None and found.size else -1.0


def _with_names(model: RoutedModel, rows: sparse.csr_array, weight: float, bias: float, threads: int) -> RoutedModel:
    """The model with labels behind its own, each in the block to which the router sends its name."""
    n_features, n_new, router = rows.shape[1], rows.shape[0], model.router
    assert isinstance(model.scorer, PackedScorer)
    block_of = np.zeros(n_new, np.int64)
    if router is not None:
        assert isinstance(router, PackedScorer)
        router = router.on(n_features)
        block_of = router.topk(rows, None, 1, threads=threads)[0][:, 0]
    scorer = model.scorer.with_labels(rows * np.float32(weight), bias, block_of, threads)
    neighbors, reranker = model.neighbors, model.reranker
    if neighbors is not None:
        neighbors = replace(neighbors, rows=neighbors.rows.on(n_features), n_labels=scorer.n_labels)
    if reranker is not None:
        positives = np.concatenate([reranker.log_positives, log_positives_of(np.zeros(n_new, np.int64), SETTINGS)])
        pairs = reranker.companions
        if pairs is not None:
            pairs = replace(pairs, indptr=np.pad(pairs.indptr, (0, n_new), mode="edge"))
        reranker = replace(reranker, log_positives=positives, companions=pairs)
    return replace(model, router=router, scorer=scorer, neighbors=neighbors, reranker=reranker)
