"""Estimators that learn on: new rows and labels into a fitted model, rows out of it."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from blockxmc._core import stored
from blockxmc._core.matrix import take_rows
from blockxmc._core.progress import Reporter, reporter_for
from blockxmc._core.targets import Targets
from blockxmc._core.versions import lock_of, swapped
from blockxmc.errors import BlockXMCError, UpdateError
from blockxmc.model.label_sets import LabelSetEstimator
from blockxmc.model.sources import Sources
from blockxmc.partition import Partitioner
from blockxmc.training.drift import advice, first_event, standing
from blockxmc.training.fit import Request
from blockxmc.training.hints import Hints, checked_features
from blockxmc.training.kept import Kept, stacked, widened
from blockxmc.training.update import Learned, add_rows, drop_rows

# Rows on which the work per row is measured again.
_COST_ROWS = 512


class LearningOn(LabelSetEstimator):
    """A routed estimator whose model can be updated where it keeps its rows."""

    partition_: Partitioner
    kept_: Kept | None = None
    cost_: dict[str, float]
    names_: sparse.csr_array | None = None  # features of labels, where they count in scores

    def _request(self) -> Request:
        """How labels and blocks are solved."""
        raise NotImplementedError

    def update(self, X: Any, Y: Any, *, label_names: Any = None, label_features: Any = None) -> Self:
        """Add new rows, new labels and more positives of known labels, without a full training.

        The model must have been fitted with ``keep_rows=True``. X may have more features than the model knows, and Y more
        labels; the new ones come last. If labels have names and Y is a matrix with new columns, ``label_names`` names all
        of its columns. ``label_features`` describes the new labels, in their order, where those of the fit count in scores.
        ``history_`` shows what was done, ``advice_`` when to train again. docs/howto/update.md explains
        what an update can and cannot do.

        >>> from blockxmc import BlockwiseClassifier
        >>> X, Y = [[1.0, 0], [0.9, 0.1], [0, 1.0]], [["red"], ["red"], ["blue"]]
        >>> clf = BlockwiseClassifier(keep_rows=True).fit(X, Y)
        >>> clf.update([[0, 0, 1.0], [0.1, 0, 0.9]], [["violet"], ["violet"]]).label_names_.tolist()
        ['blue', 'red', 'violet']
        >>> clf.predict_topk([[0, 0.1, 0.9]], k=1)[0].tolist()
        [[2]]
        """
        with lock_of(self):
            old = self._learned()
            rows = self._new_rows(X)
            targets, Y01 = self.targets_.extended(Y, label_names)
            if rows.shape[0] != Y01.shape[0]:
                raise BlockXMCError(f"X has {rows.shape[0]} rows but Y has {Y01.shape[0]}: the numbers must agree")
            reporter = reporter_for(self.verbose)
            names, n_new = self.names_, Y01.shape[1] - self.targets_.n_labels
            if names is not None:
                nothing = sparse.csr_array(np.zeros((n_new, rows.shape[1]), np.float32))
                new = nothing if label_features is None else checked_features(label_features, nothing.shape)
                names = stacked([widened(names, rows.shape[1]), new])
            request = replace(self._request(), hints=Hints(label_features=names))
            learned, event = add_rows(request, old, rows, Y01, reporter)
            self._take(learned, event, targets, rows.shape[1], reporter, self.sources_, names)
        return self

    def forget(self, rows: Any) -> Self:
        """Remove rows from the model, and solve again without them what they have influenced.

        ``rows`` are numbers of training rows, in the order in which they were added, or a mask; later rows then move up.
        Labels stay, even without any row. docs/howto/update.md explains what may remain of a row.

        >>> from blockxmc import BlockwiseClassifier
        >>> X, Y = [[1.0, 0], [0.9, 0.1], [0, 1.0]], [["red"], ["red"], ["blue"]]
        >>> clf = BlockwiseClassifier(keep_rows=True).fit(X, Y).forget(rows=[1])
        >>> clf.n_train_rows_, clf.label_counts_.tolist()
        (2, [1, 1])
        """
        with lock_of(self):
            old = self._learned()
            dropped = row_mask(rows, old.kept.n_rows)
            if dropped.any():
                reporter = reporter_for(self.verbose)
                request = replace(self._request(), hints=Hints(label_features=self.names_))
                learned, event = drop_rows(request, old, dropped, reporter)
                sources = None if self.sources_ is None else self.sources_.without(dropped)
                self._take(learned, event, self.targets_, self.n_features_in_, reporter, sources, self.names_)
        return self

    @property
    def history_(self) -> list[dict[str, Any]]:
        """What was done to the model: the fit, then each ``update`` and ``forget``."""
        check_is_fitted(self)
        return [] if self.kept_ is None else [dict(event) for event in self.kept_.history]

    @property
    def advice_(self) -> str | None:
        """Why you should train again, with the numbers behind it; None if there is no reason."""
        return advice(self.history_)

    def _begin_history(self) -> None:
        """The first entry of the history: what ``fit`` promised."""
        if self.kept_ is not None:
            event = first_event(self.n_train_rows_, self.targets_.n_labels, self.cost_)
            self.kept_ = _with_event(self.kept_, event | standing(self.partition_))

    def _restore_kept(self, state: Any) -> None:
        """Take back what the model directory keeps for updates, if anything."""
        self.kept_ = None if state is None else Kept.from_state(stored.mapping(state, "the set of kept rows"))
        if self.kept_ is not None:
            self.kept_.check_fits(self.n_train_rows_, self.targets_.n_labels, self.n_features_in_)
            stored.require(self.kept_.blocks.n_labels == self.partition_.n_blocks_, "kept blocks are not the model's")

    def _check_all(self) -> None:
        if self.sources_ is not None:
            self.sources_.check()
        if self.kept_ is not None:
            self.kept_.check()

    def _learned(self) -> Learned:
        """The model as it is, if it can be updated."""
        check_is_fitted(self)
        if self.kept_ is None:
            raise UpdateError(
                "the model does not keep its rows, and cannot be updated: fit it with keep_rows=True (train --keep-rows)"
            )
        return Learned(self.partition_, self.model_, self.kept_)

    def _new_rows(self, X: Any) -> sparse.csr_array:
        """New rows, which may have more features than the model knows."""
        width = X.shape[1] if getattr(X, "ndim", 0) == 2 else np.shape(X)[-1] if np.ndim(X) == 2 else 0
        if width > self.n_features_in_ and not hasattr(self, "feature_names_in_"):
            return copy(self)._checked(X, reset=True)
        return self._checked(X, reset=False)

    def _take(
        self,
        learned: Learned,
        event: dict[str, Any],
        targets: Targets,
        n_features: int,
        reporter: Reporter,
        sources: Sources | None,
        names: sparse.csr_array | None,
    ) -> None:
        """Become the new model, all at once."""
        X, Y = learned.kept.rows(n_features, targets.n_labels)
        some = np.linspace(0, X.shape[0] - 1, min(X.shape[0], _COST_ROWS)).astype(np.intp)
        now = standing(learned.partition)
        cost = learned.model.cost(take_rows(X, some), self._threads) | {"largest_block": now["largest_block"]}
        swapped(
            self,
            cost_=self.cost_ | cost,
            kept_=_with_event(learned.kept, event | now),
            partition_=learned.partition,
            model_=learned.model,
            targets_=targets,
            classes_=np.arange(targets.n_labels) if targets.names is None else targets.names,
            label_counts_=np.bincount(Y.indices, minlength=targets.n_labels).astype(np.int64),
            n_train_rows_=int(X.shape[0]),
            n_features_in_=n_features,
            sources_=sources,
            names_=names,
        )
        if self.advice_ is not None:
            reporter.say(self.advice_)


def row_mask(rows: Any, n_rows: int) -> NDArray[np.bool_]:
    """Which rows are meant by their numbers or by a mask.

    >>> row_mask([2, 0], 3).tolist()
    [True, False, True]
    """
    given = np.asarray(rows)
    if given.dtype == bool and given.shape == (n_rows,):
        return given.copy()
    if given.size == 0:
        return np.zeros(n_rows, bool)
    if given.ndim > 1 or given.dtype.kind not in "iu":
        raise BlockXMCError(f"rows must be numbers of training rows, or a mask of {n_rows}, got {rows!r:.60}")
    outside = given[(given < 0) | (given >= n_rows)] if given.ndim else np.zeros(0)
    if given.ndim == 0 or outside.size:
        found = given if given.ndim == 0 else outside[0]
        what = "one number" if given.ndim == 0 else f"row {found}"
        raise BlockXMCError(f"rows holds {what}, but must be a list of numbers from 0 to {n_rows - 1}")
    out = np.zeros(n_rows, bool)
    out[given] = True
    return out


def _with_event(kept: Kept, event: dict[str, Any]) -> Kept:
    return replace(kept, history=(*kept.history, event))
