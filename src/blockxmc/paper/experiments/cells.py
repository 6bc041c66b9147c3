"""Cells: what there is to compute, and the bench on which each is computed once."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from blockxmc.paper.experiments import partitions, systems
from blockxmc.paper.experiments.code import code_digest
from blockxmc.paper.experiments.rows import files, fingerprint, scaled, with_seen_labels
from blockxmc.paper.experiments.settings import BASE_TITLES, Settings, provenance
from blockxmc.paper.experiments.stopwatch import Spent
from blockxmc.paper.experiments.store import Store
from blockxmc.training.job import code_digest as whole_code_digest
from blockxmc.tuning import OutOfTimeError

if TYPE_CHECKING:
    from blockxmc.data import Dataset

Pair = tuple["Dataset", "Dataset"]

TITLES = {
    "full": "{base}",
    "bp-accuracy": "BP {base} (accuracy-driven)",
    "bp-speed": "BP {base} (speed-driven)",
    "bp-default": "BP (library default)",
    "bp-quick": "BP {base} (train --paper)",
    "cbmlc": "CBMLC {base}",
    "full-letter": "{base}, to the letter",
    "bp-letter-accuracy": "BP {base}, to the letter (accuracy-driven)",
    "bp-letter-speed": "BP {base}, to the letter (speed-driven)",
    "cbmlc-letter": "CBMLC {base}, to the letter",
    "cbmlc-default": "CBMLC {base} (8 clusters)",
    "lpsr": "LPSR-NB",
    "lpsr-over": "LPSR over {base}",
    "lf": "Label filters {base}",
    "fastxml": "FastXML",
    "published": "{base} as published",
}
# Titles of the systems that are run as their authors ran them.
PUBLISHED = {"fastxml": "FastXML", "lpsr": "LPSR-NB"}

# What is said of cells that the settings leave out, and of those for which there was no time.
LEFT_OUT, NOT_COMPUTED = "left out", "not computed"
# Cells that a cell needs, besides that of the data: their kinds, with the same base or (plan) without one.
NEEDS = {
    "tune": ("plan",),
    "bp-accuracy": ("tune",),
    "bp-speed": ("tune", "bp-accuracy"),
    "cbmlc": ("tune",),
    "tune-letter": ("plan-letter",),
    "bp-letter-accuracy": ("tune-letter",),
    "bp-letter-speed": ("tune-letter", "bp-letter-accuracy"),
    "cbmlc-letter": ("tune-letter",),
}
# Cells whose seeds count: they are trained by several.
SEEDED = (
    "full",
    "bp-accuracy",
    "bp-speed",
    "cbmlc",
    "full-letter",
    "bp-letter-accuracy",
    "bp-letter-speed",
    "cbmlc-letter",
)
# Cells that the folds, the tolerance and the plan of blocks shape.
TUNED = ("tune", "bp-accuracy", "bp-speed", "cbmlc")


@dataclass(frozen=True)
class Cell:
    """One thing to compute about one data set.

    >>> Cell("bibtex", "bp-speed", "leml").id, Cell("bibtex", "bp-speed", "leml").title
    ('bibtex/bp-speed/leml', 'BP LEML (speed-driven)')
    """

    data: str
    system: str
    base: str = ""

    @property
    def id(self) -> str:
        """The name under which it is stored and traced."""
        return "/".join(part for part in (self.data, self.system, self.base) if part)

    @property
    def needs(self) -> list[Cell]:
        """The cells that must be finished before this one."""
        wanted = NEEDS.get(self.system, ())
        own = [Cell(self.data, kind, "" if kind.startswith("plan") else self.base) for kind in wanted]
        return own if self.system == "data" else [Cell(self.data, "data"), *own]

    @property
    def letter(self) -> bool:
        """Whether it is the paper to the letter: the authors' parameters, rows as the files have them."""
        return "letter" in self.system

    @property
    def title(self) -> str:
        """The name of the system in tables."""
        return TITLES[self.system].format(base=(BASE_TITLES | PUBLISHED).get(self.base, self.base))


class CellFailedError(Exception):
    """A cell failed that another cell needs."""


