"""The model directory: ``manifest.json`` beside ``.npy`` arrays and text files of names. No pickle anywhere.

Large arrays are opened as read-only memory maps, so loading is instant and many processes share one copy. Every saved
version has files of its own, and replacing the manifest is the one atomic step that makes it the model: at every moment
the path is a whole model, old or new. ``docs/reference/model-format.md`` describes every file.
"""

from blockxmc._core.stored import check_indices, check_row_pointers
from blockxmc.storage.files import Strings
from blockxmc.storage.model import (
    FORMAT_VERSION,
    check_target,
    load,
    load_with_manifest,
    read_manifest,
    save_model,
    verify,
    with_extra,
)
from blockxmc.storage.registry import CLASSES

__all__ = [
    "CLASSES",
    "FORMAT_VERSION",
    "Strings",
    "check_indices",
    "check_row_pointers",
    "check_target",
    "load",
    "load_with_manifest",
    "read_manifest",
    "save_model",
    "verify",
    "with_extra",
]
