"""A model directory: round trips, replacement, interrupted writing, and loading without reading."""

from __future__ import annotations

import errno
import json
import os
import pickle
import shutil
import time

import numpy as np
import pytest
from helpers import blocky
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Perceptron, RidgeClassifierCV, SGDClassifier
from storage_models import NAMES, Averager, X, file_of, fitted, register, saved, tamper

import blockxmc
from blockxmc import BlockwiseClassifier, TextClassifier, load, storage
from blockxmc.errors import BlockXMCError


class Unknown(Averager):
    """Not registered."""


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    register(monkeypatch)


def assert_same(a, b):
    """Equal values of equal kind, all the way down (a stored list of strings may be lazy)."""
    if sparse.issparse(a):
        assert isinstance(b, sparse.csr_array)
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a.toarray(), b.toarray())
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    elif isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, float) and np.isnan(a):
        assert np.isnan(b)
    else:
        assert a == b
        assert isinstance(b, (type(a), storage.Strings))


# ---- round trips ----


@pytest.mark.parametrize(
    "Y",
    [
        NAMES,
        sparse.csr_array(np.eye(3)),
        sparse.csr_matrix(np.eye(3)),
        np.eye(3, 4),
        ["a", "b", "a"],
        [2, 7, 2],
        [[1, 2], [], [2]],
        [[], [], ["only"]],
    ],
)
def test_targets_and_predictions_survive(tmp_path, Y):
    before = fitted(Y)
    before.save(tmp_path / "model")
    after = blockxmc.load(tmp_path / "model")
    assert type(after) is Averager
    assert after.targets_.kind == before.targets_.kind
    assert_same(before.classes_, after.classes_)
    assert_same(before.label_counts_, after.label_counts_)
    assert (after.n_train_rows_, after.n_features_in_) == (3, 3)
    if before.label_names_ is None:
        assert after.label_names_ is None
    for old, new in zip(before.predict_topk(X, 2), after.predict_topk(X, 2), strict=True):
        np.testing.assert_array_equal(old, new)
    old, new = before.predict(X), after.predict(X)
    assert type(old) is type(new)
    assert_same(old, sparse.csr_array(new) if sparse.issparse(new) else new)


def test_parameters_survive(tmp_path):
    start = np.arange(6, dtype=np.int32).reshape(2, 3)
    base = Averager(base=LogisticRegression(C=np.float64(3.5)), scale=float("inf"))
    estimator = fitted(start=start, base=base, sizes=(1, ("a", None), [True]), scale=np.float32(0.5))
    params = storage.load(saved(tmp_path, estimator)).get_params(deep=False)
    np.testing.assert_array_equal(params["start"], start)
    assert params["sizes"] == (1, ("a", None), [True])
    assert type(params["scale"]) is float
    assert params["base"].scale == float("inf")
    assert params["base"].base.C == 3.5
    assert type(params["base"].base) is LogisticRegression


def test_state_of_every_kind_survives(tmp_path):
    extra = {
        "nested": {"deep": [1, 2.5, None, True, "text", [], {}], "Deep": np.arange(3)},
        "numbers": [np.zeros((2, 0, 3)), np.array(4.5), np.array([True, False])],
        "types": [np.arange(4).astype(t) for t in ("i1", "u2", "i4", "u8", "f2", "f4", "f8", ">f4", ">i8")],
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "strided": np.arange(10)[::3],
        "matrix": sparse.csr_matrix(np.diag([1.0, 0, 2])),
        "no_rows": sparse.csr_array((0, 4)),
        "float": [float("nan"), float("-inf"), 0.1],
        "words": ["x"] * 3,
        "many words": [f"w{i}\n" for i in range(1500)],
        "strings": np.array(["ä", "bb"]),
        "objects": np.array(["ä", "bb"], object),
        "../../odd name*": np.arange(2),
        "..": np.arange(3),
    }
    estimator = fitted()
    estimator.extra_ = extra
    after = storage.load(saved(tmp_path, estimator)).extra_
    assert_same(extra.pop("types")[-1].astype("<i8"), after.pop("types")[-1])
    for old, new in zip(extra.pop("numbers"), after.pop("numbers"), strict=True):
        assert_same(old, new)
    assert np.isnan(after["float"][0])
    assert after.pop("float")[1:] == extra.pop("float")[1:]
    assert isinstance(after["many words"], storage.Strings)
    assert after["fortran"].flags.c_contiguous
    assert_same(extra, after)


