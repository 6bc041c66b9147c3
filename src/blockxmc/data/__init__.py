"""Reading, writing and making data sets."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from blockxmc._core.spelling import fold_labels
from blockxmc.data._source import read_names, write_names
from blockxmc.data.bundled import load_demo, load_demo_texts
from blockxmc.data.dataset import Dataset
from blockxmc.data.describe import describe
from blockxmc.data.folder import read_data_dir, read_dataset
from blockxmc.data.npz import read_npz, write_npz
from blockxmc.data.shards import read_shards, write_shards
from blockxmc.data.streams import convert_to_shards
from blockxmc.data.text import from_texts, read_text
from blockxmc.data.tfidf import TextVectorizer
from blockxmc.data.xc import read_xc, write_xc

if TYPE_CHECKING:
    from blockxmc.paper.synthetic import make_synthetic as make_synthetic

__all__ = [
    "Dataset",
    "TextVectorizer",
    "convert_to_shards",
    "describe",
    "fold_labels",
    "from_texts",
    "load_demo",
    "load_demo_texts",
    "make_synthetic",
    "read_data_dir",
    "read_dataset",
    "read_names",
    "read_npz",
    "read_shards",
    "read_text",
    "read_xc",
    "write_names",
    "write_npz",
    "write_shards",
    "write_xc",
]


def __getattr__(name: str) -> Any:
    if name != "make_synthetic":
        raise AttributeError(f"module 'blockxmc.data' has no attribute {name!r}")
    return importlib.import_module("blockxmc.paper.synthetic").make_synthetic
