"""Model directories that were damaged by accident or on purpose: each is refused in one line, none is believed."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from storage_models import file_of, fitted, register, saved, tamper

import blockxmc
from blockxmc import storage
from blockxmc.errors import BlockXMCError, ModelFormatError


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    register(monkeypatch)


def assert_refused(path: Path, message: str = "") -> None:
    with pytest.raises(ModelFormatError) as caught:
        storage.load(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert storage.verify(path) != []


def test_every_single_changed_byte_is_found(tmp_path):
    path = saved(tmp_path)
    for file in sorted(path.iterdir()):
        content = bytearray(file.read_bytes())
        for place in {0, len(content) // 2, len(content) - 2} if content else set():
            changed = content.copy()
            changed[place] ^= 1
            file.write_bytes(changed)
            assert storage.verify(path) != [], (file.name, place)
        file.write_bytes(content)
    assert storage.verify(path) == []


def test_truncated_longer_or_missing_files(tmp_path):
    path = saved(tmp_path)
    for file in sorted(path.glob("*.*")):
        content = file.read_bytes()
        file.write_bytes(content[:-2])
        assert_refused(path)
        if file.suffix != ".json":
            file.write_bytes(content + b"x")
            assert_refused(path, "bytes long instead of")
        file.unlink()
        assert_refused(path, "is missing")
        file.write_bytes(content)
    assert storage.verify(path) == []


def replace_array(path: Path, array, name="label_counts.npy", **claims) -> None:
    file = file_of(path, name)
    np.save(file, array, allow_pickle=True)
    size = file.stat().st_size
    tamper(path, lambda manifest: manifest["files"][file.name].update({"bytes": size, **claims}))


def entry(manifest, name):
    """What the manifest says of a file, and the file's name in this version."""
    stem, suffix = name.rsplit(".", 1)
    (found,) = (file for file in manifest["files"] if file.startswith(f"{stem}.") and file.endswith(f".{suffix}"))
    return manifest["files"][found]


def test_arrays_that_are_not_what_the_manifest_says(tmp_path):
    path = saved(tmp_path)
    replace_array(path, np.ones(6, np.float32))
    assert_refused(path, "another type or shape")
    replace_array(path, np.ones(5, np.int64))
    assert_refused(path, "another type or shape")
    replace_array(path, np.asfortranarray(np.ones((2, 3), np.int64)), shape=[2, 3])
    assert_refused(path, "no plain .npy header")
    replace_array(path, np.ones(5, np.int64), shape=[5])
    with pytest.raises(ModelFormatError, match="label counts do not match 6 labels"):
        storage.load(path)
    replace_array(path, np.ones(6), shape=[6], dtype="<f8")
    with pytest.raises(ModelFormatError, match="label counts do not match"):
        storage.load(path)


class Trap:
    """Unpickling it would leave a trace."""

    def __reduce__(self):
        return os.mkdir, ("trapped",)


@pytest.mark.parametrize("dtype", ["<i8", "|O", "O", "object"])
def test_pickles_are_never_opened(tmp_path, monkeypatch, dtype):
    monkeypatch.chdir(tmp_path)
    path = saved(tmp_path)
    replace_array(path, np.array([Trap()] * 6, object), dtype=dtype)
    assert_refused(path)
    assert not (tmp_path / "trapped").exists()


@pytest.mark.parametrize("extent", [1 << 40, 1 << 62, 1 << 63, 10**30, -1, True, 1.5, "6", None])
def test_impossible_shapes(tmp_path, extent):
    path = saved(tmp_path)
    tamper(path, lambda manifest: entry(manifest, "label_counts.npy").update(shape=[extent]))
    assert_refused(path)


def test_a_huge_shape_that_header_and_manifest_agree_on(tmp_path):
    path = saved(tmp_path)
    with open(file_of(path, "label_counts.npy"), "wb") as file:
        header = {"descr": "<i8", "fortran_order": False, "shape": (1 << 61, 1 << 61)}
        np.lib.format.write_array_header_1_0(file, header)
    size = file_of(path, "label_counts.npy").stat().st_size
    claims = {"shape": [1 << 61, 1 << 61], "bytes": size}
    tamper(path, lambda manifest: entry(manifest, "label_counts.npy").update(claims))
    assert_refused(path, "as its shape needs")


