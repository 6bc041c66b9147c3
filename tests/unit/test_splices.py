"""Arrays that are written as the change of older ones: any change comes back whole, and damage is refused."""

import json

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from storage_models import tamper

from blockxmc import BlockwiseClassifier, _kernels, load, storage
from blockxmc.data import make_synthetic
from blockxmc.errors import ModelFormatError
from blockxmc.storage import splices


def changed(rng, old, kind):
    """An array like another: items put in, taken out, overwritten, moved, added at the ends."""
    new, at = old.copy(), int(rng.integers(0, old.size + 1))
    more = rng.integers(0, 3, int(rng.integers(0, 12))).astype(old.dtype)
    if kind == "moved":
        return np.roll(new, at)
    if kind == "overwritten":
        new[rng.random(old.size) < 0.02] = 1
        return new
    if kind == "cut":
        return np.concatenate([new[:at], new[at + more.size :]])
    return np.insert(new, at, more)


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int16, np.float32, np.int32, np.int64, np.float64])
@pytest.mark.parametrize("kind", ["moved", "overwritten", "cut", "put in"])
@pytest.mark.parametrize("values", [1, 3, 100])
def test_every_change_comes_back(monkeypatch, dtype, kind, values):
    monkeypatch.setattr(splices, "LEAST_BYTES", 0)
    rng = np.random.default_rng(values)
    found_any = False
    for size in (0, 1, 5, 40, 3000):
        old = rng.integers(0, values, size).astype(dtype)
        new = changed(rng, old, kind) if size else np.ones(3, dtype)
        for made in (new, changed(rng, new, "put in") if new.size else new):
            found = splices.spliced(old, made)
            if found is not None:
                found_any = True
                assert_array_equal(splices.put_together(old, **found), made)
                assert sum(part.nbytes for part in found.values()) <= made.nbytes // splices.SHARE
    assert found_any or kind == "overwritten" or dtype is np.bool_


def test_pieces_beside_what_was_done():
    old = np.random.default_rng(0).integers(0, 2**32, 5000).astype(np.uint32)
    new = np.concatenate([old[:1000], np.full(7, 3, np.uint32), old[1100:4000], old[500:5000]])
    begin, sizes = _kernels.find_pieces(old, new, most_pieces=100, most_own=100)
    assert begin.tolist() == [0, -1, 1100, 500]
    assert sizes.tolist() == [1000, 7, 2900, 4500]
    for limits in ({"most_pieces": 3, "most_own": 100}, {"most_pieces": 100, "most_own": 6}):
        assert _kernels.find_pieces(old, new, **limits)[0].size == 0


def test_floats_are_compared_by_their_bits(monkeypatch):
    monkeypatch.setattr(splices, "LEAST_BYTES", 0)
    old = np.zeros(1000, np.float32)
    new = np.append(old, np.float32([-0.0, np.nan]))
    found = splices.put_together(old, **splices.spliced(old, new))
    assert_array_equal(found.view(np.uint32), new.view(np.uint32))


def test_what_is_not_worth_it_is_written_whole():
    rng = np.random.default_rng(0)
    old = rng.random(20_000)
    assert splices.spliced(old, rng.random(20_000)) is None
    assert splices.spliced(old, old.astype(np.float32)) is None
    assert splices.spliced(old[:1000], old[:1001]) is None  # too small


def test_pieces_of_older_versions_are_longer_numbers():
    old = np.arange(20_000)
    found = splices.spliced(old, np.insert(old, 9, -1))
    assert found["pieces"].dtype == np.int32
    for kind in (np.int32, np.int64):
        together = splices.put_together(old, found["more"], found["pieces"].astype(kind))
        assert_array_equal(together, np.insert(old, 9, -1))


@pytest.mark.parametrize(
    "pieces",
    [
        [[-1, 2]],
        [[2, 1]],
        [[0, 5]],
        [[1, 4]],
        [[0, 2**62]],
        [[0, 3]] * 3,
        [[0, 1, 2]],
        [0, 1],
        np.zeros((1, 2), np.int16),
        np.zeros((1, 2)),
    ],
    ids=["before", "backwards", "behind", "both", "far", "too long", "three", "flat", "int16", "floats"],
)
def test_pieces_that_do_not_fit(pieces):
    with pytest.raises(ValueError, match="piece"):
        splices.put_together(np.arange(3), np.arange(1), np.asarray(pieces))


@pytest.fixture(scope="module")
def rows():
    train, _ = make_synthetic(scale=0.1, seed=0)
    return train.X, sparse.csr_array(train.Y)


