"""The command line: one small file per command, imported only when its command runs."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import takewhile
from typing import Annotated, Any, NoReturn

import typer

from blockxmc._core.log import show_log

# Command -> module under blockxmc.cli that defines a function of the module's own name.
COMMANDS: dict[str, str] = {
    "demo": "demo",
    "train": "train",
    "update": "update",
    "estimate": "estimate",
    "predict": "predict",
    "evaluate": "evaluate",
    "explain": "explain",
    "inspect": "inspect",
    "partition": "partition",
    "tune": "tune",
    "stats": "stats",
    "convert": "convert",
    "experiment": "experiment",
    "serve": "serve",
}
# Command -> what may come next; {0} and {1} are the first words behind the command.
NEXT: dict[str, str] = {
    "stats": "blockxmc train {0} --model model/",
    "estimate": "blockxmc train {0} --model model/",
    "partition": "blockxmc train {0} --model model/",
    "convert": "blockxmc train {1} --model model/",
    "predict": 'blockxmc explain {0} "a text or a file"',
    "evaluate": 'blockxmc explain {0} "a text or a file"',
    "explain": "blockxmc serve {0}",
    "inspect": "blockxmc serve {0}",
    "update": "blockxmc evaluate {0} TEST",
}
BAD_INPUT, DEFECT, INTERRUPTED = 2, 1, 130
TRACEBACK = "BLOCKXMC_TRACEBACK"

app = typer.Typer(
    name="blockxmc",
    help="Assign labels when there are thousands to millions of them: train, predict, explain, evaluate, serve.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from blockxmc import __version__

        print(f"blockxmc {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


for _name, _module in COMMANDS.items():
    app.command(_name)(getattr(import_module(f"blockxmc.cli.{_module}"), _module))


def main(args: list[str] | None = None) -> Any:
    """Run a command: bad input is one line on stderr and exit code 2, Ctrl-C and SIGTERM are exit code 130."""
    if sys.stderr is None:  # closed: print(file=None) would write to standard output
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - it stays open as long as the program runs
    if sys.stdout is None:
        _end(BAD_INPUT, "error: standard output is closed; redirect it to a file or to /dev/null")
    show_log()
    try:
        with _signals_as_interrupts():
            _run(args)
    except KeyboardInterrupt:
        _end(INTERRUPTED, "interrupted: nothing half-written was left behind")
    except (ValueError, OSError, MemoryError) as error:
        from blockxmc.errors import BlockXMCError

        if not isinstance(error, (BlockXMCError, OSError, MemoryError)):
            _end_with_defect(error)
        _end(BAD_INPUT, f"error: {_in_one_line(error)}")
    except Exception as error:
        _end_with_defect(error)


def _run(args: list[str] | None) -> None:
    try:
        app(args=args)
    except SystemExit as end:
        if end.code == INTERRUPTED:  # typer's own answer to an interrupt
            raise KeyboardInterrupt from None
        if end.code in (0, None):
            _say_what_comes_next(sys.argv[1:] if args is None else args)
        sys.stdout.flush()  # here, where a full disk is still an error of the command
        raise


def _say_what_comes_next(args: list[str]) -> None:
    """To people at a terminal, not to scripts."""
    words = list(takewhile(lambda word: not word.startswith("-"), args))
    following = NEXT.get(words[0]) if words else None
    if following is None or len(words) < (3 if "{1}" in following else 2):
        return
    if sys.stderr.isatty() and sys.stdout.isatty():
        print(f"next: {following.format(*map(shlex.quote, words[1:]))}", file=sys.stderr)


@contextmanager
def _signals_as_interrupts() -> Iterator[None]:
    """End on SIGTERM and on a closed terminal as on Ctrl-C: temporary files go, finished ones stay."""
    before: dict[int, Any] = {}
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        # A handler that somebody set, or nohup's request to ignore the signal, is left alone.
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            try:
                before[number] = signal.signal(number, _interrupt)
            except ValueError:  # not in the main thread
                break
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _in_one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, MemoryError):
        detail = str(error).removeprefix("std::bad_alloc")
        return f"out of memory{': ' + detail if detail else ''}; use fewer rows, features or labels"
    return " ".join(str(error).split())


def _end_with_defect(error: Exception) -> NoReturn:
    """One line for what should not happen; whoever looks for the reason can have the traceback."""
    if os.environ.get(TRACEBACK):
        raise error
    kind = f"{type(error).__name__}: {' '.join(str(error).split())}"
    _end(DEFECT, f"internal error: {kind}; please report it, with the output of the same command under {TRACEBACK}=1")


def _end(code: int, line: str) -> NoReturn:
    from blockxmc._core.shown import printable

    print(printable(line), file=sys.stderr)
    sys.exit(code)
