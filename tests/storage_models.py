"""Small estimators to save and load, and the means to damage what was saved."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
from scipy import sparse

from blockxmc import storage
from blockxmc.learners._learner import Learner
from blockxmc.linear.weights import LinearWeights
from blockxmc.storage import model


class Averager(Learner):
    """Weights of a label: the sum of its rows."""

    def __init__(self, start=None, base=None, sizes=(1, 2), scale=1.0, n_jobs=1, random_state=0, verbose=0):
        self.start, self.base, self.sizes, self.scale = start, base, sizes, scale
        self.n_jobs, self.random_state, self.verbose = n_jobs, random_state, verbose

    def _train(self, X, Y, job):
        return LinearWeights(sparse.csr_array(X.T @ Y, dtype=np.float32), np.zeros(Y.shape[1], np.float32))

    def _state(self):
        return super()._state() | getattr(self, "extra_", {})

    def _restore(self, state):
        super()._restore(state)
        self.extra_ = {key: value for key, value in state.items() if key != "scorer"}


def register(monkeypatch):
    """Make the class known to the model directory for the length of a test."""
    monkeypatch.setitem(storage.CLASSES, Averager.__name__, f"{__name__}:{Averager.__name__}")


X = sparse.csr_array(np.array([[1, 0, 2], [0, 3, 0], [1, 1, 0]], np.float32))
NAMES = [["plain", "line\nbreak"], ["naïve \u2028 日本語 🦊", '"quoted", \\'], ["\ud800 alone", ""]]


def fitted(Y=NAMES, **params):
    return Averager(**params).fit(X, Y)


def saved(tmp_path, estimator=None) -> Path:
    path = tmp_path / "model"
    storage.save_model(fitted() if estimator is None else estimator, path)
    return path


def file_of(path: Path, name: str) -> Path:
    """The file of a saved model that has this name in any version: ``label_counts.npy`` has a version in its name."""
    stem, suffix = name.rsplit(".", 1)
    (found,) = (p for p in path.iterdir() if re.fullmatch(re.escape(stem) + r"\.[0-9a-f]{12}\." + suffix, p.name))
    return found


def tamper(path: Path, change) -> None:
    """Change the manifest and seal it again, as someone who knows the format would."""
    manifest = json.loads((path / "manifest.json").read_text())
    change(manifest)
    manifest["manifest_sha256"] = model._seal(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest))
