"""Progress of a kernel that counts something else than labels, shown in the unit the caller asked for."""

from __future__ import annotations

from dataclasses import dataclass

from blockxmc._core.progress import Phase


@dataclass(frozen=True)
class ScaledPhase:
    """Reports ``done`` of ``steps`` as the same share of ``total`` in the phase behind it."""

    behind: Phase
    steps: int
    total: int

    def update(self, done: int) -> None:
        """Set the number of finished steps."""
        self.behind.update(min(self.total, self.total * done // max(self.steps, 1)))
