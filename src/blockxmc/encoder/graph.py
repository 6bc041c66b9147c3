"""What an ONNX file may not hold: data that lies in other files. Read without the onnx package."""

from __future__ import annotations

from blockxmc.errors import ModelFormatError

# Fields of the messages through which tensors are reached (onnx.proto): field number -> what it holds.
_FIELDS: dict[str, dict[int, str]] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}
EXTERNAL_DATA, DATA_LOCATION = 13, 14
MOST_NESTING = 16


def refuse_external(model: bytes | memoryview) -> None:
    """Refuse a graph of which some tensor lies in another file.

    >>> refuse_external(b"")
    >>> refuse_external(bytes([7 << 3 | 2, 4, 5 << 3 | 2, 2, 14 << 3, 1]))
    Traceback (most recent call last):
        ...
    blockxmc.errors.ModelFormatError: the model's encoder refers to other files, which is not allowed; train it again
    """
    try:
        _walk(memoryview(model), "model", 0)
    except (IndexError, RecursionError):
        raise ModelFormatError("the model's encoder is no ONNX graph; copy or train it again") from None


def _walk(message: memoryview, kind: str, depth: int) -> None:
    if depth > MOST_NESTING:
        raise RecursionError
    at, inner = 0, _FIELDS.get(kind, {})
    while at < len(message):
        key, at = _varint(message, at)
        field, wire = key >> 3, key & 7
        if kind == "tensor" and field in (EXTERNAL_DATA, DATA_LOCATION):
            value = _varint(message, at)[0] if wire == 0 else 1
            if value:
                raise ModelFormatError(
                    "the model's encoder refers to other files, which is not allowed; train it again"
                )
        if wire == 0:
            _, at = _varint(message, at)
            continue
        if wire == 2:
            size, at = _varint(message, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise IndexError
        if at + size > len(message):
            raise IndexError
        if wire == 2 and field in inner:
            _walk(message[at : at + size], inner[field], depth + 1)
        at += size


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """A number of variable length, and where it ends."""
    value = shift = 0
    while shift < 70:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    raise IndexError
