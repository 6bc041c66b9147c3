"""The same training and scoring on a Dask cluster (extra ``distributed``), with the same bits as on one machine.

Workers take addresses and ranges, and read the finished stages of a job from a folder that all see. What a killed driver
had finished of a stage is computed again, finished stages are not.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from blockxmc.errors import BlockXMCError, MissingExtraError

if TYPE_CHECKING:
    from distributed import Client

    from blockxmc.data.corpus import Fields
    from blockxmc.distributed.scoring import Answers, Scoring

__all__ = ["connected", "evaluate", "fit", "predict_topk"]
PathLike = str | os.PathLike[str]
E = TypeVar("E")


def fit(
    clf: E,
    data: PathLike,
    client: Client,
    *,
    work: PathLike,
    label_names: Sequence[str] | None = None,
    max_memory_gb: float | None = None,
    fields: Fields | None = None,
) -> E:
    """Train a :class:`~blockxmc.BlockwiseClassifier` on a data file, label batches on the workers of a Dask client.

    ``data`` (shards, npz or XC text) and the folder ``work`` must have the same names here and for all workers. After a
    kill of the driver the same call goes on from what the folder holds. The model is that of ``clf.fit(X, Y)``, bit by
    bit. Other stages (partition, router, scores on held-out rows, packing) are done here, on ``clf.n_jobs`` threads.
    ``max_memory_gb`` is for each process: the driver, and every worker with all its threads.

    A :class:`~blockxmc.TextClassifier` takes texts (JSONL, JSON, TSV, CSV; ``fields`` says where they stand), whose rows
    are written as shards to ``work`` + ``.rows`` first, or shards made of texts; it is as with ``label_texts=None``.

    >>> import tempfile
    >>> from distributed import Client
    >>> from blockxmc import BlockwiseClassifier
    >>> from blockxmc.data import make_synthetic, write_npz
    >>> folder = tempfile.mkdtemp()
    >>> train, _ = make_synthetic(n_train=60, n_test=10, n_features=40, n_labels=6, nnz_per_row=8)
    >>> write_npz(f"{folder}/train.npz", train)
    >>> with Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0") as client:
    ...     clf = fit(BlockwiseClassifier(n_blocks=2), f"{folder}/train.npz", client, work=f"{folder}/work")
    >>> clf.predict_topk(train.X[:2], k=3)[0].shape
    (2, 3)
    """
    from sklearn.base import clone

    from blockxmc.classifier import BlockwiseClassifier
    from blockxmc.data import read_dataset
    from blockxmc.distributed.cluster import Cluster
    from blockxmc.distributed.texts import is_text
    from blockxmc.distributed.worker import FitTask
    from blockxmc.text import TextClassifier
    from blockxmc.training.dataset import fit_dataset

    path, folder = _everywhere(data), _everywhere(work)
    model, trained = (clf, clf._new_classifier()) if isinstance(clf, TextClassifier) else (None, clf)
    if not isinstance(trained, BlockwiseClassifier):
        raise BlockXMCError(f"a cluster trains a BlockwiseClassifier, not a {type(trained).__name__}")
    if is_text(path):
        path = _rows_to_learn(model, trained, path, folder, fields)
    dataset = read_dataset(path, label_names=label_names, n_jobs=trained.n_jobs, verbose=trained.verbose)
    if dataset.n_rows == 0:
        raise BlockXMCError(f"{data}: holds no rows; give a file with at least one row")
    if model is not None:
        if dataset.vectorizer is None:
            raise BlockXMCError(f"{data}: holds features, not texts; give a BlockwiseClassifier")
        model.vectorizer_ = dataset.vectorizer
    place = Cluster(client, folder, FitTask(clone(trained), path, folder, max_memory_gb))
    fit_dataset(trained, dataset, work=place, max_memory_gb=max_memory_gb)
    if model is not None:
        model.classifier_ = trained
    return clf


def predict_topk(
    model: PathLike, data: PathLike, client: Client, *, out: PathLike, k: int = 5, verbose: int = 0
) -> Answers:
    """The best k labels of every row of a data file by a saved model, scored by the workers of a Dask client.

    Answers are written to the folder ``out``, some thousand rows at a time, each once: the same call after a kill goes on
    from those that are there. They are those of ``load(model).predict_topk(X, k)``. ``model``, ``data`` (shards, npz or
    XC text; for a model of texts, texts, whose rows are written to ``out`` + ``.rows`` first, or shards) and ``out`` must
    have the same names here and for all workers.

    >>> import tempfile
    >>> from distributed import Client
    >>> from blockxmc import DiSMEC
    >>> from blockxmc.data import make_synthetic, write_npz
    >>> folder = tempfile.mkdtemp()
    >>> train, test = make_synthetic(n_train=60, n_test=10, n_features=40, n_labels=6, nnz_per_row=8)
    >>> DiSMEC().fit(train.X, train.Y).save(f"{folder}/model")
    >>> write_npz(f"{folder}/test.npz", test)
    >>> with Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0") as client:
    ...     answers = predict_topk(f"{folder}/model", f"{folder}/test.npz", client, out=f"{folder}/answers", k=3)
    >>> for labels, scores in answers:
    ...     print(labels.shape, scores.dtype)
    (10, 3) float32
    """
    from blockxmc._core.progress import reporter_for
    from blockxmc.distributed.cluster import Cluster
    from blockxmc.distributed.scoring import Answers
    from blockxmc.training.job import opened

    if k < 1:
        raise BlockXMCError(f"k must be a whole number of at least 1, got {k!r}")
    task = _scoring(model, data, k, out, verbose)
    _, rows = task.opened(n_jobs=None)
    with opened(Cluster(client, task.folder, task), task.identity(rows), reporter_for(verbose)) as job:
        task.keep_answers(job, rows.n_rows)
    return Answers(task.folder)


def evaluate(
    model: PathLike,
    data: PathLike,
    client: Client,
    *,
    out: PathLike,
    ks: Sequence[int] = (1, 3, 5),
    propensity: tuple[float, float] | None = None,
    verbose: int = 0,
) -> dict[str, float]:
    """Ranking metrics (fractions, see :func:`blockxmc.metrics.evaluate`) of a saved model on a data file with labels.

    Rows are scored as by :func:`predict_topk`; ``propensity`` has the constants a and b of the training labels'
    model (None: those customary for a set of as many labels); they are part of the answer.
    """
    from blockxmc import metrics

    answers = predict_topk(model, data, client, out=out, k=max(ks), verbose=verbose)
    classifier, rows = _scoring(model, data, max(ks), out, verbose).opened(n_jobs=None)
    a, b = propensity or metrics.customary_propensity(rows.n_labels)
    weights = metrics.inverse_propensity_from_counts(classifier.label_counts_, classifier.n_train_rows_, a, b)
    found = metrics.evaluate(rows.Y, answers.joined()[0], ks, inverse_propensity=weights)
    return found | {"propensity_a": a, "propensity_b": b}


@contextmanager
def connected(address: str) -> Iterator[Client]:
    """A client of the Dask scheduler at this address, like ``tcp://10.0.0.1:8786``."""
    try:
        from distributed import Client
    except ImportError as error:
        raise MissingExtraError("dask.distributed", "distributed") from error
    try:
        client = Client(address, timeout=10)
    except (OSError, ValueError) as error:
        raise BlockXMCError(f"no Dask scheduler answers at {address}: {error}") from None
    # What goes wrong is said in one line, by whoever asked for the client.
    for name in ("distributed", *(name for name in logging.root.manager.loggerDict if name.startswith("distributed."))):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    with client:
        yield client


