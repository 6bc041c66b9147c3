"""Seconds spent in named methods while something larger runs."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stopwatch(**methods: tuple[type, str]) -> Iterator[dict[str, list[float]]]:
    """Wall seconds of every call of the named methods, innermost re-entries counted once.

    A classifier's ``fit`` does not tell how long its parts took; timing the parts where they are defined keeps the
    measurement out of the library and needs no second training.

    >>> class Cook:
    ...     def boil(self): return "soup"
    >>> with stopwatch(cooking=(Cook, "boil")) as seconds:
    ...     _ = Cook().boil()
    >>> len(seconds["cooking"]), Cook.boil.__name__
    (1, 'boil')
    """
    seconds: dict[str, list[float]] = defaultdict(list)
    originals = [(owner, method, vars(owner)[method]) for owner, method in methods.values()]
    for name, (owner, method) in methods.items():
        setattr(owner, method, _timed(vars(owner)[method], seconds[name]))
    try:
        yield seconds
    finally:
        for owner, method, original in originals:
            setattr(owner, method, original)


def _timed(original: Any, calls: list[float]) -> Any:
    function = original.__func__ if isinstance(original, classmethod) else original
    running = 0

    @functools.wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        nonlocal running
        running += 1
        start = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            running -= 1
            if not running:
                calls.append(time.perf_counter() - start)

    return classmethod(timed) if isinstance(original, classmethod) else timed
