"""Sizes that the rows do not support, or that the memory does not hold, are refused before anything large is allocated.

A sparse matrix costs nothing for its width, but training does: every feature and every label has arrays of its own. A
file of two lines can claim two billion of each.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from blockxmc._core.needs import Sizes, expected_bytes, sizes_of
from blockxmc.errors import BlockXMCError, DataFormatError

# Sizes up to these are taken as they are; beyond them the rows must hold an entry for every hundred.
FREE_WIDTH = 1 << 24
FREE_LABELS = 1 << 20
COLUMNS_PER_ENTRY = 100
# Peak bytes of a training, measured: an unused label costs most, because every row teaches it to say no.
BYTES_PER_FEATURE, BYTES_PER_LABEL, BYTES_PER_UNUSED_LABEL = 100, 1000, 4000
# Bytes that a training may take; None: what is free.
MAX_MEMORY: int | None = None


def check_file_widths(path: object, X: sparse.csr_array, Y: sparse.csr_array, source: str) -> None:
    """Refuse a file that claims far more columns than its rows hold; ``source`` names where the claim stands.

    >>> tiny = sparse.csr_array(([1.0], [2], [0, 1]), shape=(1, 2**31 - 1))
    >>> check_file_widths("tiny.txt", tiny, tiny, "the header")
    Traceback (most recent call last):
        ...
    blockxmc.errors.DataFormatError: tiny.txt: the header says 2,147,483,647 features, but the rows use only the first 3;
    training would take about ... GB of memory; correct that number
    """
    for what, matrix in (("features", X), ("labels", Y)):
        size, used = matrix.shape[1], used_width(matrix)
        if size <= FREE_WIDTH:
            continue
        cost = f"training would take about {gigabytes(training_bytes(X.shape[1], Y.shape[1], Y.nnz))} of memory"
        if size > COLUMNS_PER_ENTRY * used:
            uses = f"the rows use only the first {used:,}"
            raise DataFormatError(f"{path}: {source} says {size:,} {what}, but {uses}; {cost}; correct that number")
        if size > COLUMNS_PER_ENTRY * matrix.nnz:
            holds = f"the rows hold only {matrix.nnz:,} in all, the last of them number {used - 1:,}"
            remedy = f"number the {what} from 0 without gaps"
            raise DataFormatError(f"{path}: {source} says {size:,} {what}, but {holds}; {cost}; {remedy}")


def check_training_memory(X: sparse.csr_array, Y: sparse.csr_array) -> None:
    """Refuse data whose widths alone would fill the memory, or whose labels are nearly all unused."""
    (_, n_features), (_, n_labels) = X.shape, Y.shape
    if n_labels > FREE_LABELS and n_labels > COLUMNS_PER_ENTRY * Y.nnz:
        raise BlockXMCError(
            f"Y has {n_labels:,} labels, but its rows hold only {Y.nnz:,} of them; leave unused labels out"
        )
    needed, free = training_bytes(n_features, n_labels, Y.nnz), free_memory()
    if free is None or needed <= free:
        return
    used = f"the rows use the first {used_width(X):,} features and the first {used_width(Y):,} labels"
    raise BlockXMCError(
        f"{n_features:,} features and {n_labels:,} labels need about {gigabytes(needed)} of memory for training, and"
        f" {gigabytes(free)} are free; {used}: leave unused ones out, or train on a larger machine"
    )


def check_memory_limit(X: sparse.csr_array, Y: sparse.csr_array, max_memory_gb: Any, *, threads: int = 1) -> None:
    """Refuse a training that would need more than a limit, with what would fit into it.

    >>> rows = sparse.csr_array([[1.0, 2.0], [1.0, 0.0]])
    >>> check_memory_limit(rows, rows, 100)
    >>> check_memory_limit(rows, rows, 1e-9)
    Traceback (most recent call last):
        ...
    blockxmc.errors.BlockXMCError: training would take about ... GB of memory, more than the 1e-09 allowed; ...
    """
    if max_memory_gb is None:
        return
    if not isinstance(max_memory_gb, Real) or not float(max_memory_gb) > 0:
        raise BlockXMCError(f"max_memory_gb must be a positive number, got {max_memory_gb!r}")
    room = float(max_memory_gb) * 1e9 - used_memory()
    sizes = sizes_of(X, Y, threads)
    needed = expected_bytes(sizes)
    if needed > room:
        total = (needed + used_memory()) / 1e9
        raise BlockXMCError(
            f"training would take about {total:,.2f} GB of memory, more than the {max_memory_gb:g} allowed;"
            f" {_what_would_fit(X, sizes, room)}"
        )


def _what_would_fit(X: sparse.csr_array, sizes: Sizes, room: float) -> str:
    """The largest number of features, the most frequent ones, with which the training would fit; else of rows."""
    values = np.cumsum(np.sort(np.bincount(X.indices, minlength=X.shape[1]))[::-1])

    def needed(last: int) -> int:
        """With the features up to this one."""
        weights = sizes.weights * values[last] / max(sizes.values, 1)
        fewer = sizes._replace(features=last + 1, values=int(values[last]), weights=weights)
        return expected_bytes(fewer)

    fitting = bisect_right(range(values.size), room, key=needed)
    if fitting:
        return f"with the {fitting:,} most frequent features it would fit (max_features={fitting}, or a higher min_df)"
    share = room / expected_bytes(sizes)
    if share > 0:
        return f"about {int(share * sizes.rows):,} of the {sizes.rows:,} rows would fit; or leave rare labels out"
    return f"this process takes {gigabytes(used_memory())} before it begins"


def used_memory() -> int:
    """Bytes that this process holds in memory and that no file stands behind; 0 where that is unknown."""
    try:
        resident, shared = (int(pages) for pages in Path("/proc/self/statm").read_text().split()[1:3])
        return (resident - shared) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def training_bytes(n_features: int, n_labels: int, n_positives: int) -> int:
    """About how much memory a training takes for its widths alone."""
    unused = max(0, n_labels - n_positives)
    labels = (n_labels - unused) * BYTES_PER_LABEL + unused * BYTES_PER_UNUSED_LABEL
    return n_features * BYTES_PER_FEATURE + labels


def check_space(path: object, size: int) -> None:
    """Refuse a file whose unpacked content does not fit the memory."""
    free = free_memory()
    if free is not None and size > free:
        raise DataFormatError(f"{path}: unpacks to {gigabytes(size)}, and {gigabytes(free)} of memory are free")


def used_width(matrix: sparse.csr_array) -> int:
    """Number of columns up to the last one that a row uses."""
    return int(matrix.indices.max()) + 1 if matrix.indices.size else 0


def free_memory() -> int | None:
    """Bytes that this process may still take: of the machine, of its container and of its own limit; None: unknown."""
    if MAX_MEMORY is not None:
        return MAX_MEMORY
    known = [size for size in (_free_in_machine(), _free_in_container(), _own_limit()) if size is not None]
    return min(known, default=None)


def _free_in_machine() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def _free_in_container() -> int | None:
    """What a control group leaves, where there is one with a limit (file caches are given back on demand)."""
    places = (
        ("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    )
    for folder, limit, usage, cache in places:
        try:
            most, taken = (int((Path(folder) / name).read_text()) for name in (limit, usage))
            lines = (Path(folder) / "memory.stat").read_text().splitlines()
        except (OSError, ValueError):  # no such group, or "max": no limit
            continue
        cached = next((int(line.split()[1]) for line in lines if line.startswith(f"{cache} ")), 0)
        return max(0, most - taken + cached)
    return None


def _own_limit() -> int | None:
    """The limit of ``ulimit -v``."""
    try:
        import resource
    except ImportError:
        return None
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def gigabytes(size: int) -> str:
    """A number of bytes for people.

    >>> gigabytes(1_500_000_000), gigabytes(215 * 10**9)
    ('1.5 GB', '215 GB')
    """
    return f"{size / 1e9:,.0f} GB" if size >= 10e9 else f"{size / 1e9:,.1f} GB"
