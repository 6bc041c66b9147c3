"""Texts as the kernels take them: in batches of valid UTF-8, with a table of what each code point is."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

# Texts at a time: a bar moves, Ctrl-C is heard, and copies in lower case stay small.
BATCH = 8192
_IN_WORD, _SPACE = 1, 2
_ASCII, _UNICODE = 0x80, 0x110000


def batches(texts: Iterable[str], *, lowercase: bool) -> Iterator[tuple[list[str], NDArray[np.uint8]]]:
    """Some texts at a time, and a table that has all of their code points.

    Where case does not count, letters beyond ASCII, which kernels do not know, are in lower case.
    """
    rest = iter(texts)
    while batch := list(itertools.islice(rest, BATCH)):
        plain = [text.isascii() for text in batch]
        if all(plain):
            yield batch, classes(_ASCII)
            continue
        for i in itertools.compress(range(len(batch)), (not ascii for ascii in plain)):
            batch[i] = _without_surrogates(batch[i].lower() if lowercase else batch[i])
        yield batch, classes(_UNICODE)


def _without_surrogates(text: str) -> str:
    """A text that has a form in UTF-8: halves of characters become question marks."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


@functools.cache
def classes(size: int) -> NDArray[np.uint8]:
    r"""What each code point is to a regular expression: 1 where ``\w`` matches, 2 where ``\s`` does.

    >>> classes(128)[[ord(c) for c in "a_ -"]].tolist()
    [1, 1, 2, 0]
    """
    points = np.arange(size, dtype=np.uint32).view("<U1")
    table = np.char.isalnum(points) * np.uint8(_IN_WORD) + np.char.isspace(points) * np.uint8(_SPACE)
    table[ord("_")] = _IN_WORD
    table.flags.writeable = False
    return table


def encoded(words: Sequence[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Strings as UTF-8, one behind the other, and where each ends.

    >>> [part.tolist() for part in encoded(["a", "bc"])]
    [[97, 98, 99], [1, 3]]
    """
    parts = [word.encode("utf-8", "replace") for word in words]
    return np.frombuffer(b"".join(parts), np.uint8), np.cumsum([len(part) for part in parts], dtype=np.int64)


def decoded(words: NDArray[np.uint8], ends: NDArray[np.int64]) -> list[str]:
    """The strings that :func:`encoded` was given."""
    content = words.tobytes()
    stops = ends.tolist()
    return [content[a:b].decode("utf-8", "replace") for a, b in zip([0, *stops], stops, strict=False)]
