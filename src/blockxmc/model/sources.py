"""Where training rows come from: what their file calls them, and their first words, so that people find the evidence."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from blockxmc._core import stored
from blockxmc.errors import BlockXMCError, ModelFormatError
from blockxmc.model.explanations import Explanation, Neighbor

# Rows that are compressed together: fewer compress worse, more take longer to look at one.
ROWS_TOGETHER = 64
TITLE_CHARS = 60
# What a damaged chunk may unpack to at most.
_MOST_BYTES = 1 << 28


class Source(NamedTuple):
    """What is known of a training row: its id in the file, and its text (the first words where rows are not kept)."""

    id: str | None
    text: str

    @property
    def title(self) -> str:
        """The first words.

        >>> Source("b1", "A  history of printing").title
        'A history of printing'
        """
        words = " ".join(self.text[: 4 * TITLE_CHARS].split())
        if len(words) <= TITLE_CHARS:
            return words
        return words[:TITLE_CHARS].rsplit(" ", 1)[0] + " ..."


UNKNOWN = Source(None, "")
_FORM: dict[str, Any] = {"packed": np.uint8, "rows": np.int64, "ends": np.int64}


@dataclass(frozen=True)
class Sources:
    """The sources of training rows in compressed chunks; ``rows`` and ``ends`` say where each chunk ends.

    >>> sources = Sources.of([Source("b1", "red apple"), Source(None, "ship")], whole=True)
    >>> sources[1].text, sources.extended(3, [Source("b4", "pear")])[3].id, sources[7].id
    ('ship', 'b4', None)
    >>> sources.without(np.array([True, False]))[0].text
    'ship'
    """

    whole: bool  # whether texts are kept, not their first words alone
    packed: NDArray[np.uint8]
    rows: NDArray[np.int64]
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, sources: Iterable[Source], *, whole: bool) -> Self:
        """The sources of rows from the first on."""
        given = [list(source) if whole else [source.id, source.title] for source in sources]
        parts = [given[i : i + ROWS_TOGETHER] for i in range(0, len(given), ROWS_TOGETHER)]
        chunks = [zlib.compress(json.dumps(part).encode()) for part in parts]
        rows, ends = (np.cumsum([len(x) for x in of], dtype=np.int64) for of in (parts, chunks))
        return cls(whole, np.frombuffer(b"".join(chunks), np.uint8), rows, ends)

    def __len__(self) -> int:
        return int(self.rows[-1]) if self.rows.size else 0

    def __getitem__(self, row: int) -> Source:
        """What is known of a row; nothing of rows that were added without it."""
        if not 0 <= row < len(self):
            return UNKNOWN
        chunk = int(np.searchsorted(self.rows, row, side="right"))
        return self._chunk(chunk)[row - int(self.rows[chunk])]  # counted from the end of the chunk

    def _chunk(self, number: int) -> list[Source]:
        """The sources of one chunk, checked: they come from a file."""
        first, last = (int(self.ends[i]) if i >= 0 else 0 for i in (number - 1, number))
        size = int(self.rows[number]) - (int(self.rows[number - 1]) if number else 0)
        try:
            content = zlib.decompressobj().decompress(self.packed[first:last].tobytes(), _MOST_BYTES)
            found = [Source(name, text) for name, text in json.loads(content)]
        except (zlib.error, ValueError, TypeError, RecursionError) as error:
            raise ModelFormatError(f"the titles of training rows are damaged: {error}") from None
        if len(found) != size or any(type(s.text) is not str or type(s.id) not in (str, type(None)) for s in found):
            raise ModelFormatError("the titles of training rows are damaged")
        return found

    def extended(self, n_before: int, sources: Iterable[Source]) -> Self:
        """With those of new rows behind ``n_before`` rows, of which the last may be unknown."""
        more = Sources.of([*[UNKNOWN] * (n_before - len(self)), *sources], whole=self.whole)
        rows, ends = (self.rows, more.rows + len(self)), (self.ends, more.ends + self.packed.size)
        joined = np.concatenate([self.packed, more.packed]), np.concatenate(rows), np.concatenate(ends)
        return type(self)(self.whole, *joined)

    def without(self, dropped: NDArray[np.bool_]) -> Self:
        """Without the sources of some rows; the later ones move up."""
        known = [source for number in range(self.rows.size) for source in self._chunk(number)]
        kept = [source for source, gone in zip(known, dropped, strict=False) if not gone]
        return type(self).of(kept, whole=self.whole)

    def check(self) -> None:
        """Read all of it."""
        for number in range(self.rows.size):
            self._chunk(number)

    def state(self) -> dict[str, Any]:
        """What the model directory keeps."""
        return dict(vars(self))

    @classmethod
    def from_state(cls, state: dict[str, Any], n_rows: int) -> Self:
        """Take back what ``state`` gave."""
        try:
            parts = [stored.array(state[name], f"{name} of sources", kind, (None,)) for name, kind in _FORM.items()]
            found = cls(state["whole"] is True, *parts)
        except (KeyError, TypeError) as error:
            raise ModelFormatError(f"the sources of training rows are incomplete: {error}") from None
        for ends, size in ((found.ends, found.packed.size), (found.rows, n_rows)):
            ordered = bool((np.diff(ends, prepend=0) > 0).all()) and (not ends.size or int(ends[-1]) <= size)
            stored.require(
                ordered and ends.size == found.rows.size, "the sources of training rows do not fit the model"
            )
        return found


def with_sources(found: list[Explanation], sources: Sources) -> list[Explanation]:
    """Explanations whose neighbors say where they come from."""
    known = {near.row: sources[near.row] for why in found for near in why.neighbors}

    def named(near: Neighbor) -> Neighbor:
        source = known[near.row]
        text = source.text if sources.whole else None
        return replace(near, id=source.id, title=source.title or None, text=text)

    return [replace(why, neighbors=[named(near) for near in why.neighbors]) for why in found]


def sources_of(texts: list[str], ids: Any) -> list[Source]:
    """Where rows come from: their ids and texts."""
    names = [None] * len(texts) if ids is None else [str(name) for name in ids]
    if len(names) != len(texts):
        raise BlockXMCError(f"{len(names)} ids for {len(texts)} texts")
    return [Source(name, text) for name, text in zip(names, texts, strict=True)]
