"""Text with label names, before it becomes numbers: JSONL, TSV and CSV (Annif's short-text corpora among them)."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blockxmc.data._source import (
    MAX_LINE_BYTES,
    PathLike,
    SlowPhase,
    bare_name,
    first_line,
    once,
    open_text,
    write_atomic,
)
from blockxmc.data.xc import looks_like_xc
from blockxmc.errors import DataFormatError

_SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".tsv": "tsv", ".csv": "csv"}
_TEXT_COLUMNS = ("text", "title", "abstract", "description", "body")
# Column -> the separator of its labels (None: spaces).
_LABEL_COLUMNS = {"subject_uris": None, "labels": ";", "subjects": ";", "label": ";"}

Row = tuple[str, list[str]]


@dataclass(frozen=True)
class Corpus:
    """Texts and the label names of each."""

    texts: list[str]
    labels: list[list[str]]


def text_format(path: PathLike) -> str | None:
    """``jsonl``, ``tsv`` or ``csv`` by suffix, else by content; None for other formats.

    >>> text_format("corpus.tsv.gz"), text_format("records.csv")
    ('tsv', 'csv')
    """
    name = bare_name(path).lower()
    for suffix, kind in _SUFFIXES.items():
        if name.endswith(suffix):
            return kind
    line = first_line(path)
    if line.lstrip().startswith(b"{"):
        return "jsonl"
    return "tsv" if b"\t" in line and not looks_like_xc(line) else None


def read_corpus(path: PathLike, require_labels: bool = True, verbose: int = 0, *, kind: str | None = None) -> Corpus:
    """Read texts and label names; without ``require_labels`` a row may lack its labels (text to be labelled).

    ``kind`` (jsonl, tsv or csv) names the format where neither suffix nor content does.
    """
    path = once(path)
    kind = kind or text_format(path)
    if kind is None:
        raise DataFormatError(
            f"{path}: not recognised as JSONL, TSV or CSV with text and labels;"
            " name it .jsonl, .tsv or .csv (or read it with read_xc if it is XC text)"
        )
    readers = {"jsonl": _jsonl_rows, "tsv": _tsv_rows, "csv": _csv_rows}
    with open_text(path, verbose) as lines:
        rows = list(readers[kind](lines, path, require_labels))
    if not rows:
        raise DataFormatError(f"{path}: holds no rows; give a file with at least one row")
    return Corpus([text for text, _ in rows], [labels for _, labels in rows])


def write_jsonl(path: PathLike, corpus: Corpus, verbose: int = 0) -> None:
    """Write one JSON object with ``text`` and ``labels`` per line."""
    title = f"writing {Path(path).name}"
    with write_atomic(path) as out, SlowPhase(title, len(corpus.texts), verbose) as phase:
        for done, (text, labels) in enumerate(zip(corpus.texts, corpus.labels, strict=True)):
            if done % 1000 == 0:
                phase.update(done)
            out.write((json.dumps({"text": text, "labels": labels}, ensure_ascii=False) + "\n").encode())


def _jsonl_rows(lines: Iterator[str], path: PathLike, require_labels: bool) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{path}: line {number}"
        try:
            record = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise DataFormatError(f"{where}: not JSON ({error}); put one object on each line") from error
        if not isinstance(record, dict) or not isinstance(record.get("text"), str):
            raise DataFormatError(f'{where}: no "text"; each line must be {{"text": "...", "labels": ["...", ...]}}')
        yield record["text"], _json_labels(record, where, require_labels)


def _json_labels(record: dict[str, Any], where: str, required: bool) -> list[str]:
    """``labels`` (names), or Annif's ``subjects`` (objects with a uri or a label)."""
    if "labels" in record:
        labels = record["labels"]
    elif "subjects" in record and isinstance(record["subjects"], list):
        labels = [s.get("uri", s.get("label")) if isinstance(s, dict) else s for s in record["subjects"]]
    elif required:
        raise DataFormatError(f'{where}: no "labels"; give a list of names, empty if there are none')
    else:
        return []
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise DataFormatError(f'{where}: "labels" must be a list of names, found {ascii(labels)[:60]}')
    return clean_names(labels)


def _tsv_rows(lines: Iterator[str], path: PathLike, require_labels: bool) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        text, tab, subjects = line.rstrip("\r\n").partition("\t")
        if not tab and require_labels:
            raise DataFormatError(
                f"{path}: line {number}: no tab; each line must be text, a tab, labels between spaces"
            )
        if number == 1 and subjects.strip().lower() in _LABEL_COLUMNS:
            raise DataFormatError(f"{path}: line 1: looks like a header; a TSV corpus has none: delete it, or use CSV")
        yield text, clean_names(subjects.split())


def _csv_rows(lines: Iterator[str], path: PathLike, require_labels: bool) -> Iterator[Row]:
    limit = csv.field_size_limit(MAX_LINE_BYTES)
    reader = csv.reader(lines, strict=True)
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        text_at = [j for j, name in enumerate(header) if name in _TEXT_COLUMNS]
        labels_at = next((header.index(name) for name in _LABEL_COLUMNS if name in header), None)
        if not text_at or (labels_at is None and require_labels):
            missing = "text" if not text_at else "label"
            raise DataFormatError(
                f"{path}: line 1: no {missing} column; name one of the columns"
                f" {' or '.join(_LABEL_COLUMNS if text_at else _TEXT_COLUMNS)} (found {ascii(','.join(header))[:60]})"
            )
        for fields in reader:
            if not fields:
                continue
            if len(fields) != len(header):
                raise DataFormatError(
                    f"{path}: line {reader.line_num}: {len(fields)} fields, but the header names {len(header)};"
                    " quote fields that hold commas"
                )
            text = " ".join(fields[j] for j in text_at if fields[j])
            cell = fields[labels_at] if labels_at is not None else ""
            separator = _LABEL_COLUMNS[header[labels_at]] if labels_at is not None else None
            yield text, clean_names(cell.split(separator))
    except csv.Error as error:
        raise DataFormatError(
            f"{path}: line {reader.line_num}: not CSV ({error}); quote fields that need it"
        ) from error
    finally:
        csv.field_size_limit(limit)


def clean_names(labels: Iterable[Any]) -> list[Any]:
    """Labels as they are learnt: names stripped, without the angle brackets of a URI, empty ones left out.

    >>> clean_names([" a ", "<http://x/1>", " ", 3])
    ['a', 'http://x/1', 3]
    """
    names = (_name(label) if isinstance(label, str) else label for label in labels)
    return [name for name in names if name != ""]


def _name(label: str) -> str:
    label = label.strip()
    return label[1:-1].strip() if label.startswith("<") and label.endswith(">") else label
