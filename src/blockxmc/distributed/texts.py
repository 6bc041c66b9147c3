"""Texts on a cluster: they become shards beside the work folder, and workers take rows from there."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from blockxmc._core.files import write_atomically
from blockxmc.data.corpus import TEXT_FORMATS
from blockxmc.data.folder import data_format
from blockxmc.data.shards import is_shards, read_shards
from blockxmc.data.streams import Reading, convert_to_shards
from blockxmc.data.tfidf import TextVectorizer
from blockxmc.errors import BlockXMCError

# As many stretches of rows as are worth checksums of their own.
N_SHARDS = 64
_SOURCE = "source.txt"


def is_text(path: Path) -> bool:
    """Whether a file holds texts."""
    return data_format(path) in TEXT_FORMATS


def rows_of_texts(path: Path, work: Path, reading: Reading) -> Path:
    """The folder of shards, beside the work folder, that holds the rows of a file of texts.

    It is made where there is none of the same file and the same words; after a kill, the one that is there is taken.
    """
    folder = work.with_name(f"{work.name}.rows")
    made_of = _described(path, reading)
    note = folder.with_name(f"{folder.name}.{_SOURCE}")
    if not note.is_file():
        if folder.exists():
            raise BlockXMCError(f"{folder} is in the way of rows of texts; remove it, or give another work folder")
    elif note.read_text() != made_of:
        shutil.rmtree(folder, ignore_errors=True)
    write_atomically(note, made_of)
    if not is_shards(folder):
        convert_to_shards(path, folder, N_SHARDS, reading)
    return folder


def check_words(folder: Path, vectorizer: TextVectorizer) -> None:
    """Refuse shards that were not made by the vectorizer of a model."""
    if not vectorizer.has_words_of(read_shards(folder, check=False).vectorizer):
        raise BlockXMCError(
            f"{folder}: its words are not those of the model; convert it together with the training data"
        )


def _described(path: Path, reading: Reading) -> str:
    """All that the rows depend on."""
    with open(path, "rb") as file:
        content = hashlib.file_digest(file, "sha256").hexdigest()
    known = reading.vectorizer
    words = "" if known is None else f"{known.options} {hashlib.sha256(known.idf.tobytes()).hexdigest()}"
    names = hashlib.sha256(repr(reading.label_names).encode()).hexdigest()
    return f"{content} {reading.fields} {words} {names}\n"
