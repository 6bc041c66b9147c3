"""Sizes that the rows do not support, or that the memory does not hold, are refused before anything large is allocated.

A sparse matrix costs nothing for its width, but training does: every feature and every label has arrays of its own. A
file of two lines can claim two billion of each.
"""

from __future__ import annotations

import os
from pathlib import Path

from scipy import sparse

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
