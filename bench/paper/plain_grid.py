"""The joint choice of blocks and lambda beside a plain grid on the same folds.

    python bench/paper/plain_grid.py DATA_DIR... [--base dismec] [--threads N] [--work FOLDER] [--out FILE]

Rows are of unit length, as in the experiments. ``tune_lambda`` chooses a pair; then 2, 4, 8, 16 and 32 blocks are each
tried at every lambda of the same grid in the same five folds, and the feasible pair with the fewest products is taken.
``--work`` keeps finished trials (of one data set), so that a killed run goes on; the folder of a tuning cell of ``blockxmc
experiment`` (``OUT/cells/tuning/...``) on the same data has the same trials.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import blockxmc
from blockxmc._core.matrix import unit_rows
from blockxmc.data import read_data_dir
from blockxmc.paper.experiments.settings import BASE_TITLES
from blockxmc.training.trials.plan import NUMBERS
from blockxmc.tuning import TrialOptions, plan_blocks, tune_lambda


def compared(folder: Path, base_name: str, options: TrialOptions) -> dict[str, object]:
    """Both choices on one data set."""
    train, _ = read_data_dir(folder)
    X = unit_rows(train.X)
    make = getattr(blockxmc, BASE_TITLES[base_name].replace("-", ""))
    plan = plan_blocks(X, train.Y, options=options)
    plan = plan if make().one_vs_all else plan.thinned(2)
    joint = tune_lambda(X, train.Y, make(), n_blocks=plan, options=options)
    pairs = []
    for q in NUMBERS:
        found = tune_lambda(X, train.Y, make(), n_blocks=q, lams=plan.lams, options=options)
        best = found.speed_driven
        pairs.append({"blocks": q, "lam": best and best.lam, "products": best and best.products})
        print(f"{folder.name}: {pairs[-1]}", flush=True)
    chosen, shown = joint.speed_driven, ("n_blocks", "lam", "products", "loss")
    products = [pair["products"] for pair in pairs if pair["products"] is not None]
    return {
        "data": folder.name,
        "joint": chosen and {name: getattr(chosen, name) for name in shown},
        "grid": pairs,
        "best_of_grid": min(products, default=None),
    }


def main() -> None:
    """Print what both find."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--base", default="dismec", choices=list(BASE_TITLES))
    parser.add_argument("--threads", type=int)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    options = TrialOptions(n_jobs=given.threads, work=given.work)
    rows = [compared(folder, given.base, options) for folder in given.folders]
    text = json.dumps(rows, indent=1)
    print(text)
    if given.out:
        given.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
