"""A long computation in stages whose results are kept, so that it goes on after a kill where it was.

The folder of a job holds what the job is (``job.json``: data, settings, version and code) and the result of each finished
stage. A job of other data or settings is refused, by the name of what differs.
"""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
from sklearn.base import BaseEstimator

from blockxmc import _kernels
from blockxmc._core.files import PART
from blockxmc._core.params import as_path
from blockxmc._core.progress import Reporter
from blockxmc._core.results import DamagedError, ResultFolder
from blockxmc._version import __version__
from blockxmc.errors import BlockXMCError

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

T = TypeVar("T")
Identity = Mapping[str, Any]
PathLike = str | os.PathLike[str]
Range = tuple[int, int]
WHAT, LOCK = "job", "lock"
# Parameters that change how a result is reached, and not the result.
WITHOUT_INFLUENCE = ("n_jobs", "verbose")
_NAMED_DIFFERENCES = 3


class Form(NamedTuple, Generic[T]):
    """How a result becomes a nested dict of numbers, strings and arrays, and how it is made of one again."""

    state: Callable[[T], Any]
    restored: Callable[[Any], T]


PLAIN: Form[Any] = Form(lambda result: result, lambda state: state)


class Job:
    """Stages by name; without a folder nothing is kept.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with opened(folder, {"data": "a"}) as job:
    ...     job.stage("sum", lambda: 1 + 1)
    2
    >>> with opened(folder, {"data": "a"}) as job:
    ...     job.stage("sum", lambda: 0), job.reused
    (2, 'sum')
    >>> with opened(folder, {"data": "b"}) as job:
    ...     pass  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    blockxmc.errors.BlockXMCError: ... holds another job: data was a, now b; give another folder, or remove this one
    """

    # Whether ranges are computed by other processes.
    elsewhere: ClassVar[bool] = False

    def __init__(
        self, kept: ResultFolder | None = None, identity: Identity | None = None, reporter: Reporter | None = None
    ):
        self.kept, self.reporter = kept, reporter or Reporter()
        self._key = _key(identity or {})
        self._prefix = ""
        self._asked: dict[str, bool] = {}  # of each stage: whether it was kept already
        self.notes: list[str] = []  # what was found damaged

    def stage(self, name: str, compute: Callable[[], T], form: Form[T] = PLAIN) -> T:
        """The kept result of a stage; else it is computed and kept."""
        if self.kept is None:
            return compute()
        place = self.place(name)
        state = self._found(place)
        self._asked[place] = state is not None
        if state is not None:
            return form.restored(state["result"])
        result = compute()
        self._keep(place, {"job": self._key, "result": form.state(result)})
        return result

    def ranges(self, name: str, ranges: Sequence[Range], compute: Callable[[int, int], T]) -> Iterator[T]:
        """What ``compute`` makes of each range of a stage, in their order."""
        for begin, end in ranges:
            yield compute(begin, end)

    @property
    def helpers(self) -> int:
        """Threads elsewhere that compute ranges."""
        return 0

    def place(self, name: str) -> str:
        """The name under which a stage is kept."""
        return self._prefix + name

    def seeks(self, name: str) -> bool:
        """Whether this job was opened for the ranges of one stage alone, and this is the stage."""
        return False

    def within(self, prefix: str) -> Self:
        """The same job, for stages that there are several times: their names begin with this."""
        inner = copy.copy(self)
        inner._prefix = f"{self._prefix}{prefix} "
        return inner

    @property
    def reused(self) -> str:
        """The stages that were kept already, in words."""
        return ", ".join(name for name, found in self._asked.items() if found)

    @property
    def n_reused(self) -> int:
        """How many stages were kept already."""
        return sum(self._asked.values())

    def _found(self, place: str) -> Any:
        assert self.kept is not None
        try:
            state = self.kept.get(place)
        except DamagedError as error:
            self.notes.append(f"{error}; it was made again")
            self.reporter.say(self.notes[-1])
            return None
        return state if isinstance(state, dict) and state.get("job") == self._key else None

    def _keep(self, place: str, state: Any) -> None:
        assert self.kept is not None
        try:
            self.kept.put(place, state)
        except OSError as error:
            raise BlockXMCError(
                f"{self.kept.folder}: {place} could not be kept: {error.strerror}; finished stages are kept, and the same "
                "call goes on from them once this is mended"
            ) from None


@runtime_checkable
class Workplace(Protocol):
    """Where a job is done, if not in this process alone: it opens its own kind of job."""

    def opened(self, identity: dict[str, str], reporter: Reporter | None) -> AbstractContextManager[Job]:
        """The job with this identity, which names version and code already."""


