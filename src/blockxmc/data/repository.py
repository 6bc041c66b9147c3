"""Files of the Extreme Classification Repository as they are: pairs of matrices, texts with label numbers, archives."""

from __future__ import annotations

import contextlib
import json
import tempfile
import zipfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from scipy import sparse

from blockxmc.data._source import COMPRESSED_SUFFIXES, PathLike, archive_errors, bare_name
from blockxmc.data.lines import open_text
from blockxmc.errors import DataFormatError

FEATURES, LABELS = "_x_xf.txt", "_X_Y.txt"
TEXTS = ("trn.json", "tst.json")
LABEL_TEXTS = "lbl.json"
NUMBERS = "target_ind"
R = TypeVar("R", bound="LabelledRow")
# Pairs of a test row and a label that are left out of scoring, by the repository's protocol for sets of label features.
LEFT_OUT = "filter_labels_test.txt"


class LabelledRow(Protocol):
    """A row that knows its labels."""

    @property
    def labels(self) -> list[str]:
        """Names or numbers."""
        ...

    def _replace(self: R, *, labels: list[str]) -> R: ...


def labels_beside(path: PathLike) -> Path | None:
    """The matrix of labels that belongs to a matrix of features ``*_X_Xf.txt``; None for other files."""
    name = bare_name(path)
    if not name.lower().endswith(FEATURES):
        return None
    wanted = name[: -len(FEATURES)] + LABELS
    found = beside(path, wanted)
    if found is None:
        raise DataFormatError(f"{path}: holds features only; put {wanted} with the labels beside it")
    return found


def beside(path: PathLike, name: str) -> Path | None:
    """A file of this name in the same folder, compressed or not."""
    folder = Path(path).parent
    return next(
        (folder / (name + end) for end in ("", *COMPRESSED_SUFFIXES) if (folder / (name + end)).is_file()), None
    )


def label_titles(path: PathLike) -> list[str] | None:
    """The titles of labels by number, for ``trn.json`` and ``tst.json``; equal ones are told apart by their ids."""
    if bare_name(path).lower() not in TEXTS or (found := beside(path, LABEL_TEXTS)) is None:
        return None
    return _titles(found, found.stat().st_mtime_ns)


@lru_cache(maxsize=2)
def _titles(path: Path, changed: int) -> list[str]:
    titles, ids = [], []
    with open_text(path) as lines:
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
                titles.append(" ".join(str(record["title"]).split()) or str(record.get("uid", number - 1)))
                ids.append(str(record.get("uid", number - 1)))
            except (ValueError, KeyError, TypeError) as error:
                raise DataFormatError(f'{path}: line {number}: no object with a "title" ({error})') from error
    seen: dict[str, int] = {}
    for title in titles:
        seen[title] = seen.get(title, 0) + 1
    return [f"{title} ({own})" if seen[title] > 1 else title for title, own in zip(titles, ids, strict=True)]


def plain_record(record: Any, where: str) -> Any:
    """A row of the repository (title, content and numbers of labels) as text and labels; others as they are.

    >>> plain_record({"title": "Red", "content": "apple", "target_ind": [3]}, "line 1")
    {'text': 'Red apple', 'labels': ['3'], 'id': None}
    """
    if not isinstance(record, dict) or NUMBERS not in record or "labels" in record or "text" in record:
        return record
    numbers = record[NUMBERS]
    if not isinstance(numbers, list) or not all(type(number) is int and number >= 0 for number in numbers):
        raise DataFormatError(f'{where}: "{NUMBERS}" must be a list of label numbers, found {ascii(numbers)[:60]}')
    text = " ".join(str(record[name]) for name in ("title", "content") if record.get(name))
    return {"text": text, "labels": list(map(str, numbers)), "id": record.get("uid")}


def titled(rows: Iterator[R], path: PathLike) -> Iterator[R]:
    """Rows with the titles of their labels instead of the numbers, where a file beside them has titles."""
    titles = label_titles(path)
    for row in rows:
        if titles is None:
            yield row
            continue
        if any(not label.isdigit() or int(label) >= len(titles) for label in row.labels):
            raise DataFormatError(
                f"{path}: a label is not a number below {len(titles)}, the labels of the file beside it"
            )
        yield row._replace(labels=[titles[int(label)] for label in row.labels])


def left_out_pairs(path: PathLike, shape: tuple[int, int]) -> sparse.csr_array | None:
    """The (row, label) pairs of a test set that are not scored, where a file beside it names them."""
    if not bare_name(path).lower().startswith("tst") or (found := beside(path, LEFT_OUT)) is None:
        return None
    pairs = []
    with open_text(found) as lines:
        for number, line in enumerate(lines, 1):
            fields = line.split()
            if not fields:
                continue
            if len(fields) != 2 or not all(field.isascii() and field.isdigit() for field in fields):
                raise DataFormatError(f"{found}: line {number}: {line.strip()[:40]!a} is not a row and a label number")
            pair = int(fields[0]), int(fields[1])
            if pair[0] >= shape[0] or pair[1] >= shape[1]:
                raise DataFormatError(
                    f"{found}: line {number}: row {pair[0]}, label {pair[1]}, but there are {shape[0]} rows and {shape[1]}"
                    " labels; check that the file belongs to this data"
                )
            pairs.append(pair)
    rows, labels = np.array(pairs, np.int64).reshape(-1, 2).T
    out = sparse.csr_array((np.ones(rows.size, np.float32), (rows, labels)), shape=shape)
    out.sum_duplicates()
    out.data[:] = 1
    return out


def is_archive(path: PathLike) -> bool:
    """Whether a path is a zip archive of a data set, by its suffix."""
    return Path(path).suffix.lower() == ".zip" and Path(path).is_file()


@contextlib.contextmanager
def unpacked(path: PathLike) -> Iterator[Path]:
    """A folder with what a zip archive holds, for as long as it is read; of nested folders the first that holds files."""
    with tempfile.TemporaryDirectory() as where:
        with archive_errors(path):
            try:
                with zipfile.ZipFile(path) as archive:
                    archive.extractall(where)
            except (zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
                raise DataFormatError(f"{path}: cannot be unpacked ({error}); download it again") from error
        folder = Path(where)
        while not any(entry.is_file() for entry in folder.iterdir()):
            inner = sorted(entry for entry in folder.iterdir() if entry.is_dir() and entry.name != "__MACOSX")
            if not inner:
                raise DataFormatError(f"{path}: holds no files")
            folder = inner[0]
        yield folder
