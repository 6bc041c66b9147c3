"""blockxmc beside PECOS, omikuji, napkinXC and LibMultiLabel: training, model size, precision, batch and single-row time.

    make bench-peers DATA="DIR..."            # makes the peers' environments, then runs this
    python bench/peers.py DIR... --systems blockxmc --results docs/results

Each DIR holds train.* and test.* as every command of blockxmc takes them. A system is trained and measured by a worker in
its own environment; what a worker measured is kept under --out and not measured again, so an interrupted run goes on where
it was. A cell belongs to a system, its version and the data; that of blockxmc changes with any of its source files. What
an earlier page in --results says of peers that were not measured again is kept. Where the machine has sixteen cores, each
system is trained once more with sixteen threads, for its wall time; --many-only does nothing else, and its cells, carried
into --out of another machine, are in the page that `--report` writes there.
Writes peers.md, peers.csv, peers.json and a figure per data set to --results.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import peer_report

from blockxmc import __version__, metrics
from blockxmc._core.matrix import unit_rows
from blockxmc.data import Dataset, read_data_dir, write_xc
from blockxmc.paper.experiments.settings import provenance

HERE = Path(__file__).parent
# Peer -> its package and the models trained of it.
PEERS = {
    "pecos": ("libpecos", ("xr-linear",)),
    "omikuji": ("omikuji", ("parabel-1", "parabel-3", "bonsai-3")),
    "napkinxc": ("napkinxc", ("plt",)),
    "libmultilabel": ("libmultilabel", ("tree",)),
    "blockxmc": ("blockxmc", ("default",)),
}
# BLAS stays out of the way, and a thread that waits for another does not burn CPU time that would count as training.
SURROUNDINGS = {"OPENBLAS_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
MANY = 16  # threads of the training whose wall time is compared, where there are so many cores
SYSTEMS = [f"{peer} {training}" for peer, (_, trainings) in PEERS.items() for training in trainings]


@dataclass(frozen=True)
class Rows:
    """A data set on disk in the form that workers read, and what scoring needs of it."""

    name: str
    folder: Path
    digest: str
    size: dict[str, int]
    truth: Any
    inverse_propensity: Any


def prepare(source: Path, out: Path) -> Rows:
    """Rows of unit length as arrays and as XC text, written once."""
    train, test = read_data_dir(source)
    digest = hashlib.sha256((train.digest + test.digest).encode()).hexdigest()[:16]
    name = source.resolve().name
    folder = out / "rows" / f"{name}-{digest}"
    if not (folder / "train.txt").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for part, dataset in {"test": test, "train": train}.items():
            X = unit_rows(dataset.X)
            np.savez(
                folder / f"{part}.npz", shape=[*X.shape, dataset.n_labels], values=X.data, features=X.indices,
                row_ends=X.indptr, labels=dataset.Y.indices, label_ends=dataset.Y.indptr,
            )  # fmt: skip
        write_xc(folder / "train.txt", unit_rows(train.X), train.Y)
    return Rows(name, folder, digest, sizes(train, test), test.Y, metrics.inverse_propensity(train.Y))


def sizes(train: Dataset, test: Dataset) -> dict[str, int]:
    return {
        "train_rows": train.n_rows,
        "test_rows": test.n_rows,
        "features": train.n_features,
        "labels": train.n_labels,
    }


def own_version(root: Path) -> str:
    """The library's version and a digest of its sources, so that edited code is measured anew."""
    state = hashlib.sha256()
    for file in sorted((root / "src").rglob("*")):
        if file.suffix in (".py", ".hpp", ".cpp"):
            state.update(str(file.relative_to(root)).encode() + file.read_bytes())
    return f"{__version__}+src.{state.hexdigest()[:10]}"


def environment(peer: str, environments: Path) -> tuple[str, str]:
    """The interpreter of a peer and the version installed for it."""
    if peer == "blockxmc":
        return sys.executable, own_version(HERE.parent)
    python = environments / peer / "bin" / "python"
    if not python.exists():
        raise SystemExit(f"no environment for {peer} under {environments}: run make bench-peers, or leave {peer} out")
    asked = f"from importlib.metadata import version; print(version('{PEERS[peer][0]}'))"
    return str(python), subprocess.check_output([python, "-c", asked], text=True).strip()


