"""``blockxmc convert``: one data format into another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer


def convert(
    source: Annotated[
        Path, typer.Argument(metavar="IN", help="XC text, npz, JSONL, TSV or CSV (.gz and .xz too), or a folder.")
    ],
    target: Annotated[
        Path,
        typer.Argument(metavar="OUT", help="The suffix names the format: .txt, .npz, .jsonl; a folder for a folder."),
    ],
) -> None:
    """Convert a data file to XC text (.txt, .xc, .svm), npz or JSONL; a final .gz or .xz compresses.

    Text becomes TF-IDF features; as XC text, labels.txt and features.txt are written beside it. A folder with train.* and
    test.* becomes a folder with train.txt and test.txt that share their features and labels.
    """
    from blockxmc.data import read_dataset
    from blockxmc.data.corpus import read_corpus, write_jsonl
    from blockxmc.data.folder import data_format
    from blockxmc.errors import BlockXMCError

    if source.is_dir():
        _convert_folder(source, target)
        return
    kind = _target_format(target)
    source_kind = data_format(source)
    if source.resolve() == target.resolve():
        raise BlockXMCError(f"{target}: input and output are the same file; choose another name")
    if kind == "jsonl":
        if source_kind in ("xc", "npz"):
            raise BlockXMCError(
                f"{source}: holds features, not text, so it cannot become JSONL; convert to .txt or .npz"
            )
        write_jsonl(target, read_corpus(source, verbose=1), verbose=1)
        return
    _write(kind, target, read_dataset(source, verbose=1))


def _convert_folder(source: Path, target: Path) -> None:
    from blockxmc.data import read_data_dir, write_xc
    from blockxmc.errors import BlockXMCError

    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BlockXMCError(f"{target}: exists and is not an empty folder; choose another name")
    train, test = read_data_dir(source, verbose=1)
    target.mkdir(parents=True, exist_ok=True)
    _write("xc", target / "train.txt", train)
    write_xc(target / "test.txt", test.X, test.Y, verbose=1)


def _target_format(target: Path) -> str:
    from blockxmc.data._source import bare_name
    from blockxmc.errors import BlockXMCError

    suffix = Path(bare_name(target)).suffix
    formats = {".txt": "xc", ".xc": "xc", ".svm": "xc", ".npz": "npz", ".jsonl": "jsonl"}
    if suffix not in formats or (suffix == ".npz" and target.suffix != ".npz"):
        raise BlockXMCError(
            f"{target}: the suffix must name the format: .txt (XC text), .npz or .jsonl,"
            " with .gz or .xz after .txt and .jsonl"
        )
    return formats[suffix]


def _write(kind: str, target: Path, data: object) -> None:
    from blockxmc.data import Dataset, write_names, write_npz, write_xc
    from blockxmc.errors import BlockXMCError

    assert isinstance(data, Dataset)
    if kind == "npz":
        write_npz(target, data)
        return
    named = {"labels.txt": data.label_names, "features.txt": data.feature_names}
    for file, names in named.items():
        if names is not None and _other_names(target.parent / file, names):
            raise BlockXMCError(
                f"{target.parent / file}: names other {file.removesuffix('.txt')} already; convert into another folder,"
                " or a folder with train.* and test.* as a whole, so that both get the same names"
            )
    # Names first: if they are refused, nothing has been written.
    for file, names in named.items():
        if names is not None:
            write_names(target.parent / file, names)
    write_xc(target, data.X, data.Y, verbose=1)


def _other_names(file: Path, names: Sequence[str]) -> bool:
    from blockxmc.data import read_names

    return file.exists() and list(read_names(file)) != list(names)