def test_preprocessing_and_provenance_survive(tmp_path):
    estimator = TextClassifier(Averager()).fit([f"word{i} other{i}" for i in range(60)], [["a"], ["b"]] * 30)
    estimator.classifier_.data_digest_ = "abc123"
    path = saved(tmp_path, estimator)
    after = storage.load(path)
    assert isinstance(after, TextClassifier)
    assert after.vectorizer_.feature_names == estimator.vectorizer_.feature_names
    assert after.classifier_.data_digest_ == "abc123"
    provenance = storage.read_manifest(path)["provenance"]
    assert provenance["blockxmc"] == blockxmc.__version__
    assert provenance["data_digest"] == "abc123"
    assert provenance["created"].endswith("+00:00")


def test_saving_a_loaded_model_again_even_over_itself(tmp_path):
    path = saved(tmp_path)
    loaded = storage.load(path)
    loaded.save(path)
    again = storage.load(path)
    assert again.classes_.tolist() == fitted().classes_.tolist()
    np.testing.assert_array_equal(again.predict_topk(X)[0], fitted().predict_topk(X)[0])
    assert loaded.label_names_.tolist() == again.label_names_.tolist()  # decoded after its file was replaced


def test_a_loaded_model_pickles(tmp_path):
    path = saved(tmp_path)
    loaded = storage.load(path)
    copy = pickle.loads(pickle.dumps(loaded.targets_))
    shutil.rmtree(path)
    assert copy.names.tolist() == fitted().classes_.tolist()
    assert pickle.loads(pickle.dumps(storage.Strings(b'"a"\n', 1, "x"))) == ["a"]


def test_loaded_model_can_be_fitted_again(tmp_path):
    loaded = storage.load(saved(tmp_path))
    assert loaded.classes_.size == 6
    assert loaded.fit(X, np.eye(3)).classes_.tolist() == [0, 1, 2]
    assert loaded.label_names_ is None


def test_arrays_are_read_only(tmp_path):
    loaded = storage.load(saved(tmp_path))
    arrays = loaded.scorer_._arrays
    for array in (loaded.label_counts_, arrays["keys"], arrays["buckets"], arrays["rows"], arrays["arena"]):
        assert not array.flags.writeable
        assert array.flags.aligned


def test_files_follow_the_umask_and_names_are_text(tmp_path):
    path = saved(tmp_path)
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o777 & ~umask
    lines = file_of(path, "label_names.txt").read_text(encoding="utf-8").splitlines()
    assert sorted(map(json.loads, lines)) == sorted(name for row in NAMES for name in row)


# ---- what cannot be saved ----


def test_what_cannot_be_saved_is_refused_in_one_line(tmp_path):
    cases = [
        (Unknown().fit(X, NAMES), "Unknown cannot be saved"),
        (fitted(base=print), "params.base cannot be saved: a builtin_function_or_method is not data"),
        (fitted(base=BaseEstimator()), "BaseEstimator cannot be saved"),
        (fitted(base={1: 2}), "the key 1 is not a plain name"),
        (fitted(base={"$array": 2}), "is not a plain name"),
        (fitted(start=np.array([1, "a"], object)), "params.start cannot be saved"),
        (fitted(start=np.array(["2020-01-01"], "M8[D]")), "params.start cannot be saved"),
    ]
    for estimator, message in cases:
        with pytest.raises(BlockXMCError) as caught:
            storage.save_model(estimator, tmp_path / "model")
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(NotFittedError):
        storage.save_model(Averager(), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


# ---- replacing ----


def test_parents_are_made_and_models_and_empty_folders_are_replaced(tmp_path):
    path = tmp_path / "a" / "b"
    storage.save_model(fitted(scale=1.0), path)
    storage.save_model(fitted([["x"], ["y"], ["z"]], scale=2.0), path)
    assert storage.load(path).scale == 2.0
    assert storage.verify(path) == []
    empty = tmp_path / "empty"
    empty.mkdir()
    storage.save_model(fitted(), empty)
    assert storage.verify(empty) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "empty"]
    assert [p.name for p in path.parent.iterdir()] == ["b"]


def test_a_link_to_a_model_is_followed(tmp_path):
    path = saved(tmp_path)
    link = tmp_path / "current"
    link.symlink_to(path)
    storage.save_model(fitted(scale=3.0), link)
    assert link.is_symlink()
    assert storage.load(link).scale == storage.load(path).scale == 3.0


@pytest.mark.parametrize("content", ["notes.txt", "manifest.json", "label_names.txt"])
def test_a_users_folder_is_never_replaced(tmp_path, content):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / content).write_text("{}")
    with pytest.raises(BlockXMCError, match="no part of a blockxmc model"):
        storage.save_model(fitted(), folder)
    assert (folder / content).read_text() == "{}"