def many_threads(cores: int | None) -> int:
    """How many threads the training for wall time gets on a machine with so many cores; 0: there is none."""
    return MANY if (cores or 1) >= MANY else 0


def cell_file(out: Path, data: str, system: str, version: str, turn: int) -> Path:
    return out / "cells" / data / f"{system.replace(' ', '-')}-{version}-run{turn}.json"


def many_file(file: Path, threads: int) -> Path:
    """Where the cell of the training with many threads stands: beside that of the first run."""
    return file.with_name(f"{file.stem}-threads{threads}.json")


def stored(file: Path, digest: str) -> dict[str, Any] | None:
    """A finished cell of the same data, or None."""
    if not file.exists():
        return None
    cell: dict[str, Any] = json.loads(file.read_text())
    return cell if cell["digest"] == digest else None


def needed(first: dict[str, Any] | None, turn: int, long_s: float) -> bool:
    """Whether a system takes this turn: long trainings are not repeated, nor those whose first run failed."""
    return turn == 0 or (first is not None and first["train_cpu_s"] <= long_s)


def measure(
    rows: Rows, system: str, python: str, version: str, file: Path, threads: int, turn: int, *, train_only: bool = False
) -> dict[str, Any] | None:
    """Run a worker, score what it predicted if anything, and keep the cell; None where the worker failed."""
    peer, training = system.split()
    file.parent.mkdir(parents=True, exist_ok=True)
    raw = file.with_name(f"{file.name}.raw.json")
    command = [python, HERE / "peer_workers" / f"run_{peer}.py", "--training", training, "--rows", rows.folder]
    command += ["--cell", raw, "--threads", str(threads), "--seed", str(turn)]
    command += ["--train-only"] if train_only else []
    done = subprocess.run(command, env=os.environ | SURROUNDINGS, capture_output=True, text=True)
    if done.returncode:
        print(f"{rows.name}: {system} failed: {done.stderr[-2000:]}", file=sys.stderr, flush=True)
        return None
    cell = json.loads(raw.read_text())
    with np.load(raw.with_suffix(".npz")) as tops:
        for setting, numbers in cell["settings"].items():
            numbers |= score(rows, tops[setting])
    cell |= {"data": rows.name, "digest": rows.digest, "system": system, "version": version}
    cell["finished"] = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    partial = file.with_suffix(".part")
    partial.write_text(json.dumps(cell, indent=1) + "\n")
    partial.rename(file)
    raw.unlink()
    raw.with_suffix(".npz").rename(file.with_suffix(".npz"))
    return cell


def score(rows: Rows, labels: Any) -> dict[str, float]:
    found = metrics.evaluate(rows.truth, labels.astype(np.int64), (1, 3, 5), rows.inverse_propensity, percent=True)
    return {f"{name}@{k}": found[f"{name}@{k}"] for name in ("P", "PSP") for k in (1, 3, 5)}


def chosen_systems(names: Sequence[str]) -> list[str]:
    """Systems by full name or by peer."""
    found = [system for system in SYSTEMS if system in names or system.split()[0] in names]
    unknown = [name for name in names if name not in SYSTEMS and name not in PEERS]
    if unknown:
        raise SystemExit(f"unknown system {unknown[0]!r}: choose among {', '.join([*PEERS, *SYSTEMS])}")
    return found


