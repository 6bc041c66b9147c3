"""What several commands share: options, reading test data for a model, tables on stdout."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from blockxmc._core.base import XMCEstimator
    from blockxmc.data import Dataset

Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object on stdout.")]
Threads = Annotated[int | None, typer.Option("--threads", min=1, max=1024, help="Threads; all cores when not given.")]
Seed = Annotated[int, typer.Option("--seed", min=0, max=2**31 - 1, help="Seed of everything that is random.")]


def verbosity() -> int:
    """Progress belongs on a terminal; scripts and logs stay quiet."""
    return int(sys.stderr.isatty())


def print_json(value: Any) -> None:
    """One JSON object, numbers as they are; what JSON has no number for is null."""
    json.dump(_finite(value), sys.stdout, indent=2, default=_plain, allow_nan=False)
    print()


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table for people; the first column is text, the rest is right-aligned."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    # Piped output must not be cut at some default width.
    width = None if sys.stdout.isatty() else 160
    Console(width=width, highlight=False).print(table)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


@contextmanager
def test_file(path: str) -> Iterator[Path]:
    """The path itself, or standard input (``-``) as a file."""
    if path != "-":
        yield Path(path)
        return
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "stdin"
        copy.write_bytes(sys.stdin.buffer.read())
        from blockxmc.errors import BlockXMCError

        try:
            yield copy
        except BlockXMCError as error:
            raise BlockXMCError(
                str(error).replace(f"{copy}.tsv", str(copy)).replace(str(copy), "standard input")
            ) from None


def read_for(model: XMCEstimator, path: Path, *, require_labels: bool) -> Dataset:
    """Test data in the features and labels of a model."""
    from blockxmc.data import read_dataset
    from blockxmc.data.folder import data_format
    from blockxmc.errors import BlockXMCError

    if path.name == "stdin" and hasattr(model, "vectorizer_") and data_format(path) == "xc":
        path = path.rename(path.with_suffix(".tsv"))  # a text model takes plain lines, too
    text, wants_text = data_format(path) in ("jsonl", "tsv", "csv"), hasattr(model, "vectorizer_")
    if text != wants_text:
        kinds = ("features (XC text or npz)", "text (JSONL, TSV or CSV)")
        raise BlockXMCError(f"{path}: holds {kinds[text]}, but the model was trained on {kinds[wants_text]}")
    dataset = read_dataset(
        path,
        n_features=model.n_features_in_,
        n_labels=model.targets_.n_labels,
        vectorizer=getattr(model, "vectorizer_", None),
        label_names=None if model.label_names_ is None else list(model.label_names_),
        require_labels=require_labels,
    )
    for what, found, known in (
        ("features", dataset.X.shape[1], model.n_features_in_),
        ("labels", dataset.Y.shape[1], model.targets_.n_labels),
    ):
        if found != known:
            raise BlockXMCError(f"{path}: has {found} {what}, but the model was trained on {known}")
    return dataset
