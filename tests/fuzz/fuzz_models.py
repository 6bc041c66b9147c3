"""Feeds damaged models of every class to the loader and uses those that load; run by hand or under the sanitizers.

python tests/fuzz/fuzz_models.py [--count 20000] [--seed 0] [--only CLASS] [--keep FOLDER]

Every damaged model is sealed again, as somebody who knows the format would do. Allowed is a model that loads and answers
(nonsense, perhaps), or ModelFormatError. Not allowed: a crash, another exception, more than SECONDS for one model, or more
memory than a model of its size explains (MEMORY_FLOOR plus MEMORY_FACTOR times its files, as peak of the process).
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import faulthandler
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path.insert(0, str(TESTS))

import numpy as np  # noqa: E402
from helpers import blocky  # noqa: E402
from scipy import sparse  # noqa: E402
from sklearn.linear_model import RidgeClassifier  # noqa: E402

import blockxmc  # noqa: E402
from blockxmc import (  # noqa: E402
    LEML,
    BlockwiseClassifier,
    DiSMEC,
    NaiveBayes,
    Partitioner,
    PDSparse,
    PPDSparse,
    TextClassifier,
)
from blockxmc.baselines import CBMLC, LPSR, FastXML, LabelFilters  # noqa: E402
from blockxmc.errors import BlockXMCError, ModelFormatError  # noqa: E402
from blockxmc.learners.sklearn_adapter import OneVsRest  # noqa: E402
from blockxmc.model.companions import Companions  # noqa: E402
from blockxmc.model.reranker import Reranker  # noqa: E402
from blockxmc.storage import model as storage_model  # noqa: E402

SECONDS = 20
BATCH = 25
# Labels by their number take 8 bytes in the file and some hundred while rows are scored; the rest is a fixed cost:
# bitmaps of label filters take up to 64 MiB, a row spread over the features of FastXML as much.
MEMORY_FLOOR = 256 << 20
MEMORY_FACTOR = 100

EXTREMES = [0, 1, -1, 2, 127, 128, 255, 256, 2**15, 2**16, 2**31 - 1, 2**31, -(2**31), 2**32 - 1, 2**62, 2**63 - 1]
EXTREMES += [-(2**63), 2**63, 2**64 - 1]
FLOATS = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-45, 3.4e38, -3.4e38, 1e308, -1.0]


# ---- models of every class ----
def text_model():
    words = ["red", "green", "blue", "apple", "pear", "plum", "sweet", "sour"]
    rng = random.Random(0)
    rows = [rng.sample(words, 4) for _ in range(60)]
    model = TextClassifier(BlockwiseClassifier(n_blocks=2, n_jobs=2, keep_rows=True))
    model.fit([" ".join(row) for row in rows], [row[:2] for row in rows])
    return model.update(["red grapes"], [["red"]])


def codes(texts):
    """A column per number: what stands behind the # of a text."""
    numbers = [int(text.rsplit("#", 1)[-1]) if "#" in text else 0 for text in texts]
    return np.eye(6)[np.array(numbers, int) % 6]


def text_model_with_columns():
    """Words say nothing; the extra columns say the label."""
    rng = random.Random(0)
    numbers = [rng.randrange(6) for _ in range(300)]
    texts = [f"text{rng.randrange(40)} #{number}" for number in numbers]
    model = TextClassifier(BlockwiseClassifier(n_blocks=2, n_jobs=2), extra=codes)
    model.fit(texts, [[f"label {number}"] for number in numbers])
    return model