def run(options: argparse.Namespace) -> bool:
    """Measure whatever is missing; whether everything worked."""
    systems, fresh = chosen_systems(options.systems or list(PEERS)), chosen_systems(options.fresh)
    found = {peer: environment(peer, options.envs) for peer in dict.fromkeys(system.split()[0] for system in systems)}
    complete = True
    for source in options.folders:
        rows = prepare(source, options.out)
        (options.out / "sizes").mkdir(exist_ok=True)
        (options.out / "sizes" / f"{rows.name}.json").write_text(json.dumps(rows.size))
        first: dict[str, dict[str, Any] | None] = {}
        for turn in range(0 if options.many_only else options.repeats):
            for system in systems:
                python, version = found[system.split()[0]]
                if not needed(first.get(system), turn, options.long):
                    continue
                file = cell_file(options.out, rows.name, system, version, turn)
                cell = None if system in fresh else stored(file, rows.digest)
                if cell is None:
                    cell = measure(rows, system, python, version, file, options.threads, turn)
                    _say(rows.name, system, turn, cell)
                if turn == 0:
                    first[system] = cell
                complete = complete and cell is not None
        for system in systems if options.many else []:
            if options.many_only or first[system] is not None:
                python, version = found[system.split()[0]]
                file = many_file(cell_file(options.out, rows.name, system, version, 0), options.many)
                cell = None if system in fresh else stored(file, rows.digest)
                cell = cell or _measure_many(rows, system, python, version, file, options.many)
                complete = complete and cell is not None
    return complete


def _measure_many(
    rows: Rows, system: str, python: str, version: str, file: Path, threads: int
) -> dict[str, Any] | None:
    cell = measure(rows, system, python, version, file, threads, 0, train_only=True)
    if cell is not None:
        print(
            f"{rows.name}: {system}, {threads} threads: training {cell['train_wall_s']:.1f} s of wall time", flush=True
        )
    return cell


def _say(data: str, system: str, turn: int, cell: dict[str, Any] | None) -> None:
    for setting, numbers in (cell or {"settings": {}})["settings"].items():
        precision = " / ".join(f"{numbers[f'P@{k}']:.2f}" for k in (1, 3, 5))
        print(f"{data}: {system}, {setting}, run {turn}: training {cell['train_cpu_s']:.1f} s, P {precision}, "
              f"batch {numbers['batch_us']:.1f} µs, one row {numbers['one_us']:.1f} µs", flush=True)  # fmt: skip


