"""The figure of the README and of the site: python docs/figures.py. Needs the extra `plots`."""

from pathlib import Path

from blockxmc.data import load_demo
from blockxmc.plots import draw_trade

if __name__ == "__main__":
    path = Path(__file__).parent / "blocks.png"
    print(path, draw_trade(load_demo()[0], path))
