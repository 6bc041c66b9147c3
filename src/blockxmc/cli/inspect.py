"""blockxmc inspect: what is inside a model directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blockxmc.cli._common import Json, on_features, print_json, print_table
from blockxmc.errors import BlockXMCError, ModelFormatError

if TYPE_CHECKING:
    from blockxmc.partition import Partitioner


def inspect(
    model: Annotated[Path, typer.Argument(metavar="DIR", help="A model directory, or a folder of shards.")],
    verify: Annotated[bool, typer.Option("--verify", help="Check the checksum of every file.")] = False,
    block: Annotated[int | None, typer.Option("--block", help="List the labels of this block.")] = None,
    json: Json = False,
) -> None:
    """Show what a model contains: sizes, blocks, label names, objective, history, and how it was made."""
    from blockxmc.data.shards import is_shards
    from blockxmc.storage import load_with_manifest
    from blockxmc.storage import verify as find_problems

    if is_shards(model):
        _show_shards(model, verify, json)
        return
    if verify:
        problems = find_problems(model)
        if problems:
            raise ModelFormatError(f"{model}: {'; '.join(problems)}")
    loaded, manifest = load_with_manifest(model)
    estimator: Any = on_features(loaded)
    about = {
        "estimator": type(loaded).__name__,
        **({"classifier": type(estimator).__name__} if loaded is not estimator else {}),
        "labels": estimator.targets_.n_labels,
        "features": estimator.n_features_in_,
        "training rows": estimator.n_train_rows_,
        "model MB": sum(file.stat().st_size for file in model.iterdir()) / 1e6,
        **({"checksums": "all right"} if verify else {}),
        **_kept_rows(estimator),
        **_names(estimator),
        **getattr(estimator, "cost_", {}),
        **_encoder(loaded),
    }
    partition: Any = getattr(estimator, "partition_", None)
    names = estimator.label_names_
    if block is not None and (partition is None or not 0 <= block < partition.n_blocks_):
        has = 0 if partition is None else partition.n_blocks_
        raise BlockXMCError(f"--block {block}: the model has {has} blocks, numbered from 0")
    if json and block is not None:
        ids = _by_frequency(partition.label_clusters_[block], estimator.label_counts_)
        counts = [int(estimator.label_counts_[j]) for j in ids]
        print_json({"block": block, "labels": [_name(names, j) for j in ids], "training_rows": counts})
        return
    if json:
        result = {"about": about, "provenance": manifest["provenance"], **history(estimator)}
        if partition is not None:
            result |= {"partition": _partition(partition), "blocks": _blocks(partition, estimator, limit=None)}
        print_json(result)
        return
    if block is not None:
        ids = _by_frequency(partition.label_clusters_[block], estimator.label_counts_)
        rows = [[_name(names, j), int(estimator.label_counts_[j])] for j in ids]
        print_table(f"block {block}: {len(ids)} labels", ["label", "training rows"], rows)
        return
    print_table("", ["model", ""], [[key.replace("_", " "), value] for key, value in about.items()])
    if partition is not None:
        trace, one = partition.objective_trace_, partition.n_blocks_ == 1
        left_out = {"objective_trace", *(("lam", "captured %") if one else ())}  # of one block they say nothing
        facts = {key: value for key, value in _partition(partition).items() if key not in left_out}
        print_table("", ["partition", ""], [[key, value] for key, value in facts.items()])
        if len(trace) and not one:
            print_table("", ["objective", ""], [["first", float(trace[0])], ["last", float(trace[-1])]])
        shown = _blocks(partition, estimator, limit=20)
        title = f"largest {len(shown)} of {partition.n_blocks_} blocks"
        rows = [[*list(row.values())[:-1], " · ".join(row["most frequent"])] for row in shown]
        print_table(title, list(shown[0]), rows)
    _show_history(estimator)
    print_table("", ["made by", ""], [[key, value] for key, value in manifest["provenance"].items()])


def _encoder(model: Any) -> dict[str, Any]:
    """The encoder beside the linear model, if there is one."""
    encoded = getattr(model, "encoder_", None)
    if encoded is None:
        return {}
    sizes = {"encoder MB": encoded.nbytes / 1e6, "encoder looks at": encoded.candidates}
    gained = {name: 100 * encoded.summary[name] for name in ("linear", "fused")}
    return sizes | {f"held-out P@1/3/5, {name}": value for name, value in gained.items()}


def history(estimator: Any) -> dict[str, Any]:
    """What was done to a model that keeps its rows, and why it should be trained anew, if anything says so."""
    events = getattr(estimator, "history_", [])
    return {"history": events, "advice": estimator.advice_} if events else {}


def _show_history(estimator: Any) -> None:
    known = history(estimator)
    if not known:
        return
    names = ["what", "rows", "new_labels", "new_features", "labels_solved", "P@1", "P@5", "captured"]
    shares = {"P@1", "P@5", "captured"}
    rows = [
        [_share(event, name) if name in shares else event.get(name, "") for name in names] for event in known["history"]
    ]
    print_table("history", [name.replace("_", " ") for name in names], rows)
    if known["advice"] is not None:
        print(f"note: {known['advice']}")


def _share(event: dict[str, Any], name: str) -> str:
    return f"{100 * event[name]:.1f} %" if name in event else ""


def _kept_rows(estimator: Any) -> dict[str, int]:
    """What a model keeps of single training rows: good to know before you share it."""
    kept = {}
    if hasattr(estimator, "partition_"):
        kept["rows whose block is kept"] = int(estimator.partition_.assignment_.size)
    blocks = getattr(estimator, "model_", None)
    members = getattr(blocks, "members", [blocks])
    neighbors = [found for member in members if (found := getattr(member, "neighbors", None)) is not None]
    if neighbors:
        kept |= {"rows kept in the model": neighbors[0].rows.n_labels, "neighbors asked": neighbors[0].count}
    if (rows := getattr(estimator, "kept_", None)) is not None:
        kept["whole rows kept for updates"] = rows.n_rows
    return kept


def _names(estimator: Any) -> dict[str, str]:
    """What was chosen of names of labels, in words."""
    from blockxmc.training.summary import names_in_words

    cost = getattr(estimator, "cost_", {})
    return {"names of labels": names_in_words(cost)} if "names_weight" in cost else {}


def _show_shards(folder: Path, verify: bool, json: bool) -> None:
    """What a folder of shards holds."""
    from blockxmc.data.shards import read_shards, shard_ranges

    data = read_shards(folder, verify=verify)
    about = {
        "rows": data.n_rows,
        "features": data.n_features,
        "labels": data.n_labels,
        "values": int(data.X.nnz),
        "positives": int(data.Y.nnz),
        "shards": len(shard_ranges(folder)),
        "made of": "texts" if data.vectorizer is not None else "features",
        "MB": sum(file.stat().st_size for file in folder.iterdir()) / 1e6,
        "digest": data.digest,
        **({"checksums": "all right"} if verify else {}),
    }
    if json:
        print_json(about)
    else:
        print_table("", ["data", ""], [[key, value] for key, value in about.items()])


def _partition(partition: Partitioner) -> dict[str, Any]:
    return {
        "blocks": partition.n_blocks_,
        "lam": partition.lam_,
        "captured %": 100 * partition.captured_,
        "choice": partition.choice_["text"],
        "objective_trace": [float(value) for value in partition.objective_trace_],
    }


def _blocks(partition: Partitioner, estimator: Any, limit: int | None) -> list[dict[str, Any]]:
    import numpy as np

    sizes = np.bincount(partition.assignment_, minlength=partition.n_blocks_)
    rows = []
    for block in np.argsort(-sizes, kind="stable")[:limit]:
        ids = _by_frequency(partition.label_clusters_[block], estimator.label_counts_)
        shown = [_name(estimator.label_names_, j) for j in ids[:6]]
        rows.append({"block": int(block), "rows": int(sizes[block]), "labels": len(ids), "most frequent": shown})
    return rows


def _by_frequency(ids: Any, counts: Any) -> Any:
    import numpy as np

    return np.asarray(ids)[np.argsort(-counts[ids], kind="stable")]


def _name(names: Any, label: int) -> str:
    return str(label) if names is None else str(names[label])
