"""Values of a model as JSON: plain values stay, everything else becomes a marked reference to a file or a class.

A mark is a key that starts with ``$``: ``$array``, ``$csr``, ``$estimator``, ``$float``, ``$strings`` and
``$tuple``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator

from blockxmc._core.stored import check_csr_parts, short
from blockxmc.errors import BlockXMCError, ModelFormatError
from blockxmc.storage.files import Reader, Strings, Writer, fits_one_width, is_size
from blockxmc.storage.registry import class_named, name_of

# A longer list of strings becomes a file of its own and comes back as `Strings`.
_INLINE_STRINGS = 1000


def encode(value: Any, writer: Writer, where: str) -> Any:
    """A JSON value for ``value``; arrays and long lists of strings go to files named after ``where``."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, np.generic):
        return encode(value.item(), writer, where)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": str(value)}
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str) or key.startswith("$"):
                raise BlockXMCError(f"{where} cannot be saved: the key {key!r} is not a plain name")
        return {key: encode(item, writer, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, tuple):
        return {"$tuple": [encode(item, writer, f"{where}.{i}") for i, item in enumerate(value)]}
    if isinstance(value, Strings):
        return {"$strings": writer.strings(where, value), "as": "list"}
    if isinstance(value, list):
        if len(value) > _INLINE_STRINGS and all(isinstance(item, str) for item in value):
            return {"$strings": writer.strings(where, value), "as": "list"}
        return [encode(item, writer, f"{where}.{i}") for i, item in enumerate(value)]
    if isinstance(value, np.ndarray):
        return _encode_array(value, writer, where)
    if sparse.issparse(value):
        return _encode_csr(sparse.csr_array(value), writer, where)  # type: ignore[call-overload]
    if isinstance(value, BaseEstimator):
        return {"$estimator": name_of(value), "params": encode(value.get_params(deep=False), writer, where)}
    raise BlockXMCError(f"{where} cannot be saved: a {type(value).__name__} is not data")


def decode(node: Any, reader: Reader) -> Any:
    """The value that :func:`encode` was given (arrays as read-only memory maps, every sparse matrix as CSR array)."""
    if isinstance(node, list):
        return [decode(item, reader) for item in node]
    if not isinstance(node, dict):
        return node
    marks = [key for key in node if key.startswith("$")]
    if not marks:
        return {key: decode(item, reader) for key, item in node.items()}
    if len(marks) > 1 or marks[0] not in _DECODERS:
        raise ModelFormatError(f"{reader.path}: the manifest holds a value of unknown kind {short(marks[0])}")
    try:
        return _DECODERS[marks[0]](node, reader)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, BlockXMCError):
            raise
        raise ModelFormatError(f"{reader.path}: the manifest holds a malformed {marks[0]}: {short(error)}") from error


def _encode_array(value: np.ndarray[Any, Any], writer: Writer, where: str) -> Any:
    if value.dtype.kind == "U" or (value.dtype == object and all(isinstance(item, str) for item in value.flat)):
        if value.ndim != 1:
            raise BlockXMCError(f"{where} cannot be saved: an array of strings must have one dimension")
        strings = value.tolist()
        kind = "array" if value.dtype.kind == "U" and fits_one_width(strings) else "object"
        return {"$strings": writer.strings(where, strings), "as": kind}
    return {"$array": writer.array(where, value)}


def _encode_csr(value: sparse.csr_array, writer: Writer, where: str) -> Any:
    parts = {part: writer.array(f"{where}.{part}", getattr(value, part)) for part in ("indptr", "indices", "data")}
    return {"$csr": {"shape": [int(extent) for extent in value.shape], **parts}}


def _decode_csr(node: dict[str, Any], reader: Reader) -> sparse.csr_array:
    """A sparse matrix all of whose indices may be followed."""
    spec = node["$csr"]
    n_rows, n_columns = spec["shape"]
    if not (is_size(n_rows) and is_size(n_columns)):
        raise ModelFormatError(f"{reader.path}: a sparse matrix has an impossible shape")
    indptr, indices, data = (reader.array(spec[part]) for part in ("indptr", "indices", "data"))
    check_csr_parts(indptr, indices, data, (n_rows, n_columns), f"{reader.path}: {spec['indptr']}")
    matrix = sparse.csr_array((n_rows, n_columns), dtype=data.dtype)
    # Set one by one: the usual constructor may copy the arrays.
    matrix.indptr, matrix.indices, matrix.data = indptr, indices, data
    return matrix


def _decode_strings(node: dict[str, Any], reader: Reader) -> Any:
    strings = reader.strings(node["$strings"])
    return strings if node["as"] == "list" else strings.toarray(node["as"])


def _decode_estimator(node: dict[str, Any], reader: Reader) -> Any:
    found = class_named(node["$estimator"])
    if not issubclass(found, BaseEstimator):
        raise ModelFormatError(f"{reader.path}: {node['$estimator']} is no estimator")
    return found(**decode(node["params"], reader))


def _decode_float(node: dict[str, Any], reader: Reader) -> float:
    return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[node["$float"]]


def _decode_tuple(node: dict[str, Any], reader: Reader) -> tuple[Any, ...]:
    return tuple(decode(item, reader) for item in node["$tuple"])


_DECODERS: dict[str, Callable[[dict[str, Any], Reader], Any]] = {
    "$array": lambda node, reader: reader.array(node["$array"]),
    "$csr": _decode_csr,
    "$estimator": _decode_estimator,
    "$float": _decode_float,
    "$strings": _decode_strings,
    "$tuple": _decode_tuple,
}
