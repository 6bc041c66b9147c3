"""FastXML: a forest whose nodes divide the rows so that either half ranks its own labels well."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from blockxmc import _kernels
from blockxmc._core import stored
from blockxmc._core.allowed import Mask
from blockxmc._core.base import TopK, XMCEstimator
from blockxmc._core.matrix import csr_args, take_rows
from blockxmc._core.params import as_seed, require_number, require_whole
from blockxmc._core.progress import Reporter, useful_threads, watched
from blockxmc.errors import BlockXMCError

# A row is spread over all features while it goes through the trees: 64 MB for each thread at most.
MOST_FEATURES = 1 << 24
_ROWS_PER_ITEM = 64  # rows that one thread takes at a time
_ARRAYS: dict[str, Any] = {
    **dict.fromkeys(("roots", "children", "depth", "features", "labels"), np.int32),
    **dict.fromkeys(("n_rows", "feature_ptr", "label_ptr"), np.int64),
    **dict.fromkeys(("weights", "bias", "label_scores"), np.float32),
}


@dataclass(frozen=True)
class Forest:
    """All trees as flat arrays: nodes of a tree in preorder, trees one after the other."""

    n_features: int
    n_labels: int
    roots: NDArray[np.int32]  # node id of each tree's root
    children: NDArray[np.int32]  # two per node (minus, plus side); -1 in a leaf
    depth: NDArray[np.int32]
    n_rows: NDArray[np.int64]  # training rows that reached the node
    feature_ptr: NDArray[np.int64]
    features: NDArray[np.int32]
    weights: NDArray[np.float32]
    bias: NDArray[np.float32]
    label_ptr: NDArray[np.int64]
    labels: NDArray[np.int32]
    label_scores: NDArray[np.float32]

    @cached_property
    def _kernel(self) -> _kernels.Forest:
        self._check_trees()
        with stored.translated():
            return self._made()

    def _made(self) -> _kernels.Forest:
        return _kernels.Forest(
            self.roots,
            self.children,
            self.feature_ptr,
            self.features,
            self.weights,
            self.bias,
            self.label_ptr,
            self.labels,
            self.label_scores,
            self.n_features,
            self.n_labels,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Forest, tuple(self.arrays().values())

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Forest:
        """Take back what ``arrays`` gave. Shapes are checked now, ids when the forest is first asked."""
        n_features = stored.whole(state["n_features"], "n_features", 0, MOST_FEATURES)
        n_labels = stored.whole(state["n_labels"], "n_labels")
        bias = stored.array(state["bias"], "bias of the forest", np.float32, (None,))
        n_nodes = stored.whole(bias.size, "the number of nodes")
        lengths = {"children": 2 * n_nodes, "feature_ptr": n_nodes + 1, "label_ptr": n_nodes + 1}
        lengths |= {"depth": n_nodes, "n_rows": n_nodes, "bias": n_nodes}
        arrays = {
            name: stored.array(state[name], f"{name} of the forest", dtype, (lengths.get(name),))
            for name, dtype in _ARRAYS.items()
        }
        stored.require(arrays["roots"].size, "a forest has no trees")
        return cls(n_features, n_labels, **arrays)

    def _check_trees(self) -> None:
        """Refuse trees that share nodes: one row could then visit every node once for each tree."""
        n_nodes, roots = self.bias.size, self.roots
        stored.ascending(roots, n_nodes, "roots of the forest")
        stored.check_indices(self.children[self.children != -1], n_nodes, "children of the forest")
        tree = np.searchsorted(roots, np.arange(n_nodes), side="right")
        child = self.children.reshape(-1, 2)
        same = tree[np.maximum(child, 0)] == tree[:, None]
        stored.require((same | (child < 0)).all(), "a tree leads into another tree")

    def arrays(self) -> dict[str, Any]:
        """The fields by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def leaves(self, X: sparse.csr_array, threads: int = 1) -> NDArray[np.int32]:
        """Node id of the leaf that each row reaches in each tree (rows x trees)."""
        out = np.empty((X.shape[0], self.roots.size), np.int32)
        self._kernel.leaves(*csr_args(X), out, useful_threads(threads, X.shape[0], _ROWS_PER_ITEM))
        return out

    def topk(self, X: sparse.csr_array, k: int, threads: int = 1) -> TopK:
        """Best k labels by the mean of the leaf vectors."""
        return self._topk_of(csr_args(X), k, threads)

    def one(self, indices: ArrayLike, values: ArrayLike, k: int) -> TopK:
        """``topk`` of one sparse row; 1-d results."""
        columns = np.ascontiguousarray(indices, np.int32)
        row = (np.array([0, columns.size]), columns, np.ascontiguousarray(values, np.float32))
        labels, scores = self._topk_of(row, k, 1)
        return labels[0], scores[0]

    def _topk_of(self, rows: tuple[Any, Any, Any], k: int, threads: int) -> TopK:
        labels = np.empty((rows[0].size - 1, k), np.int64)
        scores = np.empty((rows[0].size - 1, k), np.float32)
        self._kernel.topk(*rows, labels, scores, useful_threads(threads, labels.shape[0], _ROWS_PER_ITEM))
        return labels, scores

    def scores(self, X: sparse.csr_array, threads: int = 1) -> sparse.csr_array:
        """Mean of the leaf vectors; labels of no reached leaf are absent."""
        threads = useful_threads(threads, X.shape[0], _ROWS_PER_ITEM)
        indptr, labels, values = self._kernel.scores(*csr_args(X), threads)
        return sparse.csr_array((values, labels, indptr), shape=(X.shape[0], self.n_labels))


