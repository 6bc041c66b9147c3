"""Work that takes longer than a moment: a few threads, a bounded queue, and a time after which nobody waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from blockxmc.service.problems import busy
from blockxmc.service.settings import Limits

T = TypeVar("T")


class Gate:
    """Runs functions in threads; one more than ``limits.waiting`` is told to come back instead of waiting."""

    def __init__(self, threads: int, limits: Limits) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="answer")
        self._most, self._limits, self._taken = threads + limits.waiting, limits, 0

    async def run(self, work: Callable[..., T], *args: Any, seconds: float | None = None) -> T:
        """The result of ``work(*args)``; whoever waits longer than allowed is told so, and the work ends unheard."""
        if self._taken >= self._most:
            raise busy("the service is busy: too many requests wait for an answer")
        self._taken += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, work, *args)
        # Its place is free when the work is done, not when nobody waits any more.
        future.add_done_callback(self._leave)
        limit = self._limits.answer_seconds if seconds is None else seconds
        done, _ = await asyncio.wait([future], timeout=limit)
        if not done:
            raise busy(f"the answer took longer than {limit:g} s; send fewer or shorter texts at a time")
        return future.result()

    def _leave(self, future: asyncio.Future[Any]) -> None:
        self._taken -= 1
        if not future.cancelled():
            future.exception()  # seen: no warning about an error that nobody fetched

    def close(self) -> None:
        """Let what runs end, and drop what waits."""
        self._pool.shutdown(wait=False, cancel_futures=True)
