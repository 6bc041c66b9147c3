"""Text with label names, before it becomes numbers: JSONL, JSON, TSV and CSV (Annif's short-text corpora among them)."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from blockxmc.data._source import MAX_LINE_BYTES, PathLike, SlowPhase, bare_name, first_line, once, write_atomic
from blockxmc.data.label_lists import listed_names
from blockxmc.data.label_names import bare_uris, clean_names
from blockxmc.data.lines import Lines, open_text
from blockxmc.data.repository import plain_record, titled
from blockxmc.data.xc import looks_like_xc
from blockxmc.errors import DataFormatError

TEXT_FORMATS = ("jsonl", "json", "tsv", "csv")
_SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".tsv": "tsv", ".csv": "csv", ".xlsx": "csv"}
# How an object, or an array of objects, begins: texts, too, may begin with a bracket.
_JSON = re.compile(rb'\s*(?:(\{)\s*(?:["}]|$)|\[\s*(?:[{\]]|$))')
_TEXT_COLUMNS = ("text", "title", "abstract", "description", "body")
# Column -> the separator of its labels (None: spaces).
_LABEL_COLUMNS = {"subject_uris": None, "labels": ";", "subjects": ";", "label": ";"}


@dataclass(frozen=True)
class Fields:
    """What the fields of a file are called, where it is not what the library expects.

    ``text`` names one or more fields, which are joined by spaces; ``separator`` stands between labels in one string.
    """

    text: tuple[str, ...] = ()
    labels: str | None = None
    separator: str | None = None
    id: str | None = None


class Row(NamedTuple):
    """One text, its labels, what the file calls it (None: nothing), and its row in a spreadsheet, or its line."""

    text: str
    labels: list[str]
    id: Any = None
    number: int = 0


@dataclass(frozen=True)
class Corpus:
    """Texts, the label names of each, their ids where there are any, and what to call each row."""

    texts: list[str]
    labels: list[list[str]]
    ids: list[Any] | None = None
    names: list[str] = field(default_factory=list, compare=False)


def text_format(path: PathLike) -> str | None:
    """``jsonl``, ``json`` (an array of objects), ``tsv`` or ``csv`` by suffix, else by content; None for other formats.

    >>> text_format("corpus.tsv.gz"), text_format("records.csv")
    ('tsv', 'csv')
    """
    name = bare_name(path).lower()
    for suffix, kind in _SUFFIXES.items():
        if name.endswith(suffix):
            return kind
    first = first_line(path)
    if name.endswith(".json"):
        return "json" if first.lstrip().startswith(b"[") else "jsonl"
    return format_of_line(first)


def format_of_line(line: bytes) -> str | None:
    """The format of text whose first line this is; None for other formats.

    >>> format_of_line(b'{"text": "a"}'), format_of_line(b"["), format_of_line(b"red apple\\tfruit")
    ('jsonl', 'json', 'tsv')
    >>> format_of_line(b"id;text;labels"), format_of_line(b"texts, and other things"), format_of_line(b"[Reprint] Cats")
    ('csv', None, None)
    """
    if (start := _JSON.match(line)) is not None:
        return "jsonl" if start[1] == b"{" else "json"
    if (sign := _separator(line)) != "\t":
        names = {name.strip(' "').lower() for name in line.decode("utf-8", "replace").rstrip("\r\n").split(sign)}
        if names & set(_TEXT_COLUMNS) and names & set(_LABEL_COLUMNS):
            return "csv"
    return "tsv" if b"\t" in line and not looks_like_xc(line) else None


def read_corpus(
    path: PathLike,
    require_labels: bool = True,
    verbose: int = 0,
    *,
    kind: str | None = None,
    fields: Fields | None = None,
) -> Corpus:
    """Read texts and label names; without ``require_labels`` a row may lack its labels (text to be labelled).

    ``kind`` (jsonl, json, tsv or csv) names the format where neither suffix nor content does.
    """
    path = once(path)
    kind = kind or text_format(path)
    if kind is None:
        raise DataFormatError(
            f"{path}: not recognised as JSONL, JSON, TSV or CSV with text and labels;"
            " name it .jsonl, .json, .tsv or .csv (or read it with read_xc if it is XC text)"
        )
    with open_text(path, verbose) as lines:
        rows = list(rows_of(lines, path, kind, require_labels, fields or Fields()))
    if not rows:
        raise DataFormatError(f"{path}: holds no rows; give a file with at least one row")
    ids = [row.id for row in rows]
    unit = "row" if kind == "csv" else "line"
    names = [f"{unit} {row.number}" if row.id is None else str(row.id) for row in rows]
    return Corpus([row.text for row in rows], [row.labels for row in rows], None if ids.count(None) else ids, names)


def columns_taken(path: PathLike, fields: Fields) -> str | None:
    """Which columns of a CSV file are read, where neither the caller nor the names text and labels say it; else None."""
    if text_format(path) != "csv" or (fields.text and fields.labels):
        return None
    with open_text(path) as lines:
        header = next(csv.reader(lines, delimiter=_separator(lines.first())), [])
    columns = _Columns.found(header, path, True, fields)
    taken = [header[j].strip().lower() for j in (*columns.text, columns.labels) if j is not None]
    return None if taken == ["text", "labels"] else columns.said(header)


def rows_of(lines: Lines, path: PathLike, kind: str, require_labels: bool, fields: Fields) -> Iterator[Row]:
    """The rows of a file, each as soon as its lines are there (the rows of a JSON array: when all are)."""
    readers = {"jsonl": _jsonl_rows, "json": _json_rows, "tsv": _tsv_rows, "csv": _csv_rows}
    return titled(readers[kind](lines, path, require_labels, fields), path)


def write_jsonl(path: PathLike, corpus: Corpus, verbose: int = 0) -> None:
    """Write one JSON object with ``text``, ``labels`` and, where there is one, ``id`` per line."""
    title = f"writing {Path(path).name}"
    ids = corpus.ids or [None] * len(corpus.texts)
    with write_atomic(path) as out, SlowPhase(title, len(corpus.texts), verbose) as phase:
        for done, (text, labels, name) in enumerate(zip(corpus.texts, corpus.labels, ids, strict=True)):
            if done % 1000 == 0:
                phase.update(done)
            record = {"text": text, "labels": labels} if name is None else {"id": name, "text": text, "labels": labels}
            out.write((json.dumps(record, ensure_ascii=False) + "\n").encode())


def write_csv(path: PathLike, corpus: Corpus) -> None:
    """Write a header and a line per row: ``text`` and ``labels``, separated by semicolons."""
    content = io.StringIO(newline="")
    lines = csv.writer(content, lineterminator="\n")
    lines.writerow(["text", "labels"])
    lines.writerows(zip(corpus.texts, map(";".join, corpus.labels), strict=True))
    with write_atomic(path) as out:
        out.write(content.getvalue().encode())


# ---- JSON ----
def _jsonl_rows(lines: Lines, path: PathLike, require_labels: bool, fields: Fields) -> Iterator[Row]:
    for line in lines:
        if not line.strip():
            continue
        where = f"{path}: line {lines.number}"
        try:
            record = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise DataFormatError(f"{where}: not JSON ({error}); put one object on each line") from error
        yield _json_row(record, where, require_labels, fields)._replace(number=lines.number)


def _json_rows(lines: Lines, path: PathLike, require_labels: bool, fields: Fields) -> Iterator[Row]:
    try:
        records = json.loads("".join(lines))
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataFormatError(f"{path}: not JSON ({error}); give an array of objects, or JSONL") from error
    for number, record in enumerate(records, 1):
        yield _json_row(record, f"{path}: element {number}", require_labels, fields)._replace(number=number)


def _json_row(record: Any, where: str, require_labels: bool, fields: Fields) -> Row:
    record, names = plain_record(record, where), fields.text or ("text",)
    if not isinstance(record, dict) or all(record.get(name) is None for name in names):
        form = "" if fields.text else '; each row must be {"text": "...", "labels": ["...", ...]}'
        remedy = form or "; --text-field names the fields to read"
        raise DataFormatError(f"{where}: no {_quoted(names)}{remedy}")
    texts = [record[name] for name in names if record.get(name) is not None]
    if not all(isinstance(text, str) for text in texts):
        raise DataFormatError(f"{where}: no text in {_quoted(names)}, but {ascii(texts)[:60]}")
    name = record.get(fields.id or "id")
    if isinstance(name, (dict, list)) or (fields.id and name is None):
        raise DataFormatError(f'{where}: "{fields.id or "id"}" must be text or a number, found {ascii(name)[:60]}')
    return Row(" ".join(texts), _json_labels(record, where, require_labels, fields), name)


def _json_labels(record: dict[str, Any], where: str, required: bool, fields: Fields) -> list[str]:
    """``labels`` (names), or Annif's ``subjects`` (objects with a uri or a label), or the field that was named."""
    name = fields.labels or ("labels" if "labels" in record or "subjects" not in record else "subjects")
    if name not in record:
        if required:
            raise DataFormatError(f'{where}: no "{name}"; give a list of names, empty if there are none')
        return []
    labels = record[name]
    if isinstance(labels, str) and fields.separator is not None:
        labels = labels.split(fields.separator)
    if isinstance(labels, list):
        labels = [s.get("uri", s.get("label")) if isinstance(s, dict) else s for s in labels]
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        if not required:
            return []
        hint = "; --label-separator cuts a string" if isinstance(labels, str) else ""
        raise DataFormatError(f'{where}: "{name}" must be a list of names, found {ascii(labels)[:60]}{hint}')
    return clean_names(labels, where)