@contextmanager
def opened(work: PathLike | Workplace | None, identity: Identity, reporter: Reporter | None = None) -> Iterator[Job]:
    """The job of a folder, for this process alone, or of a workplace; None: a job that keeps nothing.

    ``identity`` names all that results depend on beside this library's version and code; values are compared as text.
    """
    if work is None:
        yield Job(reporter=reporter)
        return
    whole = {name: str(value) for name, value in identity.items()} | {"blockxmc": __version__, "code": code_digest()}
    if isinstance(work, Workplace):
        with work.opened(whole, reporter) as job:
            yield job
        return
    with held(as_path(work), whole) as kept:
        yield Job(kept, whole, reporter)


@contextmanager
def held(folder: Path, identity: dict[str, str]) -> Iterator[ResultFolder]:
    """The kept stages of a folder, which belongs to this job and, while it is held, to this process alone."""
    with _locked(folder):
        kept = ResultFolder(folder)
        _check(kept, identity)
        yield kept


def parameters(estimator: BaseEstimator) -> dict[str, str]:
    """The parameters that shape what an estimator learns, by name, as text; those of estimators inside as well.

    >>> from blockxmc import BlockwiseClassifier, DiSMEC
    >>> found = parameters(BlockwiseClassifier(DiSMEC(C=2.0), n_jobs=4))
    >>> found["base"], found["base__C"], "n_jobs" in found
    ('DiSMEC', '2.0', False)
    """
    out = {}
    for name, value in sorted(estimator.get_params(deep=True).items()):
        if name.split("__")[-1] in WITHOUT_INFLUENCE:
            continue
        if isinstance(value, (np.random.RandomState, np.random.Generator)) or (
            name == "random_state" and value is None
        ):
            raise BlockXMCError(f"{name} must be a whole number where work is kept: {value!r} is not the same twice")
        out[name] = _described(value)
    return out


def array_digest(*arrays: Any) -> str:
    """SHA-256 of types, shapes and numbers."""
    state = hashlib.sha256()
    for array in arrays:
        plain = np.ascontiguousarray(array)
        state.update(f"{plain.dtype.str} {plain.shape}".encode())
        state.update(plain.data)
    return state.hexdigest()


@cache
def code_digest() -> str:
    """A digest of the code of this library: results of other code are not mixed with those of this one."""
    state = hashlib.sha256(_kernels.sources.encode())
    root = Path(__file__).parents[1]
    for room in ("_core", "linear", "model", "partition", "routing", "learners", "training", "tuning", "paper"):
        for file in sorted((root / room).rglob("*.py")):
            state.update(file.read_bytes())
    return state.hexdigest()[:16]


def version() -> str:
    """What other processes must have to work on the same job."""
    return f"blockxmc {__version__}, code {code_digest()}"


def _described(value: Any) -> str:
    if isinstance(value, BaseEstimator):
        return type(value).__name__
    if isinstance(value, np.ndarray):
        return f"an array of {value.size} ({array_digest(value)[:12]})"
    return repr(value)


def _key(identity: Identity) -> str:
    return hashlib.sha256(repr(sorted(identity.items())).encode()).hexdigest()[:16]


def _check(kept: ResultFolder, identity: dict[str, str]) -> None:
    """Refuse a folder of another job; a new one is marked as this job's."""
    try:
        known = kept.get(WHAT)
        if known is None:
            _check_no_others(kept.folder)
    except DamagedError:
        known = None  # stages know their job, too: those of this one still count
    if known is None:
        Job(kept)._keep(WHAT, identity)
        return
    refuse_another(kept.folder, known, identity)


def refuse_another(folder: Path, known: Identity, identity: Identity) -> None:
    """Raise where the folder's job is another, by the name of what differs."""
    differences = [
        f"{name} was {known.get(name, 'not set')}, now {identity.get(name, 'not set')}"
        for name in {**known, **identity}
        if known.get(name) != identity.get(name)
    ]
    if differences:
        more = len(differences) - _NAMED_DIFFERENCES
        text = "; ".join(differences[:_NAMED_DIFFERENCES]) + (f"; and {more} more" if more > 0 else "")
        raise BlockXMCError(f"{folder} holds another job: {text}; give another folder, or remove this one")


def _check_no_others(folder: Path) -> None:
    """Refuse a folder that somebody else has put something into."""
    for path in sorted(folder.iterdir()):
        if path.name != LOCK and path.suffix != PART:
            raise BlockXMCError(
                f"{folder} holds {path.name!r}, which is no part of a job; give another or a new folder"
            )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Make the folder where there is none, and keep others from writing to it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except (FileExistsError, NotADirectoryError):
        raise BlockXMCError(f"{folder} is a file: finished work is kept in a folder") from None
    except OSError as error:
        raise BlockXMCError(f"{folder}: finished work cannot be kept there: {error.strerror}") from None
    try:
        _lock(lock, folder)
        ResultFolder(folder).clear_parts()
        yield
    finally:
        os.close(lock)


def _lock(lock: int, folder: Path) -> None:
    """Locks end with their process, however it ends; where the file system has none, nothing is locked."""
    if fcntl is None:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BlockXMCError(f"{folder} is in use by another process: wait for it, or give another folder") from None
    except OSError:
        return
