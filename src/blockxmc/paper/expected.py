"""What the paper's experiments will take on a data set, before they begin: from its sizes alone."""

from __future__ import annotations

from dataclasses import dataclass

# CPU seconds and bytes, fitted to trainings of the bases on bibtex, delicious, debian-small and samples of elife-keywords,
# citeulike-t-tags and gutenberg-lcsh: right within a factor of 4 on each.
DISMEC_PER_PRODUCT = 4.5e-9  # stored value and label
PD_SPARSE_PER_VALUE = 5.5e-7  # stored value and root of the labels
LEML_PER_VALUE, LEML_PER_SQUARE = 2.2e-8, 1.2e-9  # stored value and rank; label or feature and square of the rank
RANK = 500
# A weight is 4 bytes; a positive teaches its label about three of them per stored value of its row. Data are held as they
# come, transposed, and once more for a fold.
WEIGHT, WEIGHTS_PER_VALUE, DATA = 4, 3, 24
# The protocol of five folds takes about as much as so many trainings of the base; another two are of the chosen pairs. To
# the letter, and by three seeds, it is about twice as much again.
PROTOCOL, CHOSEN, WHOLE = 12.0, 2.0, 2.5
# Cores work to this share, since not everything is parallel.
BUSY = 0.8
BASES = ("dismec", "pd-sparse", "leml")


@dataclass(frozen=True)
class Sizes:
    """Sizes of a training set.

    >>> sizes = Sizes(14146, 101_938, 30_938, 673.45, 18.64)
    >>> round(expected(sizes, "dismec")["base_cpu_hours"], 2)
    0.37
    """

    rows: int
    features: int
    labels: int
    values_per_row: float
    labels_per_row: float

    @property
    def values(self) -> float:
        """Stored values."""
        return self.rows * self.values_per_row


def expected(sizes: Sizes, base: str) -> dict[str, float]:
    """CPU hours of a base, of the paper's protocol over it, and of all of that to the letter, too; gigabytes of memory."""
    seconds = {
        "dismec": DISMEC_PER_PRODUCT * sizes.values * sizes.labels,
        "pd-sparse": PD_SPARSE_PER_VALUE * sizes.values * sizes.labels**0.5,
        "leml": LEML_PER_VALUE * sizes.values * min(RANK, sizes.labels)
        + LEML_PER_SQUARE * (sizes.labels + sizes.features) * min(RANK, sizes.labels) ** 2,
    }[base]
    weights = min(WEIGHTS_PER_VALUE * sizes.values * sizes.labels_per_row, float(sizes.labels) * sizes.features)
    if base == "leml":
        weights = (sizes.labels + sizes.features) * float(min(RANK, sizes.labels))
    protocol = (PROTOCOL + CHOSEN) * seconds
    return {
        "base_cpu_hours": seconds / 3600,
        "protocol_cpu_hours": (seconds + protocol) / 3600,
        "with_letter_cpu_hours": WHOLE * (seconds + protocol) / 3600,
        "memory_gb": (DATA * sizes.values + 2.5 * WEIGHT * weights) / 1e9,
    }


def hours(cpu_hours: float, cores: int) -> float:
    """Hours by the clock on so many cores.

    >>> round(hours(16.0, 16), 2), hours(1.0, 1)
    (1.25, 1.0)
    """
    return cpu_hours / (1 if cores == 1 else BUSY * cores)
