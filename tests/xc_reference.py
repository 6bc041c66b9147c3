"""A slow, plain reader of XC text: what the compiled one is compared with."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

FLOAT = re.compile(rb"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\Z")
HEADER = re.compile(rb"[ \t]*(\d+)[ \t]+(\d+)[ \t]+(\d+)[ \t\r]*\Z")
LIMIT = 2**31 - 1


class Refused(Exception):
    """Line (from 1; 0: the file as a whole) and a word for what is wrong."""

    def __init__(self, line: int, kind: str) -> None:
        super().__init__(line, kind)
        self.line, self.kind = line, kind


@dataclass
class Reference:
    n_features: int
    n_labels: int
    rows: list[dict[int, np.float32]] = field(default_factory=list)
    labels: list[list[int]] = field(default_factory=list)


def exact_float32(token: bytes) -> np.float32:
    """The float32 nearest to a decimal number, ties to even, by rational arithmetic; inf when it overflows."""
    text = token.decode()
    digits, _, exponent = text.lower().partition("e")
    # Far outside the range of a float; also keeps the fraction below from growing without bound.
    if exponent and abs(int(exponent)) > 5000:
        nonzero = any(c in "123456789" for c in digits)
        return np.float32(math.inf if nonzero and int(exponent) > 0 else 0.0)
    exact = Fraction(text.lstrip("+"))
    if abs(exact) >= Fraction(2) ** 128 - Fraction(2) ** 103:
        return np.float32(math.inf if exact > 0 else -math.inf)
    with np.errstate(over="ignore", under="ignore"):
        guess = np.float32(float(exact))
        candidates = {guess, np.nextafter(guess, np.float32(-np.inf)), np.nextafter(guess, np.float32(np.inf))}
    finite = [c for c in candidates if np.isfinite(c)]
    return min(finite, key=lambda c: (abs(Fraction(float(c)) - exact), int(c.view(np.uint32)) & 1))


def read_reference(content: bytes) -> Reference:
    if not content:
        raise Refused(0, "empty")
    content = content.removeprefix(b"\xef\xbb\xbf")
    lines = content.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    header = HEADER.match(lines[0]) if lines else None
    declared = tuple(int(x) for x in header.groups()) if header else None
    if declared and (declared[1] > LIMIT or declared[2] > LIMIT):
        raise Refused(1, "size")
    d_limit, m_limit = (declared[1], declared[2]) if declared else (LIMIT, LIMIT)
    first = 2 if declared else 1
    body = lines[1:] if declared else lines
    trailing = 0
    while trailing < len(body) and body[len(body) - 1 - trailing] in (b"", b"\r"):
        trailing += 1
    result = Reference(-1, -1)
    for number, line in enumerate(body, first):
        if declared and number - first >= declared[0] and number - first < len(body) - trailing:
            raise Refused(declared[0] + 2, "rows")
        _read_row(line, number, d_limit, m_limit, result)
    n = len(body)
    if declared:
        if n < declared[0]:
            raise Refused(1, "rows")
        n = declared[0]
    else:
        n -= trailing
        if n == 0:
            raise Refused(0, "no rows")
    del result.rows[n:], result.labels[n:]
    result.n_features = d_limit if declared else result.n_features + 1
    result.n_labels = m_limit if declared else result.n_labels + 1
    for size, rows in ((result.n_features, result.rows), (result.n_labels, result.labels)):
        stored = [j for row in rows for j in row]
        if size > 2**24 and size > 100 * min(len(stored), max(stored, default=-1) + 1):
            raise Refused(0, "width")
    return result


def _read_row(line: bytes, number: int, d_limit: int, m_limit: int, result: Reference) -> None:
    tokens = re.findall(rb"[^ \t\r]+", line)
    labels: list[int] = []
    if tokens and line[:1] not in (b" ", b"\t", b"\r") and not re.match(rb"\d+:", tokens[0]):
        field_ = tokens.pop(0)
        rest = field_
        for token in field_.split(b","):
            good = re.fullmatch(rb"\d+", token) is not None
            if b"\0" in rest and (not good or int(token) >= m_limit):
                raise Refused(number, "nul")
            rest = rest[len(token) + 1 :]
            if not re.fullmatch(rb"\d+", token):
                raise Refused(number, "negative" if token.startswith(b"-") else "label")
            if int(token) >= m_limit:
                raise Refused(number, "range")
            labels.append(int(token))
    sums: dict[int, float] = {}
    for token in tokens:
        index, colon, value = token.partition(b":")
        if not colon or not re.fullmatch(rb"\d+", index):
            raise Refused(number, "nul" if b"\0" in token else "negative" if token.startswith(b"-") else "feature")
        if int(index) >= d_limit:
            raise Refused(number, "nul" if b"\0" in token else "range")
        if not FLOAT.match(value):
            unsigned = value.removeprefix(b"-") if value.startswith(b"-") else value.removeprefix(b"+")
            finite = unsigned[:1].lower() not in (b"n", b"i")
            raise Refused(number, "nul" if b"\0" in token else "value" if finite else "finite")
        number_ = exact_float32(value)
        if not np.isfinite(number_):
            raise Refused(number, "large")
        result.n_features = max(result.n_features, int(index))
        if number_ != 0:
            sums[int(index)] = sums.get(int(index), 0.0) + float(number_)
    with np.errstate(over="ignore", under="ignore"):
        row = {j: np.float32(v) for j, v in sorted(sums.items())}
    if not all(np.isfinite(v) for v in row.values()):
        raise Refused(number, "large")
    result.n_labels = max([result.n_labels, *labels])
    result.rows.append({j: v for j, v in row.items() if v != 0})
    result.labels.append(sorted(set(labels)))


# Words of the reader's messages -> the kinds above.
KINDS = {
    "NUL": "nul",
    "is not a label id": "label",
    "is not feature:value": "feature",
    "negative": "negative",
    "out of range": "range",
    "not a number": "value",
    "not finite": "finite",
    "too large": "large",
    "GB of memory": "width",
    "header says": "rows",
    "not between 0 and": "size",
    "is empty": "empty",
    "holds no rows": "no rows",
}


def compare(read, path, content: bytes) -> str:
    """Read ``content`` both ways; raise AssertionError where they differ, else say how it ended."""
    from blockxmc.errors import DataFormatError

    path.write_bytes(content)
    try:
        want: Reference | Refused = read_reference(content)
    except Refused as refused:
        want = refused
    try:
        got = read(path)
    except DataFormatError as error:
        message = str(error)
        assert isinstance(want, Refused), f"refused: {message}"
        line = re.search(r": line (\d+): ", message)
        assert (int(line[1]) if line else 0) == want.line, (message, want)
        kind = next(kind for words, kind in KINDS.items() if words in message)
        assert kind == want.kind, (message, want)
        assert "\n" not in message
        assert str(path) in message
        return kind
    assert isinstance(want, Reference), f"should be refused: {want}"
    assert got.X.shape == (len(want.rows), want.n_features)
    assert got.Y.shape == (len(want.rows), want.n_labels)
    for matrix, rows in ((got.X, want.rows), (got.Y, want.labels)):
        assert np.diff(matrix.indptr).tolist() == [len(row) for row in rows]
        assert matrix.indices.tolist() == [j for row in rows for j in row]
    values = np.array([v for row in want.rows for v in row.values()], dtype=np.float32)
    assert np.array_equal(got.X.data.view(np.uint32), values.view(np.uint32))
    assert (got.Y.data == 1).all()
    return "read"
