"""The public surface: sorted, complete, and nothing else."""

import subprocess
import sys

import pytest

import blockxmc
import blockxmc.baselines
import blockxmc.data

LEARNERS = ["DiSMEC", "LEML", "NaiveBayes", "PDSparse", "PPDSparse"]
CONTRACT = [
    "BlockwiseClassifier",
    "DiSMEC",
    "Encoder",
    *LEARNERS[1:],
    "Partitioner",
    "TextClassifier",
    "load",
    "metrics",
]


def test_names():
    assert blockxmc.__all__ == sorted(blockxmc.__all__)
    assert [name for name in blockxmc.__all__ if name != "__version__"] == CONTRACT
    assert dir(blockxmc) == blockxmc.__all__
    for name in blockxmc.__all__:
        assert getattr(blockxmc, name) is not None


def test_rooms():
    for name in ("CBMLC", "LPSR", "LabelFilters", "FastXML"):
        assert name in blockxmc.baselines.__all__
        assert getattr(blockxmc.baselines, name).__doc__
    for name in ("Dataset", "read_xc", "write_xc", "read_text", "make_synthetic"):
        assert getattr(blockxmc.data, name).__doc__
    for name in ("precision_at_k", "ndcg_at_k", "recall_at_k", "psp_at_k", "psndcg_at_k", "coverage_at_k"):
        assert getattr(blockxmc.metrics, name).__doc__
    for name in ("inverse_propensity", "evaluate"):
        assert getattr(blockxmc.metrics, name).__doc__


def test_unknown_name():
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        blockxmc.nothing_of_this_name  # noqa: B018


def test_import_is_light():
    code = "import sys, blockxmc; print('sklearn' in sys.modules or 'scipy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


USER_SCRIPT = """
from typing import assert_type

from blockxmc import BlockwiseClassifier, TextClassifier, load
from blockxmc.model.explanations import Explanation
from blockxmc.text import Suggestion

texts, labels = ["cats purr", "dogs bark"], [["cat"], ["dog"]]
clf = TextClassifier(BlockwiseClassifier(n_blocks=1)).fit(texts, labels)
assert_type(clf, TextClassifier)
assert_type(clf.suggest("cats"), list[Suggestion])
assert_type(clf.suggest(texts), list[list[Suggestion]])
assert_type(clf.explain("cats"), list[Explanation])
model = load("model/")
if isinstance(model, TextClassifier):
    assert_type(model.suggest("cats", k=1)[0].score, float)
else:
    ids, scores = model.predict_topk([[1.0]], k=1)
"""


@pytest.mark.parametrize(
    "checker", [["mypy", "--strict", "--config-file="], ["pyright", "--pythonpath", sys.executable]]
)
def test_a_users_script_has_types(tmp_path, checker):
    (tmp_path / "user.py").write_text(USER_SCRIPT)
    done = subprocess.run([sys.executable, "-m", *checker, "user.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
