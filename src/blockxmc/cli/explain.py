"""blockxmc explain: why labels are suggested for a text or a row, or where a label was lost."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from blockxmc._core.shown import printable
from blockxmc.cli._common import Json, RankBy, kind_of, loaded, on_features, print_json, rank_answers, read_for
from blockxmc.cli._text_options import ExtraColumns, IdField, TextField, TextSettings
from blockxmc.errors import BlockXMCError

if TYPE_CHECKING:
    from blockxmc.data.corpus import Fields
    from blockxmc.model.explanations import Explanation

# Words of a text that are highlighted: those with the largest parts of the score.
HIGHLIGHTED = 10
# A text that is probably the misspelled name of a file.
_LIKE_A_FILE = re.compile(r"\S+\.(csv|tsv|json|jsonl|ndjson|txt|npz)(\.gz|\.xz)?")


def explain(
    model: Annotated[Path, typer.Argument(metavar="DIR", help="A model directory.")],
    text: Annotated[
        str,
        typer.Argument(
            metavar="TEXT|FILE", help="A text, or a file with rows like the training data; - is standard input."
        ),
    ],
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="NAME", help="Explain this label (name or number); repeatable."),
    ] = None,
    top_k: Annotated[int, typer.Option("--top-k", min=1, help="Number of suggested labels to explain.")] = 5,
    rank_by: RankBy = None,
    text_field: TextField = None,
    id_field: IdField = None,
    extra: ExtraColumns = None,
    json: Json = False,
) -> None:
    """Explain why labels are suggested: words, blocks, similar training rows, reranker. With --label: why not."""
    from blockxmc.data.corpus import Fields

    estimator = loaded(model, extra)
    classifier: Any = on_features(estimator)
    if not hasattr(classifier, "explain"):
        raise BlockXMCError(f"{model}: a {type(classifier).__name__} has no weights that say why")
    rank_answers(classifier, rank_by)
    wanted = None if not label else [_known(classifier, name) for name in label]
    vectorizer = getattr(estimator, "vectorizer_", None)
    words = None if vectorizer is None else vectorizer.feature_names
    results = []
    fields = Fields(tuple(text_field or ()), id=id_field)
    for row in _rows(estimator, text, fields):
        answering = classifier if row.text is None else estimator._answering(row.text)
        found = answering.explain(row.X, label=wanted, k=top_k, feature_names=words)
        if json:
            named = {} if row.id is None else {"id": row.id}
            results.append({**named, "text": row.text, "labels": [why.to_dict() for why in found]})
        else:
            _show(row, found)
    if json:
        print_json(results[0] if len(results) == 1 else results)


def _known(classifier: Any, label: str) -> Any:
    """A label as the model knows it: a name, or a number where labels have no text for a name."""
    names = classifier.label_names_
    return int(label) if label.isdigit() and (names is None or label not in classifier.targets_.ids_by_name) else label


class _Row(NamedTuple):
    """Features of a row, and its text and id where it has them."""

    X: Any
    text: str | None = None
    id: Any = None


def _rows(estimator: Any, text: str, fields: Fields) -> Iterator[_Row]:
    """The rows to explain: one text, or those of a file."""
    vectorizer = getattr(estimator, "vectorizer_", None)
    if _is_data(text):
        yield from _rows_of_file(estimator, text, fields)
        return
    if not text.strip():
        raise BlockXMCError("the text is empty; give words, or a file with rows")
    if vectorizer is None:
        raise BlockXMCError(f"{text}: no such file; the model was trained on features, so give a file with rows")
    if _LIKE_A_FILE.fullmatch(text):
        print(f"note: there is no file {text}: it is explained as a text", file=sys.stderr)
    row = vectorizer.transform([text])
    if not row.nnz:
        print("note: the model knows no word of this text; these are its guesses without any", file=sys.stderr)
    yield _Row(row, text)


def _rows_of_file(estimator: Any, path: str, fields: Fields) -> Iterator[_Row]:
    from blockxmc.data._source import once
    from blockxmc.data.corpus import read_corpus

    source, vectorizer = once(path), getattr(estimator, "vectorizer_", None)
    kind = kind_of(source, wants_text=vectorizer is not None, fields=fields)
    if vectorizer is None or kind == "shards":
        TextSettings(text_field=fields.text).refuse_for(path)
        X = read_for(estimator, source, require_labels=False).X
        yield from (_Row(X[[i]]) for i in range(X.shape[0]))
        return
    corpus = read_corpus(source, require_labels=False, kind=kind, fields=fields)
    X, ids = vectorizer.transform(corpus.texts), corpus.ids or [None] * len(corpus.texts)
    yield from (_Row(X[[i]], text, ids[i]) for i, text in enumerate(corpus.texts))


def _is_data(text: str) -> bool:
    """Whether this is - or names a file, a pipe or shards: a long text, or one with a zero byte, is no path at all."""
    from blockxmc.data._source import STDIN
    from blockxmc.data.shards import is_shards

    try:
        return text == STDIN or Path(text).is_file() or Path(text).is_fifo() or is_shards(text)
    except (OSError, ValueError):
        return False


def _show(row: _Row, found: list[Explanation]) -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    if row.id is not None:
        console.print(f"id {printable(str(row.id))}", style="bold", markup=False)
    for why in found:
        if row.text is not None and why.features:
            console.print(_highlighted(row.text, why))
        console.print(str(why), markup=False)
        console.print()


def _highlighted(text: str, why: Explanation) -> Any:
    """The text with the words that count: green where they speak for the label, red where they speak against it."""
    from rich.text import Text

    marked = Text("\n".join(map(printable, text.splitlines())))
    for feature in [part for part in why.features if part.name and part.part][:HIGHLIGHTED]:
        words = r"\W+".join(re.escape(word) for word in str(feature.name).split())
        style = "bold green" if feature.part > 0 else "red"
        marked.highlight_regex(re.compile(rf"(?i)\b{words}\b"), style)
    return marked
