"""Saving and loading a whole model."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import secrets
import shutil
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from blockxmc._core.targets import Kind, Targets
from blockxmc._version import __version__
from blockxmc.errors import BlockXMCError, ModelFormatError
from blockxmc.storage.files import (
    Reader,
    Strings,
    Writer,
    check_indices,
    flush_folder,
    flush_to_disk,
    is_size,
    open_regular,
)
from blockxmc.storage.registry import class_named, name_of
from blockxmc.storage.tree import decode, encode

FORMAT = "blockxmc-model"
FORMAT_VERSION = 1
READABLE_VERSIONS = (FORMAT_VERSION,)
_MANIFEST = "manifest.json"
# What every fitted estimator may have besides its own state.
_FITTED = ("label_counts_", "n_train_rows_", "n_features_in_", "feature_names_in_", "data_digest_")
_SECTIONS = ("class", "params", "fitted", "targets", "state", "preprocessing", "provenance", "files")


def save_model(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to a directory, replacing an older model there only when the new one is complete."""
    check_is_fitted(estimator)
    target = Path(os.path.realpath(path))
    check_target(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f".blockxmc-{secrets.token_hex(6)}.new")
    aside = fresh.with_suffix(".old")
    try:
        fresh.mkdir()
        _write(estimator, fresh)
        if target.exists():
            os.replace(target, aside)
        os.replace(fresh, target)
        flush_folder(target.parent)
    finally:
        if aside.exists() and not target.exists():
            os.replace(aside, target)
        for leftover in (fresh, aside):
            shutil.rmtree(leftover, ignore_errors=True)


def load(path: str | os.PathLike[str]) -> Any:
    """Open a model directory written by ``save``: arrays are mapped, not read, and nothing in it is executed.

    >>> load("no/such/model")
    Traceback (most recent call last):
        ...
    blockxmc.errors.ModelFormatError: no/such/model is not a complete model directory: manifest.json is missing
    """
    folder = Path(path)
    manifest = read_manifest(folder)
    reader = Reader(folder, manifest["files"])
    name = manifest["class"]
    try:
        estimator = class_named(name)(**decode(manifest["params"], reader))
        for attribute, value in decode(manifest["fitted"], reader).items():
            if attribute not in _FITTED:
                raise ModelFormatError(f"{folder}: the manifest has an unknown fitted attribute {attribute!r}")
            setattr(estimator, attribute, value)
        if manifest["targets"] is not None:
            estimator.targets_ = _decode_targets(manifest["targets"], reader)
            _check_counts(estimator, folder)
        estimator._restore(decode(manifest["state"], reader))
        if (preprocessing := manifest["preprocessing"]) is not None:
            vectorizer = class_named(preprocessing["class"])
            estimator.vectorizer_ = vectorizer.from_state(decode(preprocessing["state"], reader))
    except (BlockXMCError, OSError):
        raise
    except Exception as error:  # whatever a class makes of state that does not fit it
        raise ModelFormatError(f"{folder}: the stored values do not fit the class {name!r}: {error!r}") from error
    return estimator


