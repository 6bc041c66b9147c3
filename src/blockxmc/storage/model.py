"""Saving and loading a whole model."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from blockxmc._core.base import XMCEstimator
from blockxmc._core.params import as_path
from blockxmc._core.stored import INT32_MAX, short
from blockxmc._core.targets import Kind, Targets
from blockxmc._version import __version__
from blockxmc.data.extra import ExtendedVectorizer
from blockxmc.data.tfidf import TextVectorizer
from blockxmc.encoder.model import Encoded
from blockxmc.errors import BlockXMCError, MissingExtraError, ModelFormatError
from blockxmc.storage.files import Reader, Strings, Writer, is_size
from blockxmc.storage.folder import MANIFEST, Folder, check_empty, updating
from blockxmc.storage.registry import class_named, name_of
from blockxmc.storage.tree import decode, encode
from blockxmc.text import TextClassifier

FORMAT = "blockxmc-model"
# The only one that is read.
FORMAT_VERSION = 4
# What a manifest may be at most; a model with ten thousand blocks of low-rank weights stays below a tenth of it.
MOST_MANIFEST_BYTES = 1 << 26
MOST_NESTING = 40
_TRIES = 1000  # as often a model may be replaced while it is being loaded
# What every fitted estimator may have besides its own state.
_FITTED = ("label_counts_", "n_train_rows_", "n_features_in_", "feature_names_in_", "data_digest_")
_SECTIONS = ("class", "params", "fitted", "targets", "state", "preprocessing", "encoder", "provenance", "files")
_MOST_JOBS = 1 << 15
T = TypeVar("T")


def save_model(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted classifier to a directory; an older model there stays until the new one is complete."""
    if not isinstance(estimator, XMCEstimator | TextClassifier):
        raise BlockXMCError(f"{type(estimator).__name__} cannot be saved: a model directory holds a classifier")
    check_is_fitted(estimator)
    target = Path(os.path.realpath(as_path(path)))
    check_target(target)
    with updating(target, lambda path: set(_there(path)["files"])) as update:
        before = _there(target)
        writer = Writer(target, update.version, before["files"])
        manifest = _written(estimator, writer)
        writer.flush()
        update.publish(manifest)


def load(path: str | os.PathLike[str], extra: Any = None, encoder: bool = True) -> XMCEstimator | TextClassifier:
    """Open a model directory written by ``save``; a model of texts is opened as a :class:`TextClassifier`.

    Large arrays are memory-mapped, and nothing in the directory is executed. If the model is replaced meanwhile, you get
    the old or the new version, never a mixture. ``extra`` is the function or fitted transformer that a text model with
    extra columns was trained with. ``encoder=False`` leaves out the encoder of a model that has one.

    >>> load("no/such/model")
    Traceback (most recent call last):
        ...
    blockxmc.errors.ModelFormatError: no/such/model: there is no such model directory
    """
    model: XMCEstimator | TextClassifier = with_extra(load_with_manifest(path, encoder)[0], path, extra)
    return model


def with_extra(model: Any, path: str | os.PathLike[str], extra: Any) -> Any:
    """A loaded model with what makes its extra columns, if it has any."""
    vectorizer = getattr(model, "vectorizer_", None)
    if isinstance(vectorizer, ExtendedVectorizer):
        vectorizer = vectorizer.with_source(extra)
        if extra is None:
            raise BlockXMCError(f"{path}: {vectorizer.extra.missing}")
        model.vectorizer_, model.extra = vectorizer, extra
    return model


def load_with_manifest(path: str | os.PathLike[str], encoder: bool = True) -> tuple[Any, dict[str, Any]]:
    """The model of a directory and its manifest, both of the same version."""

    def opened(folder: Folder, content: bytes) -> tuple[Any, dict[str, Any]]:
        manifest = _parsed(content, folder.path)
        return _estimator(manifest, Reader(folder, manifest["files"]), encoder), manifest

    return _one_version(as_path(path), opened)


