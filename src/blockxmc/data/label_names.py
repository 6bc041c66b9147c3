"""Names of labels as files and people write them, made names as they are learnt."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from blockxmc.errors import DataFormatError

_URI = re.compile(r"<([A-Za-z][A-Za-z0-9+.-]*:[^<>\s]+)>\Z")


def clean_names(labels: Iterable[Any], where: str = "") -> list[Any]:
    """Labels as they are learnt: names stripped, empty ones left out.

    ``where`` says in messages what file and line they come from.

    >>> clean_names([" a ", "<b>", " ", 3])
    ['a', '<b>', 3]
    """
    names = (_name(label, where) if isinstance(label, str) else label for label in labels)
    return [name for name in names if not isinstance(name, str) or name]


def bare_uris(names: Iterable[str]) -> list[str]:
    """Names of a format that has URIs in angle brackets, as Annif's tables do: these without them.

    >>> bare_uris(["<http://x/1>", "http://x/2", "<b>", "<>"])
    ['http://x/1', 'http://x/2', '<b>', '<>']
    """
    return [_URI.sub(r"\1", name.strip()) for name in names]


def _name(label: str, where: str) -> str:
    label = label.strip()
    if not label.isascii():
        try:
            label.encode()
        except UnicodeEncodeError as error:
            raise DataFormatError(
                f"{where}{': ' if where else ''}the label {ascii(label)[:60]} holds half a character; write it anew"
            ) from error
    return label
