"""BlockwiseClassifier: partition, router and base classifiers joined into one estimator."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from blockxmc._core import stored
from blockxmc._core.matrix import copy_rows, matrix_digest, without_rows
from blockxmc._core.params import as_seed
from blockxmc._core.progress import Reporter, reporter_for
from blockxmc._core.targets import Targets
from blockxmc.errors import BlockXMCError
from blockxmc.learners._learner import Learner
from blockxmc.learners.dismec import DiSMEC
from blockxmc.learners.sklearn_adapter import as_learner
from blockxmc.linear.one_vs_all import longer_rows
from blockxmc.linear.packing import BITS
from blockxmc.linear.scorers import pack_scorer
from blockxmc.linear.weights import Weights
from blockxmc.model.label_sets import NO_TOP_K
from blockxmc.model.routed import RoutedModel
from blockxmc.model.sources import Sources
from blockxmc.partition import Partitioner
from blockxmc.routing import Router, assess_routing
from blockxmc.training import settings
from blockxmc.training.blocks import partition_for_shared
from blockxmc.training.estimate import estimate
from blockxmc.training.fit import Request, fit_shared
from blockxmc.training.forms import PARTITION, router_form
from blockxmc.training.held_out import held_out_rows
from blockxmc.training.hints import NO_HINTS, Hints
from blockxmc.training.job import Job, opened, parameters
from blockxmc.training.learning_on import LearningOn
from blockxmc.training.per_block import offset_terms, train_blocks, train_global
from blockxmc.training.summary import described, expectation, uneven_rows
from blockxmc.training.trials.quick import partition_at_quick_lambda, quick_task

# Training rows on which the work per row is measured.
COST_ROWS = 4096
# Rows are told of where the longest hundredth is more than so many times as long as most: few rows then decide.
UNEVEN = 10
WEIGHTS = ("auto", "shared", "per-block", "global")


class BlockwiseClassifier(LearningOn):
    """Extreme multi-label classification by block-wise partitioning.

    Training rows are divided into blocks, and each block gets the labels that matter there. A router learns to find the
    blocks of a row from its features. Only the labels of these blocks are scored.

    Parameters
    ----------
    base : a blockxmc learner or any scikit-learn classifier; None means ``DiSMEC()``, with shared weights
        ``DiSMEC(C=0.5, prune=0.1, tol=0.05, unit_rows=True)``: several times smaller, and as precise.
    partitioner : a :class:`Partitioner` with further options of the partition; None means its defaults.
    n_blocks : number of blocks, ``"paper"`` (the paper's search), ``"cost"`` (fewest products) or ``"auto"`` (= cost).
    lam : the paper's lambda (larger: fewer labels per block), or ``"auto"``. With shared weights, ``"auto"`` is the
        largest that cuts no label from a block. With per-block or global weights, it has the fewest products of those
        whose P@k on held-out rows stays within 1.5 points of the base without blocks, a standard error included; with
        n_blocks="paper" the number of blocks is chosen together with it (on fewer than 500 rows, or with the cost
        objective: the largest that keeps 98 % of the positives). ``partition_.choice_["text"]`` says what the choice loses
        and saves.
    weights : ``"shared"`` (one vector per label, trained on its positives and on the rows assigned or routed to its
        blocks; one-vs-all bases only), ``"per-block"`` (the paper: one vector per label and block, trained on the
        block's rows), ``"global"`` (one vector per label, trained on all rows; blocks only choose candidates) or
        ``"auto"`` (shared for one-vs-all bases, else per-block).
    route : number of blocks that a row visits. With shared weights also a number below 1: a row visits blocks until
        their probabilities reach this share, 16 blocks at most. ``"auto"``: with shared weights a share of 0.7; else 1
        block.
    n_neighbors : with shared weights, the number of similar training rows, in the visited blocks, whose labels get a
        higher score (unless this does not help on held-out rows). The model then keeps the 24 largest features of every
        training row. 0: none; the model is smaller and faster. ``"auto"``: 10 if the base is linear.
    effort : ``"normal"``, or ``"low"``, with shared weights: blocks keep 80 % of the positives, which saves a third of the
        training time and costs about 0.2 points of precision.
    weight_bits : 32 keeps weights as floats, 16 as bfloat16, 8 as integers with one scale per label; ``"auto"``: 16
        with shared weights, else 32.
    threshold : which labels ``predict`` keeps. A number: labels with a higher probability. ``"f1"``: for each row, the
        labels that raise its expected F1, fitted on held-out rows. ``"top-k"``: the same number of labels for every row,
        the best one on held-out rows. If scores are margins (per-block or global weights), ``"f1"`` uses the base's own
        threshold. You may set it after ``fit``.
    rank_by : ``"probability"``, or ``"propensity"``: rank by probability times inverse propensity, the expected gain in
        PSP. Rare labels then rank higher: PSP@5 gains up to 5 points, and P@1 loses up to 38 (docs/results/label_sets.md).
        Scores of ``predict_topk`` are then these products; label sets and ``predict_proba`` do not change.
    keep_rows : keep the training rows and the solved weights, in memory and in the model directory, so that ``update``
        and ``forget`` can change the model; needs shared weights of a linear base.
    n_jobs : number of threads; None means all cores (in scikit-learn: one). Results do not depend on it.
    random_state : seed; or a NumPy RandomState or Generator, or None, from which ``fit`` draws one.

    Examples
    --------
    >>> from blockxmc import BlockwiseClassifier
    >>> X = [[1.0, 0], [0.9, 0.1], [0, 1.0], [0.1, 0.9]]
    >>> Y = [["red", "warm"], ["red"], ["blue"], ["blue", "cold"]]
    >>> clf = BlockwiseClassifier(n_blocks=2, lam=0.1).fit(X, Y)
    >>> labels, scores = clf.predict_topk([[1.0, 0.0]], k=1)
    >>> clf.label_names_[labels[0]].tolist()
    ['red']
    """

    _work: Any = None  # the folder of the ``fit`` that is running

    def __init__(
        self,
        base: Any = None,
        partitioner: Partitioner | None = None,
        n_blocks: int | str = "auto",
        lam: float | str = "auto",
        weights: Literal["auto", "shared", "per-block", "global"] = "auto",
        route: float | str = "auto",
        n_neighbors: int | str = "auto",
        effort: Literal["normal", "low"] = "normal",
        weight_bits: int | str = "auto",
        threshold: float | str = "f1",
        rank_by: Literal["probability", "propensity"] = "probability",
        keep_rows: bool = False,
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.base = base
        self.partitioner = partitioner
        self.n_blocks = n_blocks
        self.lam = lam
        self.weights = weights
        self.route = route
        self.n_neighbors = n_neighbors
        self.effort = effort
        self.weight_bits = weight_bits
        self.threshold = threshold
        self.rank_by = rank_by
        self.keep_rows = keep_rows
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def paper(cls, base: Any = None, n_blocks: int | str = "paper", lam: float | str = "auto", **options: Any) -> Self:
        """The paper's system: per-block weights, one visited block, the quadratic objective, the base's margins.

        >>> BlockwiseClassifier.paper(n_blocks=4, lam=1.0).route
        1
        """
        partitioner = options.pop("partitioner", None) or Partitioner(objective="quadratic")
        return cls(base, partitioner, n_blocks, lam, weights="per-block", route=1, **options)

    def estimate(self, X: Any, Y: Any) -> dict[str, float]:
        """Estimate what ``fit(X, Y)`` needs: train_seconds, peak_memory_gb (of the process), model_mb, candidates per row.

        It measures the speed of this machine for two seconds; the rest follows from the sizes of the data.

        >>> X, Y = [[1.0, 0], [0.9, 0.1], [0, 1.0], [0.1, 0.9]], [["red"], ["red"], ["blue"], ["blue"]]
        >>> sorted(BlockwiseClassifier().estimate(X, Y))
        ['candidates', 'model_mb', 'peak_memory_gb', 'train_seconds']
        """
        learner = self._learner()
        if self._weights_kind(learner) != "shared" or not isinstance(learner, DiSMEC):
            raise BlockXMCError("estimate knows shared weights of DiSMEC, the default, only: others differ too much")
        rows = clone(self)._checked(X, reset=True)
        return estimate(rows, Targets.encode(Y)[1], threads=self._threads)

    @property
    def takes_names(self) -> bool:
        """Whether labels can be taught by their names: weights are shared vectors."""
        return self._weights_kind(learner := self._learner()) == "shared" and isinstance(learner, DiSMEC)

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        label_features: Any = None,
        use_label_features: Literal["always", "auto"] = "always",
        max_memory_gb: float | None = None,
        work: Any = None,
    ) -> Self:
        """Learn from X (n x d, sparse or dense) and y: a 0-1 matrix, lists of labels, or one class per row.

        A sparse matrix, a 2-d array or a DataFrame is a 0-1 matrix. A list (or Series) of lists or sets holds the labels
        of each row, as text or whole numbers. A list, Series or 1-d array of text or numbers holds one class per row.
        A plain list of equally long lists of 0 and 1 is refused if it could be a matrix or lists of labels.

        A training that would take more memory than ``max_memory_gb`` is refused before it begins.

        ``sample_weight`` has one number per row: a row of weight 2 counts twice, and a row of weight 0 is not learned,
        but is assigned to a block like any other. It needs shared weights of DiSMEC, the default.

        ``label_features`` (labels x d) describes the labels themselves, for example by their names in the features of X.
        It helps labels with few rows, and labels without any row can be suggested, too. It needs shared weights. With
        ``use_label_features="auto"`` it is left out where held-out rows gain nothing by it.

        ``work`` is a folder for finished stages: after a crash, the same call continues from them and gives the same
        bits (docs/howto/resume.md). ``went_on_from_`` lists the stages it found. You may remove the folder when the
        model is saved.

        >>> X, Y = [[1.0], [1.0], [1.0]], [["red"], ["red"], ["blue"]]
        >>> BlockwiseClassifier().fit(X, Y, sample_weight=[1, 1, 9]).predict_topk([[1.0]], k=1)[0].tolist()
        [[0]]
        """
        X, Y = self._training_data(X, y, max_memory_gb)
        hints = Hints.checked(X, Y, sample_weight, label_features, use_label_features)
        Y = hints.taught(Y)
        self.label_counts_ = np.bincount(Y.indices, minlength=Y.shape[1]).astype(np.int64)
        self._fit(X, Y, reporter_for(self.verbose), hints, work)
        return self

    def _fit(
        self, X: sparse.csr_array, Y: sparse.csr_array, reporter: Reporter, hints: Hints = NO_HINTS, work: Any = None
    ) -> None:
        learner = self._learner()
        kind = self._weights_kind(learner)
        if hints.sample_weight is not None and not (kind == "shared" and learner.takes_costs):
            raise BlockXMCError(f"sample_weight needs shared weights of DiSMEC, not {kind} of {type(learner).__name__}")
        if hints.label_features is not None and kind != "shared":
            raise BlockXMCError(f'label_features needs weights="shared", not {kind}')
        n_rows = X.shape[0] if hints.teaching is None else int(hints.teaching.sum())
        if self.threshold == "top-k" and (kind != "shared" or n_rows < settings.SETTINGS.least_rows):
            raise BlockXMCError(NO_TOP_K)
        if self.keep_rows and hints.sample_weight is not None:
            raise BlockXMCError("keep_rows does not go with sample_weight: updates do not know it")
        with opened(work, {} if work is None else self._identity(X, Y, hints), reporter) as job:
            self._fit_stages(learner, X, Y, kind, job, hints)
            self.names_ = hints.label_features if self.cost_.get("names_weight") else None
            self.went_on_from_ = job.reused
        if self.went_on_from_:
            reporter.say(f"went on from: {self.went_on_from_}")

    def _identity(self, X: sparse.csr_array, Y: sparse.csr_array, hints: Hints) -> dict[str, Any]:
        """All that a training depends on."""
        sizes = {"rows": X.shape[0], "features": X.shape[1], "labels": Y.shape[1]}
        return sizes | {"data": matrix_digest(X, Y)[:16]} | hints.digests() | parameters(self)

    def _fit_stages(
        self, learner: Learner, X: sparse.csr_array, Y: sparse.csr_array, kind: str, job: Job, hints: Hints
    ) -> None:
        self._seed = as_seed(self.random_state)
        if (times := longer_rows(X)) > UNEVEN:
            job.reporter.say(uneven_rows(times), logging.WARNING)
        if kind == "shared":
            self._fit_shared(learner, X, Y, job, hints)
        else:
            self._fit_apart(learner, X, Y, kind, job)
        some = np.linspace(0, X.shape[0] - 1, min(X.shape[0], COST_ROWS)).astype(int)
        with job.reporter.phase("count products"):
            self.cost_ |= self.model_.cost(copy_rows(X, some, self._threads), self._threads)
        self.cost_["largest_block"] = float(np.bincount(self.partition_.assignment_).max() / X.shape[0])
        if "trained_pairs" in self.cost_:
            self.cost_["rows_per_label"] = self.cost_["trained_pairs"] * X.shape[0]
        usual = 0.5 if self.model_.calibration is not None else learner._threshold
        self._take_cut(self.cost_, usual)
        self._begin_history()

    def _fit_shared(self, learner: Learner, X: sparse.csr_array, Y: sparse.csr_array, job: Job, hints: Hints) -> None:
        """One vector per label for all blocks, block probabilities merged in, scores calibrated."""
        reporter = job.reporter
        options: Any = {
            "threads": self._threads,
            "seed": self._seed,
            "settings": settings.settings_of(self.effort),
            "job": job,
        }
        partitioner = self._partitioner()
        shown = without_rows(Y, held_out_rows(Y, options["seed"], options["settings"], hints.teaching))
        if self.partitioner is None and self.n_blocks != "paper":
            make: Any = partial(partition_for_shared, X, shown, partitioner, reporter, **options)
        else:
            make = partial(partitioner._fit, X, shown, reporter)
        self.partition_ = job.stage("partition", make, PARTITION)
        options |= {"hints": hints, "keep_rows": self.keep_rows}
        request = Request(learner, self.route, self.n_neighbors, self._bits(16), **options)
        self.model_, self.cost_, self.kept_ = fit_shared(request, X, Y, self.partition_, reporter)
        words = described(self.model_, self.cost_)
        reporter.say(expectation(self.partition_, self.cost_, words))

    def _fit_apart(self, learner: Learner, X: sparse.csr_array, Y: sparse.csr_array, kind: str, job: Job) -> None:
        """The paper's blocks: a logistic router, and the base's own margins from per-block or global weights."""
        partitioner, reporter = self._partitioner(), job.reporter
        wanted = 1 if self.route == "auto" else int(self.route)
        if partitioner.lam != "auto":
            make: Any = partial(partitioner._fit, X, Y, reporter)
        else:
            task = quick_task(learner, partitioner, seed=self._seed, threads=self._threads, reporter=reporter)
            make = partial(partition_at_quick_lambda, X, Y, partitioner, task, weights=kind, route=wanted)
        self.partition_ = job.stage("partition", make, PARTITION)
        route = min(wanted, self.partition_.n_blocks_)
        seed = self._seed
        assignment, clusters = self.partition_.assignment_, self.partition_.label_clusters_
        self.cost_ = {"candidate_recall": 1.0, "router_accuracy": 1.0}
        if X.shape[0] > 1:
            assess = partial(assess_routing, X, Y, assignment, clusters, route, threads=self._threads, seed=seed)
            with reporter.phase("assess routing"):
                found = job.stage("routing on held-out rows", assess)
                self.cost_ = {key: found[key] for key in self.cost_}
        reporter.say(expectation(self.partition_, self.cost_, "margins of the base"))
        options: Any = {"n_blocks": len(clusters), "threads": self._threads, "reporter": reporter}
        router = job.stage("router", lambda: Router().fit(X, assignment, **options), router_form(Router()))
        weights: list[Weights]
        if self.weights == "global":
            whole = train_global(learner, X, Y, job, threads=self._threads, seed=seed)
            weights, offset = list(whole.split(clusters)), offset_terms([whole], X.shape[1])
        else:
            weights = train_blocks(learner, X, Y, assignment, clusters, job, threads=self._threads, seed=seed)
            offset = offset_terms(weights, X.shape[1])
        sizes: Any = {"n_features": X.shape[1], "n_labels": Y.shape[1], "threads": self._threads}
        scorer = pack_scorer(weights, clusters, **sizes, bits=self._bits(32))
        self.model_ = RoutedModel(router.scorer, scorer, route, offset=offset)

    def _request(self) -> Request:
        options: Any = {"threads": self._threads, "seed": as_seed(self.random_state)}
        options["settings"] = settings.settings_of(self.effort)
        return Request(self._learner(), self.route, self.n_neighbors, self._bits(16), **options)

    def _bits(self, usual: int) -> int:
        return usual if self.weight_bits == "auto" else int(self.weight_bits)

    def _weights_kind(self, learner: Learner) -> str:
        if self.weights == "shared" and not learner.one_vs_all:
            name = type(learner).__name__
            raise BlockXMCError(f'weights="shared" needs a one-vs-all base, not {name}: use weights="per-block"')
        kind = ("shared" if learner.one_vs_all else "per-block") if self.weights == "auto" else self.weights
        if kind != "shared" and isinstance(self.route, (float, np.floating)):
            raise BlockXMCError(f"route={self.route} is a share of probability, which needs shared weights")
        if kind != "shared" and self.n_neighbors not in ("auto", 0):
            raise BlockXMCError(f"n_neighbors={self.n_neighbors} needs shared weights")
        if self.keep_rows and kind != "shared":
            raise BlockXMCError("keep_rows needs shared weights: others cannot be updated")
        return kind

    def _learner(self) -> Learner:
        if self.weights not in WEIGHTS:
            raise BlockXMCError(f"weights must be one of {', '.join(WEIGHTS)}, got {self.weights!r}")
        self._check_route()
        self._check_threshold()
        if not isinstance(self.partitioner, Partitioner | None):
            raise BlockXMCError(f"partitioner must be a Partitioner or None, got {self.partitioner!r:.60}")
        if self.weight_bits not in ("auto", *BITS):
            raise BlockXMCError(f'weight_bits must be "auto", 32, 16 or 8, got {self.weight_bits!r}')
        if self.n_neighbors != "auto" and (not isinstance(self.n_neighbors, (int, np.integer)) or self.n_neighbors < 0):
            raise BlockXMCError(f'n_neighbors must be "auto" or a whole number of at least 0, got {self.n_neighbors!r}')
        learner = as_learner(self.base, DiSMEC if self.weights in ("per-block", "global") else lean_dismec)
        learner._check_params()
        return learner

    def _check_route(self) -> None:
        route = self.route
        if route == "auto" or (isinstance(route, (int, np.integer)) and route >= 1):
            return
        if not isinstance(route, (float, np.floating)) or not 0 < route < 1:
            raise BlockXMCError(
                'route must be "auto", a number of blocks of at least 1 or a share of probability between 0 and 1, '
                f"got {route!r}"
            )

    def _partitioner(self) -> Partitioner:
        partitioner: Partitioner = Partitioner() if self.partitioner is None else clone(self.partitioner)
        # What is said on the classifier wins over what the partitioner carries along.
        for name in ("n_blocks", "lam"):
            if getattr(self, name) != "auto":
                partitioner.set_params(**{name: getattr(self, name)})
        if self.partitioner is None:
            partitioner.set_params(random_state=self._seed)
        partitioner.set_params(n_jobs=self.n_jobs, verbose=self.verbose)
        return partitioner

    @property
    def names_teach_(self) -> dict[str, float] | None:
        """How much the features of labels count in scores (``"weight"``; 0: not at all), and what held-out rows gained.

        ``"gained_P@1"``, ``"gained_P@3"`` and ``"gained_P@5"`` compare scores with and without them. None: none were given.
        """
        check_is_fitted(self)
        found = {key.removeprefix("names_"): value for key, value in self.cost_.items() if key.startswith("names_")}
        return found or None

    # ---- storing ----
    def _state(self) -> dict[str, Any]:
        return {
            "blocks": self.model_.state(),
            "partition": self.partition_.state(),
            "cost": self.cost_,
            "names": self.names_,
            **self._cut_state(),
            **({} if self.kept_ is None else {"kept": self.kept_.state()}),
            **({} if self.sources_ is None else {"sources": self.sources_.state()}),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        model = RoutedModel.from_state(state["blocks"])
        self._check_sizes(model.n_labels, model.n_features)
        self.model_ = model
        self.partition_ = Partitioner.from_state(state["partition"])
        self.partition_.check_fits(self.n_train_rows_, self.targets_.n_labels)
        self.cost_ = stored.numbers(state["cost"], "cost")
        self.names_ = None
        if state["names"] is not None:
            self.names_ = stored.csr(state["names"], "names of labels", (self.targets_.n_labels, self.n_features_in_))
        self._restore_cut(state)
        self._restore_kept(state.get("kept"))
        if (sources := state.get("sources")) is not None:
            self.sources_ = Sources.from_state(stored.mapping(sources, "sources of training rows"), self.n_train_rows_)


def lean_dismec() -> DiSMEC:
    """The default base of shared weights: held back, pruned and solved less tightly than DiSMEC's own defaults."""
    return DiSMEC(C=0.5, prune=0.1, tol=0.05, unit_rows=True)