@pytest.fixture
def updated(tmp_path, rows, monkeypatch):
    """The folder of a model that learnt two rows after it was saved, and the model."""
    monkeypatch.setattr(splices, "LEAST_BYTES", 1 << 12)
    X, Y = rows
    clf = BlockwiseClassifier(n_blocks=8, keep_rows=True, n_jobs=1).fit(X[:-4], Y[:-4])
    clf.save(tmp_path / "model")
    before = {path.name for path in (tmp_path / "model").iterdir()}
    clf = load(tmp_path / "model").update(X[-4:-2], Y[-4:-2])
    clf.save(tmp_path / "model")
    return tmp_path / "model", clf, before


def spliced_values(node):
    if isinstance(node, dict) and "$spliced" in node:
        return [node["$spliced"]]
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else []
    return [value for child in children for value in spliced_values(child)]


def test_an_update_writes_what_has_changed(updated, rows):
    path, clf, before = updated
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["format_version"] == storage.FORMAT_VERSION
    assert spliced_values(manifest["state"])
    files = {p.name: p.stat().st_size for p in path.iterdir()}
    written = sum(size for name, size in files.items() if name not in before)
    assert written < 0.5 * sum(files.values())
    assert storage.verify(path) == []
    for _ in range(2):  # as it is now, and after one more update that is saved over splices
        found, told = load(path), clf.predict_topk(rows[0], 5)
        for a, b in zip(found.predict_topk(rows[0], 5), told, strict=True):
            assert_array_equal(a, b)
        clf = found.update(rows[0][-2:], rows[1][-2:])
        clf.save(path)
    clf.save(path.parent / "whole")
    assert not spliced_values(json.loads((path.parent / "whole" / "manifest.json").read_text())["state"])


def test_bases_stay_and_others_go(updated):
    path, clf, _ = updated
    listed = set(json.loads((path / "manifest.json").read_text())["files"]) | {"manifest.json"}
    assert {p.name for p in path.iterdir()} == listed
    clf.save(path)  # the same once more: files that hold all of an array stay, splices become such files
    manifest = json.loads((path / "manifest.json").read_text())
    assert not spliced_values(manifest["state"])
    assert {p.name for p in path.iterdir()} == {*manifest["files"], "manifest.json"}
    assert listed & set(manifest["files"])


@pytest.mark.parametrize("anew", [False, True], ids=["forgotten", "trained without it"])
def test_nothing_stays_of_a_row_that_is_gone(tmp_path, rows, monkeypatch, anew):
    monkeypatch.setattr(splices, "LEAST_BYTES", 1 << 12)
    X, Y = rows[0].copy(), rows[1]
    row = 100
    X.data[X.indptr[row] : X.indptr[row + 1]] = secret = np.linspace(
        0.1234, 0.1235, np.diff(X.indptr)[row], dtype=np.float32
    )
    clf = BlockwiseClassifier(n_blocks=8, keep_rows=True, n_jobs=1).fit(X[:-2], Y[:-2])
    clf.save(tmp_path / "model")

    def files_with_it():
        return [path.name for path in (tmp_path / "model").iterdir() if secret.tobytes() in path.read_bytes()]

    load(tmp_path / "model").update(X[-2:], Y[-2:]).save(tmp_path / "model")
    assert files_with_it()
    if anew:
        others = np.delete(np.arange(X.shape[0]), row)
        clf = BlockwiseClassifier(n_blocks=8, keep_rows=True, n_jobs=1).fit(X[others], Y[others])
    else:
        clf = load(tmp_path / "model").forget(rows=[row])
    clf.save(tmp_path / "model")
    assert files_with_it() == []
    assert storage.verify(tmp_path / "model") == []


@pytest.mark.parametrize(
    "change",
    [
        lambda value, others: value.update(shape=[1 << 40]),
        lambda value, others: value.update(shape=[-1]),
        lambda value, others: value.update(shape=None),
        lambda value, others: value.update(pieces=value["more"]),
        lambda value, others: value.update(more=value["pieces"]),
        lambda value, others: value.update(base=None),
        lambda value, others: value.update(base=["a"]),
        lambda value, others: value.pop("pieces"),
        lambda value, others: value.update(base=others["base"], shape=others["shape"]),
    ],
)
def test_splices_that_were_tampered_with(updated, change):
    path, _, _ = updated

    def tampered(manifest):
        first, second = spliced_values(manifest["state"])[:2]
        change(first, second)

    tamper(path, tampered)
    with pytest.raises(ModelFormatError) as caught:
        load(path)
    assert "\n" not in str(caught.value)
    assert storage.verify(path) != []
