"""The data set that comes with the library: Debian packages and what they depend on."""

from __future__ import annotations

from importlib.resources import as_file, files

from blockxmc.data.corpus import Corpus, read_corpus
from blockxmc.data.dataset import Dataset
from blockxmc.data.text import read_text


def load_demo(*, verbose: int = 0) -> tuple[Dataset, Dataset]:
    """Training and test set of the bundled data: name and description of a package -> the packages it depends on.

    >>> train, test = load_demo()
    >>> train.n_rows, test.n_rows, train.n_labels
    (15711, 3635, 6563)
    """
    with as_file(files("blockxmc.data") / "demo") as folder:
        train = read_text(folder / "train.jsonl.xz", verbose=verbose)
        test = read_text(folder / "test.jsonl.xz", train.vectorizer, train.label_names, verbose=verbose)
    return train, test


def load_demo_texts() -> tuple[Corpus, Corpus]:
    """The same rows as texts (``.texts``) and lists of label names (``.labels``), for :class:`blockxmc.TextClassifier`.

    >>> train, test = load_demo_texts()
    >>> train.texts[0][:34], train.labels[0][:2]
    ('python3-netaddr: manipulation of v', ['ieee-data', 'python3'])
    """
    with as_file(files("blockxmc.data") / "demo") as folder:
        return read_corpus(folder / "train.jsonl.xz"), read_corpus(folder / "test.jsonl.xz")