def test_a_file_or_foreign_content_beside_a_model_is_never_replaced(tmp_path):
    path = saved(tmp_path)
    (path / "my notes").write_text("precious")
    with pytest.raises(BlockXMCError, match="my notes"):
        storage.save_model(fitted(), path)
    assert (path / "my notes").read_text() == "precious"
    (tmp_path / "file").write_text("precious")
    with pytest.raises(BlockXMCError, match="is a file"):
        storage.save_model(fitted(), tmp_path / "file")


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize(
    ("owner", "function", "call"),
    [
        (os, "fsync", 1),
        (os, "fsync", 2),
        (os, "open", 1),
        (os, "replace", 1),
        (np.lib.format, "write_array", 2),
        (json, "dumps", 1),
    ],
)
def test_failed_saving_leaves_the_old_model_and_nothing_else(tmp_path, monkeypatch, failure, owner, function, call):
    path = saved(tmp_path, fitted(scale=1.0))
    real, calls = getattr(owner, function), []

    def failing(*args, **kwargs):
        calls.append(args)
        if len(calls) == call:
            raise failure
        return real(*args, **kwargs)

    new = fitted(scale=2.0)
    with monkeypatch.context() as patch:
        patch.setattr(owner, function, failing)
        with pytest.raises(type(failure)):
            storage.save_model(new, path)
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    assert storage.verify(path) == []
    assert storage.load(path).scale == 1.0


def test_failed_first_saving_leaves_nothing(tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", full)
    with pytest.raises(OSError, match="No space left"):
        storage.save_model(fitted(), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


# ---- speed ----


def test_a_gigabyte_is_loaded_without_being_read(tmp_path):
    path = saved(tmp_path)
    estimator = fitted()
    estimator.extra_ = {"weights": np.zeros(1, np.float32)}
    storage.save_model(estimator, path)
    length = 1 << 28
    name = file_of(path, "state.weights.npy").name
    with open(path / name, "wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (length,)}
        np.lib.format.write_array_header_1_0(file, header)
        size = file.tell() + 4 * length
        file.truncate(size)
    tamper(path, lambda manifest: manifest["files"][name].update(bytes=size, shape=[length]))
    start = time.perf_counter()
    loaded = storage.load(path)
    assert time.perf_counter() - start < 0.5
    assert loaded.extra_["weights"].nbytes == 1 << 30
    assert loaded.extra_["weights"][-1] == 0


def test_label_names_are_decoded_when_asked_for(tmp_path, monkeypatch):
    path = saved(tmp_path)
    decoded = []
    monkeypatch.setattr(storage.Strings, "tolist", lambda self: decoded.append(self) or list("abcdef"))
    loaded = storage.load(path)
    loaded.predict_topk(X)
    assert decoded == []
    assert loaded.label_names_.tolist() == list("abcdef")
    assert loaded.classes_ is loaded.label_names_
    assert len(decoded) == 1


@pytest.mark.parametrize("base", [Perceptron(), RidgeClassifierCV(), SGDClassifier(), LogisticRegression()])
def test_linear_classifiers_of_scikit_learn_are_stored(base, tmp_path):
    rows, Y = blocky(n=120, n_labels=6)
    clf = BlockwiseClassifier(base, n_blocks=2).fit(rows, Y)
    clf.save(tmp_path / "m")
    np.testing.assert_array_equal(load(tmp_path / "m").predict_topk(rows, 3)[1], clf.predict_topk(rows, 3)[1])


# ---- what has not changed is not written again ----
def test_unchanged_files_are_listed_again(tmp_path):
    model = fitted()
    model.extra_ = {"large": np.arange(1000), "small": np.arange(3)}
    path = saved(tmp_path, model)
    before = {p.name: p.stat().st_ino for p in path.glob("*.*.*")}
    model.extra_ = {"large": np.arange(1000), "small": np.arange(4)}
    model.save(path)
    after = {p.name: p.stat().st_ino for p in path.glob("*.*.*")}
    assert {name for name in before if name not in after} == {name for name in before if "small" in name}
    assert all(after[name] == inode for name, inode in before.items() if name in after)
    assert storage.verify(path) == []
    assert storage.load(path).extra_["small"].tolist() == [0, 1, 2, 3]


def test_a_damaged_file_is_written_again(tmp_path):
    model = fitted()
    model.extra_ = {"large": np.arange(1000)}
    path = saved(tmp_path, model)
    large = file_of(path, "state.large.npy")
    large.write_bytes(large.read_bytes()[:-1] + b"\1")
    assert storage.verify(path) != []
    model.save(path)
    assert storage.verify(path) == []
    assert not large.exists()
