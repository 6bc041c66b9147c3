"""A digest of the code that shapes results: cells of other code are other cells, and pages made of them are stale."""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from pathlib import Path

import blockxmc
from blockxmc import _kernels

# Rooms that shape every number, and those that shape models other than a base alone.
_EVERYWHERE = ("_core", "data", "metrics", "linear", "model", "learners", "paper", "storage", "training/dataset.py")
_MODELS = ("partition", "routing", "training", "classifier.py", "tuning")
_CELLS = tuple(f"paper/experiments/{name}.py" for name in ("cells", "systems", "partitions", "stopwatch"))
# Kinds of cells that no model of blocks shapes.
_BASES_ALONE = ("data", "full")


@cache
def code_digest(kind: str) -> str:
    """The digest of the code behind cells of a kind. Comments and docstrings do not count.

    >>> code_digest("full") == code_digest("data") != code_digest("fastxml")
    True
    """
    rooms = (*_EVERYWHERE, *_CELLS) if kind in _BASES_ALONE else (*_EVERYWHERE, *_MODELS, *_CELLS)
    state = hashlib.sha256(_kernels.sources.encode())
    root = Path(blockxmc.__file__).parent
    for room in rooms:
        place = root / room
        for file in [place] if place.suffix else sorted(place.glob("**/*.py" if room != "paper" else "*.py")):
            state.update(str(file.relative_to(root).as_posix()).encode())
            state.update(_substance(file.read_text(encoding="utf-8")).encode())
    return state.hexdigest()[:16]


def _substance(source: str) -> str:
    """The lines of a module without docstrings, comment lines and empty lines.

    >>> _substance('def f():\\n    "Says one."\\n    # why\\n\\n    return 1')
    'def f():\\n    return 1'
    """
    told: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and first.end_lineno is not None:
                told.update(range(first.lineno, first.end_lineno + 1))
    lines = enumerate(source.splitlines(), start=1)
    return "\n".join(line for number, line in lines if number not in told and line.strip() and line.strip()[0] != "#")