def _quoted(names: Iterable[str]) -> str:
    return " and no ".join(f'"{name}"' for name in names)


# ---- tables ----
def _tsv_rows(lines: Lines, path: PathLike, require_labels: bool, fields: Fields) -> Iterator[Row]:
    if fields.text or fields.labels or fields.id:
        raise DataFormatError(
            f"{path}: TSV has no header, so its fields have no names; leave --text-field and the like out"
        )
    blank = 0
    for line in lines:
        if not line.strip():
            blank += 1
            continue
        if not require_labels:  # lines to be labelled: an answer each, so that answers can be counted off
            yield from (Row("", []) for _ in range(blank))
        blank = 0
        text, tab, subjects = line.rstrip("\r\n").partition("\t")
        if not tab and require_labels:
            raise DataFormatError(
                f"{path}: line {lines.number}: no tab; each line must be text, a tab, labels between spaces"
            )
        if lines.number == 1 and subjects.strip().lower() in _LABEL_COLUMNS:
            raise DataFormatError(f"{path}: line 1: looks like a header; a TSV corpus has none: delete it, or use CSV")
        yield Row(text, clean_names(bare_uris(subjects.split(fields.separator))), None, lines.number)


@dataclass(frozen=True)
class _Columns:
    """Where the fields of a CSV file stand."""

    text: list[int]
    labels: int | None
    separator: str | None
    id: int | None

    @classmethod
    def found(cls, header: list[str], path: PathLike, require_labels: bool, fields: Fields) -> _Columns:
        """The columns that are asked for, or those with the usual names."""
        names = [name.strip().lower() for name in header]

        def asked(name: str) -> int:
            if name.strip().lower() not in names:
                raise DataFormatError(f"{path}: line 1: no column {name!r} (found {', '.join(names)[:80]!r})")
            return names.index(name.strip().lower())

        text = [asked(name) for name in fields.text] or [j for j, name in enumerate(names) if name in _TEXT_COLUMNS]
        usual = next((names.index(name) for name in _LABEL_COLUMNS if name in names), None)
        labels = usual if fields.labels is None else asked(fields.labels)
        if not text or (labels is None and require_labels):
            missing = "text" if not text else "label"
            raise DataFormatError(
                f"{path}: line 1: no {missing} column; name one of the columns"
                f" {' or '.join(_LABEL_COLUMNS if text else _TEXT_COLUMNS)}, or say which it is by --{missing}-field"
                f" (found {', '.join(names)[:80]!r})"
            )
        separator = fields.separator or (None if labels is None else _LABEL_COLUMNS.get(names[labels], ";"))
        name = asked(fields.id) if fields.id is not None else (names.index("id") if "id" in names else None)
        for j in (*text, labels, name):
            if j is not None and names.count(names[j]) > 1:
                raise DataFormatError(f"{path}: line 1: several columns are called {names[j]!r}; rename all but one")
        return cls(text, labels, separator, name)

    def said(self, header: list[str]) -> str:
        """Which columns these are, for people."""
        found = f"text is {' + '.join(header[j].strip() for j in self.text)}"
        if self.labels is not None:
            apart = "at spaces" if self.separator is None else f"at {self.separator!r}"
            found += f"; labels are {header[self.labels].strip()}, cut {apart}"
        return found if self.id is None else f"{found}; id is {header[self.id].strip()}"

    def cell(self, values: list[str]) -> str:
        """What stands in the column of the labels."""
        return values[self.labels] if self.labels is not None else ""

    def row(self, values: list[str], labels: Iterable[str], where: str) -> Row:
        """What one line says, whose labels are these."""
        name = None if self.id is None else values[self.id].strip() or None
        return Row(" ".join(values[j] for j in self.text if values[j]), clean_names(labels, where), name)