def with_reranker(clf):
    """Small data teach no reranker; this one is made up."""
    curve = np.linspace(-1, 1, 22, dtype=np.float32)
    curve[:4], curve[4:8] = -2, 2
    pairs = np.triu_indices(clf.label_counts_.size, 1)  # of all labels
    indptr = np.concatenate([[0], np.cumsum(np.bincount(pairs[0], minlength=clf.label_counts_.size))])
    counts = np.arange(pairs[0].size, dtype=np.uint8)
    companions = Companions(indptr, pairs[1].astype(np.int32), counts, math.log(300), 0.1)
    reranker = Reranker(curve, np.log1p(clf.label_counts_).astype(np.float32), 20, companions)
    clf.model_ = dataclasses.replace(clf.model_, reranker=reranker)
    return clf


def models():
    """A small fitted model of every class that can be stored."""
    X, Y = blocky(n=300, n_features=400, n_labels=20)
    names = [[f"label {j}" for j in row] for row in Y.tolil().rows]

    def bp(base=None, y=None, **options):
        return BlockwiseClassifier(base, **({"n_blocks": 3, "n_jobs": 2} | options)).fit(X, Y if y is None else y)

    yield "default", lambda: with_reranker(bp(y=names, n_neighbors=10))
    yield "frequent labels", lambda: with_reranker(bp(route=3, n_blocks=8, n_neighbors=10))
    yield "per-block", lambda: bp(weights="per-block", weight_bits=16)
    yield "global", lambda: bp(weights="global", weight_bits=32, partitioner=Partitioner(objective="cost"))
    yield "8 bits", lambda: bp(weight_bits=8, n_neighbors=0)
    yield "one block", lambda: bp(n_blocks=1)
    yield "updated", lambda: bp(keep_rows=True).update(X[:30], Y[:30]).forget([5])
    yield "bp leml", lambda: bp(LEML(rank=3), weights="per-block")
    yield "bp naive bayes", lambda: bp(NaiveBayes(), weights="per-block", route=1)
    yield "bp pd-sparse", lambda: bp(PDSparse(max_iter=5))
    yield "bp scikit-learn", lambda: bp(RidgeClassifier(), weights="per-block")
    yield "dismec", lambda: DiSMEC().fit(X, Y.toarray())
    yield "leml", lambda: LEML(rank=3).fit(X, Y)
    yield "naive bayes", lambda: NaiveBayes().fit(X, Y)
    yield "pd-sparse", lambda: PDSparse(max_iter=5).fit(X, sparse.csr_matrix(Y))
    yield "ppd-sparse", lambda: PPDSparse().fit(X, Y)
    yield "classes", lambda: DiSMEC().fit(X, np.arange(X.shape[0]) % 5)
    yield "one vs rest", lambda: OneVsRest(RidgeClassifier()).fit(X, Y)
    yield "cbmlc", lambda: CBMLC(DiSMEC(), n_blocks=2).fit(X, Y)
    yield "lpsr", lambda: LPSR(DiSMEC(), n_blocks=2).fit(X, Y)
    yield "label filters", lambda: LabelFilters(n_filters=2, n_steps=200).fit(X, Y)
    yield "label filters leml", lambda: LabelFilters(LEML(rank=3), n_filters=2, n_steps=200).fit(X, Y)
    yield "fastxml", lambda: FastXML(n_trees=3).fit(X, Y)
    yield "text", text_model
    yield "text with columns", text_model_with_columns


