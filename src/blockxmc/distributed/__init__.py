"""The same training on a Dask cluster (extra ``distributed``), with the same bits as on one machine.

Workers take addresses and ranges, and write what they compute to a folder that all see: no array travels through the
scheduler, and what a killed worker or driver has finished is never computed again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from blockxmc.errors import BlockXMCError, MissingExtraError

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["fit"]
PathLike = str | os.PathLike[str]
E = TypeVar("E")


def fit(clf: E, data: PathLike, client: Client, *, work: PathLike) -> E:
    """Train a :class:`~blockxmc.BlockwiseClassifier` on a data file, label batches on the workers of a Dask client.

    ``data`` (npz or XC text) and the folder ``work`` must have the same names here and for all workers. After a kill of
    the driver the same call goes on from what the folder holds. The model is that of
    ``clf.fit(X, Y, work=work)``, bit by bit.

    >>> import tempfile
    >>> from distributed import Client
    >>> from blockxmc import BlockwiseClassifier
    >>> from blockxmc.data import make_synthetic, write_npz
    >>> folder = tempfile.mkdtemp()
    >>> train, _ = make_synthetic(n_train=60, n_test=10, n_features=40, n_labels=6, nnz_per_row=8)
    >>> write_npz(f"{folder}/train.npz", train)
    >>> with Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None) as client:
    ...     clf = fit(BlockwiseClassifier(n_blocks=2), f"{folder}/train.npz", client, work=f"{folder}/work")
    >>> clf.predict_topk(train.X[:2], k=3)[0].shape
    (2, 3)
    """
    try:
        from blockxmc.distributed.crew import Cluster
    except ImportError as error:
        raise MissingExtraError("dask.distributed", "distributed") from error
    from sklearn.base import clone

    from blockxmc.classifier import BlockwiseClassifier
    from blockxmc.data import read_dataset
    from blockxmc.data.corpus import TEXT_FORMATS
    from blockxmc.data.folder import data_format
    from blockxmc.distributed.worker import Training
    from blockxmc.training.dataset import fit_dataset

    if not isinstance(clf, BlockwiseClassifier):
        raise BlockXMCError(f"a cluster trains a BlockwiseClassifier, not a {type(clf).__name__}")
    path, folder = Path(os.path.abspath(data)), Path(os.path.abspath(work))
    if data_format(path) in TEXT_FORMATS:
        raise BlockXMCError(f"{data}: holds text; convert it to features first: blockxmc convert {data} train.npz")
    dataset = read_dataset(path, n_jobs=clf.n_jobs, verbose=clf.verbose)
    return fit_dataset(clf, dataset, work=Cluster(client, folder, Training(clone(clf), path, folder)))
