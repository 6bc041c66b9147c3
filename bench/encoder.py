"""Encoders beside the linear model: precision, seconds, memory (docs/results/encoder.md).

    fit DATA... --model FOLDER [--epochs 0] [--max-tokens N]   the whole way on this machine; prints the table's rows
    prepare DATA... --model FOLDER --out DIR   linear models, candidates and tokens of each set; needs no GPU
    train DIR --plan FILE --out DIR            fine-tuning as planned; needs PyTorch and transformers, no compiled kernels

The last two part the work for a machine that has nothing but a GPU and these packages: what travels there is small.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))
GROUP = 32  # numbers of a matrix that share a scale while it travels


# ---- fit ----
def shown(model, texts, labels, **how):
    """P@1/3/5, F1@5, recall@5 of labels of few rows, and the calibration error of the first five."""
    ids, chances = model.predict_topk(texts, 5, **how)
    targets, counts = model.classifier_.targets_, model.classifier_.label_counts_
    Y = targets.encode_more([[name for name in row if name in targets.ids_by_name] for row in labels])[0]
    hit = np.array([np.isin(row, Y.indices[Y.indptr[i] : Y.indptr[i + 1]]) & (row >= 0) for i, row in enumerate(ids)])
    given = np.array([len(row) for row in labels])
    rare = counts <= 5
    recall = (hit & rare[np.maximum(ids, 0)]).sum() / max(rare[Y.indices].sum(), 1)
    f1 = np.where(given > 0, 2 * hit.sum(axis=1) / (5 + np.maximum(given, 1)), 0).mean()
    p, right = np.maximum(chances, 0).ravel(), hit.ravel()
    bins = np.clip((15 * p).astype(int), 0, 14)
    error = sum(abs(p[bins == i].sum() - right[bins == i].sum()) for i in range(15)) / p.size
    at = "/".join(f"{100 * hit[:, :k].sum(axis=1).mean() / k:.2f}" for k in (1, 3, 5))
    return f"{at} F1@5 {f1:.4f} rare {100 * recall:.1f} calibration error {error:.3f}"


def fit_all(args):
    from blockxmc import BlockwiseClassifier, Encoder, TextClassifier

    encoder = Encoder(str(args.model), epochs=args.epochs, max_tokens=args.max_tokens)
    for folder in args.data:
        texts, labels, test_texts, test_labels = read_set(folder)
        started = time.process_time()
        plain = TextClassifier().fit(texts, labels, label_texts=None)
        print(folder.name, "linear, no names:", shown(plain, test_texts, test_labels), flush=True)
        print(f"   {time.process_time() - started:.0f} CPU s")
        started = time.process_time()
        model = TextClassifier(BlockwiseClassifier(verbose=1), encoder=encoder).fit(texts, labels)
        print(folder.name, "linear, with names:", shown(model, test_texts, test_labels, encoder=False), flush=True)
        if model.encoder_ is not None:
            print(folder.name, "with the encoder:", shown(model, test_texts, test_labels), flush=True)
            print(f"   {time.process_time() - started:.0f} CPU s, {model.encoder_.nbytes / 1e6:.1f} MB more")


# ---- prepare ----
def read_set(folder):
    """Texts and label lists of train and test."""
    out = []
    for part in ("train", "test"):
        path = folder / f"{part}.jsonl"
        content = path.read_bytes() if path.exists() else gzip.decompress(Path(f"{path}.gz").read_bytes())
        rows = [json.loads(line) for line in content.splitlines()]
        out += [[row["text"] for row in rows], [list(row["labels"]) for row in rows]]
    return out


def prepare(folder, args, source):
    from blockxmc import TextClassifier
    from blockxmc._core.matrix import take_rows
    from blockxmc.encoder.fit import rows_apart
    from blockxmc.encoder.options import Encoder
    from blockxmc.encoder.train import Lists, tokenized

    texts, labels, test_texts, test_labels = read_set(folder)
    if args.rows:
        texts, labels, test_texts, test_labels = (
            part[: args.rows] for part in (texts, labels, test_texts, test_labels)
        )
    started = time.process_time()
    served = TextClassifier().fit(texts, labels)
    seconds = time.process_time() - started
    Y, _ = served.classifier_.targets_.encode_more(labels)
    apart = rows_apart(Y, Encoder("any"))
    shown = np.flatnonzero(~apart)
    trial = TextClassifier().fit([texts[i] for i in shown], take_rows(Y, shown), label_names=list(served.classes_))
    train_ids, _ = trial.predict_topk(texts, 80)
    held = [texts[i] for i in np.flatnonzero(apart)]
    held_ids, held_p = trial.predict_topk(held, 100)
    test_ids, test_p = served.predict_topk(test_texts, 100)
    known = {name: i for i, name in enumerate(served.classes_.tolist())}
    truth = Lists.of([[known.get(name, -1) for name in row] for row in test_labels])
    all_texts = tokenized(source, texts), tokenized(source, test_texts), tokenized(source, list(served.classes_))
    arrays = {"apart": apart, "train_ids": train_ids.astype(np.int32), "Y_indptr": Y.indptr, "Y_indices": Y.indices}
    for name, lists in zip(("train", "test", "names"), all_texts, strict=True):
        arrays |= {f"{name}_indptr": lists.indptr, f"{name}_tokens": lists.values.astype(np.uint16)}
    arrays |= {"held_ids": held_ids, "held_p": held_p, "test_ids": test_ids, "test_p": test_p}
    arrays |= {"truth_indptr": truth.indptr, "truth": truth.values, "counts": served.classifier_.label_counts_}
    arrays["linear_seconds"] = np.float64(seconds)
    return arrays


def travelling(arrays):
    """What training needs of a prepared set."""
    small = {name: arrays[name] for name in arrays if not name.startswith(("held_p", "test_p", "truth", "counts"))}
    n_labels = arrays["names_indptr"].size - 1
    kind = np.uint16 if n_labels < 2**16 - 1 else np.int32
    for name in ("train_ids", "held_ids", "test_ids"):
        small[name] = (small[name] + 1).astype(kind)
    small["train_ids"] = small["train_ids"][:, :64]
    small["Y_indices"] = small["Y_indices"].astype(kind)
    for name in [name for name in small if name.endswith("indptr")]:
        small[name] = np.diff(small[name]).astype(np.uint16)
    # The fusion is judged elsewhere; training only wants to know whether held-out rows still gain.
    small["held_p"] = arrays["held_p"].astype(np.float16)
    return small


def packed_model(folder, used):
    """The weights of an encoder in 8 bits with a scale per group, and only the used part of its vocabulary."""
    from safetensors.numpy import load_file

    out = {}
    for name, values in load_file(folder / "model.safetensors").items():
        if name.endswith("word_embeddings.weight"):
            values = values[used]
        values = values.astype(np.float32)
        if values.ndim == 2 and values.shape[1] % GROUP == 0:
            groups = values.reshape(-1, GROUP)
            scales = np.abs(groups).max(axis=1, keepdims=True) / 127
            out[f"{name}|scales"] = scales.astype(np.float16)
            out[name] = np.rint(groups / np.maximum(scales.astype(np.float16).astype(np.float32), 1e-12)).astype(
                np.int8
            )
            out[name] = out[name].reshape(values.shape)
        elif values.dtype.kind == "f":
            out[name] = values.astype(np.float16)
    return out


def save_xz(path, arrays):
    draft = path.with_suffix(".part")
    with lzma.open(draft, "wb", preset=6) as file:
        np.savez(file, **arrays)
    draft.replace(path)  # never half a file, which only the other machine would notice


def prepare_all(args):
    from blockxmc.encoder.export import Source
    from blockxmc.encoder.texts import TextEncoder  # noqa: F401

    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer = (args.model / "tokenizer.json").read_bytes()
    config = json.loads((args.model / "config.json").read_text())
    found = {}
    for folder in args.data:
        path = args.out / f"{folder.name}.npz"
        if not path.exists():
            source = Source(None, tokenizer, config["hidden_size"], args.max_tokens, "")
            np.savez(path, **prepare(folder, args, source))
        found[folder.name] = dict(np.load(path))
        print(folder.name, path.stat().st_size >> 20, "MB", flush=True)
    tokens = [found[name][part] for name in found for part in ("train_tokens", "test_tokens", "names_tokens")]
    used = np.unique(np.concatenate([*tokens, np.arange(4, dtype=np.uint16)]))
    travel = args.out / "travel"
    travel.mkdir(exist_ok=True)
    for name, arrays in found.items():
        small = travelling(arrays)
        for part in ("train_tokens", "test_tokens", "names_tokens"):
            small[part] = np.searchsorted(used, small[part]).astype(np.uint16)
        save_xz(travel / f"{name}.npz.xz", small)
    save_xz(travel / "model.npz.xz", packed_model(args.model, used))
    (travel / "config.json").write_text(json.dumps(config | {"vocab_size": int(used.size)}))
    for path in sorted(travel.iterdir()):
        print(path.name, round(path.stat().st_size / 1e6, 2), "MB")


# ---- train ----
def load_xz(path):
    with lzma.open(path) as file:
        return dict(np.load(file))


def source_of(folder, max_tokens):
    import torch
    from transformers import AutoConfig, AutoModel

    from blockxmc.encoder.export import Source, pooled

    config = AutoConfig.from_pretrained(folder)
    config._attn_implementation = "sdpa"
    model = AutoModel.from_config(config)
    state = {}
    arrays = load_xz(folder / "model.npz.xz")
    for name in [name for name in arrays if "|" not in name]:
        values = arrays[name].astype(np.float32)
        if (scales := arrays.get(f"{name}|scales")) is not None:
            values = (values.reshape(-1, GROUP) * scales.astype(np.float32)).reshape(values.shape)
        state[name.removeprefix("bert.")] = torch.from_numpy(values)
    missing, unexpected = model.load_state_dict(state, strict=False)
    missing = [name for name in missing if "position_ids" not in name]
    assert not missing, missing
    print("unexpected weights:", unexpected, flush=True)
    return Source(pooled(model.eval(), first=False), b"", int(config.hidden_size), max_tokens, "")


def lists_of(arrays, name):
    from blockxmc.encoder.train import Lists

    sizes = arrays[f"{name}_indptr"].astype(np.int64)
    return Lists(np.concatenate([[0], np.cumsum(sizes)]), arrays[f"{name}_tokens"].astype(np.int32))


def picked(lists, rows):
    """Some rows of short lists."""
    from blockxmc.encoder.train import Lists

    return Lists.of([lists.values[lists.indptr[i] : lists.indptr[i + 1]] for i in rows])


class Told:
    """A reporter that keeps what was said."""

    def __init__(self):
        self.lines = []

    def say(self, text):
        self.lines.append(text)
        print("   ", text, flush=True)

    def phase(self, title, total=None):
        from blockxmc._core.progress import Reporter

        return Reporter().phase(title, total)


def mean_precision(ids, right, logits, scores):
    """Of the best of some weights, without compiled kernels."""
    best = 0.0
    for weight in (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5):
        fused = np.where(ids >= 0, logits + weight * scores, -np.inf)
        order = np.argsort(-fused, axis=1, kind="stable")[:, :5]
        hits = np.take_along_axis(right, order, 1)
        best = max(best, float(np.mean([hits[:, :k].sum(axis=1).mean() / k for k in (1, 3, 5)])))
    return best


def one_training(name, arrays, args, seed, changes, out):
    import torch
    from scipy import sparse

    from blockxmc.encoder import train
    from blockxmc.encoder.options import Encoder
    from blockxmc.encoder.passes import Passes
    from blockxmc.encoder.vectors import LabelVectors

    for key, value in changes.items():
        if hasattr(train, key):
            setattr(train, key, value)
    source, told = source_of(args.data[0], args.max_tokens), Told()
    parts = {part: lists_of(arrays, part) for part in ("train", "test", "names")}
    n_rows, n_labels = arrays["apart"].size, parts["names"].sizes.size
    indptr = np.concatenate([[0], np.cumsum(arrays["Y_indptr"].astype(np.int64))])
    Y = sparse.csr_array(
        (np.ones(indptr[-1], np.float32), arrays["Y_indices"].astype(np.int64), indptr), (n_rows, n_labels)
    )
    shown, apart = np.flatnonzero(~arrays["apart"]), np.flatnonzero(arrays["apart"])
    ids = {part: arrays[f"{part}_ids"].astype(np.int64) - 1 for part in ("train", "held", "test")}
    lessons = train.Lessons.of(picked(parts["train"], shown), Y[shown], ids["train"][shown])
    held = picked(parts["train"], apart)
    right = np.array(
        [np.isin(row, Y.indices[Y.indptr[i] : Y.indptr[i + 1]]) for row, i in zip(ids["held"], apart, strict=True)]
    )
    p = arrays["held_p"].astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        logits = np.clip(np.log(np.maximum(p, 0)) - np.log1p(-p), -12, 12)

    def gained(texts, vectors, bias):
        scores = LabelVectors.rounded(vectors, bias).scores(texts, ids["held"])
        return mean_precision(ids["held"], right, logits, scores)

    known = np.ones(n_labels, bool) if not changes.get("no_names") else np.zeros(n_labels, bool)
    options = {key: value for key, value in changes.items() if key in Encoder("any").get_params()}
    encoder = Encoder("any", random_state=seed, max_tokens=args.max_tokens, **options)
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    tuning = train.FineTuning(source, encoder, n_labels, told)
    frozen = (
        {part: tuning.embed(lists) for part, lists in (("held", held), ("test", parts["test"]))} if seed == 0 else {}
    )
    frozen_seconds = time.perf_counter() - started
    started = time.perf_counter()
    tuning.begin_with_names(parts["names"], known)
    names = None if tuning.names is None else tuning.names.cpu().numpy()
    if changes.get("frozen"):
        vectors, bias = learned_frozen(tuning, lessons, names)
    else:
        tuning.run(lessons, Passes(None, ""), gained, held)
        vectors, bias = tuning.vectors()
    seconds = time.perf_counter() - started
    labels = LabelVectors.rounded(vectors, bias)
    embedded = {"held": tuning.embed(held), "test": tuning.embed(parts["test"])}
    kept = {f"{part}_scores": labels.scores(embedded[part], ids[part]).astype(np.float16) for part in embedded}
    kept |= {
        f"{part}_frozen": np.einsum("nld,nd->nl", names[np.maximum(ids[part], 0)], frozen[part]).astype(np.float16)
        for part in frozen
    }
    if changes.get("keep"):
        kept |= {f"{part}_texts": values.astype(np.float16) for part, values in embedded.items()}
        kept |= {"vectors": labels.vectors, "scales": labels.scales, "bias": labels.bias}
    memory = torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0
    tag = "-".join([name, str(seed), *(f"{key}={value}" for key, value in changes.items() if key != "keep")])
    save_xz(out / f"{tag}.npz.xz", kept)
    return {"set": name, "seed": seed, "changes": changes, "seconds": seconds, "frozen_seconds": frozen_seconds,
            "gpu_gib": memory, "said": told.lines}  # fmt: skip


def learned_frozen(tuning, lessons, names):
    """Label vectors for the encoder as it is."""
    from blockxmc._core.progress import Reporter
    from blockxmc.encoder.learn import Pairs, learned
    from blockxmc.encoder.vectors import SCALE

    listed = lessons.labels.padded(np.arange(lessons.labels.sizes.size), -1).astype(np.int64)
    labels = np.where(listed <= -2, -2 - listed, listed)
    pairs = Pairs(tuning.embed(lessons.tokens), labels, listed >= 0)
    bias = np.full(len(names), pairs.first_bias(names), np.float32)
    vectors, bias = learned(pairs, names, bias, 0, Reporter())
    return vectors * np.float32(SCALE), bias


def synthetic(args, n_rows=500_000, n_tokens=64, n_labels=670_000, seconds=40):
    """The rate and memory of a set of many rows and labels, over some seconds of one pass."""
    import torch

    from blockxmc.encoder import train
    from blockxmc.encoder.options import Encoder

    rng = np.random.default_rng(0)
    source, told = source_of(args.data[0], 64), Told()
    vocabulary = source.module.model.config.vocab_size
    tokens = train.Lists(
        np.arange(n_rows + 1) * n_tokens, rng.integers(4, vocabulary, n_rows * n_tokens, dtype=np.int32)
    )
    labels = rng.integers(0, n_labels, n_rows * 64, dtype=np.int32)
    labels.reshape(n_rows, 64)[:, 4:] = -2 - labels.reshape(n_rows, 64)[:, 4:]
    lessons = train.Lessons(tokens, train.Lists(np.arange(n_rows + 1) * 64, labels))
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    tuning = train.FineTuning(source, Encoder("any", epochs=1), n_labels, told)
    names = train.Lists(np.arange(n_labels + 1) * 6, rng.integers(4, vocabulary, n_labels * 6, dtype=np.int32))
    started = time.perf_counter()
    tuning.begin_with_names(names, np.ones(n_labels, bool))
    named = time.perf_counter() - started
    started, done = time.perf_counter(), 0
    for rows in tuning._batches(tokens.sizes, 0):
        tuning._learn(lessons, rows, 0.1)
        tuning.step += 1
        done += len(rows)
        if time.perf_counter() - started > seconds:
            break
    rate = done / (time.perf_counter() - started)
    memory = torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0
    return {"set": "synthetic", "rows": n_rows, "labels": n_labels, "rows_per_second": rate, "names_seconds": named,
            "gpu_gib": memory}  # fmt: skip


def train_all(args):
    args.out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + 60 * args.minutes
    plan = json.loads(args.plan.read_text())
    with open(args.out / "runs.jsonl", "a") as log:
        for task in plan:
            if time.monotonic() + task.get("seconds", 60) > deadline:
                print("no time for", task, flush=True)
                continue
            print(task, flush=True)
            try:
                if task["set"] == "synthetic":
                    found = synthetic(args, **task.get("changes", {}))
                else:
                    arrays = load_xz(args.data[0] / f"{task['set']}.npz.xz")
                    found = one_training(task["set"], arrays, args, task["seed"], task.get("changes", {}), args.out)
            except Exception as error:
                found = {"task": task, "error": repr(error)[:2000]}
            log.write(json.dumps(found) + "\n")
            log.flush()
            print({key: value for key, value in found.items() if key != "said"}, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["fit", "prepare", "train"])
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plan", type=Path)
    parser.add_argument("--epochs", type=int, default=0)
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--minutes", type=float, default=9.0)
    args = parser.parse_args()
    {"fit": fit_all, "prepare": prepare_all, "train": train_all}[args.step](args)


if __name__ == "__main__":
    main()