def read_manifest(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The manifest of a model directory, checked for version and completeness but with values still encoded."""
    folder = Path(path)
    with open_regular(folder / _MANIFEST) as file:
        content = file.read()
    try:
        manifest = json.loads(content, parse_constant=_refuse_constant)
        seal = _seal(manifest) if isinstance(manifest, dict) else ""
    except (ValueError, RecursionError) as error:
        raise ModelFormatError(f"{folder / _MANIFEST} is not valid JSON: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ModelFormatError(f"{folder / _MANIFEST} does not describe a blockxmc model")
    version = manifest.get("format_version")
    if type(version) is not int or version not in READABLE_VERSIONS:
        known = ", ".join(map(str, READABLE_VERSIONS))
        raise ModelFormatError(
            f"{folder / _MANIFEST}: format version {version!r} cannot be read (this version of blockxmc reads {known}); "
            "upgrade blockxmc or train the model again"
        )
    missing = [section for section in _SECTIONS if section not in manifest]
    if missing:
        raise ModelFormatError(f"{folder / _MANIFEST} lacks {', '.join(missing)}")
    if manifest.get("manifest_sha256") != seal:
        raise ModelFormatError(f"{folder / _MANIFEST} was changed after it was written; copy or train the model again")
    return manifest


def verify(path: str | os.PathLike[str]) -> list[str]:
    """Read every byte of a model and list what is wrong with it: an empty list means that it is intact.

    >>> verify("no/such/model")
    ['no/such/model is not a complete model directory: manifest.json is missing']
    """
    folder = Path(path)
    try:
        manifest = read_manifest(folder)
        reader = Reader(folder, manifest["files"])
    except (ModelFormatError, OSError) as error:
        return [str(error)]
    problems = []
    for name, entry in reader.entries.items():
        try:
            if reader.sha256(name) != entry["sha256"]:
                problems.append(f"{folder}: {name} was changed after it was written (its checksum differs)")
        except (ModelFormatError, OSError) as error:
            problems.append(str(error))
    if not problems:
        try:
            _check_values([decode(manifest[part], reader) for part in _SECTIONS if part != "files"], str(folder))
        except (BlockXMCError, OSError) as error:
            problems.append(str(error))
    return problems


class _StoredTargets(Targets):
    """Targets whose label names are decoded when first asked for."""

    def __init__(self, kind: Kind, n_labels: int, names: Strings, dtype: Any) -> None:
        for field, value in {"kind": kind, "n_labels": n_labels, "_stored": (names, dtype)}.items():
            object.__setattr__(self, field, value)  # the dataclass is frozen

    @cached_property
    def names(self) -> NDArray[Any]:
        strings, dtype = self.__dict__["_stored"]
        return np.array(strings.tolist(), dtype=dtype)

    def __reduce__(self) -> tuple[type[Targets], tuple[Any, ...]]:
        return Targets, (self.kind, self.n_labels, self.names)


def _write(estimator: Any, folder: Path) -> None:
    writer = Writer(folder)
    vectorizer = getattr(estimator, "vectorizer_", None)
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "class": name_of(estimator),
        "params": encode(estimator.get_params(deep=False), writer, "params"),
        "targets": _encode_targets(getattr(estimator, "targets_", None), writer),
        "fitted": {
            name: encode(getattr(estimator, name), writer, name.strip("_"))
            for name in _FITTED
            if hasattr(estimator, name)
        },
        "state": encode(estimator._state(), writer, "state"),
        "preprocessing": None
        if vectorizer is None
        else {"class": name_of(vectorizer), "state": encode(vectorizer.state(), writer, "preprocessing")},
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
    manifest["manifest_sha256"] = _seal(manifest)
    with open(folder / _MANIFEST, "xb") as file:
        file.write(json.dumps(manifest, indent=1, allow_nan=False).encode() + b"\n")
        flush_to_disk(file)
    flush_folder(folder)


def _encode_targets(targets: Targets | None, writer: Writer) -> Any:
    if targets is None:
        return None
    return {
        "kind": targets.kind,
        "n_labels": int(targets.n_labels),
        "names": encode(targets.names, writer, "label_names"),
    }


def _decode_targets(node: Any, reader: Reader) -> Targets:
    kind, n_labels, names = node["kind"], node["n_labels"], node["names"]
    if kind not in get_args(Kind) or not is_size(n_labels):
        raise ModelFormatError(f"{reader.folder}: the manifest describes labels of an unknown kind")
    targets: Targets
    if isinstance(names, dict) and "$strings" in names:
        dtype = {"array": np.str_, "object": object}[names["as"]]
        strings = reader.strings(names["$strings"])
        targets, n_names = _StoredTargets(kind, n_labels, strings, dtype), len(strings)
    else:
        values = decode(names, reader)
        targets, n_names = Targets(kind, n_labels, values), n_labels if values is None else len(values)
    if n_names != n_labels:
        raise ModelFormatError(f"{reader.folder}: {n_names} label names for {n_labels} labels")
    return targets


def _check_counts(estimator: Any, folder: Path) -> None:
    """The common attributes must agree with each other."""
    counts = getattr(estimator, "label_counts_", None)
    if not isinstance(counts, np.ndarray) or counts.shape != (estimator.targets_.n_labels,) or counts.dtype.kind != "i":
        raise ModelFormatError(f"{folder}: label counts do not match {estimator.targets_.n_labels} labels")
    for name in ("n_train_rows_", "n_features_in_"):
        if not is_size(getattr(estimator, name, None)):
            raise ModelFormatError(f"{folder}: the manifest has no valid {name}")


def _check_values(value: Any, what: str) -> None:
    """The checks that loading leaves to the first use: column indices of sparse matrices and strings."""
    if isinstance(value, sparse.csr_array):
        check_indices(value.indices, value.shape[1], what)
    elif isinstance(value, Strings):
        value.tolist()
    elif isinstance(value, (dict, list, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            _check_values(item, what)


def check_target(target: Path) -> None:
    """Refuse a target that holds anything but a model of ours: it would be deleted."""
    if not target.exists():
        return
    if not target.is_dir():
        raise BlockXMCError(f"{target} is a file; choose a directory for the model")
    present = set(os.listdir(target))
    if not present:
        return
    try:
        ours = {_MANIFEST, *Reader(target, read_manifest(target)["files"]).entries}
    except ModelFormatError:
        ours = set()
    if foreign := sorted(present - ours):
        raise BlockXMCError(
            f"{target} holds {foreign[0]!r}, which is no part of a blockxmc model; choose another or an empty directory"
        )


def _seal(manifest: dict[str, Any]) -> str:
    """Checksum of a manifest without its own checksum."""
    content = {key: value for key, value in manifest.items() if key != "manifest_sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")
