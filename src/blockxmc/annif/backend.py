"""The backend: Annif's documents and subjects in, a TextClassifier in the project's data directory, suggestions out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from annif.backend.backend import AnnifLearningBackend
from annif.backend.hyperopt import AnnifHyperoptBackend
from annif.exception import (
    ConfigurationException,
    NotInitializedException,
    NotSupportedException,
    OperationFailedException,
)
from annif.suggestion import SuggestionBatch
from annif.util import boolean
from scipy import sparse

from blockxmc import TextClassifier, load
from blockxmc.annif.hyperopt import Optimizer
from blockxmc.annif.parameters import PARAMETERS, classifier_of, read_parameters
from blockxmc.data._source import write_atomic
from blockxmc.data.corpus import Corpus, read_corpus
from blockxmc.errors import BlockXMCError, UpdateError


class BlockxmcBackend(AnnifLearningBackend, AnnifHyperoptBackend):  # type: ignore[misc]
    """blockxmc as a backend: the label of a model is the URI of a subject, so that vocabularies may grow."""

    name = "blockxmc"
    DEFAULT_PARAMETERS: ClassVar[dict[str, Any]] = {
        name: "" if p.default is None else p.default for name, p in PARAMETERS.items()
    }
    MODEL, CACHE = "model", "blockxmc-train.jsonl.gz"
    _model: TextClassifier | None = None

    # ---- what Annif asks of a backend ----
    @property
    def _model_file_paths(self) -> list[str]:
        """What says that a project is trained, and since when."""
        manifest = self._path / "manifest.json"
        return [str(manifest)] if manifest.exists() else []

    def initialize(self, parallel: bool = False) -> None:
        """Load the model; it is memory-mapped, so that processes share it."""
        if self._model is not None:
            return
        if not self._model_file_paths:
            raise NotInitializedException(f"model {self._path} not found", backend_id=self.backend_id)
        try:
            self._use(load(self._path))
        except BlockXMCError as error:
            raise OperationFailedException(str(error), backend_id=self.backend_id) from error

    def _train(self, corpus: Any, params: dict[str, Any], jobs: int = 0) -> None:
        if corpus != "cached":
            self._keep(corpus)
        self._save(self.fit(self.kept_rows(), params, jobs))

    def _suggest_batch(self, documents: list[Any], params: dict[str, Any]) -> SuggestionBatch:
        assert self._model is not None
        return self.suggestions(self._model, [doc.text for doc in documents], int(params["limit"]))

    def _learn(self, corpus: Any, params: dict[str, Any]) -> None:
        self.initialize()
        rows = list(self._rows_of(corpus))
        if not rows:
            return
        # The model that answers meanwhile is not touched.
        model = load(self._path)
        try:
            model.update([text for text, _ in rows], [uris for _, uris in rows])
        except UpdateError as error:
            said = f"{error} (in Annif: allow_learn=1 before training)"
            raise NotSupportedException(said, backend_id=self.backend_id) from error
        except BlockXMCError as error:
            raise OperationFailedException(str(error), backend_id=self.backend_id) from error
        self._save(model)

    def get_hp_optimizer(self, corpus: Any, metric: str) -> Optimizer:
        """What looks for the best parameters on documents that are held out."""
        return Optimizer(self, corpus, metric)

    # ---- the same in blockxmc's words ----
    @property
    def _path(self) -> Path:
        return Path(self.datadir) / self.MODEL

    def fit(self, rows: Corpus, params: dict[str, Any], jobs: int) -> TextClassifier:
        """A model of these rows, trained with the parameters of a project."""
        try:
            values = read_parameters(params)
            if values["keep_rows"] is None:
                values["keep_rows"] = boolean(self.project.config.get("allow_learn", False))
            model = classifier_of(values, jobs)
        except BlockXMCError as error:
            raise ConfigurationException(str(error), backend_id=self.backend_id) from error
        try:
            return model.fit(
                rows.texts, rows.labels, label_texts=self.names_of({uri for row in rows.labels for uri in row})
            )
        except BlockXMCError as error:
            raise OperationFailedException(str(error), backend_id=self.backend_id) from error

    def names_of(self, uris: set[str]) -> dict[str, list[str]] | None:
        """What these subjects are called in the languages of the vocabulary; None: it does not say."""
        numbers = {uri: self.project.subjects.by_uri(uri, warnings=False) for uri in sorted(uris)}
        labels = {uri: self.project.subjects[number].labels for uri, number in numbers.items() if number is not None}
        return {uri: list(names.values()) for uri, names in labels.items() if names} or None

    def suggestions(self, model: TextClassifier, texts: list[str], limit: int) -> SuggestionBatch:
        """The best subjects of each text that the vocabulary has now; none for a text without a known word."""
        subjects, allowed = self._subjects_of(model)
        X = model.vectorizer_.transform(texts, 1)
        k = min(limit, subjects.size)
        among = {} if allowed is None else {"allow": allowed}
        labels, scores = model._answering(texts).predict_topk(X, k, **among)
        kept = (labels >= 0) & (scores > 0) & (np.diff(X.indptr) > 0)[:, None]
        indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
        data = np.minimum(scores[kept], np.float32(1))
        array = sparse.csr_array((data, subjects[labels[kept]], indptr), shape=(len(texts), len(self.project.subjects)))
        array.sort_indices()
        return SuggestionBatch(array)

    def _subjects_of(self, model: TextClassifier) -> tuple[Any, Any]:
        """The number of each label's subject, and which labels are in the vocabulary, where some are not."""
        if model is not self._model:
            return self._numbered(model)
        return self._known

    def _numbered(self, model: TextClassifier) -> tuple[Any, Any]:
        found = [self.project.subjects.by_uri(str(uri), warnings=False) for uri in model.classes_.tolist()]
        subjects = np.array([-1 if number is None else number for number in found], np.int64)
        return subjects, None if (subjects >= 0).all() else subjects >= 0

    def _use(self, model: TextClassifier) -> None:
        # Annif has processes of its own for many documents.
        model.classifier_.set_params(n_jobs=1)
        self._known = self._numbered(model)
        self._model = model

    def _save(self, model: TextClassifier) -> None:
        model.save(self._path)
        self._use(load(self._path))

    # ---- rows ----
    def _rows_of(self, documents: Any) -> Iterator[tuple[str, list[str]]]:
        """Text and subjects' URIs of the documents that have subjects."""
        subjects = self.project.subjects
        for document in documents.documents:
            if document.subject_set:
                yield document.text, [subjects[number].uri for number in document.subject_set]

    def _keep(self, documents: Any) -> None:
        """Write what is trained on beside the model, for ``--cached`` and for hyperparameters."""
        rows = self._rows_of(documents)
        first = next(rows, None)
        if first is None:
            raise NotSupportedException("Cannot train a blockxmc project with no documents that have subjects")
        with write_atomic(Path(self.datadir) / self.CACHE) as lines:
            for text, uris in chain([first], rows):
                lines.write(json.dumps({"text": text, "labels": uris}).encode() + b"\n")

    def kept_rows(self) -> Corpus:
        """The training rows of the last run."""
        path = Path(self.datadir) / self.CACHE
        if not path.exists():
            raise NotInitializedException(f"training data {path} not found: train once", backend_id=self.backend_id)
        return read_corpus(path)
