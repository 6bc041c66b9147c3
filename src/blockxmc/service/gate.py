"""Work that takes longer than a moment: a few threads, a bounded queue, and a time after which nobody waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, TypeVar

from blockxmc.service.problems import busy
from blockxmc.service.settings import Limits

T = TypeVar("T")
# Of the work in this thread: set when nobody waits for it any more.
_given_up: ContextVar[threading.Event] = ContextVar("_given_up")


class Gate:
    """Runs functions in threads; one more than ``limits.waiting`` is told to come back instead of waiting."""

    def __init__(self, threads: int, limits: Limits) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="answer")
        self._limits, self._places = limits, threading.Semaphore(threads + limits.waiting)

    async def run(self, work: Callable[..., T], *args: Any, seconds: float | None = None) -> T:
        """The result of ``work(*args)``; whoever waits longer than allowed is told so.

        Work that has not begun then never begins; work that has ends where it asks whether it is wanted.
        """
        if not self._places.acquire(blocking=False):
            raise busy("the service is busy: too many requests wait for an answer")
        given_up = threading.Event()
        future = self._pool.submit(_run, given_up, work, args)
        # Its place is free when the work is done, not when nobody waits any more.
        future.add_done_callback(lambda done: self._places.release())
        limit = self._limits.answer_seconds if seconds is None else seconds
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), limit)
        except TimeoutError:
            raise busy(f"the answer took longer than {limit:g} s; send fewer or shorter texts at a time") from None
        finally:
            given_up.set()

    def close(self) -> None:
        """Let what runs end, and drop what waits."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _run(given_up: threading.Event, work: Callable[..., T], args: tuple[Any, ...]) -> T:
    _given_up.set(given_up)
    return work(*args)


def check_wanted() -> None:
    """End the work of this thread if nobody waits for it any more."""
    given_up = _given_up.get(None)
    if given_up is not None and given_up.is_set():
        raise busy("nobody waits for this answer any more")
