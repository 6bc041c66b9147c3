"""Wall and CPU seconds spent in named methods while something larger runs."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple


class Spent(NamedTuple):
    """Seconds by the clock and of all processors together."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> Spent:
        """Both clocks."""
        return cls(time.perf_counter(), time.process_time())

    def since(self, start: Spent) -> Spent:
        """What has passed from ``start`` to here."""
        return Spent(self.wall - start.wall, self.cpu - start.cpu)


@contextmanager
def stopwatch(**methods: tuple[type, str]) -> Iterator[dict[str, list[Spent]]]:
    """What every call of the named methods took; a call inside a call of the same method is not counted again.

    ``fit`` does not tell how long its parts took. Timing the parts where they are defined keeps the measurement out of the
    library and needs no second training.

    >>> class Cook:
    ...     def boil(self): return "soup"
    >>> with stopwatch(cooking=(Cook, "boil")) as seconds:
    ...     _ = Cook().boil()
    >>> len(seconds["cooking"]), Cook.boil.__name__
    (1, 'boil')
    """
    seconds: dict[str, list[Spent]] = defaultdict(list)
    originals = [(owner, method, vars(owner)[method]) for owner, method in methods.values()]
    for name, (owner, method) in methods.items():
        setattr(owner, method, _timed(vars(owner)[method], seconds[name]))
    try:
        yield seconds
    finally:
        for owner, method, original in originals:
            setattr(owner, method, original)


def _timed(original: Any, calls: list[Spent]) -> Any:
    function = original.__func__ if isinstance(original, classmethod) else original
    running = 0

    @functools.wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        nonlocal running
        running += 1
        start = Spent.now()
        try:
            return function(*args, **kwargs)
        finally:
            running -= 1
            if not running:
                calls.append(Spent.now().since(start))

    return classmethod(timed) if isinstance(original, classmethod) else timed
