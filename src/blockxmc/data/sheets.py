"""Spreadsheets (.xlsx) as CSV: their first sheet, row for row."""

from __future__ import annotations

import csv
import io
import zipfile
from functools import lru_cache
from xml.etree.ElementTree import ParseError

from blockxmc.errors import DataFormatError

_OLD_EXCEL = b"\xd0\xcf\x11\xe0"
_REMEDY = "save the sheet as CSV UTF-8"
# What openpyxl raises on damaged files.
_DAMAGE = (
    zipfile.BadZipFile,
    ParseError,
    KeyError,
    ValueError,
    TypeError,
    AttributeError,
    IndexError,
    OSError,
    EOFError,
)


def is_sheet(head: bytes) -> bool:
    """Whether a file that begins so may be a spreadsheet; archives of arrays (.npz) begin alike."""
    return head.startswith((b"PK\x03\x04", _OLD_EXCEL))


@lru_cache(maxsize=1)  # a file is looked at first, and then read
def as_csv(content: bytes, name: str) -> bytes:
    """The first sheet of a workbook as CSV; rows stay where they are, so that a line is the row of the spreadsheet."""
    if content.startswith(_OLD_EXCEL):
        raise DataFormatError(f"{name}: is a spreadsheet of an old kind (.xls); {_REMEDY}")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            parts = archive.namelist()
    except _DAMAGE as error:
        raise DataFormatError(f"{name}: the archive is damaged ({error}); fetch it again") from error
    if "xl/workbook.xml" not in parts:
        raise DataFormatError(f"{name}: is a zip archive, not text; unpack it, or, if it is a spreadsheet, {_REMEDY}")
    try:
        from openpyxl import load_workbook
    except ImportError:
        raise DataFormatError(f"{name}: is a spreadsheet: pip install 'blockxmc[excel]', or {_REMEDY}") from None
    out, blank = io.StringIO(newline=""), 0
    lines = csv.writer(out, lineterminator="\n")
    try:
        sheet = load_workbook(io.BytesIO(content), read_only=True, data_only=True).worksheets[0]
        for row in sheet.iter_rows(values_only=True):
            if all(cell is None for cell in row):
                blank += 1
                continue
            out.write("\n" * blank)
            blank = 0
            lines.writerow([_text(cell) for cell in row])
    except _DAMAGE as error:
        raise DataFormatError(f"{name}: the spreadsheet cannot be read ({error}); {_REMEDY}") from error
    return out.getvalue().encode("utf-8", "replace")


def _text(cell: object) -> str:
    """A cell as people see it: 12, not 12.0.

    >>> _text(12.0), _text(None), _text("a")
    ('12', '', 'a')
    """
    if cell is None:
        return ""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)