@pytest.mark.parametrize(
    "name",
    [
        *("../x.0123456789ab.npy", "/etc/x.0123456789ab.npy", "sub/x.0123456789ab.npy", "..0123456789ab.npy"),
        *("a\\b.0123456789ab.npy", "x.0123456789ab.pkl", "a\n.0123456789ab.npy", "x.0123456789ab.npy\n"),
        *(
            ".npy",
            "x.npy",
            "x.0123456789AB.npy",
            "\0.0123456789ab.npy",
            "manifest.json",
            "x" * 200 + ".0123456789ab.npy",
        ),
    ],
)
def test_files_outside_the_folder_are_not_reached(tmp_path, name):
    path = saved(tmp_path)
    np.save(tmp_path / "x.0123456789ab.npy", np.ones(6, np.int64))

    def point_outside(manifest):
        manifest["files"][name] = manifest["files"].pop(file_of(path, "label_counts.npy").name)
        manifest["fitted"]["label_counts_"] = {"$array": name}

    tamper(path, point_outside)
    assert_refused(path, "malformed entry")


def test_links_and_other_things_in_place_of_files(tmp_path):
    path = saved(tmp_path)
    counts, outside = file_of(path, "label_counts.npy"), tmp_path / "outside.npy"
    counts.rename(outside)
    counts.symlink_to(outside)
    assert_refused(path, "symbolic link")
    counts.unlink()
    counts.mkdir()
    assert_refused(path, "not a regular file")
    counts.rmdir()
    os.mkfifo(counts)
    assert_refused(path, "not a regular file")
    counts.unlink()
    outside.rename(counts)
    assert storage.verify(path) == []
    (path / "manifest.json").rename(tmp_path / "manifest.json")
    (path / "manifest.json").symlink_to(tmp_path / "manifest.json")
    assert_refused(path, "symbolic link")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"garbage",
        b"[]",
        b"{}",
        b"null",
        b"\xff\xfe",
        b'{"format": "blockxmc-model"}',
        b"[" * 100_000,
        b'{"a":' * 5000,
    ],
)
def test_a_manifest_that_is_none(tmp_path, content):
    path = saved(tmp_path)
    (path / "manifest.json").write_bytes(content)
    assert_refused(path, "manifest.json")


def test_other_versions_and_missing_sections(tmp_path):
    path = saved(tmp_path)
    assert storage.FORMAT_VERSION == 4
    for version in (3, 5, 0, -1, 1.0, "1", None, True, [1], {"$tuple": []}, 1e300, 10**30):
        tamper(path, lambda manifest, version=version: manifest.update(format_version=version))
        assert_refused(path, f"(blockxmc {blockxmc.__version__} reads 4); upgrade blockxmc")
    tamper(path, lambda manifest: manifest.update(format_version=storage.FORMAT_VERSION))
    for section in ("class", "params", "fitted", "targets", "state", "preprocessing", "provenance", "files"):
        kept = storage.read_manifest(path)[section]
        tamper(path, lambda manifest, section=section: manifest.pop(section))
        assert_refused(path, f"lacks {section}")
        tamper(path, lambda manifest, section=section, kept=kept: manifest.update({section: kept}))
    assert storage.verify(path) == []


def test_a_model_of_a_newer_version_says_which(tmp_path):
    path = saved(tmp_path)
    tamper(path, lambda manifest: manifest.update(format_version=5, provenance={"blockxmc": "0.5.0"}))
    assert_refused(path, "format version 5 of blockxmc 0.5.0 cannot be read (blockxmc")
    tamper(path, lambda manifest: manifest.update(provenance=[["0.5.0"]], state={"$newer": 1}))
    assert_refused(path, "format version 5 cannot be read (blockxmc")