def cells_of(out: Path, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """All cells of these data sets but those of trainings with many threads."""
    for name in names:
        for file in sorted((out / "cells" / name).glob("*-run[0-9].json")):
            yield json.loads(file.read_text())


def many_walls(
    out: Path, names: Sequence[str], versions: dict[str, list[str]], digests: dict[str, str]
) -> dict[tuple[str, str], float]:
    """Wall seconds of trainings with many threads by these versions of peers, on data of these digests where known."""
    files = [file for name in names for file in (out / "cells" / name).glob(f"*-run0-threads{MANY}.json")]
    cells = sorted((json.loads(file.read_text()) for file in files), key=lambda cell: cell["finished"])
    return {
        (cell["data"], cell["system"]): cell["train_wall_s"]
        for cell in cells
        if cell["version"] in versions.get(cell["system"].split()[0], [])
        and cell["digest"] == digests.get(cell["data"], cell["digest"])
    }


def _earlier(page: Path) -> dict[str, Any]:
    """What the page says so far."""
    if not page.exists():
        return {"rows": [], "sets": {}, "versions": {}}
    found = json.loads(page.read_text())
    return {"rows": found["rows"], "sets": found["sets"], "versions": found["about"]["versions"]}


def _kept(earlier: list[dict[str, Any]], rows: list[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of an earlier page about peers that were not measured again. Our own are never kept: the code has changed."""
    known = {(row["data"], row["system"]) for row in rows}
    return [
        row
        for row in earlier
        if (row["data"], row["system"]) not in known
        and row["data"] in names
        and not row["system"].startswith("blockxmc")
    ]


def _standing_walls(earlier: dict[str, Any], versions: dict[str, list[str]]) -> dict[tuple[str, str], float]:
    """What the page says of trainings with many threads, by peers whose version is still the same."""
    return {
        (row["data"], row["system"]): row["many_wall_s"]
        for row in earlier["rows"]
        if row.get("many_wall_s") is not None
        and not row["system"].startswith("blockxmc")
        and versions.get(peer := row["system"].split()[0]) == earlier["versions"].get(peer)
    }


def write_report(options: argparse.Namespace) -> None:
    """peers.md, peers.csv, peers.json and figures from the cells of the named data sets."""
    from peer_figure import draw

    names = [folder.resolve().name for folder in options.folders]
    cells = peer_report.newest(cells_of(options.out, names))
    rows = peer_report.medians(cells)
    earlier = _earlier(options.results / "peers.json")
    rows += _kept(earlier["rows"], rows, names)
    versions: dict[str, list[str]] = {
        peer: list(known) for peer, known in earlier["versions"].items() if peer != "blockxmc"
    }
    for cell in cells:
        known = versions.setdefault(cell["system"].split()[0], [])
        known += [cell["version"]] if cell["version"] not in known else []
    walls = _standing_walls(earlier, versions)
    walls |= many_walls(options.out, names, versions, {cell["data"]: cell["digest"] for cell in cells})
    rows = [row | {"many_wall_s": walls.get((row["data"], row["system"]), row.get("many_wall_s"))} for row in rows]
    about = provenance() | {"versions": versions, "threads": options.threads, "repeats": options.repeats, "many": MANY}
    loads = [cell["load"] for cell in cells if "load" in cell]
    about |= {"long_s": options.long, "load": f"{min(loads):.1f} to {max(loads):.1f}" if loads else "not recorded"}
    options.results.mkdir(parents=True, exist_ok=True)
    sets, figures = {}, {}
    for name in names:
        own = [row for row in rows if row["data"] == name]
        if own:
            size = options.out / "sizes" / f"{name}.json"
            sets[name] = json.loads(size.read_text()) if size.exists() else earlier["sets"][name]
            figures[name] = f"peers-{name}.png"
            draw(name, own, options.results / figures[name])
    standing = {name: peer_report.checks([row for row in rows if row["data"] == name]) for name in sets}
    bars = {name: {bar: vars(check) for bar, check in found.items()} for name, found in standing.items()}
    result = {"about": about, "sets": sets, "bars": bars, "rows": rows}
    (options.results / "peers.json").write_text(json.dumps(result, indent=1) + "\n")
    (options.results / "peers.csv").write_text(peer_report.as_csv(rows))
    (options.results / "peers.md").write_text(peer_report.page(rows, about, sets, figures))
    if options.readme:
        options.readme.write_text(peer_report.fill_readme(options.readme.read_text(), rows))
    print("\n".join(peer_report.summary(standing)))
    print(f"\nwritten: {options.results / 'peers.md'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR")
    parser.add_argument("--systems", nargs="+", default=[], help=f"among {', '.join([*PEERS, *SYSTEMS])}; default all")
    parser.add_argument(
        "--fresh", nargs="+", default=[], help="systems to measure again although their cells are there"
    )
    parser.add_argument("--repeats", type=int, default=3, help="trainings of each system, of which medians are taken")
    parser.add_argument(
        "--long", type=float, default=60.0, help="CPU seconds of training above which it is not repeated"
    )
    parser.add_argument("--threads", type=int, default=2, help="threads of training")
    parser.add_argument(
        "--many",
        type=int,
        choices=(0, MANY),
        default=many_threads(os.cpu_count()),
        help="threads of one more training; 0: none",
    )
    parser.add_argument("--many-only", action="store_true", help="only the trainings with many threads; no page")
    parser.add_argument("--out", type=Path, default=HERE / "out" / "peers", help="where cells are kept")
    parser.add_argument("--results", type=Path, default=HERE / "out" / "peers", help="where the page is written")
    parser.add_argument("--readme", type=Path, help="a README whose table of results is written anew")
    parser.add_argument("--envs", type=Path, default=HERE / "out" / "envs", help="the environments of the peers")
    parser.add_argument("--report", action="store_true", help="measure nothing: write the page from what is there")
    options = parser.parse_args()
    options.out, options.results = options.out.resolve(), options.results.resolve()
    if options.many_only and not options.many:
        raise SystemExit(f"--many-only wants a machine of {MANY} cores, or --many {MANY}")
    complete = options.report or run(options)
    if not options.many_only:
        write_report(options)
    raise SystemExit(0 if complete else 1)


if __name__ == "__main__":
    main()