def read_manifest(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The manifest of a model directory, checked for version and completeness but with values still encoded."""
    return _one_version(as_path(path), lambda folder, content: _parsed(content, folder.path))


def verify(path: str | os.PathLike[str]) -> list[str]:
    """Read every byte of a model and list what is wrong with it: an empty list means that it is intact.

    >>> verify("no/such/model")
    ['no/such/model: there is no such model directory']
    """

    def read(folder: Folder, content: bytes) -> None:
        manifest = _parsed(content, folder.path)
        reader = Reader(folder, manifest["files"])
        problems = []
        for name, entry in reader.entries.items():
            try:
                if reader.sha256(name) != entry["sha256"]:
                    problems.append(f"{folder.path}: {name} was changed after it was written (its checksum differs)")
            except (ModelFormatError, OSError) as error:
                problems.append(str(error))
        if not problems:
            try:
                for part in _SECTIONS[1:-1]:
                    _decode_strings(decode(manifest[part], reader))
                model = _estimator(manifest, reader)
                getattr(model, "classifier_", model)._check_all()
            except (BlockXMCError, OSError) as error:
                problems.append(str(error))
        if problems:
            raise _Problems(problems)

    try:
        _one_version(as_path(path), read)
    except _Problems as found:
        return found.all
    except (ModelFormatError, OSError) as error:
        return [str(error)]
    return []


class _Problems(ModelFormatError):
    """Everything that is wrong with a model."""

    def __init__(self, found: list[str]) -> None:
        super().__init__("; ".join(found))
        self.all = found


def _one_version(path: Path, use: Callable[[Folder, bytes], T]) -> T:
    """What ``use`` makes of a model directory and its manifest; once more where the model was replaced meanwhile."""
    for _ in range(_TRIES):
        with Folder(path) as folder:
            content = _manifest_bytes(folder)
            try:
                return use(folder, content)
            except (ModelFormatError, OSError):
                if not _was_replaced(path, content):
                    raise
    raise ModelFormatError(f"{path} is replaced again and again while it is being read; try again later")


def _was_replaced(path: Path, content: bytes) -> bool:
    try:
        with Folder(path) as folder:
            return _manifest_bytes(folder) != content
    except (ModelFormatError, OSError):
        return False


def _manifest_bytes(folder: Folder) -> bytes:
    with folder.open(MANIFEST) as file:
        content = file.read(MOST_MANIFEST_BYTES + 1)
    if len(content) > MOST_MANIFEST_BYTES:
        raise ModelFormatError(f"{folder.path / MANIFEST} is larger than {MOST_MANIFEST_BYTES >> 20} MiB")
    return content


def _parsed(content: bytes, path: Path) -> dict[str, Any]:
    """The manifest in these bytes, checked for form, version, completeness and its own checksum."""
    where = path / MANIFEST
    try:
        manifest = json.loads(content, parse_constant=_refuse_constant, object_pairs_hook=_without_repeats)
        if _depth(manifest) > MOST_NESTING:
            raise ValueError(f"nested deeper than {MOST_NESTING} levels")
        seal = _seal(manifest) if isinstance(manifest, dict) else ""
    except (ValueError, RecursionError) as error:
        raise ModelFormatError(f"{where} is not valid JSON: {short(str(error))}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ModelFormatError(f"{where} does not describe a blockxmc model")
    version = manifest.get("format_version")
    if type(version) is not int or version != FORMAT_VERSION:
        made = manifest.get("provenance")
        of = f" of blockxmc {short(made.get('blockxmc'))}" if isinstance(made, dict) else ""
        raise ModelFormatError(
            f"{where}: format version {short(version)}{of} cannot be read (blockxmc {__version__} reads {FORMAT_VERSION}); "
            "upgrade blockxmc or train the model again"
        )
    missing = [section for section in _SECTIONS if section not in manifest]
    if missing:
        raise ModelFormatError(f"{where} lacks {', '.join(missing)}")
    if manifest.get("manifest_sha256") != seal:
        raise ModelFormatError(f"{where} was changed after it was written; copy or train the model again")
    return manifest


def _estimator(manifest: dict[str, Any], reader: Reader, encoder: bool = True) -> Any:
    """The fitted classifier that a manifest describes."""
    path, name = reader.path, manifest["class"]
    try:
        found = class_named(name)
        if not issubclass(found, XMCEstimator):
            raise ModelFormatError(f"{path}: {name} is no classifier of blockxmc")
        estimator = found(**decode(manifest["params"], reader))
        jobs = estimator.n_jobs
        if jobs is not None and (type(jobs) is not int or jobs == 0 or abs(jobs) > _MOST_JOBS):
            raise ModelFormatError(f"{path}: n_jobs is {short(jobs)}")
        for attribute, value in decode(manifest["fitted"], reader).items():
            if attribute not in _FITTED:
                raise ModelFormatError(f"{path}: the manifest has an unknown fitted attribute {short(attribute)}")
            setattr(estimator, attribute, value)
        estimator.targets_ = _decode_targets(manifest["targets"], reader)
        _check_fitted(estimator, path)
        estimator._restore(decode(manifest["state"], reader))
        if (preprocessing := manifest["preprocessing"]) is not None:
            vectorizer = _vectorizer(preprocessing, reader, estimator.n_features_in_)
            model = TextClassifier.from_parts(estimator, vectorizer)
            if encoder and (kept := manifest["encoder"]) is not None:
                model.encoder_ = Encoded.opened(decode(kept, reader), estimator)
            return model
    except (ModelFormatError, MissingExtraError, OSError):
        raise
    except Exception as error:  # whatever a class makes of state that does not fit it
        raise ModelFormatError(
            f"{path}: the stored values do not fit the class {short(name)}: {short(error)}"
        ) from error
    return estimator


def _vectorizer(preprocessing: Any, reader: Reader, n_features: int) -> TextVectorizer:
    found = class_named(preprocessing["class"])
    if not issubclass(found, TextVectorizer):
        raise ModelFormatError(f"{reader.path}: {short(preprocessing['class'])} does not turn text into features")
    vectorizer = found.from_state(decode(preprocessing["state"], reader))
    if vectorizer.n_features != n_features:
        raise ModelFormatError(
            f"{reader.path}: preprocessing makes {vectorizer.n_features} features, the model takes {n_features}"
        )
    return vectorizer


class _StoredTargets(Targets):
    """Targets whose label names are decoded when first asked for."""

    def __init__(self, kind: Kind, n_labels: int, names: Strings, form: str) -> None:
        for field, value in {"kind": kind, "n_labels": n_labels, "_stored": (names, form)}.items():
            object.__setattr__(self, field, value)  # the dataclass is frozen

    @cached_property
    def names(self) -> NDArray[Any]:
        strings, form = self.__dict__["_stored"]
        found: NDArray[Any] = strings.toarray(form)
        return found

    def __reduce__(self) -> tuple[type[Targets], tuple[Any, ...]]:
        return Targets, (self.kind, self.n_labels, self.names)


def _written(estimator: Any, writer: Writer) -> bytes:
    """Write the files of a model; return its manifest. A text model is its classifier with preprocessing."""
    vectorizer, encoded = None, getattr(estimator, "encoder_", None)
    if isinstance(estimator, TextClassifier):
        estimator, vectorizer = estimator.classifier_._savable(), estimator.vectorizer_
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "class": name_of(estimator),
        "params": encode(estimator.get_params(deep=False), writer, "params"),
        "targets": _encode_targets(estimator.targets_, writer),
        "fitted": {
            name: encode(getattr(estimator, name), writer, name.strip("_"))
            for name in _FITTED
            if hasattr(estimator, name)
        },
        "state": encode(estimator._state(), writer, "state"),
        "preprocessing": None
        if vectorizer is None
        else {"class": name_of(vectorizer), "state": encode(vectorizer.state(), writer, "preprocessing")},
        "encoder": None if encoded is None else encode(encoded.state(), writer, "encoder"),
        "provenance": {
            "blockxmc": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "machine": platform.machine(),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "data_digest": encode(getattr(estimator, "data_digest_", None), writer, "data_digest"),
        },
        "files": writer.entries,
    }
    if _depth(manifest) > MOST_NESTING:
        raise BlockXMCError(f"the model cannot be saved: its values are nested deeper than {MOST_NESTING} levels")
    manifest["manifest_sha256"] = _seal(manifest)
    content = json.dumps(manifest, indent=1, allow_nan=False).encode() + b"\n"
    if len(content) > MOST_MANIFEST_BYTES:
        raise BlockXMCError(f"the model cannot be saved: its manifest would exceed {MOST_MANIFEST_BYTES >> 20} MiB")
    return content


def _encode_targets(targets: Targets, writer: Writer) -> Any:
    return {
        "kind": targets.kind,
        "n_labels": int(targets.n_labels),
        "names": encode(targets.names, writer, "label_names"),
    }


def _decode_targets(node: Any, reader: Reader) -> Targets:
    kind, n_labels, names = node["kind"], node["n_labels"], node["names"]
    if kind not in get_args(Kind) or not is_size(n_labels) or n_labels > INT32_MAX:
        raise ModelFormatError(f"{reader.path}: the manifest describes labels of an unknown kind")
    targets: Targets
    if isinstance(names, dict) and "$strings" in names:
        if names["as"] not in ("array", "object"):
            raise ModelFormatError(f"{reader.path}: label names are stored in an unknown form")
        strings = reader.strings(names["$strings"])
        targets, n_names = _StoredTargets(kind, n_labels, strings, names["as"]), len(strings)
    else:
        values = decode(names, reader)
        if values is None and kind in ("names", "classes"):
            raise ModelFormatError(f"{reader.path}: label names are missing")
        if values is not None and (not isinstance(values, np.ndarray) or values.ndim != 1):
            raise ModelFormatError(f"{reader.path}: label names are neither strings nor numbers")
        targets, n_names = Targets(kind, n_labels, values), n_labels if values is None else len(values)
    if n_names != n_labels or (kind == "classes" and n_labels == 0):
        raise ModelFormatError(f"{reader.path}: {n_names} label names for {n_labels} labels")
    return targets


def _check_fitted(estimator: Any, path: Path) -> None:
    """The attributes that every classifier has must agree with each other."""
    n_labels = estimator.targets_.n_labels
    counts: Any = getattr(estimator, "label_counts_", None)
    right = isinstance(counts, np.ndarray) and counts.shape == (n_labels,) and counts.dtype == np.int64
    if not right or (counts < 0).any():
        raise ModelFormatError(f"{path}: label counts do not match {n_labels} labels")
    for name, most in {"n_train_rows_": 1 << 62, "n_features_in_": INT32_MAX}.items():
        value: Any = getattr(estimator, name, None)
        if not is_size(value) or value > most:
            raise ModelFormatError(f"{path}: the manifest has no valid {name}")
    names = getattr(estimator, "feature_names_in_", None)
    if hasattr(estimator, "feature_names_in_") and (
        not isinstance(names, np.ndarray) or names.dtype != object or names.shape != (estimator.n_features_in_,)
    ):
        raise ModelFormatError(f"{path}: feature names do not match {estimator.n_features_in_} features")
    if not isinstance(getattr(estimator, "data_digest_", None), str | None):
        raise ModelFormatError(f"{path}: the digest of the data is not text")


def _decode_strings(value: Any) -> None:
    """The check that loading leaves to the first use."""
    if isinstance(value, Strings):
        value.tolist()
    elif isinstance(value, (dict, list, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            _decode_strings(item)


def check_target(target: Path) -> None:
    """Refuse a target that holds anything but a model of ours."""
    if not target.exists():
        return
    if not target.is_dir():
        raise BlockXMCError(f"{target} is a file; choose a directory for the model")
    check_empty(target, {MANIFEST} if _has_manifest(target) else set())


def _has_manifest(path: Path) -> bool:
    """Whether the directory has a manifest of ours, of whatever version."""
    try:
        with Folder(path) as folder:
            manifest = json.loads(_manifest_bytes(folder))
    except (ValueError, RecursionError):
        return False
    return isinstance(manifest, dict) and manifest.get("format") == FORMAT


def _there(path: Path) -> dict[str, Any]:
    """The manifest of the model at ``path``, unchecked but for the files that it lists: none where there is no model."""
    manifest: Any = {}
    if (path / MANIFEST).exists():
        with Folder(path) as folder:
            manifest = json.loads(_manifest_bytes(folder))
    files = manifest.get("files") if isinstance(manifest, dict) else None
    return {**manifest, "files": files} if isinstance(files, dict) else {"files": {}}


def _seal(manifest: dict[str, Any]) -> str:
    """Checksum of a manifest without its own checksum."""
    content = {key: value for key, value in manifest.items() if key != "manifest_sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _depth(value: Any) -> int:
    """How many lists and dicts lie within each other."""
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, (dict, list))]:
        depth += 1
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]
    return depth


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice in one object")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")
