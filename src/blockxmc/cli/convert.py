"""``blockxmc convert``: one data format into another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from blockxmc.cli._common import refuse_fields_of_features, verbosity
from blockxmc.cli._text_options import IdField, LabelField, LabelSeparator, TextField, TextSettings

if TYPE_CHECKING:
    from blockxmc.data.corpus import Fields


def convert(
    source: Annotated[
        Path,
        typer.Argument(metavar="IN", help="XC text, npz, JSONL, JSON, TSV, CSV (.gz, .xz), shards, or a folder."),
    ],
    target: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            help="File whose suffix names the format (.txt, .npz, .jsonl), or a folder if IN is a folder.",
        ),
    ],
    test: Annotated[
        Path | None, typer.Option("--test", help="Test data for IN; OUT is then a folder for both.")
    ] = None,
    text_field: TextField = None,
    label_field: LabelField = None,
    label_separator: LabelSeparator = None,
    id_field: IdField = None,
    unit: Annotated[
        bool, typer.Option("--unit-rows", help="Scale every row of features to Euclidean length 1.")
    ] = False,
    shards: Annotated[
        int | None,
        typer.Option("--shards", min=1, help="Write a folder with this many shards of rows; reads IN as a stream."),
    ] = None,
) -> None:
    """Convert a data file to XC text (.txt, .xc, .svm), npz, JSONL or shards; a final .gz or .xz compresses.

    Text becomes TF-IDF features; with XC text, labels.txt and features.txt are written next to it. A folder with train.*
    and test.*, or IN with --test, becomes a folder with train.txt and test.txt that share features and labels.

    With --shards, OUT is a folder of memory-mapped arrays, for data larger than memory; with --test, it contains two
    such folders, train and test.
    """
    from blockxmc._core.matrix import unit_rows
    from blockxmc.data import read_dataset, read_text
    from blockxmc.data._source import once
    from blockxmc.data.corpus import TEXT_FORMATS, read_corpus, write_jsonl
    from blockxmc.data.folder import data_format
    from blockxmc.data.repository import is_archive
    from blockxmc.data.shards import is_shards
    from blockxmc.errors import BlockXMCError

    texts = TextSettings(text_field=tuple(text_field or ()), label_field=label_field, label_separator=label_separator)
    fields = replace(texts.fields(), id=id_field)
    given = once(source)
    refuse_fields_of_features(given, texts)
    if shards is not None:
        _write_shards(source, test, target, shards, fields)
        return
    if is_archive(source) or (source.is_dir() and not is_shards(source)) or test is not None:
        _convert_both(source, test, target, fields, unit)
        return
    kind = _target_format(target)
    is_text = data_format(given) in TEXT_FORMATS
    if source.resolve() == target.resolve():
        raise BlockXMCError(f"{target}: input and output are the same file; choose another name")
    if kind == "jsonl":
        if not is_text:
            raise BlockXMCError(
                f"{source}: holds features, not text, so it cannot become JSONL; convert to .txt or .npz"
            )
        write_jsonl(target, read_corpus(given, verbose=1, fields=fields), verbose=1)
        return
    data = read_text(given, fields=fields, verbose=1) if is_text else read_dataset(given, verbose=1)
    _write(kind, target, replace(data, X=unit_rows(data.X)) if unit else data)


def _write_shards(source: Path, test: Path | None, target: Path, n_shards: int, fields: Fields) -> None:
    """A file, or training and test data of two files or of a folder, as shards."""
    from blockxmc.data.folder import train_and_test
    from blockxmc.data.shards import is_shards
    from blockxmc.data.streams import Reading, convert_pair_to_shards, convert_to_shards
    from blockxmc.errors import BlockXMCError

    reading = Reading(fields, verbose=verbosity())
    pair = None if test is None else (source, test)
    if source.is_dir() and not is_shards(source):
        pair = train_and_test(source)
        if test is not None or pair is None:
            raise BlockXMCError(f"{source}: is a folder without train.* and test.*, or --test was given with it")
    if pair is None:
        convert_to_shards(source, target, n_shards, reading)
    else:
        convert_pair_to_shards(*pair, (target / "train", target / "test"), n_shards, reading)


def _convert_both(source: Path, test: Path | None, target: Path, fields: Fields, unit: bool) -> None:
    """Training and test data, of a folder or of two files, into a folder."""
    from blockxmc._core.matrix import unit_rows
    from blockxmc.data import read_data_dir, write_xc
    from blockxmc.data.folder import read_pair
    from blockxmc.errors import BlockXMCError

    if test is not None and source.is_dir():
        raise BlockXMCError(f"--test goes with a file; {source} is a folder, which holds its own test data")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BlockXMCError(f"{target}: exists and is not an empty folder; choose another name")
    if test is None:
        train_data, test_data = read_data_dir(source, fields=fields, verbose=1)
    else:
        train_data, test_data = read_pair(source, test, fields=fields, verbose=1)
    if unit:
        train_data, test_data = (replace(data, X=unit_rows(data.X)) for data in (train_data, test_data))
    target.mkdir(parents=True, exist_ok=True)
    _write("xc", target / "train.txt", train_data)
    write_xc(target / "test.txt", test_data.X, test_data.Y, verbose=1)


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
