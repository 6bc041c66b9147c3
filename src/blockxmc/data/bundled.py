"""The data set that comes with the library: Debian packages and what they depend on."""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib.resources import as_file, files
from pathlib import Path

from blockxmc.data.corpus import Corpus, read_corpus
from blockxmc.data.dataset import Dataset
from blockxmc.data.text import read_text


def load_demo(*, verbose: int = 0) -> tuple[Dataset, Dataset]:
    """Training and test set of the bundled data: name and description of a package -> the packages it depends on.

    >>> train, test = load_demo()
    >>> train.n_rows, test.n_rows, train.n_labels
    (15711, 3635, 6563)
    """
    with _rows("train") as path:
        train = read_text(path, verbose=verbose)
    with _rows("test") as path:
        return train, read_text(path, train.vectorizer, train.label_names, verbose=verbose)


def load_demo_texts() -> tuple[Corpus, Corpus]:
    """The same rows as texts (``.texts``) and lists of label names (``.labels``), for :class:`blockxmc.TextClassifier`.

    >>> train, test = load_demo_texts()
    >>> train.texts[0][:34], train.labels[0][:2]
    ('python3-netaddr: manipulation of v', ['ieee-data', 'python3'])
    """
    with _rows("train") as train, _rows("test") as test:
        return read_corpus(train), read_corpus(test)


def _rows(part: str) -> AbstractContextManager[Path]:
    return as_file(files("blockxmc.data") / "demo" / f"{part}.jsonl.xz")