def _rows_to_learn(model: Any, trained: Any, path: Path, work: Path, fields: Fields | None) -> Path:
    """The shards of a file of texts, in the words of a TextClassifier."""
    from blockxmc.data.streams import Reading
    from blockxmc.distributed.texts import rows_of_texts

    if model is None:
        raise BlockXMCError(f"{path}: holds text; give a TextClassifier, or shards or npz that were made of it")
    if model.extra is not None:
        raise BlockXMCError("extra columns are not made on a cluster: leave extra out")
    how: Any = {"vectorizer": model._new_vectorizer(), "n_jobs": trained.n_jobs, "verbose": trained.verbose}
    return rows_of_texts(path, work, Reading(fields, **how))


def _scoring(model: PathLike, data: PathLike, k: int, out: PathLike, verbose: int) -> Scoring:
    """What workers are to score; texts become rows first."""
    from blockxmc.data.streams import Reading
    from blockxmc.distributed.scoring import Scoring
    from blockxmc.distributed.texts import is_text, rows_of_texts
    from blockxmc.storage import load
    from blockxmc.text import TextClassifier

    path, folder = _everywhere(data), _everywhere(out)
    if is_text(path):
        known: Any = load(model)
        if not isinstance(known, TextClassifier):
            raise BlockXMCError(f"{data}: holds text, but {model} was trained on features")
        like: Any = {"vectorizer": known.vectorizer_, "label_names": list(known.label_names_)}
        path = rows_of_texts(path, folder, Reading(**like, require_labels=False, verbose=verbose))
    return Scoring(_everywhere(model), path, k, folder)


def _everywhere(path: PathLike) -> Path:
    """The name by which all workers must know it, too."""
    return Path(os.path.abspath(path))
