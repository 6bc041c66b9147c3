"""What people type: label names in several spellings, rows that stand twice, HTML left in texts."""

from __future__ import annotations

import difflib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

_ENTITY = re.compile(r"&(?:[A-Za-z]{2,8}|#\d{1,6}|#[xX][\dA-Fa-f]{1,5});")
# A name that was cut at the semicolon of an entity.
_CUT_ENTITY = re.compile(r"&(?:amp|lt|gt|quot|apos|nbsp|#\d{1,6})$")

# Names among which near ones are looked for: a second for all of them.
_COMPARED = 100_000


def folded(name: str) -> str:
    """A name without what people type differently: case, and the number of spaces.

    >>> folded("Cats  and dogs") == folded("cats and Dogs")
    True
    """
    return " ".join(name.split()).casefold()


def fold_labels(labels: Iterable[Iterable[Any]], known: Iterable[Any] = ()) -> list[list[Any]]:
    """Label lists in which names that differ only in case or spaces are one: the ``known`` or most frequent spelling.

    >>> fold_labels([["Cats"], ["cats", "dogs"], ["cats"]])
    [['cats'], ['cats', 'dogs'], ['cats']]
    >>> fold_labels([["cats"]], known=["Cats"])
    [['Cats']]
    """
    rows = [list(row) for row in labels]
    counts = Counter(name for row in rows for name in row if isinstance(name, str))
    spelled = {folded(name): name for name in sorted(counts, key=lambda name: (counts[name], name))}
    spelled |= {folded(name): name for name in known if isinstance(name, str)}
    return [
        list(dict.fromkeys(spelled[folded(name)] if isinstance(name, str) else name for name in row)) for row in rows
    ]


def spelled_alike(names: Iterable[Any]) -> str | None:
    """What to say of names that differ only in case or spaces.

    >>> spelled_alike(["Cats", "cats", "dogs"])
    '2 of 3 label names differ from another only in case or spaces, like "Cats" and "cats"'
    """
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        groups[folded(str(name))].append(str(name))
    several = [sorted(groups[key]) for key in sorted(groups) if len(groups[key]) > 1]
    if not several:
        return None
    like = "; ".join(" and ".join(f'"{name}"' for name in group[:2]) for group in several[:3])
    count, total = sum(map(len, several)), sum(map(len, groups.values()))
    return f"{count:,} of {total:,} label names differ from another only in case or spaces, like {like}"


def remarks(texts: Sequence[str], labels: Sequence[Sequence[str]]) -> list[str]:
    """What to say of rows that stand there twice, and of HTML.

    >>> remarks(["a &amp; b", "red", "red"], [["x"], ["y"], ["y"]])
    ['1 of 3 rows stand there before, with the same text and labels', '1 of 3 texts hold HTML like &amp;: ...']
    """
    found = []
    if twice := len(texts) - len({(text, *row) for text, row in zip(texts, labels, strict=True)}):
        found.append(f"{twice:,} of {len(texts):,} rows stand there before, with the same text and labels")
    marked = [match[0] for text in texts if (match := _ENTITY.search(text))]
    remedy = "html.unescape in Python makes them characters"
    if marked:
        found.append(f"{len(marked):,} of {len(texts):,} texts hold HTML like {marked[0]}: {remedy}")
    names = {name for row in labels for name in row}
    if like := sorted(name for name in names if _ENTITY.search(name) or _CUT_ENTITY.search(name)):
        found.append(f'{len(like):,} of {len(names):,} label names hold HTML, like "{like[0]}": {remedy}')
    return found


def near_names(name: str, names: Sequence[str], most: int = 3) -> list[str]:
    """Names that somebody may have meant; none of very many names, which would take seconds to compare.

    >>> near_names("kats", ["cats", "dogs", "Cats "])
    ['Cats ', 'cats']
    """
    known: defaultdict[str, list[str]] = defaultdict(list)
    for other in names if len(names) <= _COMPARED else ():
        known[folded(other)].append(other)
    near = difflib.get_close_matches(folded(name), known, most)
    return [other for key in near for other in sorted(known[key])][:most]