class FastXML(XMCEstimator):
    """Forest of ``n_trees`` trees that partition the rows by nDCG, with sparse linear separators in the nodes.

    A node starts from a random halving of its rows, ranks the labels of either half, moves every row to the half that
    ranks its labels better, and repeats while nDCG rises. An l1-regularised logistic regression learns the halves
    from the features and decides where rows really go. A leaf keeps the mean label vector of its rows, and a
    prediction is the mean of the leaves reached: the scores of ``predict_topk`` lie in 0..1. ``predict`` cuts at one
    half, and ``decision_function`` is the score minus one half, so that its cut is at 0 as scikit-learn expects.

    ``fit`` never rescales X. The published figures of bibtex and delicious are met (within 1.3 points) on the files' own
    rows; L2-normalised ones cost up to 2 points there, where features are binary. TF-IDF rows are usually normalised.

    Parameters
    ----------
    n_trees : number of trees.
    max_leaf : a node with at most so many rows is not split.
    C : weight of the logistic loss against the l1 norm; either side of a node gets the same total weight.
    bias : value of the constant feature; 0 for none.
    leaf_labels : labels kept per leaf.

    Attributes
    ----------
    forest_ : the trees as flat arrays.
    cost_ : ``products`` (node products per row), ``candidates`` (labels in the leaves a row reaches), and ``speedup``
        (labels over products), means over at most 2000 training rows.

    >>> import numpy as np
    >>> X = np.repeat(np.eye(3), 20, axis=0)
    >>> Y = np.repeat([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1]], 20, axis=0)
    >>> model = FastXML(n_trees=5).fit(X, Y)
    >>> model.predict_topk(X[[0, 20, 40]], k=1)[0].ravel().tolist()
    [0, 1, 2]
    """

    _threshold = 0.5  # scores are shares of trees

    def __init__(
        self,
        n_trees: int = 50,
        max_leaf: int = 10,
        C: float = 1.0,
        bias: float = 1.0,
        leaf_labels: int = 100,
        n_jobs: int | None = None,
        random_state: int | None = 0,
        verbose: int = 0,
    ) -> None:
        self.n_trees = n_trees
        self.max_leaf = max_leaf
        self.C = C
        self.bias = bias
        self.leaf_labels = leaf_labels
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _check_params(self) -> None:
        for name in ("n_trees", "max_leaf", "leaf_labels"):
            require_whole(self, name)
        require_number(self, "C")
        require_number(self, "bias", zero=True)

    def _fit(self, X: sparse.csr_array, Y: sparse.csr_array, reporter: Reporter) -> None:
        self._check_params()
        if X.shape[1] > MOST_FEATURES:
            raise BlockXMCError(f"FastXML: at most {MOST_FEATURES:,} features are possible, got {X.shape[1]:,}")
        seed = np.random.default_rng(as_seed(self.random_state)).integers(2**63)
        with reporter.phase("grow trees", self.n_trees * X.shape[0]) as phase:
            arrays = watched(
                _kernels.fastxml_grow,
                *csr_args(X),
                X.shape[1],
                *csr_args(Y)[:2],
                Y.shape[1],
                self.n_trees,
                self.max_leaf,
                self.leaf_labels,
                self.C,
                self.bias,
                int(seed),
                self._threads,
                phase=phase,
            )
        self.forest_ = Forest(X.shape[1], Y.shape[1], **arrays)
        self.cost_ = self._measured_cost(X)
        products, candidates = self.cost_["products"], self.cost_["candidates"]
        reporter.say(f"FastXML: {products:.0f} products and {candidates:.0f} candidates per row")

    def _measured_cost(self, X: sparse.csr_array) -> dict[str, float]:
        sample = take_rows(X, np.linspace(0, X.shape[0] - 1, min(X.shape[0], 2000)).astype(np.intp))
        products = float(self.forest_.depth[self.forest_.leaves(sample, self._threads)].sum(axis=1).mean())
        candidates = self.forest_.scores(sample, self._threads).nnz / sample.shape[0]
        # All products are those of the nodes; a node's separator counts like a label's vector, so the three agree.
        speedup = self.forest_.n_labels / max(products, 1.0)
        speedups = dict.fromkeys(("speedup_paper", "speedup", "speedup_flops"), speedup)
        return {"products": products, "candidates": candidates, **speedups}

    def cost_on(self, X: Any) -> dict[str, float]:
        """Mean work per row on (at most 2000 of) these rows."""
        return self._measured_cost(self._validated(X))

    def _topk(self, X: sparse.csr_array, k: int, allowed: Mask | None = None) -> TopK:
        return self.forest_.topk(X, k, self._threads) if allowed is None else self._topk_of_scores(X, k, allowed)

    def _scores(self, X: sparse.csr_array) -> sparse.csr_array:
        return self.forest_.scores(X, self._threads)

    def predict_one(
        self, indices: ArrayLike, values: ArrayLike, k: int = 5, allow: Any = None, deny: Any = None
    ) -> TopK:
        """Best k labels of one sparse row (distinct indices): no validation, no threads, the latency path."""
        if allow is not None or deny is not None:
            return self._one_among(indices, values, k, allow, deny)
        return self.forest_.one(indices, values, k)

    def _state(self) -> dict[str, Any]:
        return {"forest": self.forest_.arrays(), "cost": self.cost_}

    def _restore(self, state: dict[str, Any]) -> None:
        self.forest_ = Forest.restored(state["forest"])
        self._check_sizes(self.forest_.n_labels, self.forest_.n_features)
        self.cost_ = stored.numbers(state["cost"], "cost")