# ---- damage ----
class Damage:
    """One change of a saved model; ``what`` says which."""

    def __init__(self, path: Path, rng: random.Random) -> None:
        self.path, self.rng, self.what = path, rng, ""
        self.manifest = json.loads((path / "manifest.json").read_bytes())

    def run(self) -> None:
        for _ in range(self.rng.choice([1, 1, 1, 1, 2, 3])):
            self._array() if self.rng.random() < 0.65 else self._manifest()
        self.manifest["manifest_sha256"] = storage_model._seal(self.manifest)
        content = json.dumps(self.manifest).encode()
        if self.rng.random() < 0.03:
            content = self._raw(content)
        (self.path / "manifest.json").write_bytes(content)

    def _note(self, what: str) -> None:
        self.what += f"{'; ' if self.what else ''}{what}"

    def _array(self) -> None:
        rng, files = self.rng, [name for name in self.manifest["files"] if (self.path / name).exists()]
        if not files:
            return
        pointers = [name for name in files if re.search(r"ptr|offsets|buckets|rows|roots|children", name)]
        name = rng.choice(pointers if pointers and rng.random() < 0.4 else files)
        if name.endswith(".txt"):
            self._text(name)
            return
        try:
            array = np.load(self.path / name)
        except (ValueError, EOFError, MemoryError):  # an earlier damage
            return
        kinds = ["values"] * 6 + ["bits"] * 3 + ["all", "length", "dtype", "shape", "header", "swap", "wrap", "wrap"]
        kind = rng.choice(kinds)
        self._note(f"{name} {kind}")
        if kind == "values" and array.size:
            flat = array.reshape(-1)
            for _ in range(rng.choice([1, 1, 3, 20])):
                at = rng.randrange(flat.size) if rng.random() < 0.8 else rng.choice([0, flat.size - 1])
                flat[at] = self._value(array.dtype, flat[at])
                self._note(f"[{at}] = {flat[at]}")
        elif kind == "bits" and array.size:
            raw = array.reshape(-1).view(np.uint8)
            for _ in range(rng.choice([1, 2, 8])):
                raw[rng.randrange(raw.size)] ^= 1 << rng.randrange(8)
        elif kind == "wrap" and array.dtype.kind == "i" and array.shape and array.shape[0] > 4:
            # Differences of neighbors that wrap around and look harmless.
            most, at = int(np.iinfo(array.dtype).max), rng.randrange(1, array.shape[0] - 3)
            column = array if array.ndim == 1 else array[:, rng.randrange(array.shape[1])]
            column[at : at + 3] = [most, -most - 1 + rng.randrange(9), -most // 2]
        elif kind == "all" and array.size:
            array[...] = self._value(array.dtype, array.reshape(-1)[0])
        elif kind == "length" and array.ndim:
            n = array.shape[0]
            n = rng.choice([0, n // 2, max(n - 1, 0), n + 1, 2 * n])
            array = (
                np.resize(array, (n, *array.shape[1:])) if array.size else np.zeros((n, *array.shape[1:]), array.dtype)
            )
        elif kind == "dtype":
            array = array.astype(rng.choice(["<i4", "<i8", "<u4", "<f4", "<f8", "|i1", "|b1", "<f2", "<u8"]))
        elif kind == "shape":
            array = rng.choice(
                [array.reshape(-1), array.reshape(1, -1), array.reshape(-1, 1), array.reshape(-1)[:1].sum()]
            )
        elif kind == "swap":
            other = rng.choice([n for n in files if n.endswith(".npy")])
            (self.path / name).write_bytes((self.path / other).read_bytes())
            self.manifest["files"][name] = dict(self.manifest["files"][other])
            return
        np.save(self.path / name, np.asarray(array))
        entry = self.manifest["files"][name]
        entry |= {"dtype": array.dtype.str, "shape": list(np.shape(array)), "bytes": (self.path / name).stat().st_size}
        if kind == "header":
            shape = [rng.choice([0, 2**40, 2**62, 2**63 - 1, 3]) for _ in range(rng.randint(0, 4))]
            with open(self.path / name, "r+b") as file:
                np.lib.format.write_array_header_1_0(
                    file, {"descr": array.dtype.str, "fortran_order": False, "shape": tuple(shape)}
                )
            entry |= {"shape": shape, "bytes": (self.path / name).stat().st_size}

    def _value(self, dtype: np.dtype, old):
        rng = self.rng
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if dtype.kind == "f":
                return np.float64(rng.choice([*FLOATS, -float(old), rng.uniform(-9, 9)])).astype(dtype)
            bits = np.int64 if dtype.kind in "ib" else np.uint64
            wanted = rng.choice([*EXTREMES, int(old) + 1, int(old) - 1, rng.randrange(100)])
            return np.array(wanted % 2**64, np.uint64).astype(bits).astype(dtype)

    def _text(self, name: str) -> None:
        content = bytearray((self.path / name).read_bytes())
        self._note(f"{name} text")
        for _ in range(self.rng.choice([1, 3])):
            at = self.rng.randrange(len(content) + 1)
            token = self.rng.choice(
                [b'"', b"\n", b"[", b"{" * 3, b"\xff", b"null", b"1e999", b"[" * 3000, b"\\u0000", b""]
            )
            content[at : at + self.rng.choice([0, 1, 5])] = token
        if self.rng.random() < 0.2:
            content = content[: len(content) // 2]
        (self.path / name).write_bytes(content)
        self.manifest["files"][name]["bytes"] = len(content)

    def _manifest(self) -> None:
        rng = self.rng
        places = [place for place in _places(self.manifest) if place[-1] != "format_version"]
        sections = [place for place in places if place[0] in ("state", "fitted", "targets", "params", "preprocessing")]
        place = rng.choice(sections if rng.random() < 0.8 else places)
        *way, last = place
        parent = self.manifest
        for step in way:
            parent = parent[step]
        kind = rng.choice(["value", "value", "value", "delete", "copy", "nest", "key"])
        self._note(f"manifest {'.'.join(map(str, place))} {kind}")
        if kind == "delete":
            del parent[last]
        elif kind == "value":
            parent[last] = self._json_value(parent[last])
            self._note(f"= {str(parent[last])[:60]}")
        elif kind == "copy":
            source = self.manifest
            for step in rng.choice(places):
                source = source[step]
            parent[last] = json.loads(json.dumps(source))
        elif kind == "key" and isinstance(parent, dict):
            parent[rng.choice(["$array", "$tuple", "extra", "", "$float"])] = parent[last]
        else:
            for _ in range(rng.choice([1, 50, 400])):
                parent[last] = [parent[last]] if rng.random() < 0.5 else {"a": parent[last]}

    def _json_value(self, old):
        rng = self.rng
        if isinstance(old, (int, float)) and rng.random() < 0.7:
            return rng.choice([*EXTREMES, 10**30, 10**400, 1e300, 0.5, -0.5, -old, old + 1, not old, {"$float": "nan"}])
        names = list(self.manifest["files"])
        references = [{"$array": rng.choice(names)}, {"$strings": rng.choice(names), "as": "list"}] if names else []
        return rng.choice([None, True, "", "text", [], {}, 0, -1, 2**70, [1, 2], {"$tuple": []}, "DiSMEC", *references])

    def _raw(self, content: bytes) -> bytes:
        self._note("manifest raw")
        return self.rng.choice(
            [
                content.replace(b'"class":', b'"class": "DiSMEC", "class":', 1),
                content[: len(content) // 2],
                content + b" " * 100 + b"x",
                b"[" * 5000 + b"]" * 5000,
                content.replace(b"{", b'{"a": 1e9999,', 1),
                content.replace(b"1", b"1" * 5000, 1),
            ]
        )


def _places(node, way=()):
    """All places of a JSON value, as lists of keys."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else []
    for key, value in items:
        yield (*way, key)
        yield from _places(value, (*way, key))


# ---- use ----
def rows_for(n_features: int) -> sparse.csr_array:
    """A few rows of any width; the values are those of real rows."""
    rng = np.random.default_rng(1)
    rows = []
    for size in (0, 3, 12, 30):
        columns = np.unique(rng.integers(0, max(n_features, 1), min(size, n_features)))
        rows.append((columns, rng.random(columns.size)))
    indptr = np.cumsum([0, *(columns.size for columns, _ in rows)])
    indices = np.concatenate([columns for columns, _ in rows]).astype(np.int32)
    data = np.concatenate([values for _, values in rows]).astype(np.float32)
    return sparse.csr_array((data, indices, indptr), shape=(len(rows), n_features))


def use(path: Path) -> str:
    """Load a model and ask it everything; tell how far it got."""
    try:
        model = blockxmc.load(path, extra=codes)
    except ModelFormatError as error:
        return "refused" if "\n" not in str(error) else f"several lines: {error}"
    estimator = model.classifier_ if isinstance(model, TextClassifier) else model
    X = rows_for(estimator.n_features_in_)
    if X.shape[1] == 0:
        return "loads, but has no features"
    row = X[[2]]

    def texts():
        if isinstance(model, TextClassifier):
            model.suggest(["red sweet apple", "", "unknown"], 3)

    def cost():
        estimator.cost_on(X)
        json.dumps({key: float(value) for key, value in getattr(estimator, "cost_", {}).items()})

    def partition():
        if hasattr(estimator, "partition_"):
            sizes = np.bincount(estimator.partition_.assignment_, minlength=estimator.partition_.n_blocks_)
            assert sizes.size == estimator.partition_.n_blocks_
            [estimator.label_counts_[ids] for ids in estimator.partition_.label_clusters_]
            estimator.partition_.path()

    def learn():
        if getattr(estimator, "kept_", None) is None:
            return
        estimator.advice_  # noqa: B018 - it looks through the history
        Y = sparse.csr_array((X.shape[0], estimator.targets_.n_labels), dtype=np.float32)
        Y = sparse.csr_array(Y + sparse.eye_array(*Y.shape, format="csr", dtype=np.float32))
        try:
            estimator.update(X, Y, label_names=estimator.label_names_).forget([0, 1])
        except BlockXMCError as error:  # parameters that make no sense, too
            if isinstance(error, ModelFormatError):
                raise

    answers = [
        lambda: estimator.predict_topk(X, 3),
        lambda: estimator.predict_topk(X, 100),
        lambda: estimator.predict_one(row.indices.astype(np.int32), row.data, 3),
        lambda: estimator.decision_function(X),
        lambda: estimator.predict(X),
        lambda: estimator.label_names_,
        cost,
        texts,
        partition,
        learn,
    ]
    refused = False
    for ask in answers:
        try:
            with np.errstate(all="ignore"):
                ask()
        except ModelFormatError:
            refused = True
    return "refused later" if refused else "answers"


# ---- the run ----
class Run:
    """Damages models one by one and uses them in child processes, a batch at a time, so that a crash is seen."""

    def __init__(self, folder: Path, seed: int, only: str | None = None) -> None:
        self.folder, self.seed = folder, seed
        self.kinds = [(name, make) for name, make in models() if only in (None, name)]
        self.saved: dict[str, Path] = {}
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.wrong: list[str] = []
        for name, make in self.kinds:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                path = folder / name.replace(" ", "-")
                make().save(path)
            self.saved[name] = path
            assert use(path) == "answers", name
        parts = " ".join(file.name for path in self.saved.values() for file in path.iterdir())
        if only is None:
            wanted = (
                "neighbors.rows",
                "reranker.curve",
                "companions.others",
                "scorer.scale",
                "offset.indptr",
                "weights.W",
                "scorer.mass",
            )
            assert all(part in parts for part in wanted), "no model has such a part"

    def go(self, count: int) -> None:
        for start in range(0, count, BATCH):
            self._batch(list(range(start, min(start + BATCH, count))))

    def _batch(self, numbers: list[int]) -> None:
        """A child works on a batch; where it dies, the model it was at is at fault, and another child goes on."""
        while numbers:
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(read)
                self._child(numbers, write)
            os.close(write)
            with open(read) as answers:
                lines = [json.loads(line) for line in answers]
            status = os.waitpid(child, 0)[1]
            done = [line for line in lines if "outcome" in line]
            for line in done:
                self._count(line["number"], line["kind"], line["outcome"], line["what"])
            numbers = numbers[len(done) :]
            if numbers:
                at = lines[-1] if lines else {"kind": "?", "what": "?", "number": numbers[0]}
                sign = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit {status}"
                self._count(numbers[0], at["kind"], f"CRASH {sign}", at["what"])
                numbers = numbers[1:]

    def _count(self, number: int, kind: str, outcome: str, what: str) -> None:
        good = outcome in ("refused", "refused later", "answers", "loads, but has no features")
        self.outcomes[outcome if good else outcome.split(":")[0]] += 1
        if not good:
            self.wrong.append(f"seed {self.seed} number {number} ({kind}): {outcome} <- {what}")

    def _child(self, numbers: list[int], write: int) -> None:
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        warnings.simplefilter("ignore")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            with open(write, "w") as answers:
                for number in numbers:
                    self._one(number, answers)
        finally:
            os._exit(0)

    def _one(self, number: int, answers) -> None:
        try:
            kind, path, what = self.damaged(number, self.folder / "damaged")
        except Exception as error:  # a mistake of ours
            what = f"{error!r} at {traceback.extract_tb(error.__traceback__)[-3:]}"
            print(json.dumps({"number": number, "kind": "?", "what": what}), file=answers, flush=True)
            raise
        told = {"number": number, "kind": kind, "what": what}
        print(json.dumps(told), file=answers, flush=True)
        signal.alarm(SECONDS)
        start = time.perf_counter()
        size = sum(file.stat().st_size for file in path.iterdir())
        before = _peak()
        with _limited(MEMORY_FLOOR + MEMORY_FACTOR * size):
            try:
                outcome = use(path)
            except BaseException as error:
                place = traceback.extract_tb(error.__traceback__)[-1]
                where = f"{Path(place.filename).name}:{place.lineno}"
                outcome = f"{type(error).__name__}: {str(error)[:200]!r} at {where}"
        signal.alarm(0)
        if _peak() - before > MEMORY_FLOOR + MEMORY_FACTOR * size:
            outcome = f"MEMORY: {_peak() - before} bytes for a model of {size}"
        if time.perf_counter() - start > SECONDS / 2:
            outcome = f"SLOW: {time.perf_counter() - start:.0f} s"
        print(json.dumps(told | {"outcome": outcome}), file=answers, flush=True)

    def damaged(self, number: int, target: Path) -> tuple[str, Path, str]:
        """Model number so-and-so, damaged: the same for the same seed and number."""
        rng = random.Random(f"{self.seed} {number}")
        kind = self.kinds[number % len(self.kinds)][0]
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.saved[kind], target)
        damage = Damage(target, rng)
        damage.run()
        return kind, target, damage.what


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class _limited:
    """No more memory than so much beyond what the process has; without effect under AddressSanitizer."""

    def __init__(self, more: int) -> None:
        self.more = more

    def __enter__(self) -> None:
        self.old = resource.getrlimit(resource.RLIMIT_AS)
        if "libasan" not in os.environ.get("LD_PRELOAD", ""):
            size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (size + self.more, self.old[1]))

    def __exit__(self, *error: object) -> None:
        resource.setrlimit(resource.RLIMIT_AS, self.old)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="models of this kind only")
    parser.add_argument("--number", type=int, help="this one only, in this process, with what goes wrong")
    options = parser.parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), options.seed, options.only)
        if options.number is not None:
            kind, path, what = run.damaged(options.number, Path(folder) / "damaged")
            print(kind, what, flush=True)
            print(use(path))
            return
        run.go(options.count)
    for line in run.wrong[:200]:
        print(line)
    counts = ", ".join(f"{kind} {count}" for kind, count in run.outcomes.most_common())
    print(f"{options.count} damaged models in {time.perf_counter() - start:.0f} s: {counts}")
    sys.exit(bool(run.wrong))


if __name__ == "__main__":
    main()
