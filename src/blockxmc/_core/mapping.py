"""Files as read-only memory that keep no file open.

Python's own ``mmap`` holds a copy of the file descriptor for as long as the map lives (before Python 3.13 there is no way
around it), so that a few dozen loaded models use up the descriptors of a process. On POSIX systems the map is made by the
C library's ``mmap`` instead; elsewhere by Python's.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from typing import IO, Any

# Smaller files are read: a map would cost as much memory, and a process may have only some 65,000 maps.
READ_BELOW = 1 << 14


def mapped(file: IO[bytes], size: int) -> memoryview:
    """The first ``size`` bytes of an open file, read-only; the file may be closed afterwards."""
    if size < READ_BELOW:
        return memoryview(file.read(size))
    if os.name != "posix":
        return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
    address = _libc().mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
    if address in (None, _FAILED):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), file.name)
    pages = (ctypes.c_char * size).from_address(address)
    # Every view of the pages keeps this object alive. At exit the system takes the pages back by itself.
    weakref.finalize(pages, _libc().munmap, address, size).atexit = False
    return memoryview(pages).cast("B").toreadonly()


_FAILED = ctypes.c_void_p(-1).value
_loaded: list[Any] = []


def _libc() -> Any:
    if not _loaded:
        library = ctypes.CDLL(None, use_errno=True)
        numbers = [ctypes.c_int] * 3
        library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *numbers, ctypes.c_long]
        library.mmap.restype = ctypes.c_void_p
        library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        _loaded.append(library)
    return _loaded[0]
