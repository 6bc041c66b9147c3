"""Text of others on a terminal: names, words and paths, which must not be obeyed."""

from __future__ import annotations

import re

# Control characters but tabs, line separators, marks that turn the direction of writing, halves of characters.
_OBEYED = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""The text in one line, with what a terminal would obey written as an escape.

    >>> print(printable("a\x1b[31mb\nc"))
    a\x1b[31mb\nc
    """
    return _OBEYED.sub(lambda found: ascii(found[0])[1:-1], text)
