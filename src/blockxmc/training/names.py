"""What labels are called: features of their names or descriptions, which teach the router and count in scores.

A name is one more row of the router, in the block where most of its label's rows are. And the cosine of a row to the name
is a part of the label's score, with a weight that held-out rows choose. The label's own weights learn nothing from it: as
training rows of labels, names take 3.3 points from P@1 of debian-small, and one training could not serve both choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.preprocessing import normalize

from blockxmc._core.matrix import as_csr, take_rows
from blockxmc.errors import BlockXMCError
from blockxmc.linear.one_vs_all import typical_length
from blockxmc.linear.vectors import LabelVectors
from blockxmc.linear.weights import Ids
from blockxmc.routing import Router
from blockxmc.training.blocks import home_blocks, own_blocks
from blockxmc.training.candidates import Mix
from blockxmc.training.hints import Hints
from blockxmc.training.labels import SharedWeights
from blockxmc.training.settings import SETTINGS, Settings

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Names:
    """Names of labels as rows of unit length, and the length of a typical training row."""

    rows: sparse.csr_array  # labels x features
    positives: NDArray[np.integer]  # of each label
    length: float = 1.0
    settings: Settings = SETTINGS

    @classmethod
    def of_hints(
        cls, hints: Hints, X: sparse.csr_array, Y: sparse.csr_array, held_out: NDArray[np.bool_], settings: Settings
    ) -> Names | None:
        """What labels are called, where that is to teach: always, or where it speaks of the held-out rows."""
        if hints.label_features is None:
            return None
        names = cls.of(hints.label_features, X, Y, settings)
        rows = np.flatnonzero(held_out)
        if hints.always or (rows.size and names.speak(take_rows(X, rows), take_rows(Y, rows))):
            return names
        return None

    @classmethod
    def of(cls, features: sparse.csr_array, X: sparse.csr_array, Y: sparse.csr_array, settings: Settings) -> Names:
        """Names that have these features, of the labels of these rows."""
        positives = np.bincount(Y.indices, minlength=Y.shape[1])
        return cls(as_csr(normalize(features)), positives, typical_length(X), settings)

    def vectors(self, labels: NDArray[np.intp]) -> sparse.csr_array:
        """Rows of labels: the product with a typical training row is the cosine to the name, less for labels with rows."""
        share = (1 + self.positives[labels]) ** -self.settings.name_decay / self.length
        return as_csr(sparse.diags_array(share.astype(np.float32)) @ take_rows(self.rows, labels))

    def known_to(self, shown: sparse.csr_array) -> Names:
        """Names of the labels of the rows that are ``shown``, and none of the others.

        A label that held-out rows alone have is unknown, as new rows have such: its name would tell too much.
        """
        some = np.bincount(shown.indices, minlength=self.positives.size) > 0
        return replace(self, rows=as_csr(sparse.diags_array(some.astype(np.float32)) @ self.rows))

    def added(self, weights: SharedWeights, weight: float, threads: int) -> LabelVectors:
        """Weights whose scores count names so much."""
        return self.served(weights, Mix(name=weight), threads)

    def served(self, weights: SharedWeights, mix: Mix, threads: int) -> LabelVectors:
        """The weights of all labels with their names, those without rows set back."""
        if not isinstance(weights, LabelVectors):
            raise BlockXMCError("features of labels are added to weights, which needs a linear base")
        out = weights.plus(self.vectors(np.arange(weights.n_labels)), mix.name, threads)
        # The margin of a label that no row has taught is that of a wrong one.
        return replace(out, bias=np.where(self.positives, out.bias, np.float32(mix.untrained - 1)))

    def speak(self, X: sparse.csr_array, Y: sparse.csr_array) -> bool:
        """Whether rows are clearly more like the names of their own labels than, twice over, like those of other rows.

        Library abstracts are 26 times as much like their own, packages of Debian 20 times; names that are dealt out anew
        are not, and what a router learns from such takes up to 0.7 points of P@1.

        >>> eye = sparse.csr_array(np.eye(9, dtype=np.float32))
        >>> [Names(names, np.ones(9)).speak(eye, eye) for names in (eye, eye[::-1])]
        [True, False]
        """
        about = sparse.csr_array(normalize(Y, "l1") @ self.rows)
        others = take_rows(about, np.roll(np.arange(X.shape[0]), X.shape[0] // 2))
        own, other = (np.asarray(X.multiply(names).sum(axis=1)).ravel() for names in (about, others))
        change = own - 2 * other
        return bool(change.mean() > self.settings.clearly * change.std() / np.sqrt(change.size))

    def taught(
        self, X: sparse.csr_array, targets: sparse.csr_array, Y: sparse.csr_array, assignment: NDArray[np.int32]
    ) -> tuple[sparse.csr_array, sparse.csr_array]:
        """Rows and targets of a router, and behind them the names of labels with rows, each in its label's home block."""
        own = own_blocks(assignment, targets.shape[1])
        labels, homes = home_blocks(sparse.csr_array(Y.T), own)
        said = np.diff(self.rows.indptr)[labels] > 0
        labels, homes = labels[said], homes[said]
        ones = np.ones(labels.size, np.float32)
        of_names = sparse.csr_array((ones, homes, np.arange(labels.size + 1)), shape=(labels.size, own.shape[1]))
        rows = take_rows(self.rows, labels) * np.float32(self.length * self.settings.name_part)
        return as_csr(sparse.vstack([X, rows], "csr")), as_csr(sparse.vstack([targets, of_names], "csr"))

    def listed(self, clusters: Sequence[Ids], router: Router, threads: int) -> list[NDArray[np.int64]]:
        """Label clusters with the labels that no row has, each in the block to which the router sends its name."""
        labels = np.flatnonzero((self.positives == 0) & (np.diff(self.rows.indptr) > 0))
        rows = as_csr(take_rows(self.rows, labels) * np.float32(self.length))
        best = router.blocks(rows, 1, threads=threads)[:, 0] if labels.size else labels
        return [np.union1d(ids, labels[best == block]).astype(np.int64) for block, ids in enumerate(clusters)]


def listing_names(
    names: Names | None, clusters: list[NDArray[np.int64]], router: Router, threads: int
) -> list[NDArray[np.int64]]:
    """Label clusters as they are served: with labels without rows, which have learnt from none, where names teach."""
    return clusters if names is None else names.listed(clusters, router, threads)
