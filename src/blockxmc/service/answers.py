"""What a model answers: suggestions, explanations, and its card."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from blockxmc._core.allowed import label_ids
from blockxmc.data.extra import ExtendedVectorizer
from blockxmc.errors import ModelFormatError
from blockxmc.service.gate import check_wanted
from blockxmc.service.models import ServedModel
from blockxmc.service.problems import Problem
from blockxmc.service.settings import Limits
from blockxmc.service.shapes import Either, ListOf, Named, Number, Object, Shape, Text, Whole, Word
from blockxmc.text import least_score

# Features that an explanation lists; what the others add is one number.
SHOWN_FEATURES = 200
# Of one answer: texts times k, and labels times features that are scored for an explanation.
MOST_SUGGESTIONS, MOST_PARTS = 100_000, 1_000_000
# Labels between two looks at whether anybody waits for the answer.
EXPLAINED_AT_ONCE = 20
# Characters of a training text that an explanation shows.
SHOWN_CHARS = 500
DEFAULT_K = 5
# Of a feature in a row: beyond it, scores would leave what 32-bit numbers hold.
MOST_VALUE = 1e6
_INT32 = 2**31 - 1


class Requests:
    """The bodies that are understood, within the limits of a service."""

    def __init__(self, limits: Limits) -> None:
        text, label = Text(limits.text_chars), Either(Text(2000), Whole(0, _INT32))
        labels = Either(Word(None), ListOf(label, limits.labels))
        features = limits.row_features
        indices, values = ListOf(Whole(0, _INT32), features), ListOf(Number(MOST_VALUE), features)
        row = Object({"indices": indices, "values": values}, ("indices", "values"))
        input_: dict[str, Shape] = {
            "text": text,
            "texts": ListOf(text, limits.texts, 1),
            "rows": ListOf(row, limits.texts, 1),
        }
        k, threshold = Whole(1, limits.k), Either(Word(None), Word("f1"), Number())
        choice: dict[str, Shape] = {"k": k, "threshold": threshold, "allow": labels, "deny": labels}
        self.suggest = Object({**input_, **choice}, one_of=tuple(input_))
        one: dict[str, Shape] = {"text": text, "row": row}
        few: dict[str, Shape] = {
            "labels": Either(Word(None), ListOf(label, limits.explained)),
            "k": Whole(1, limits.explained),
        }
        self.explain = Object({**one, **few}, one_of=tuple(one))
        rows = ListOf(ListOf(Text(2000), limits.labels), limits.texts, 1)
        self.update = Object({"texts": input_["texts"], "labels": rows}, ("texts", "labels"))
        about = Named(Either(text, ListOf(text, limits.texts, 1)), limits.labels)
        self.labels = Object({"labels": about}, ("labels",))


def n_texts(body: dict[str, Any]) -> int:
    """How many answers are asked for."""
    return len(body.get("texts") or body.get("rows") or [None])


def is_short(model: ServedModel, body: dict[str, Any]) -> bool:
    """Whether an answer takes a moment only, less than it takes to hand the work to a thread and back twice.

    Nobody knows how long a function takes that makes extra columns, and for an unknown label near ones are looked for.
    """
    text = body.get("text")
    if text is None or model.has_encoder or isinstance(model.vectorizer, ExtendedVectorizer):
        return False
    named, known = [*(body.get("allow") or ()), *(body.get("deny") or ())], model.classifier.targets_.ids_by_name
    few = len(text) <= 20_000 and len(named) <= 100
    return few and all(name in known for name in named if isinstance(name, str))


def suggest(model: ServedModel, body: dict[str, Any]) -> dict[str, Any]:
    """The suggestions for each text or row, best first."""
    k = min(body.get("k", DEFAULT_K), max(model.n_labels, 1))
    if n_texts(body) * k > MOST_SUGGESTIONS:
        raise Problem(
            422, f"k times the number of texts must be at most {MOST_SUGGESTIONS}; send fewer texts at a time"
        )
    # Where labels are known by number only, there is nothing to allow by name: the model says so.
    among = {name: body[name] for name in ("allow", "deny") if body.get(name) is not None}
    answering = _answering(model, body)
    least = least_score(answering, body.get("threshold"))
    if (
        "text" in body
        and answering is model.classifier
        and model.vectorizer is not None
        and model.n_labels
        and hasattr(model.classifier, "predict_one")
    ):
        row = model.vectorizer.transform_one(body["text"])
        ids, scores = model.classifier.predict_one(*row, k, **among)
        ids, scores, known = ids[None], scores[None], np.array([row[0].size > 0])
    else:
        X = _features(model, body)
        ids, scores = answering.predict_topk(X, k, **among)
        known = np.diff(X.indptr) > 0
    ids = np.where((scores > least(scores)) & known[:, None], ids, -1)
    name_of = model.name_of
    results = [
        [{"id": j, "label": name_of(j), "score": round(score, 6)} for j, score in zip(*row, strict=True) if j >= 0]
        for row in zip(ids.tolist(), scores.tolist(), strict=True)
    ]
    # A text without a word that the model knows gets no suggestion, and says so.
    answers = [{"suggestions": found, "known": bool(has)} for found, has in zip(results, known, strict=True)]
    return {"model": model.name, "version": model.version, "results": answers}


def explain(model: ServedModel, body: dict[str, Any]) -> dict[str, Any]:
    """Why labels are suggested for one text or row, or where they were lost."""
    if not hasattr(model.classifier, "explain"):
        raise Problem(409, f"{model.name} has no weights that say why")
    row = _features(model, {"rows": [body["row"]]} if "row" in body else body)
    names = None if model.vectorizer is None else model.vectorizer.feature_names
    k = body.get("k", DEFAULT_K)
    answering = _answering(model, body)
    if body.get("labels") is None:
        best = answering.predict_topk(row, min(k, model.n_labels))[0][0] if model.n_labels else np.zeros(0, int)
        ids = best[best >= 0].tolist()
    else:
        ids = list(dict.fromkeys(label_ids(model.classifier.targets_, body["labels"], "explain").tolist()))
    if len(ids) * row.nnz > MOST_PARTS:
        raise Problem(422, f"{len(ids)} labels times {row.nnz} features are more than {MOST_PARTS}: send fewer labels")
    whys: list[dict[str, Any]] = []
    for first in range(0, len(ids), EXPLAINED_AT_ONCE):
        check_wanted()
        found = answering.explain(
            row, label=ids[first : first + EXPLAINED_AT_ONCE], k=k, feature_names=names, most_features=SHOWN_FEATURES
        )
        whys += [_explained(model, why.to_dict()) for why in found]
    return {"model": model.name, "version": model.version, "explanations": whys}


def _explained(model: ServedModel, why: dict[str, Any]) -> dict[str, Any]:
    """An explanation for the wire: labels by name, and what else is known of neighbors."""
    known = model.row_labels
    for neighbor in why["neighbors"]:
        row = neighbor["row"]
        ids = [] if known is None else known.indices[known.indptr[row] : known.indptr[row + 1]].tolist()
        neighbor["labels"] = [model.name_of(j) for j in ids]
        neighbor["text"] = neighbor["text"] and neighbor["text"][:SHOWN_CHARS]
    del why["name"]
    return why | {"id": why["label"], "label": model.name_of(why["label"])}


def card(model: ServedModel) -> dict[str, Any]:
    """What an administrator wants to know of a model before anybody relies on it."""
    classifier = model.classifier
    cost: dict[str, float] = dict(getattr(classifier, "cost_", {}))
    partition = getattr(classifier, "partition_", None)
    made = model.provenance
    return {
        "name": model.name,
        "version": model.version,
        "served_since": model.since,
        "estimator": type(model.loaded).__name__,
        "classifier": type(classifier).__name__,
        "takes_text": model.vectorizer is not None,
        "example": _example(classifier),
        "labels": model.n_labels,
        "features": int(classifier.n_features_in_),
        "training_rows": int(classifier.n_train_rows_),
        "model_mb": round(model.n_bytes / 1e6, 3),
        "blocks": None if partition is None else int(partition.n_blocks_),
        "lam": None if partition is None else _finite(partition.lam_),
        "captured": None if partition is None else _finite(partition.captured_),
        "probabilities": _calibrated(classifier),
        "f1_threshold": _finite(getattr(classifier, "f1_threshold_", None)),
        "held_out": {key.removeprefix("expected_"): _finite(cost[key]) for key in cost if key.startswith("expected_")},
        "cost": {key: _finite(value) for key, value in cost.items() if not key.startswith("expected_")},
        "provenance": {
            key: made.get(key) for key in ("blockxmc", "numpy", "python", "machine", "created", "data_digest")
        },
    }


def _example(classifier: Any) -> str | None:
    """What a page can offer to try: the first training text, or its first words."""
    sources = getattr(classifier, "sources_", None)
    return None if sources is None or not sources[0].text else str(sources[0].text[:SHOWN_CHARS])


def _calibrated(classifier: Any) -> bool:
    return getattr(getattr(classifier, "model_", None), "calibration", None) is not None


def _finite(value: Any) -> float | None:
    return None if value is None or not np.isfinite(value) else float(value)


def _answering(model: ServedModel, body: dict[str, Any]) -> Any:
    """What answers: with the encoder, where a model has one, texts alone."""
    if "rows" in body or "row" in body or not model.has_encoder:
        return model.classifier
    return model.loaded._answering(body["texts"] if "texts" in body else [body["text"]])


def _features(model: ServedModel, body: dict[str, Any]) -> sparse.csr_array:
    """The texts or rows of a request as the classifier takes them."""
    if "rows" in body:
        return _sparse_rows(body["rows"], int(model.classifier.n_features_in_))
    if model.vectorizer is None:
        raise Problem(422, f"{model.name} was trained on features: send rows, not texts")
    texts = body["texts"] if "texts" in body else [body["text"]]
    return model.vectorizer.transform(texts, 1)


def _sparse_rows(rows: list[dict[str, list[Any]]], width: int) -> sparse.csr_array:
    for number, row in enumerate(rows):
        if len(row["indices"]) != len(row["values"]):
            raise Problem(422, f"row {number} has {len(row['indices'])} indices but {len(row['values'])} values")
        if row["indices"] and max(row["indices"]) >= width:
            raise Problem(422, f"row {number} has an index of {max(row['indices'])}: the model knows 0 to {width - 1}")
    indptr = np.concatenate([[0], np.cumsum([len(row["indices"]) for row in rows])]).astype(np.int64)
    # Row by row: one long call into NumPy would keep all other threads from working.
    indices = np.concatenate([np.array(row["indices"], np.int32) for row in rows])
    values = np.concatenate([np.array(row["values"], np.float32) for row in rows])
    X = sparse.csr_array((values, indices, indptr), shape=(len(rows), width))
    X.sum_duplicates()
    return X


def without_paths(error: ModelFormatError) -> Problem:
    """Damage is found when a part of a model is first used; its message names files, which nobody outside needs."""
    return Problem(500, f"the model is damaged ({type(error).__name__}); the administrator should check it")
