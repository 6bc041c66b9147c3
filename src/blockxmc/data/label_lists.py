"""Cells of a table that hold a list of labels as text, as programs write lists: ["a", "b"], or ['a', 'b'] in Python."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable

_ESCAPE = r"""\\(?:[\\'"abfnrtv]|x[\da-fA-F]{2}|u[\da-fA-F]{4}|U[\da-fA-F]{8})"""
_ITEM = rf"""'(?:[^'\\\n]|{_ESCAPE})*'|"(?:[^"\\\n]|{_ESCAPE})*"|[-+]?\d+"""
# Between items: a comma, or the space that NumPy writes.
_LIST = re.compile(rf"\[\s*(?:(?:{_ITEM})(?:(?:\s*,\s*|\s+)(?:{_ITEM}))*,?)?\s*\]")
_ITEMS = re.compile(_ITEM)


def listed_names(cell: str) -> list[str] | None:
    '''The names in a cell that is a list of names or whole numbers; None where it is none.

    >>> listed_names('["a", "b, c"]'), listed_names("""['a', "it's", 3]"""), listed_names("['a' 'b']"), listed_names("[]")
    (['a', 'b, c'], ['a', "it's", '3'], ['a', 'b'], [])
    >>> listed_names("a;b"), listed_names("[a]"), listed_names('[["a"]]')
    (None, None, None)
    '''
    cell = cell.strip()
    if not (cell.startswith("[") and cell.endswith("]")):
        return None
    try:
        found = json.loads(cell)
    except (ValueError, RecursionError):
        found = _python_list(cell)
    if found is None or not all(isinstance(item, str) or type(item) is int for item in found):
        return None
    return [str(item) for item in found]


def are_lists(cells: Iterable[object]) -> bool:
    """Whether there are lists, and nothing else but empty cells.

    >>> are_lists(["['a']", "", "[]"]), are_lists(["['a']", "b"]), are_lists(["", ""])
    (True, False, False)
    """
    some = [cell for cell in cells if not (isinstance(cell, str) and not cell.strip())]
    return bool(some) and all(isinstance(cell, str) and listed_names(cell) is not None for cell in some)


def _python_list(cell: str) -> list[object] | None:
    """As Python writes lists, and NumPy arrays; no text is joined to its neighbour, as Python itself would."""
    if not _LIST.fullmatch(cell):
        return None
    try:
        return [ast.literal_eval(item) for item in _ITEMS.findall(cell)]
    except (ValueError, SyntaxError):
        return None
