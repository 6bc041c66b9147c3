"""What labels are about: names with texts, for labels that few rows have, or none."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from scipy import sparse

from blockxmc._core.matrix import as_csr
from blockxmc.data._source import PathLike, bare_name, read_names
from blockxmc.data.dataset import Dataset
from blockxmc.data.label_names import bare_uris, clean_names
from blockxmc.errors import BlockXMCError, DataFormatError


def read_label_texts(path: PathLike) -> dict[str, str]:
    """Names and texts of labels from a file (plain, .gz or .xz).

    JSON (``.json``): an object from names to texts. Else lines: a name, a tab and its text, or a name that speaks for
    itself.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "labels.tsv"
    >>> _ = file.write_text("cow\\tcows moo\\ndog\\n")
    >>> read_label_texts(file)
    {'cow': 'cows moo', 'dog': 'dog'}
    """
    lines = read_names(path)
    if bare_name(path).endswith(".json"):
        try:
            given: Any = json.loads("\n".join(lines))
        except (ValueError, RecursionError) as error:
            raise DataFormatError(f"{path}: not JSON: {error}; give an object from names to texts") from error
        if not isinstance(given, dict):
            raise DataFormatError(f'{path}: must hold an object from names to texts, like {{"cow": "cows moo"}}')
    else:
        given = {}
        for number, line in enumerate(lines, 1):
            found, tab, text = line.partition("\t")
            [name] = bare_uris([found])
            if name in given:
                raise DataFormatError(f"{path}: line {number}: {name!r} is there twice; give each label one line")
            if name:
                given[name] = text if tab else found
    try:
        return clean_label_texts(given)
    except BlockXMCError as error:
        raise DataFormatError(f"{path}: {error}") from error


def clean_label_texts(given: Any) -> dict[Any, str]:
    """Texts by name, from such a mapping or a list of names; names are stripped as in training data.

    >>> clean_label_texts({" cow ": "cows moo"}), clean_label_texts(["cow"])
    ({'cow': 'cows moo'}, {'cow': 'cow'})
    """
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise BlockXMCError(f"label_texts must be a dict from names to texts, or a list of names, got {given!r:.60}")
    # A Series is from names to texts, too.
    pairs = given.items() if isinstance(given, Mapping) or hasattr(given, "items") else ((name, name) for name in given)
    out: dict[Any, str] = {}
    for name, text in pairs:
        if not isinstance(text, str):
            raise BlockXMCError(f"label_texts: the text of {name!r:.60} is {text!r:.60}; it must be text")
        for clean in clean_names([name]):
            out[clean] = text
    if not any(text.strip() for text in out.values()):
        raise BlockXMCError("label_texts holds no text")
    return out


def with_labels(data: Dataset, names: Iterable[Any]) -> Dataset:
    """The data set with labels of these names, too, behind its own; no row has those that are new.

    >>> import numpy as np
    >>> eye = sparse.csr_array(np.eye(2, dtype=np.float32))
    >>> with_labels(Dataset(eye, eye, label_names=["a", "b"]), ["c", "b"]).label_names
    ['a', 'b', 'c']
    """
    known = list(data.label_names or ())
    seen = set(known)
    new = list(dict.fromkeys(name for name in names if name not in seen))
    if not new:
        return data
    Y = as_csr(data.Y)
    wider = sparse.csr_array((Y.data, Y.indices, Y.indptr), shape=(Y.shape[0], Y.shape[1] + len(new)))
    return replace(data, Y=wider, label_names=known + new)