class Bench:
    """Computes cells, or takes them from the store; one data set is in memory at a time."""

    def __init__(
        self, folders: dict[str, Path], settings: Settings, store: Store, stop_at: float | None = None
    ) -> None:
        self.folders, self.settings, self.store = folders, settings, store
        self.stop_at = stop_at  # in the time of ``time.time``: tuning begins no trial after it
        self._loaded: tuple[str, Pair, Pair] | None = None
        self._known: dict[Cell, dict[str, Any]] = {}
        self.n_test_rows = self.n_train_rows = 0  # of the data set in memory, used or not

    def content(self, cell: Cell) -> dict[str, Any]:
        """What is stored of a cell: its ``row``, or ``error`` and ``traceback``; computed now where that is needed.

        A cell that failed in an earlier run is tried again, once per run.
        """
        if cell not in self._known:
            if self._is_left_out(cell):
                return {"cell": cell.id, "error": LEFT_OUT}
            try:
                setting = self.setting(cell)
            except CellFailedError as error:
                return {"cell": cell.id, "error": str(error)}
            stored = self.store.get(cell.id, setting)
            if stored is None or "error" in stored:
                try:
                    self.store.put(cell.id, setting, self._computed(cell))
                except OutOfTimeError:
                    return not_computed(cell)
                stored = self.store.get(cell.id, setting)
                assert stored is not None
            self._known[cell] = stored
        return self._known[cell]

    def finished(self, cell: Cell) -> dict[str, Any]:
        """What there is of a cell without computing it."""
        return self.content(cell) if self._is_left_out(cell) or self.is_stored(cell) else not_computed(cell)

    def _is_left_out(self, cell: Cell) -> bool:
        return any(fnmatch(cell.id, pattern) for pattern in self.settings.skip)

    def is_stored(self, cell: Cell) -> bool:
        """Whether a cell was finished by an earlier run, or by this one."""
        try:
            stored = self._known.get(cell) or self.store.get(cell.id, self.setting(cell))
        except CellFailedError:
            return False
        return stored is not None and "error" not in stored

    def row(self, cell: Cell) -> dict[str, Any]:
        """The raw numbers of a cell that must not have failed."""
        content = self.content(cell)
        if content.get("error") == NOT_COMPUTED:
            raise OutOfTimeError(cell.id)
        if "error" in content:
            raise CellFailedError(f"{cell.id} failed: {content['error']}")
        row: dict[str, Any] = content["row"]
        return row

    def datasets(self, cell: Cell) -> Pair:
        """Training rows and the test rows to be scored, of unit length where the settings say so.

        Naive Bayes models counts: its rows stay as the files have them. So do those of systems run as published, and to
        the letter.
        """
        if self._loaded is None or self._loaded[0] != cell.data:
            self._loaded = None  # free the old data first
            given = self._read(cell.data)
            unit = (scaled(given[0]), scaled(given[1])) if self.settings.normalise else given
            self._loaded = (cell.data, given, unit)
        _, given, unit = self._loaded
        return given if cell.base == "naive-bayes" or cell.system == "published" or cell.letter else unit

    def _read(self, data: str) -> Pair:
        from blockxmc.data import read_data_dir

        train, test = read_data_dir(self.folders[data])
        self.n_test_rows, self.n_train_rows = test.n_rows, train.n_rows
        limit, most = self.settings.max_test_rows, dict(self.settings.max_train_rows).get(data)
        if limit is not None and test.n_rows > limit:
            test = replace(test.rows(self._some(test.n_rows, limit)), unseen_labels=test.unseen_labels)
        if most is None:
            return train, test
        if train.n_rows > most:
            train = train.rows(self._some(train.n_rows, most))
        return with_seen_labels(train, test)

    def _some(self, n_rows: int, count: int) -> Any:
        return np.sort(np.random.default_rng(self.settings.seed).choice(n_rows, count, replace=False))

    def setting(self, cell: Cell) -> dict[str, Any]:
        """All that the numbers of a cell depend on. Options without influence are left out, so that runs share cells."""
        chosen = self.settings
        common: dict[str, Any] = {"blockxmc": _version(), "code": code_digest(cell.system), "seed": chosen.seed}
        if cell.system == "data":
            most = dict(chosen.max_train_rows).get(cell.data)
            reading = {"max_test_rows": chosen.max_test_rows, "max_train_rows": most, "normalise": chosen.normalise}
            return common | {"files": fingerprint(self.folders[cell.data])} | reading
        known = self.row(Cell(cell.data, "data"))
        common["train"] = known["train_digest"]
        if cell.system in ("blocks", "q"):
            return common
        kind = cell.system.replace("-letter", "")
        if kind not in ("tune", "plan"):
            common |= {"test": known["test_digest"], "propensity": chosen.propensity}
        common["threads"] = chosen.n_threads
        if cell.base == "leml" and not cell.letter:
            common["rank"] = chosen.rank
        if kind in TUNED:
            common |= {"folds": chosen.folds, "tolerance": chosen.tolerance}
        if (kind in TUNED or kind == "plan") and not cell.letter:
            common["blocks"] = chosen.blocks
        if kind in SEEDED:
            common["seeds"] = chosen.seeds
        if cell.system == "fastxml":
            common["trees"] = chosen.trees
        return common

    def _computed(self, cell: Cell) -> dict[str, Any]:
        start = Spent.now()
        content: dict[str, Any]
        try:
            content = {"row": MAKERS[cell.system](self, cell)}
        except OutOfTimeError:
            raise
        except Exception as error:  # a failing system must not end the run: its error is stored and shown
            line = str(error) if isinstance(error, CellFailedError) else f"{type(error).__name__}: {error}"
            content = {"error": " ".join(line.split()), "traceback": traceback.format_exc()}
        spent = Spent.now().since(start)
        return content | {"seconds": spent.wall, "cpu_seconds": spent.cpu, "made": provenance()}


