"""Who may work on a job: a worker that runs the same code and reads the same data.

Dask sends this to every worker, and to those that join later. It is sent as source, not by name: a worker with another
version of the library, or with none, must be able to say so.
"""

from __future__ import annotations

import asyncio
from typing import Any

from distributed import Worker, WorkerPlugin


class Admission(WorkerPlugin):  # type: ignore[misc]
    """A worker makes itself ready for a job, and tells under ``name`` that it is, or why it cannot be."""

    def __init__(self, name: str, run: str, version: str, task: bytes) -> None:
        self.name, self._run, self._version, self._task = name, run, version, task
        self._preparing: Any = None

    def setup(self, worker: Worker) -> None:
        """Begin to prepare, without holding up what the worker does for others."""
        self._preparing = asyncio.ensure_future(self._admit(worker))

    def teardown(self, worker: Worker) -> None:
        """The job has ended: let go of its data."""
        self._preparing.cancel()
        if self._version == _version():
            from blockxmc.distributed.worker import forget

            forget(self._task)

    async def _admit(self, worker: Worker) -> None:
        reason = None
        if self._version != _version():
            reason = f"it has {_version()}, the job needs {self._version}"
        else:
            try:
                from blockxmc.distributed.worker import prepare

                await asyncio.to_thread(prepare, self._task)
            except Exception as error:
                reason = str(error) or type(error).__name__
        who = {"worker": str(worker.name), "address": worker.address, "threads": worker.state.nthreads}
        worker.log_event(self.name, who | {"run": self._run, "refused": reason})


def _version() -> str:
    try:
        from blockxmc._version import __version__
        from blockxmc.training.job import code_digest
    except Exception as error:
        return f"no usable blockxmc ({error})"
    return f"blockxmc {__version__}, code {code_digest()}"
