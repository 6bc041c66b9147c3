"""The models that are served: each as one unchanging version, replaced as a whole when its directory is."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from blockxmc import TextClassifier
from blockxmc.data.tfidf import TextVectorizer
from blockxmc.errors import BlockXMCError, UpdateError
from blockxmc.service.problems import Problem
from blockxmc.storage import load, load_with_manifest, with_extra

# What a name in an address may hold; anything else in the name of a directory becomes a hyphen.
_STRANGE = re.compile(r"[^A-Za-z0-9._-]+")
Log = Callable[..., None]
Stamp = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class ServedModel:
    """One version of a model. A request keeps the version it began with, whatever happens to the directory."""

    name: str
    loaded: Any  # a TextClassifier, or a classifier of features
    version: str  # the beginning of the manifest's checksum
    provenance: dict[str, Any]
    n_bytes: int
    since: str

    @classmethod
    def open(cls, name: str, path: Path, extra: Any = None) -> ServedModel:
        """Load what lies at ``path`` now, and ask it once, so that the first user does not wait."""
        loaded, manifest = load_with_manifest(path)
        loaded = with_extra(loaded, path, extra)
        n_bytes = sum(entry["bytes"] for entry in manifest["files"].values())
        now = datetime.now(UTC).isoformat(timespec="seconds")
        model = cls(name, loaded, manifest["manifest_sha256"][:16], manifest["provenance"], n_bytes, now)
        # Workers and their threads share the cores; a request takes one.
        model.classifier.set_params(n_jobs=1)
        width = model.classifier.n_features_in_
        model.classifier.predict_topk(sparse.csr_array((1, width), dtype=np.float32), 1)
        _ = model.names, model.classifier.targets_.ids_by_name
        return model

    @cached_property
    def classifier(self) -> Any:
        """What scores features."""
        return self.loaded.classifier_ if isinstance(self.loaded, TextClassifier) else self.loaded

    @cached_property
    def has_encoder(self) -> bool:
        """Whether texts are answered in milliseconds, not microseconds."""
        return getattr(self.loaded, "encoder_", None) is not None

    @cached_property
    def vectorizer(self) -> TextVectorizer | None:
        """What turns texts into features, where the model was trained on texts."""
        return self.loaded.vectorizer_ if isinstance(self.loaded, TextClassifier) else None

    @cached_property
    def names(self) -> list[str] | None:
        """Names of the labels; None where labels are numbers."""
        names = self.classifier.label_names_
        return None if names is None else [str(name) for name in names.tolist()]

    @cached_property
    def folded_names(self) -> list[str]:
        """Names as they are searched: case does not count."""
        return [str(self.name_of(j)).casefold() for j in range(self.n_labels)]

    def name_of(self, label: int) -> str | int:
        """A label as users know it."""
        return label if self.names is None else self.names[label]

    @property
    def n_labels(self) -> int:
        """How many labels the model knows."""
        return int(self.classifier.targets_.n_labels)

    @cached_property
    def row_labels(self) -> sparse.csr_array | None:
        """The labels of the training rows (0-1 CSR), where the model keeps them for its neighbors."""
        routed = getattr(self.classifier, "model_", None)
        routed = getattr(routed, "members", [routed])[0]
        neighbors = getattr(routed, "neighbors", None)
        if neighbors is None:
            return None
        ones = np.ones(neighbors.labels.size, np.float32)
        shape = (neighbors.indptr.size - 1, self.n_labels)
        return sparse.csr_array((ones, neighbors.labels, neighbors.indptr), shape=shape)


@dataclass
class _Place:
    """A directory, the version that is served from it and what its manifest looked like then."""

    path: Path
    model: ServedModel
    stamp: Stamp | None
    changing: threading.Lock


class Models:
    """The served models by name. Reading is one look into a dict; changes come from one thread at a time."""

    def __init__(self, paths: Iterable[str | os.PathLike[str]], log: Log, extra: Any = None) -> None:
        self._log, self._extra = log, extra
        self._refreshing = threading.Lock()
        self._places: dict[str, _Place] = {}
        for given in paths:
            path = Path(given)
            name = _STRANGE.sub("-", path.resolve().name).strip("-.") or "model"
            if name in self._places:
                raise BlockXMCError(f"{given}: there are two models called {name!r}; rename one of the directories")
            stamp = _stamp(path)  # before loading: a change meanwhile is seen later
            self._places[name] = _Place(path, ServedModel.open(name, path, extra), stamp, threading.Lock())
        if not self._places:
            raise BlockXMCError("there is no model to serve; give a model directory")

    def __iter__(self) -> Iterator[ServedModel]:
        """The versions that are served now."""
        return iter([place.model for place in self._places.values()])

    def __getitem__(self, name: str) -> ServedModel:
        """The version of a model that is served now."""
        return self._place(name).model

    def _place(self, name: str) -> _Place:
        place = self._places.get(name)
        if place is None:
            known = ", ".join(list(self._places)[:10])
            raise Problem(404, f"there is no model {name[:60]!r} here; there is {known}")
        return place

    def refresh(self) -> None:
        """Take over models whose directory has changed; one that cannot be loaded leaves the old one in place."""
        with self._refreshing:
            for name, place in self._places.items():
                stamp = _stamp(place.path)
                if stamp == place.stamp:
                    continue
                place.stamp = stamp
                try:
                    place.model = ServedModel.open(name, place.path, self._extra)
                except (BlockXMCError, OSError) as error:
                    self._log("error", "model not replaced: the old one serves on", model=name, error=str(error))
                else:
                    self._log("info", "model replaced", model=name, version=place.model.version)

    def update(self, name: str, texts: list[str], labels: list[list[str]]) -> ServedModel:
        """Teach a model new rows."""
        return self._changed(name, "update", texts, labels)

    def add_labels(self, name: str, about: dict[str, str | list[str]]) -> ServedModel:
        """Add labels to a model by what they are called."""
        return self._changed(name, "add_labels", about)

    def _changed(self, name: str, method: str, *given: Any) -> ServedModel:
        """The model after a method: a copy is changed and replaces the directory; the old one serves until then."""
        place = self._place(name)
        if not place.changing.acquire(blocking=False):
            raise Problem(409, f"{name} is being updated; try again when that is done", {"Retry-After": "10"})
        try:
            copy = load(place.path, extra=self._extra)
            if not isinstance(copy, TextClassifier):
                raise Problem(409, f"{name} was not trained on texts: update it with blockxmc update")
            if not hasattr(copy.classifier_, "update"):
                kind = type(copy.classifier_).__name__
                raise Problem(409, f"{name} is a {kind}, which cannot be updated; train it again")
            getattr(copy, method)(*given)
            copy.save(place.path)
        except UpdateError as error:
            raise Problem(409, str(error)) from None
        except OSError as error:  # the model is not written: the old one stands
            self._log("error", "model not updated: it cannot be written", model=name, error=str(error))
            raise Problem(507, f"{name} cannot be written ({error.strerror}); the old model serves on") from None
        finally:
            place.changing.release()
        self.refresh()
        return place.model


def _stamp(path: Path) -> Stamp | None:
    """What tells one version's manifest from another's without reading it; None where there is none."""
    try:
        found = os.stat(path / "manifest.json")
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
