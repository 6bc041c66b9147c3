"""What is known of labels by themselves: features of their names or descriptions, for labels with few rows or none.

As training rows they cost precision: a name is no text. Here they are added to the label's weights, the less the more rows
the label has, before held-out rows say how scores are mixed; and a block to which the router would send them lists the
label, so that rows about it find it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.preprocessing import normalize

from blockxmc._core.matrix import as_csr, take_rows
from blockxmc.errors import BlockXMCError
from blockxmc.linear.vectors import LabelVectors
from blockxmc.linear.weights import Ids
from blockxmc.routing import Router
from blockxmc.training.labels import SharedWeights
from blockxmc.training.settings import Settings


@dataclass(frozen=True)
class LabelFeatures:
    """Features of labels, and how many training rows each label has."""

    features: sparse.csr_array  # labels x features
    positives: NDArray[np.integer]
    settings: Settings
    length: float = 1.0  # of a typical training row

    def added_to(self, weights: SharedWeights, labels: NDArray[np.intp], threads: int) -> SharedWeights:
        """The weights of ``labels``, which are theirs in this order, with their features.

        A row gains the cosine to them, times ``label_feature_weight / (1 + n)`` for n training rows.
        """
        if not isinstance(weights, LabelVectors):
            raise BlockXMCError("features of labels are added to weights, which needs a linear base")
        share = np.float32(self.settings.label_feature_weight / self.length) / (1 + self.positives[labels])
        own = sparse.diags_array(share) @ normalize(take_rows(self.features, labels))
        return weights.adjusted(np.ones(labels.size, np.float32), as_csr(own), 1.0, threads)

    def blocks(self, router: Router, seen: NDArray[np.bool_], threads: int) -> sparse.csr_array:
        """Blocks x labels: the block to which the router sends each label that has few rows, and features.

        Of features that no training row has (``seen`` is false), the router knows nothing: a label that has no others is
        sent only if it stands in no block yet.
        """
        n_labels = self.positives.size
        known = np.where(self.positives, abs(self.features) @ seen.astype(np.float32), np.diff(self.features.indptr))
        labels = np.flatnonzero((self.positives <= self.settings.label_feature_few) & (known > 0))
        best = router.blocks(take_rows(self.features, labels), 1, threads=threads)[:, 0] if labels.size else labels
        ones = np.ones(labels.size, np.float32)
        return sparse.csr_array((ones, (best, labels)), shape=(router.n_blocks, n_labels))


def listing_more(label_clusters: Sequence[Ids], more: sparse.csr_array) -> list[NDArray[np.int64]]:
    """Label clusters that hold more labels (blocks x labels).

    >>> more = sparse.csr_array(np.array([[0, 0, 1], [0, 0, 0]]))
    >>> [ids.tolist() for ids in listing_more([np.array([0]), np.array([1])], more)]
    [[0, 2], [1]]
    """
    added = np.split(more.indices, more.indptr[1:-1])
    return [np.union1d(ids, new).astype(np.int64) for ids, new in zip(label_clusters, added, strict=True)]
