"""What a tuning run has found already: each trial is made once, and kept where the run has a folder."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from blockxmc._core.matrix import matrix_digest
from blockxmc.errors import BlockXMCError
from blockxmc.training.job import Job, opened
from blockxmc.tuning.problem import Problem


class OutOfTimeError(BlockXMCError):
    """The time for a run is over; where it has a folder, the same call goes on from what it found."""


class Notebook:
    """Named results of one part of a run. After ``stop_at`` nothing is computed.

    >>> book = Notebook(Job())
    >>> book.once("base", lambda: {"P@1": 60.0}), book.once("base", lambda: {"P@1": 0.0})
    ({'P@1': 60.0}, {'P@1': 60.0})
    """

    def __init__(self, job: Job, stop_at: float | None = None) -> None:
        self._job, self._stop_at = job, stop_at
        self._entries: dict[str, dict[str, Any]] = {}

    def once(self, name: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The entry of this name, computed now and kept where there is none."""
        if name not in self._entries:
            self._entries[name] = self._job.stage(name, lambda: self._in_time(compute))
        return self._entries[name]

    @property
    def entries(self) -> list[dict[str, Any]]:
        """All that was found."""
        return list(self._entries.values())

    def _in_time(self, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        if self._stop_at is not None and time.time() > self._stop_at:
            raise OutOfTimeError("the time for this run is over")
        return compute()


def opened_job(problem: Problem, setting: dict[str, Any], *, keep: bool = True) -> AbstractContextManager[Job]:
    """The job of a tuning run of these data and this setting, in the folder of its options."""
    if problem.options.work is None or not keep:
        return opened(None, {}, problem.reporter)
    identity = {"data": matrix_digest(problem.X, problem.Y)[:16], "ks": problem.task.ks, **setting}
    return opened(problem.options.work, identity, problem.reporter)