def not_computed(cell: Cell) -> dict[str, Any]:
    """What there is of a cell for which there was no time."""
    return {"cell": cell.id, "error": NOT_COMPUTED}


def _version() -> str:
    """Another version of the library makes other cells."""
    from blockxmc import __version__

    return str(__version__)


# ---- what each kind of cell computes ----
def _data(bench: Bench, cell: Cell) -> dict[str, Any]:
    from blockxmc.data import describe

    train, scored = bench.datasets(cell)
    rows = {"test_rows": bench.n_test_rows, "scored_rows": scored.n_rows, "all_train_rows": bench.n_train_rows}
    figures = describe(cell.data, train, scored) | rows
    told = {
        "labels_of_rows": np.diff(scored.Y.indptr).tolist(),
        "files": [file.name for file in files(bench.folders[cell.data])],
    }
    return figures | told | {"train_digest": train.digest, "test_digest": scored.digest}


def _base(bench: Bench, cell: Cell) -> Any:
    return systems.make_base(cell.base, bench.settings, letter=cell.letter)


def _full(bench: Bench, cell: Cell) -> dict[str, Any]:
    return _trained(bench, cell, _base(bench, cell))


def _trained(bench: Bench, cell: Cell, model: Any) -> dict[str, Any]:
    """Train and measure a model; where its seed counts, the precision of others by other seeds, too."""
    from blockxmc.training.dataset import fit_dataset

    train = bench.datasets(cell)[0]
    model.set_params(n_jobs=bench.settings.n_threads)

    def fit(seed: int) -> Any:
        return fit_dataset(clone(model).set_params(random_state=seed), train)

    return _measured(bench, cell, fit)


def _measured(bench: Bench, cell: Cell, fit: Callable[[int], Any]) -> dict[str, Any]:
    settings, test = bench.settings, bench.datasets(cell)[1]
    first = settings.seed
    row = systems.train_and_measure(lambda: fit(first), test, settings.propensity_of(cell.data, test.n_labels))
    if cell.system.replace("-letter", "") in SEEDED and not (cell.system.startswith("full") and cell.base == "dismec"):
        more = [systems.precision(fit(seed), test) for seed in range(first + 1, first + settings.seeds)]
        row["seeds"] = {name: [row[name], *(one[name] for one in more)] for name in systems.RANKED}
    return row


def _plan(bench: Bench, cell: Cell) -> dict[str, Any]:
    return systems.plan(bench.datasets(cell)[0], bench.settings, letter=cell.letter)


def _tune(bench: Bench, cell: Cell) -> dict[str, Any]:
    plan = bench.row(cell.needs[1])  # one plan for all bases
    train, _ = bench.datasets(cell)
    # Each setting, and each state of the code, has a folder of its own: a job refuses those of others.
    work = (
        bench.store.folder / "tuning" / f"{bench.store.path(cell.id, bench.setting(cell)).stem}--{whole_code_digest()}"
    )
    return systems.tune(train, _base(bench, cell), plan, bench.settings, work, bench.stop_at)


