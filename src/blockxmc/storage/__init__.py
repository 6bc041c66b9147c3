"""The model directory: ``manifest.json`` beside ``.npy`` arrays and text files of names. No pickle anywhere.

Arrays are opened as read-only memory maps, so loading is instant and many processes share one copy. A model is written
into a sibling folder, flushed to disk and renamed into place: whatever happens, a half-written model is never seen.
"""

from blockxmc.storage.files import Strings, check_indices, check_row_pointers
from blockxmc.storage.model import FORMAT_VERSION, check_target, load, read_manifest, save_model, verify
from blockxmc.storage.registry import CLASSES

__all__ = [
    "CLASSES",
    "FORMAT_VERSION",
    "Strings",
    "check_indices",
    "check_row_pointers",
    "check_target",
    "load",
    "read_manifest",
    "save_model",
    "verify",
]
