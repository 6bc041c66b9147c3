"""What a tuning run has found already: each trial is made once, and kept where the run has a folder."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from blockxmc._core.matrix import matrix_digest
from blockxmc.training.job import Job, opened
from blockxmc.tuning.problem import Problem


class Notebook:
    """Named results of one part of a run.

    >>> book = Notebook(Job())
    >>> book.once("base", lambda: {"P@1": 60.0}), book.once("base", lambda: {"P@1": 0.0})
    ({'P@1': 60.0}, {'P@1': 60.0})
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._entries: dict[str, dict[str, Any]] = {}

    def once(self, name: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The entry of this name, computed now and kept where there is none."""
        if name not in self._entries:
            self._entries[name] = self._job.stage(name, compute)
        return self._entries[name]


def opened_job(problem: Problem, setting: dict[str, Any], *, keep: bool = True) -> AbstractContextManager[Job]:
    """The job of a tuning run of these data and this setting, in the folder of its options."""
    if problem.options.work is None or not keep:
        return opened(None, {}, problem.reporter)
    identity = {"data": matrix_digest(problem.X, problem.Y)[:16], "ks": problem.task.ks, **setting}
    return opened(problem.options.work, identity, problem.reporter)