class _LabelCells:
    """Turns cells into labels: by the separator, unless the first cell that names any holds a list.

    Names and lists side by side are a mistake in the file; a name like [2020] among names is none. Where labels are not
    asked for, it does not matter.
    """

    def __init__(self, separator: str | None, strict: bool, known: bool) -> None:
        self._separator, self._strict, self._known = separator, strict, known
        self.lists: bool | None = False if known else None

    def names(self, cell: str, where: str) -> list[str]:
        """The labels of a cell."""
        if not cell.strip():
            return []
        found = None if self._known else listed_names(cell)
        if found == [] and not self.lists:  # "[]" tells as little as an empty cell
            return []
        if self.lists is None:
            self.lists = found is not None
        elif not self.lists and not set("\"'") & set(cell):
            found = None
        if self._strict and self.lists != (found is not None):
            earlier = "lists" if self.lists else "names without brackets"
            raise DataFormatError(
                f"{where}: labels of earlier lines are {earlier}, but here stands {ascii(cell)[:60]};"
                " write all in one way, or say by --label-separator what stands between names"
            )
        if found is not None and self.lists:
            return found
        return bare_uris(cell.split()) if self._separator is None else cell.split(self._separator)


def _csv_rows(lines: Lines, path: PathLike, require_labels: bool, fields: Fields) -> Iterator[Row]:
    limit = csv.field_size_limit(MAX_LINE_BYTES)
    separator, began = _separator(lines.first()), 1  # the line in which the next row begins
    reader = csv.reader(lines, strict=True, delimiter=separator)
    try:
        header = next(reader, [])
        began = reader.line_num + 1
        columns = _Columns.found(header, path, require_labels, fields)
        cells, said = _LabelCells(columns.separator, require_labels, fields.separator is not None), False
        for number, values in enumerate(reader, 2):  # as a spreadsheet counts: the header is row 1
            here, began = began, reader.line_num + 1
            if not values:
                continue
            if len(values) != len(header):
                raise DataFormatError(
                    f"{path}: line {_span(here, reader.line_num)}: {len(values)} fields, but the header names"
                    f" {len(header)}; quote fields that hold {separator!r}"
                )
            cell, where = columns.cell(values), f"{path}: line {reader.line_num}"
            yield columns.row(values, cells.names(cell, where), where)._replace(number=number)
            if cells.lists and not said:
                lines.say(f"labels are written as lists, like {cell[:40]}, and are read as such")
                said = True
    except csv.Error as error:
        if "unexpected end" in str(error):
            raise DataFormatError(
                f"{path}: line {began}: in the row that begins here, a quote opens and none closes it"
                f" (the file ends in line {reader.line_num}); close it, or double it where it is part of the text"
            ) from error
        raise DataFormatError(
            f"{path}: line {_span(began, reader.line_num)}: not CSV ({error}); quote fields that need it"
        ) from error
    finally:
        csv.field_size_limit(limit)


def _span(first: int, last: int) -> str:
    """The number of a line, or where a row of several lines begins.

    >>> _span(3, 3), _span(3, 7)
    ('3', '7 (of a row that begins in line 3)')
    """
    return str(last) if first == last else f"{last} (of a row that begins in line {first})"


def _separator(header: bytes) -> str:
    r"""What stands between the names of columns: a comma, or what a spreadsheet writes in its place.

    >>> _separator(b'text,labels'), _separator(b'"a, b";text;labels'), _separator(b"text\tlabels"), _separator(b"text")
    (',', ';', '\t', ',')
    """
    bare = re.sub(rb'"[^"]*"', b"", header)
    return max(",;\t", key=lambda sign: bare.count(sign.encode()))