def test_a_manifest_edited_without_its_checksum(tmp_path):
    path = saved(tmp_path)
    text = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(text.replace('"n_train_rows_": 3', '"n_train_rows_": 4'))
    assert_refused(path, "was changed after it was written")


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.update({"class": "os.system"}),
        lambda m: m.update({"class": ["Averager"]}),
        lambda m: m.update({"class": "LogisticRegression", "params": {}}),
        lambda m: m["params"].update(unheard_of=1),
        lambda m: m.update(params=[1]),
        lambda m: m.update(state={}),
        lambda m: m.update(state=None),
        lambda m: m["fitted"].update(__class__="x"),
        lambda m: m["fitted"].pop("label_counts_"),
        lambda m: m["fitted"].update(n_train_rows_="many"),
        lambda m: m["targets"].update(kind="cube"),
        lambda m: m["targets"].update(n_labels=7),
        lambda m: m["targets"].update(names=None, n_labels=-1),
        lambda m: m["targets"].update(names={"$strings": m["fitted"]["label_counts_"]["$array"], "as": "array"}),
        lambda m: m["targets"]["names"].update({"as": "cube"}),
        lambda m: m.update(preprocessing={"class": "TextVectorizer", "state": {}}),
        lambda m: m.update(preprocessing={"class": "subprocess:Popen", "state": {}}),
        lambda m: m["params"].update(start={"$array": "nowhere.npy"}),
        lambda m: m["params"].update(start={"$array": [m["fitted"]["label_counts_"]["$array"]]}),
        lambda m: m["params"].update(start={"$array": m["targets"]["names"]["$strings"]}),
        lambda m: m["params"].update(start={"$pickle": "x"}),
        lambda m: m["params"].update(start={"$float": "1", "$tuple": []}),
        lambda m: m["params"].update(start={"$float": "1e5"}),
        lambda m: m["params"].update(start={"$tuple": 1}),
        lambda m: m["params"].update(base={"$estimator": "Popen", "params": {}}),
        lambda m: m["params"].update(base={"$estimator": "Averager", "params": {"no": 1}}),
        lambda m: m["params"].update(base={"$csr": {"shape": [1]}}),
        lambda m: m["files"].update({"x.npy": None}),
        lambda m: entry(m, "label_names.txt").update(sha256="short"),
        lambda m: entry(m, "label_names.txt").update(lines=-1),
        lambda m: entry(m, "label_names.txt").update(lines=10**6),
        lambda m: m.update(targets=None),
        lambda m: m["targets"].update(names=None),
        lambda m: m["params"].update(n_jobs=10**9),
        lambda m: m["params"].update(n_jobs="all"),
        lambda m: m["fitted"].update(feature_names_in_=3),
        lambda m: m["fitted"].update(data_digest_=[1]),
        lambda m: m.update({"class": "Partitioner", "params": {}}),
        lambda m: m.update({"class": "TextVectorizer", "params": {}}),
        lambda m: m.update(preprocessing={"class": "Averager", "state": {}}),
        lambda m: m.update(files=[]),
    ],
)
def test_values_that_do_not_belong(tmp_path, change):
    path = saved(tmp_path)
    tamper(path, change)
    with pytest.raises(ModelFormatError) as caught:
        storage.load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("part", "array"),
    [
        ("indptr", [1, 2, 3, 4]),
        ("indptr", [0, 3, 2, 4]),
        ("indptr", [0, 1, 2, 3]),
        ("indptr", [0, 1, 4]),
        ("indptr", [0.0, 1.0, 2.0, 4.0]),
        ("indices", [0, 1, 2]),
        ("indices", [[0, 1], [2, 0]]),
        ("indices", [0, 1, 2, 3]),
        ("indices", [0, -1, 2, 1]),
    ],
)
def test_sparse_matrices_that_would_lead_kernels_astray(tmp_path, part, array):
    estimator = fitted()
    estimator.extra_ = {"matrix": sparse.csr_array(np.array([[1.0, 0, 0], [0, 1, 0], [1, 0, 1]]))}
    path = saved(tmp_path, estimator)
    array = np.array(array) if np.array(array).dtype.kind == "f" else np.array(array, np.int32)
    name = f"state.matrix.{part}.npy"
    replace_array(path, array, name, shape=list(array.shape), dtype=array.dtype.str)
    assert_refused(path)
    digest = hashlib.sha256(file_of(path, name).read_bytes()).hexdigest()
    tamper(path, lambda manifest: entry(manifest, name).update(sha256=digest))
    assert len(storage.verify(path)) == 1


def test_index_check():
    storage.check_indices(np.array([], np.int32), 0, "nothing")
    storage.check_indices(np.array([0, 4]), 5, "fits")
    for wrong in ([-1, 2], [0, 5]):
        with pytest.raises(ModelFormatError, match=r"outside 0\.\.4"):
            storage.check_indices(np.array(wrong), 5, "labels")


@pytest.mark.parametrize("content", [b'"a"\n1\n', b'"a", "b"\n', b'"a"\n', b'"a"\n"\xff"\n', b'"a"\n]\n', b"\n\n", b""])
def test_strings_that_are_not_one_per_line(content):
    length = 3 if content.startswith(b'"a", ') else 2
    strings = storage.Strings(content, length, "names.txt")
    with pytest.raises(ModelFormatError, match=r"names\.txt"):
        strings.tolist()


def test_random_damage_never_escapes_as_another_error(tmp_path):
    path = saved(tmp_path)
    rng = np.random.default_rng(0)
    for file in [file_of(path, "label_counts.npy"), path / "manifest.json"]:
        content = file.read_bytes()
        for _ in range(150):
            damaged = bytearray(content)
            for place in rng.integers(0, len(content), 3):
                damaged[place] = rng.integers(256)
            file.write_bytes(damaged)
            if file.suffix == ".json":
                try:
                    tamper(path, lambda manifest: None)
                except (ValueError, AttributeError, TypeError):
                    continue
            with contextlib.suppress(BlockXMCError):
                storage.load(path)
        file.write_bytes(content)


def test_no_model_at_all(tmp_path):
    with pytest.raises(ModelFormatError, match="no such model directory"):
        storage.load(tmp_path / "nowhere")
    with pytest.raises(ModelFormatError, match=r"manifest\.json is missing"):
        storage.load(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(ModelFormatError, match=r"manifest\.json is missing"):
        storage.load(tmp_path / "file")
