"""What a JSON body may hold: each shape reads a value, or says in one line what is wrong, and knows its JSON schema.

The OpenAPI description is made from the same shapes that read requests, so the description cannot be wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from blockxmc.service.problems import Problem


def wrong(where: str, what: str) -> Problem:
    """A value that cannot be used."""
    return Problem(422, f"{where} must be {what}")


class Shape(Protocol):
    """A kind of JSON value."""

    def read(self, value: Any, where: str) -> Any:
        """The value as the service uses it; a problem where it has another shape."""

    def schema(self) -> dict[str, Any]:
        """The shape as a JSON schema."""


@dataclass(frozen=True)
class Text:
    """A string of at most so many characters.

    >>> Text(3).read("abcd", "text")
    Traceback (most recent call last):
        ...
    blockxmc.service.problems.Problem: text must be a string of at most 3 characters
    """

    most: int

    def read(self, value: Any, where: str) -> str:
        """The string."""
        if not isinstance(value, str) or len(value) > self.most:
            raise wrong(where, f"a string of at most {self.most} characters")
        return value

    def schema(self) -> dict[str, Any]:
        """The shape as a JSON schema."""
        return {"type": "string", "maxLength": self.most}


@dataclass(frozen=True)
class Whole:
    """A whole number in a range."""

    least: int
    most: int

    def read(self, value: Any, where: str) -> int:
        """The number; 5.0 is one too, as in JSON schemas."""
        whole = int(value) if isinstance(value, float) and value.is_integer() else value
        if isinstance(whole, bool) or not isinstance(whole, int) or not self.least <= whole <= self.most:
            raise wrong(where, f"a whole number from {self.least} to {self.most}")
        return whole

    def schema(self) -> dict[str, Any]:
        """The shape as a JSON schema."""
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True)
class Number:
    """A number."""

    most: float = 1e30

    def read(self, value: Any, where: str) -> float:
        """The number as a float."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise wrong(where, "a number")
        if not math.isfinite(value) or abs(value) > self.most:
            raise wrong(where, f"a number from -{self.most:g} to {self.most:g}")
        return float(value)

    def schema(self) -> dict[str, Any]:
        """The shape as a JSON schema."""
        return {"type": "number", "minimum": -self.most, "maximum": self.most}


@dataclass(frozen=True)
class Word:
    """One fixed string, or null for None."""

    value: str | None

    def read(self, value: Any, where: str) -> str | None:
        """The string."""
        if value != self.value:
            raise wrong(where, "null" if self.value is None else f'"{self.value}"')
        return self.value

    def schema(self) -> dict[str, Any]:
        """The shape as a JSON schema."""
        return {"type": "null"} if self.value is None else {"const": self.value}


class Either:
    """One of several shapes.

    >>> Either(Word("f1"), Number()).read([], "threshold")
    Traceback (most recent call last):
        ...
    blockxmc.service.problems.Problem: threshold must be "f1" or a number
    """

    def __init__(self, *shapes: Shape) -> None:
        self.shapes = shapes

    def read(self, value: Any, where: str) -> Any:
        """The value as the first shape that fits it reads it."""
        found = []
        for shape in self.shapes:
            try:
                return shape.read(value, where)
            except Problem as problem:
                found.append(problem.detail.removeprefix(f"{where} must be "))
        raise wrong(where, " or ".join(found))

    def schema(self) -> dict[str, Any]:
        """The shape as a JSON schema."""
        return {"anyOf": [shape.schema() for shape in self.shapes]}


@dataclass(frozen=True)
class ListOf:
    """A list of values of one shape."""

    item: Shape
    most: int
    least: int = 0

    def read(self, value: Any, where: str) -> list[Any]:
        """The list."""
        if not isinstance(value, list) or not self.least <= len(value) <= self.most:
            at_least = f"at least {self.least} and " if self.least else ""
            raise wrong(where, f"a list of {at_least}at most {self.most} values")
        return [self.item.read(item, f"{where}[{i}]") for i, item in enumerate(value)]

    def schema(self) -> dict[str, Any]:
        """The shape as a JSON schema."""
        return {"type": "array", "items": self.item.schema(), "minItems": self.least, "maxItems": self.most}


@dataclass(frozen=True)
class Named:
    """An object with values of one shape under names that nobody knows before.

    >>> Named(Whole(0, 9), 5).read({"a": 10}, "labels")
    Traceback (most recent call last):
        ...
    blockxmc.service.problems.Problem: labels['a'] must be a whole number from 0 to 9
    """

    item: Shape
    most: int
    chars: int = 2000  # of a name

    def read(self, value: Any, where: str) -> dict[str, Any]:
        """The values by name."""
        few = isinstance(value, dict) and 1 <= len(value) <= self.most
        if not few or any(len(name) > self.chars for name in value):
            raise wrong(where, f"an object with 1 to {self.most} names of at most {self.chars} characters")
        return {name: self.item.read(item, f"{where}[{name[:40]!r}]") for name, item in value.items()}

    def schema(self) -> dict[str, Any]:
        """The shape as a JSON schema."""
        names = {"maxLength": self.chars}
        sizes = {"minProperties": 1, "maxProperties": self.most, "propertyNames": names}
        return {"type": "object", "additionalProperties": self.item.schema(), **sizes}


@dataclass(frozen=True)
class Object:
    """An object with these members and no others; ``one_of`` lists members of which exactly one is given."""

    members: Mapping[str, Shape]
    required: tuple[str, ...] = ()
    one_of: tuple[str, ...] = ()

    def read(self, value: Any, where: str = "the body") -> dict[str, Any]:
        """The members that are given."""
        if not isinstance(value, dict):
            raise wrong(where, "a JSON object")
        if strange := [name for name in value if name not in self.members]:
            known = ", ".join(self.members)
            raise Problem(422, f"{where} has an unknown member {strange[0][:40]!r}; it may have {known}")
        if missing := [name for name in self.required if name not in value]:
            raise Problem(422, f"{where} lacks {missing[0]}")
        if self.one_of and sum(name in value for name in self.one_of) != 1:
            raise Problem(422, f"{where} must have exactly one of {', '.join(self.one_of)}")
        inside = "" if where == "the body" else f"{where}."
        return {name: self.members[name].read(item, f"{inside}{name}") for name, item in value.items()}

    def schema(self) -> dict[str, Any]:
        """The shape as a JSON schema."""
        found: dict[str, Any] = {
            "type": "object",
            "properties": {name: shape.schema() for name, shape in self.members.items()},
            "additionalProperties": False,
        }
        if self.required:
            found["required"] = list(self.required)
        if self.one_of:
            found["oneOf"] = [{"required": [name]} for name in self.one_of]
        return found
