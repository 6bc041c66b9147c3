"""Estimators that one thread changes while others read them: one lock, one swap of the whole state."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

E = TypeVar("E")
Method = TypeVar("Method", bound=Callable[..., Any])

# Beside the estimators, which are copied and pickled: a lock is neither.
_LOCKS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def lock_of(estimator: Any) -> Any:
    """The lock that whoever changes this estimator holds."""
    return _LOCKS.setdefault(estimator, RLock())


def draft(estimator: E) -> E:
    """A copy of the estimator, in which attributes can be set without changing it."""
    return _with_state(estimator, dict(vars(estimator)))


def swapped(estimator: Any, **fitted: Any) -> None:
    """Set attributes of the estimator in one step: others read all of the old ones, or all of the new ones."""
    estimator.__dict__ = vars(estimator) | fitted


def of_one_version(method: Method) -> Method:
    """A method that reads the estimator as it is when it is called, whatever is swapped meanwhile."""

    @wraps(method)
    def reading(self: Any, *args: Any, **kwargs: Any) -> Any:
        return method(_with_state(self, vars(self)), *args, **kwargs)

    return cast(Method, reading)


def _with_state(estimator: E, state: dict[str, Any]) -> E:
    out = object.__new__(type(estimator))
    out.__dict__ = state
    return out
