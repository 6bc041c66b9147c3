"""Answers for many rows: a part is a stretch of rows, scored anywhere and written once to the folder of the answers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blockxmc._core.base import TopK, XMCEstimator
from blockxmc._core.results import ResultFolder
from blockxmc._version import __version__
from blockxmc.data import Dataset, read_dataset, read_shards
from blockxmc.data.shards import is_shards
from blockxmc.distributed.texts import check_words
from blockxmc.distributed.worker import Compute, checked_folder
from blockxmc.errors import BlockXMCError
from blockxmc.storage import load
from blockxmc.text import TextClassifier
from blockxmc.training.job import WHAT, Job, Range, code_digest

ROWS = "rows"
# Rows of a part: what a worker holds of the answers at a time, and what is lost with it.
ROWS_AT_A_TIME = 1 << 14


@dataclass(frozen=True)
class Scoring:
    """``predict_topk`` of a model on a data file, with answers in a folder."""

    model: Path
    data: Path
    k: int
    folder: Path

    def opened(self, n_jobs: int | None) -> tuple[XMCEstimator, Dataset]:
        """Model and data, which must fit each other."""
        model: Any = load(self.model, encoder=False)  # shards hold features: there is no text to read
        if isinstance(model, TextClassifier):
            if not is_shards(self.data):
                raise BlockXMCError(f"{self.data}: holds features, but {self.model} was trained on text")
            check_words(self.data, model.vectorizer_)
            model = model.classifier_
        sizes: Any = {"n_features": model.n_features_in_, "n_labels": model.targets_.n_labels}
        names = None if model.label_names_ is None else list(model.label_names_)
        # Of shards, the rows of a part are read when they are scored: no process reads all of them.
        if is_shards(self.data):
            data = read_shards(self.data, label_names=names, check=False, **sizes)
        else:
            data = read_dataset(self.data, label_names=names, n_jobs=n_jobs, **sizes)
        if data.n_features != model.n_features_in_:
            raise BlockXMCError(
                f"{self.data}: has {data.n_features} features, but the model was trained on {model.n_features_in_}"
            )
        return model.set_params(n_jobs=n_jobs), data

    def identity(self, data: Dataset) -> dict[str, Any]:
        """All that answers depend on."""
        manifest = hashlib.sha256((self.model / "manifest.json").read_bytes()).hexdigest()
        return {"model": manifest[:16], "rows": data.n_rows, "k": self.k, "data": data.digest[:16]}

    def checked(self) -> Callable[[str], Compute]:
        """Open model and data, and see that they are the job's; answers are written to the folder."""
        model, data = self.opened(n_jobs=1)
        known = {name: str(value) for name, value in self.identity(data).items()}
        kept = checked_folder(self.folder, known | {"blockxmc": __version__, "code": code_digest()})

        def score(begin: int, end: int) -> None:
            labels, scores = model.predict_topk(data.X[begin:end], self.k)
            kept.put(rows_name((begin, end)), {"labels": labels, "scores": scores})

        return lambda _: score

    def keep_answers(self, job: Job, n_rows: int) -> None:
        """Have all rows scored whose answers are not there."""
        kept, ranges = ResultFolder(self.folder), row_ranges(n_rows)
        missing = [part for part in ranges if not kept.path(rows_name(part)).exists()]
        with job.reporter.phase(ROWS, len(missing)) as phase:
            for done, (part, _) in enumerate(zip(missing, job.ranges(ROWS, missing, _nothing), strict=True)):
                if not kept.path(rows_name(part)).exists():
                    raise BlockXMCError(
                        f"a worker has written answers, but not to {self.folder}: is this the same folder?"
                    )
                phase.update(done + 1)


def _nothing(begin: int, end: int) -> None:
    """Workers compute these ranges."""


def row_ranges(n_rows: int) -> list[Range]:
    """Stretches of rows that are scored at a time.

    >>> row_ranges(20_000)
    [(0, 16384), (16384, 20000)]
    """
    return [(begin, min(begin + ROWS_AT_A_TIME, n_rows)) for begin in range(0, n_rows, ROWS_AT_A_TIME)]


def rows_name(part: Range) -> str:
    """The name under which answers are kept."""
    return f"{ROWS} {part[0]}-{part[1]}"


class Answers:
    """The answers in a folder that ``predict_topk`` has filled: best labels and their scores.

    Iterating gives labels and scores of some thousand rows at a time, in the order of the data.
    """

    def __init__(self, folder: str | Path) -> None:
        self._kept = ResultFolder(Path(folder))
        known = self._kept.get(WHAT)
        if known is None or "k" not in known:
            raise BlockXMCError(f"{folder} holds no answers")
        self.n_rows, self.k = int(known["rows"]), int(known["k"])

    def __iter__(self) -> Iterator[TopK]:
        for begin, end in row_ranges(self.n_rows):
            state = self._kept.get(rows_name((begin, end)))
            if state is None:
                raise BlockXMCError(f"{self._kept.folder} lacks rows {begin} to {end}: predict again, it goes on there")
            yield state["labels"], state["scores"]

    def __len__(self) -> int:
        return self.n_rows

    def joined(self) -> TopK:
        """Labels (int64, n x k) and scores (float32) of all rows, in memory."""
        labels: NDArray[np.int64] = np.full((self.n_rows, self.k), -1, np.int64)
        scores: NDArray[np.float32] = np.full((self.n_rows, self.k), -np.inf, np.float32)
        for part, (begin, end) in zip(self, row_ranges(self.n_rows), strict=True):
            labels[begin:end], scores[begin:end] = part
        return labels, scores
