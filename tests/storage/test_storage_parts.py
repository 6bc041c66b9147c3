"""Stored parts that a kernel, NumPy or SciPy would follow astray: each is refused as a damaged model, by comparison."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest
from helpers import blocky
from scipy import sparse
from storage_models import file_of, fitted, register, saved, tamper

from blockxmc import LEML, BlockwiseClassifier, NaiveBayes, load, storage
from blockxmc.baselines import FastXML, LabelFilters
from blockxmc.errors import BlockXMCError, ModelFormatError
from blockxmc.model.reranker import Reranker
from blockxmc.storage import model as storage_model

BIG = np.iinfo(np.int64).max


def default(X, Y):
    clf = BlockwiseClassifier(n_blocks=3, n_neighbors=10).fit(X, Y)
    curve = np.repeat(np.float32([-1, 1, 0]), [4, 4, 14])
    reranker = Reranker(curve, np.zeros(Y.shape[1], np.float32), 5)
    clf.model_ = dataclasses.replace(clf.model_, reranker=reranker)
    return clf


MAKERS = {
    "default": default,
    "bayes": lambda X, Y: BlockwiseClassifier(NaiveBayes(), n_blocks=3, weights="per-block").fit(X, Y),
    "leml": lambda X, Y: BlockwiseClassifier(LEML(rank=3), n_blocks=3).fit(X, Y),
    "plain bayes": lambda X, Y: NaiveBayes().fit(X, Y),
    "fastxml": lambda X, Y: FastXML(n_trees=3).fit(X, Y),
    "filters": lambda X, Y: LabelFilters(n_filters=2, n_steps=200).fit(X, Y),
    "filters leml": lambda X, Y: LabelFilters(LEML(rank=3), n_filters=2, n_steps=200).fit(X, Y),
}


@pytest.fixture(scope="module")
def data():
    return blocky(n=300, n_features=60, n_labels=20)


@pytest.fixture(scope="module")
def stored(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name, make in MAKERS.items():
        make(*data).save(folder / name)
    return folder


@pytest.fixture
def copy(stored, tmp_path):
    def of(name):
        return shutil.copytree(stored / name, tmp_path / name)

    return of


def damage(path, name, change) -> None:
    """Change an array and make the manifest agree, checksums apart."""
    file = file_of(path, f"state.{name}.npy")
    array = change(np.load(file).copy())
    np.save(file, array)
    claims = {"bytes": file.stat().st_size, "dtype": array.dtype.str, "shape": list(array.shape)}
    tamper(path, lambda manifest: manifest["files"][file.name].update(claims))


def at(index, value):
    def change(array):
        array.reshape(-1)[index] = value
        return array

    return change


CASES = [
    ("bayes", "blocks.offset.indices", at(0, -1)),
    ("bayes", "blocks.offset.indices", at(-1, 1 << 40)),
    ("bayes", "blocks.offset.indptr", at(3, 1 << 40)),
    ("bayes", "blocks.offset.indptr", at(3, -BIG)),
    ("bayes", "blocks.offset.data", lambda a: a.astype(np.float64)),
    ("plain bayes", "offset_term", lambda a: a[:-1]),
    ("plain bayes", "offset_term", lambda a: a.astype(np.int64)),
    ("leml", "blocks.scorer.blocks.0.labels", at(0, -(2**31))),
    ("leml", "blocks.scorer.blocks.0.labels", at(-1, 2**31 - 1)),
    ("leml", "blocks.scorer.blocks.0.features", at(0, 2**31 - 1)),
    ("leml", "blocks.scorer.blocks.0.W", lambda a: a[:-1]),
    ("leml", "blocks.scorer.blocks.0.H", lambda a: a.astype(np.float64)),
    ("leml", "blocks.scorer.blocks.0.bias", lambda a: a[:1]),
    ("fastxml", "forest.children", at(0, 2**31 - 1)),
    ("fastxml", "forest.children", at(0, 0)),
    ("fastxml", "forest.roots", at(1, 0)),
    ("fastxml", "forest.features", at(0, -5)),
    ("fastxml", "forest.feature_ptr", at(1, BIG)),
    ("fastxml", "forest.label_ptr", lambda a: a[:-1]),
    ("fastxml", "forest.label_scores", at(0, np.nan)),
    ("fastxml", "forest.depth", lambda a: a[:3]),
    ("fastxml", "forest.weights", lambda a: a.astype(np.float64)),
    ("filters", "filters.lower", lambda a: a[:, :-1]),
    ("filters", "filters.directions", lambda a: a[:-1]),
    ("filters", "filters.upper", lambda a: a.astype(np.float64)),
    ("filters", "weights.by_label.indices", at(0, -1)),
    ("filters", "weights.by_label.indptr", at(2, 2**31 - 1)),
    ("filters", "weights.bias", lambda a: a[:1]),
    ("filters leml", "weights.W", lambda a: a[:, :1]),
    ("default", "partition.assignment", at(0, 2**16 - 1)),
    ("default", "partition.assignment", lambda a: a.astype(np.int32) - 1),
    ("default", "partition.assignment", lambda a: a.astype(np.int64)),
    ("default", "partition.assignment", lambda a: a[:-1]),
    ("default", "partition.ranking.labels", at(0, 2**16 - 1)),
    ("default", "partition.ranking.indptr", at(1, -BIG)),
    ("default", "partition.ranking.counts", at(0, 0)),
    ("default", "partition.ranking.counts", lambda a: -a.astype(np.int32)),
    ("default", "partition.ranking.n_labelled", at(0, 0)),
    ("default", "blocks.neighbors.indptr", at(1, 2**8 - 1)),
    ("default", "blocks.neighbors.indptr", lambda a: a.astype(np.int32) + 2**30),
    ("default", "blocks.neighbors.indptr", lambda a: a[:-1]),
    ("default", "blocks.neighbors.labels", at(0, 2**16 - 1)),
    ("default", "blocks.neighbors.labels", lambda a: a.astype(np.int32) - 10**6),
    ("default", "blocks.reranker.curve", lambda a: a[:-1]),
    ("default", "blocks.reranker.curve", at(0, np.nan)),
    ("default", "blocks.reranker.log_positives", lambda a: a[:-1]),
    ("default", "blocks.scorer.block_ptr", at(1, BIG)),
    ("default", "blocks.router.labels", at(0, 2**16 - 1)),
    ("default", "blocks.router.labels", lambda a: a.astype(np.int32) - 1),
    ("default", "blocks.scorer.rows", at(1, 2**8 - 1)),
    ("default", "blocks.scorer.rows", lambda a: a.astype(np.int32)),
    ("default", "blocks.scorer.offsets", at(8, BIG)),
]


@pytest.mark.parametrize(("model", "name", "change"), CASES, ids=[f"{m} {n} {i}" for i, (m, n, _) in enumerate(CASES)])
def test_damaged_arrays_are_a_damaged_model(copy, data, model, name, change):
    path = copy(model)
    damage(path, name, change)
    with pytest.raises(ModelFormatError) as caught:
        use(path, data[0])
    assert "\n" not in str(caught.value)


def use(path, X):
    clf = load(path)
    clf.predict_topk(X, 3)
    clf.cost_on(X)


def set_number(place, value):
    def change(manifest):
        *way, last = place.split(".")
        node = manifest["state"]
        for step in way:
            node = node[step]
        assert last in node
        node[last] = value

    return change


@pytest.mark.parametrize(
    ("model", "place", "value"),
    [
        *(("default", "blocks.route", value) for value in (0, -1, 4, 2**31, 2**70, 1.5, "1", True, None)),
        *(("default", f"blocks.{name}", {"$float": "nan"}) for name in ("slope", "top_p")),
        *(
            ("default", "blocks.calibration", value)
            for value in ([1.0], 3, [1.0] * 8 + [{"$float": "inf"}], [-1.0] * 9, "ab")
        ),
        *(("default", f"blocks.scorer.{name}", 2**40) for name in ("n_labels", "n_features", "bits")),
        *(("default", f"blocks.{part}.n_labels", 2**31 - 1) for part in ("scorer", "router", "neighbors.rows")),
        *(("default", "blocks.neighbors.count", value) for value in (0, 2**31 - 1, None)),
        ("default", "blocks.neighbors.n_labels", 3),
        ("default", "blocks.router", None),
        ("default", "blocks.reranker.first", 0),
        ("default", "blocks.scorer.kind", ["packed"]),
        ("default", "cost", {"candidates": "many"}),
        ("default", "f1_threshold", "high"),
        ("default", "f1_labels", -1),
        ("default", "f1_size", -1.0),
        ("default", "partition.lam", None),
        ("default", "partition.n_positives", 0),
        ("default", "partition.choice", {}),
        ("default", "partition.params.objective", "none"),
        ("fastxml", "forest.n_features", 2**31 - 1),
        ("fastxml", "forest.n_labels", 7),
        ("fastxml", "cost", None),
        ("leml", "blocks.slope", 1.0),
        ("leml", "blocks.scorer.n_labels", -1),
        ("filters", "weights", {}),
        ("bayes", "blocks.route", 2),
        ("bayes", "blocks.offset", 1.0),
    ],
)
def test_damaged_numbers_are_a_damaged_model(copy, model, place, value):
    path = copy(model)
    tamper(path, set_number(place, value))
    with pytest.raises(ModelFormatError) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_an_offset_of_another_shape(copy):
    path = copy("bayes")
    tamper(path, lambda m: m["state"]["blocks"]["offset"]["$csr"].update(shape=[60, 2]))
    with pytest.raises(ModelFormatError):
        load(path)


def test_text_preprocessing(tmp_path, monkeypatch):
    from blockxmc.data.tfidf import TextVectorizer

    state = TextVectorizer().fit(["red apple", "green apple"]).state()
    for wrong in (
        {"idf": np.float32([1, np.nan, 1])},
        {"idf": np.float32([1, 3e38, 1])},
        {"idf": np.ones(3)},
        {"idf": np.float32([1, 1])},
        {"words": np.frombuffer(b"red" * 3, np.uint8), "ends": np.int64([3, 6, 9])},
        {"words": ["red", "green", "apple"]},
        {"params": state["params"] | {"ngram_range": [2, 1]}},
        {"params": state["params"] | {"min_df": 0.5}},
        {"params": state["params"] | {"stop_words": [1]}},
        {"params": {"analyzer": "word"}},
        {"params": None},
    ):
        with pytest.raises(ModelFormatError):
            TextVectorizer.from_state(state | wrong)


# ---- the manifest itself ----


@pytest.fixture
def small(tmp_path, monkeypatch):
    register(monkeypatch)
    return saved(tmp_path)


def test_a_manifest_is_neither_huge_nor_deep(small, monkeypatch):
    content = (small / "manifest.json").read_bytes()
    for depth in (30, 100, 900):
        node: object = 1
        for _ in range(depth):
            node = [node]
        tamper(small, lambda manifest, node=node: manifest["params"].update(start=node))
        if depth == 30:
            assert load(small).start[0][0] is not None
            continue
        with pytest.raises(ModelFormatError, match="nested deeper than 40 levels"):
            load(small)
    (small / "manifest.json").write_bytes(content + b" " * storage_model.MOST_MANIFEST_BYTES)
    with pytest.raises(ModelFormatError, match="larger than 64 MiB"):
        load(small)
    assert storage.verify(small) != []
    (small / "manifest.json").write_bytes(content)
    monkeypatch.setattr(storage_model, "MOST_MANIFEST_BYTES", 3 * len(content))
    with pytest.raises(BlockXMCError, match="manifest would exceed"):
        fitted(start=list(range(100_000))).save(small)
    node = []
    for _ in range(60):
        node = [node]
    with pytest.raises(BlockXMCError, match="nested deeper"):
        fitted(start=node).save(small)
    assert storage.verify(small) == []


def test_a_name_that_stands_twice(small):
    text = (small / "manifest.json").read_text()
    (small / "manifest.json").write_text(text.replace('"class":', '"class": "DiSMEC",\n "class":', 1))
    with pytest.raises(ModelFormatError, match="a name stands twice"):
        load(small)


def test_headers_are_compared_not_evaluated(small):
    file = file_of(small, "label_counts.npy")
    content = file.read_bytes()
    for wrong in (
        content.replace(b"False", b"0 or 0"[:5]),
        content.replace(b"(6,)", b"(+6)"),
        content.replace(b"{'descr'", b"{ 'descr"),
        content.replace(b"\x01\x00", b"\x02\x00", 1),
        content[:8] + b"\xff\xff" + content[10:],
        content[:8] + b"\x00\x00" + content[10:],
    ):
        file.write_bytes(wrong)
        with pytest.raises(ModelFormatError):
            load(small)
    file.write_bytes(content)
    load(small)


def test_numbers_start_at_a_multiple_of_64_bytes(small):
    """Kernels read words: an array at an odd address would be undefined behaviour."""
    file = file_of(small, "label_counts.npy")
    content = file.read_bytes()
    length = int.from_bytes(content[8:10], "little")
    moved = content[:8] + (length + 3).to_bytes(2, "little") + content[10:-49] + b"   \n" + content[-48:]
    file.write_bytes(moved)
    tamper(small, lambda manifest: manifest["files"][file.name].update(bytes=len(moved)))
    with pytest.raises(ModelFormatError, match="multiple of 64"):
        load(small)


def test_an_array_that_is_referred_to_often_is_opened_once(small):
    tamper(small, lambda m: m["params"].update(start=[m["fitted"]["label_counts_"]] * 100_000))
    assert len({id(part) for part in load(small).start}) == 1


def test_strings_of_very_different_lengths_do_not_blow_up(tmp_path, monkeypatch):
    register(monkeypatch)
    names = np.array(["x" * 30_000] + ["y"] * 3000)
    path = saved(tmp_path, fitted(start=names))
    assert load(path).start.dtype == object
    assert load(path).start.tolist() == names.tolist()
    tamper(path, lambda m: m["params"]["start"].update({"as": "array"}))
    with pytest.raises(ModelFormatError, match="different lengths"):
        load(path)


def test_only_classifiers_are_saved(tmp_path, data):
    from blockxmc import Partitioner

    with pytest.raises(BlockXMCError, match="Partitioner cannot be saved: a model directory holds a classifier"):
        storage.save_model(Partitioner(n_blocks=2).fit(*data), tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_sparse_parts_survive(tmp_path, monkeypatch):
    register(monkeypatch)
    model = fitted()
    model.extra_ = {"matrix": sparse.csr_array(np.eye(3, dtype=np.float32))}
    matrix = load(saved(tmp_path, model)).extra_["matrix"]
    assert (matrix @ np.ones(3)).tolist() == [1, 1, 1]
    assert json.loads((tmp_path / "model" / "manifest.json").read_text())["format_version"] == storage.FORMAT_VERSION
