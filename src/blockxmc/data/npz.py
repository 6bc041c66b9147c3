"""A data set in one NumPy archive, without pickle.

Keys: ``format`` (version), ``X_shape``, ``X_indptr`` (int64), ``X_indices`` (int32), ``X_data`` (float32), ``Y_shape``,
``Y_indptr``, ``Y_indices`` (every stored label is a one) and, where known, ``label_names`` and ``feature_names``: UTF-8
bytes (uint8), one name per line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc._core.matrix import as_csr, as_indicator, csr_args
from blockxmc._core.memory import check_file_widths, check_space
from blockxmc.data._source import PathLike, open_raw, write_atomic
from blockxmc.data.dataset import Dataset
from blockxmc.errors import DataFormatError

FORMAT = 1


def write_npz(path: PathLike, data: Dataset) -> None:
    """Write a data set (compressed); the file appears only when it is complete.

    >>> import tempfile, pathlib
    >>> from blockxmc.data import make_synthetic
    >>> train, _ = make_synthetic(n_train=20, n_test=5, n_features=30, n_labels=6, labels_per_row=2, nnz_per_row=5)
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "tiny.npz"
    >>> write_npz(file, train)
    >>> read_npz(file).digest == train.digest
    True
    """
    arrays: dict[str, Any] = {"format": np.int64(FORMAT)}
    for name, matrix in (("X", as_csr(data.X)), ("Y", as_indicator(data.Y))):
        indptr, indices, values = csr_args(matrix)
        arrays |= {
            f"{name}_shape": np.array(matrix.shape, np.int64),
            f"{name}_indptr": indptr,
            f"{name}_indices": indices,
        }
        if name == "X":
            arrays["X_data"] = values
    for key, names in (("label_names", data.label_names), ("feature_names", data.feature_names)):
        if names is not None:
            arrays[key] = _pack_names(names, path)
    with write_atomic(path) as out:
        np.savez_compressed(out, **arrays)


def read_npz(path: PathLike) -> Dataset:
    """Read what :func:`write_npz` wrote; anything else is refused, nothing is unpickled."""
    with open_raw(path) as raw:
        try:
            archive = np.load(raw, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise DataFormatError(f"{path}: is a single array, not an archive; write it with write_npz")
            _check_claims(path, archive.zip)
            parts = {key: archive[key] for key in archive.files}
        except DataFormatError:
            raise
        except Exception as error:  # of zip, NumPy and the tokenizer that reads its headers
            raise DataFormatError(f"{path}: not a readable .npz archive ({error}); write it again") from error
    if "format" not in parts or parts["format"].shape != () or int(parts["format"]) != FORMAT:
        raise DataFormatError(
            f"{path}: no data set of format {FORMAT} (no such 'format' entry); write it with write_npz"
        )
    try:
        X = _matrix(parts, "X", parts["X_data"])
        Y = _matrix(parts, "Y", np.ones(parts["Y_indices"].size, np.float32))
        check_file_widths(path, X, Y, "its shape")
        return Dataset(X, Y, _unpack_names(parts.get("feature_names")), _unpack_names(parts.get("label_names")))
    except KeyError as error:
        raise DataFormatError(f"{path}: the entry {error} is missing; write it again with write_npz") from error
    except (ValueError, TypeError) as error:
        if isinstance(error, DataFormatError):
            raise
        raise DataFormatError(f"{path}: {error}; write it again with write_npz") from error


def _check_claims(path: PathLike, archive: Any) -> None:
    """Refuse arrays that claim more than is stored of them, and archives larger than the memory, before reading."""
    members = archive.infolist()
    check_space(path, sum(member.file_size for member in members))
    for member in members:
        with archive.open(member) as part:
            version = np.lib.format.read_magic(part)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = read(part)
        if math.prod(shape) * dtype.itemsize > member.file_size:
            raise DataFormatError(f"{path}: the entry {member.filename} is cut off; write it again with write_npz")


def _matrix(parts: dict[str, NDArray[Any]], name: str, data: NDArray[Any]) -> sparse.csr_array:
    shape, indptr, indices = (parts[f"{name}_{part}"] for part in ("shape", "indptr", "indices"))
    if shape.shape != (2,) or indptr.ndim != 1 or indices.ndim != 1 or data.ndim != 1:
        raise ValueError(f"the arrays of {name} have the wrong number of dimensions")
    if {shape.dtype.kind, indptr.dtype.kind, indices.dtype.kind} != {"i"} or data.dtype != np.float32:
        raise ValueError(f"the arrays of {name} have the wrong types")
    n, d = (int(size) for size in shape)
    if not (n >= 0 and 0 <= d < 2**31) or indptr.size != n + 1 or indices.size != data.size:
        raise ValueError(f"the arrays of {name} do not fit its shape {n} x {d}")
    if indptr[0] != 0 or indptr[-1] != indices.size or (np.diff(indptr) < 0).any():
        raise ValueError(f"the row pointers of {name} are damaged")
    if indices.size and (indices.min() < 0 or indices.max() >= d):
        raise ValueError(f"column indices of {name} are out of range")
    if not np.isfinite(data).all():
        raise ValueError(f"{name} holds NaN or infinite values")
    pointers = indptr.astype(np.int32 if indices.size < 2**31 else np.int64)
    matrix = sparse.csr_array((data, indices.astype(np.int32), pointers), shape=(n, d))
    if not matrix.has_canonical_format:
        raise ValueError(f"the indices of {name} are not sorted or repeat")
    return matrix


def _pack_names(names: Sequence[str], path: PathLike) -> NDArray[np.uint8]:
    broken = next((name for name in names if "\n" in name), None)
    if broken is not None:
        raise DataFormatError(f"{path}: the name {broken!r} spans lines and cannot be stored")
    return np.frombuffer("".join(f"{name}\n" for name in names).encode(), dtype=np.uint8)


def _unpack_names(packed: NDArray[Any] | None) -> list[str] | None:
    if packed is None:
        return None
    if packed.dtype != np.uint8 or packed.ndim != 1:
        raise ValueError("names are not stored as bytes")
    return packed.tobytes().decode().split("\n")[:-1]