def _tuned(bench: Bench, cell: Cell) -> dict[str, Any]:
    tuning = bench.row(cell.needs[1])
    choice = cell.system.rpartition("-")[2]
    infeasible = tuning["speed_driven"] is None
    feasible = {"feasible": not infeasible} if choice == "speed" else {}
    if choice == "speed" and tuning["least_loss" if infeasible else "speed_driven"] == tuning["accuracy_driven"]:
        twin = cell.needs[2]
        return bench.row(twin) | {"same_as": twin.id} | feasible  # the same pair is the same model: train it once
    choice = "least-loss" if choice == "speed" and infeasible else choice
    train, base = bench.datasets(cell)[0], _base(bench, cell)
    return (
        _measured(bench, cell, lambda seed: systems.fit_tuned(tuning, train, base, choice, bench.settings, seed))
        | feasible
    )


def _default(bench: Bench, cell: Cell) -> dict[str, Any]:
    from blockxmc import BlockwiseClassifier

    return _trained(bench, cell, BlockwiseClassifier())


def _quick(bench: Bench, cell: Cell) -> dict[str, Any]:
    from blockxmc import BlockwiseClassifier

    return _trained(bench, cell, BlockwiseClassifier.paper(_base(bench, cell)))


def _published(bench: Bench, cell: Cell) -> dict[str, Any]:
    from blockxmc.baselines import LPSR, FastXML

    return _trained(bench, cell, LPSR() if cell.base == "lpsr" else FastXML())


def _cbmlc_default(bench: Bench, cell: Cell) -> dict[str, Any]:
    from blockxmc.baselines import CBMLC

    return _trained(bench, cell, CBMLC(_base(bench, cell)))


def _cbmlc(bench: Bench, cell: Cell) -> dict[str, Any]:
    from blockxmc.baselines import CBMLC

    # CBMLC leaves the number of clusters to the user: it gets as many as the speed-driven BP has blocks.
    tuning = bench.row(cell.needs[1])
    blocks = int((tuning["speed_driven"] or tuning["least_loss"])["n_blocks"])
    return _trained(bench, cell, CBMLC(_base(bench, cell), n_blocks=blocks)) | {"blocks": blocks}


def _lpsr(bench: Bench, cell: Cell) -> dict[str, Any]:
    from blockxmc.baselines import LPSR

    return _trained(bench, cell, LPSR() if cell.system == "lpsr" else LPSR(_base(bench, cell)))


def _filters(bench: Bench, cell: Cell) -> dict[str, Any]:
    from blockxmc.baselines import LabelFilters

    return _trained(bench, cell, LabelFilters(systems.make_base(cell.base, bench.settings)))


def _fastxml(bench: Bench, cell: Cell) -> dict[str, Any]:
    from blockxmc.baselines import FastXML

    return _trained(bench, cell, FastXML(n_trees=bench.settings.trees))


def _blocks(bench: Bench, cell: Cell) -> dict[str, Any]:
    return partitions.picture(bench.datasets(cell)[0], bench.settings.seed, bench.settings.n_threads)


def _q(bench: Bench, cell: Cell) -> dict[str, Any]:
    return partitions.over_q(bench.datasets(cell)[0], bench.settings.seed, bench.settings.n_threads)


MAKERS: dict[str, Callable[[Bench, Cell], dict[str, Any]]] = {
    "data": _data,
    "full": _full,
    "plan": _plan,
    "tune": _tune,
    "bp-accuracy": _tuned,
    "bp-speed": _tuned,
    "plan-letter": _plan,
    "full-letter": _full,
    "tune-letter": _tune,
    "bp-letter-accuracy": _tuned,
    "bp-letter-speed": _tuned,
    "cbmlc-letter": _cbmlc,
    "bp-default": _default,
    "bp-quick": _quick,
    "cbmlc-default": _cbmlc_default,
    "cbmlc": _cbmlc,
    "lpsr": _lpsr,
    "lpsr-over": _lpsr,
    "lf": _filters,
    "fastxml": _fastxml,
    "published": _published,
    "blocks": _blocks,
    "q": _q,
}
