"""The log of the library: what estimators with ``verbose`` and commands say, on stderr unless a program takes it."""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING

from blockxmc._core.shown import printable

if TYPE_CHECKING:
    from rich.console import Console

LOG = logging.getLogger("blockxmc")


class LogOnConsole(logging.Handler):
    """Lines on stderr, above the bar."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one line."""
        text = "\n".join(map(printable, record.getMessage().split("\n")))
        console_for_progress().print(text, markup=False, soft_wrap=True)


@cache
def console_for_progress() -> Console:
    """The console that bars and lines share."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def show_log(level: int = logging.INFO, *, unless_handled: bool = False) -> None:
    """Show the log on stderr from this level on; ``unless_handled``: only if the program does nothing with it."""
    quiet = unless_handled and LOG.hasHandlers()
    if not quiet and not any(isinstance(handler, LogOnConsole) for handler in LOG.handlers):
        LOG.addHandler(LogOnConsole())
    LOG.setLevel(LOG.level or level if unless_handled else level)
