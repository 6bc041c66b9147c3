"""The figure of the README and of the site: python docs/figures.py. Needs the extra `plots`."""

from pathlib import Path

import numpy as np

from blockxmc import Partitioner
from blockxmc.data import load_demo
from blockxmc.plots import draw_blocks, typical_labels

N_BLOCKS, CAPTURED = 12, 0.9


def main():
    train, _ = load_demo()
    part = captures(train, CAPTURED)
    names = np.asarray(train.label_names)
    typical = typical_labels(train.Y, part.assignment_, part.n_blocks_, count=2)
    size = np.mean([len(ids) for ids in part.label_clusters_])
    share = f"{size:.0f} of {train.n_labels:,} labels each on average"
    title = f"{part.n_blocks_} blocks, {share}: {part.captured_:.0%} captured"
    path = Path(__file__).parent / "blocks.png"
    captions = [", ".join(shortened(str(name)) for name in names[ids]) for ids in typical]
    draw_blocks(train.Y, part.assignment_, part.label_clusters_, path, title=title, captions=captions, others=True)
    print(path, title)


def shortened(name, most=18):
    return name if len(name) <= most else name[: most - 1] + "…"


def captures(train, share):
    """Blocks at the smallest lambda of a grid that captures no more than this share."""
    for lam in np.geomspace(1e-4, 1, 33):
        part = Partitioner(n_blocks=N_BLOCKS, lam=float(lam), random_state=0).fit(train.X, train.Y)
        if part.captured_ <= share:
            return part
    raise SystemExit(f"no lambda captures as little as {share}")


if __name__ == "__main__":
    main()
