"""What fine-tuning keeps of its passes: the best one in memory, and the last one in a folder, to go on from."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

# How much worse on held-out rows than the best pass another may be and still count as no loss: chance alone does that.
WITHIN = 0.0005


class Passes:
    """The passes of one training; ``work`` is a folder for the last of them, ``identity`` says which."""

    def __init__(self, work: str | os.PathLike[str] | None, identity: str) -> None:
        self._file: Path | None = None
        if work is not None:
            self._file = Path(work) / f"encoder-{identity}.safetensors"
        self._best: dict[str, Any] | None = None
        self._gained, self._since = -1.0, 0

    def resume(self, tuning: Any) -> int:
        """Take up a pass that is there; return how many passes are done."""
        if self._file is None or not self._file.exists():
            return 0
        from safetensors import safe_open
        from safetensors.torch import load_file

        with safe_open(str(self._file), "pt") as opened:
            notes = json.loads(opened.metadata()["passes"])
        _restore(tuning, load_file(str(self._file)))
        tuning.step = notes["step"]
        self._best, self._gained = _copied(_served(tuning)), notes["gained"]
        return int(notes["done"])

    def ended(self, tuning: Any, number: int, gained: float) -> int:
        """Note a finished pass; return how many have passed since the best."""
        self._since = 0 if gained > self._gained - WITHIN else self._since + 1
        if not self._since:
            self._best, self._gained = _copied(_served(tuning)), max(gained, self._gained)
        if self._file is not None:
            from safetensors.torch import save_file

            self._file.parent.mkdir(parents=True, exist_ok=True)
            draft = self._file.with_suffix(".part")
            notes = {"done": number + 1, "step": tuning.step, "gained": gained}
            save_file(_copied(_all(tuning)), str(draft), {"passes": json.dumps(notes)})
            os.replace(draft, self._file)
        return self._since

    def take_best(self, tuning: Any) -> None:
        """Go back to the best pass."""
        if self._best is not None and self._since:
            _restore(tuning, self._best)


def _served(tuning: Any) -> dict[str, Any]:
    """What the model is made of."""
    tables = {"own": tuning.own, "gain": tuning.gain, "bias": tuning.bias}
    return tables | {f"encoder.{name}": part for name, part in tuning.module.state_dict().items()}


def _all(tuning: Any) -> dict[str, Any]:
    """What training goes on from."""
    found = _served(tuning)
    for number, moments in enumerate(tuning.moments):
        found |= {f"moment.{number}.{which}": moment for which, moment in enumerate(moments)}
    for number, state in tuning.optimizer.state_dict()["state"].items():
        found |= {f"optimizer.{number}.{name}": value for name, value in state.items()}
    return found


def _copied(parts: dict[str, Any]) -> dict[str, Any]:
    return {name: part.detach().cpu().clone().contiguous() for name, part in parts.items()}


def _restore(tuning: Any, parts: dict[str, Any]) -> None:
    for name in ("own", "gain", "bias"):
        getattr(tuning, name).copy_(parts[name])
    begin = "encoder."
    tuning.module.load_state_dict({n.removeprefix(begin): p for n, p in parts.items() if n.startswith(begin)})
    for number, moments in enumerate(tuning.moments):
        for which, moment in enumerate(moments):
            if (key := f"moment.{number}.{which}") in parts:
                moment.copy_(parts[key])
    state: dict[int, dict[str, Any]] = {}
    for name, part in parts.items():
        if name.startswith("optimizer."):
            _, at, key = name.split(".")
            state.setdefault(int(at), {})[key] = part
    if state:
        tuning.optimizer.load_state_dict({**tuning.optimizer.state_dict(), "state": state})
