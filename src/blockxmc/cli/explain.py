"""blockxmc explain: why labels are suggested for a text or a row, or where a label was lost."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blockxmc.cli._common import Json, loaded, on_features, print_json, read_for
from blockxmc.cli._text_options import ExtraColumns
from blockxmc.errors import BlockXMCError

if TYPE_CHECKING:
    from blockxmc.serving.explanations import Explanation

# Words of a text that are highlighted: those with the largest parts of the score.
HIGHLIGHTED = 10


def explain(
    model: Annotated[Path, typer.Argument(metavar="DIR", help="A model directory.")],
    text: Annotated[
        str, typer.Argument(metavar="TEXT|FILE", help="A text, or a file with rows like the training data.")
    ],
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="NAME", help="Explain this label (name or number); repeatable."),
    ] = None,
    top_k: Annotated[int, typer.Option("--top-k", min=1, help="Number of suggested labels to explain.")] = 5,
    extra: ExtraColumns = None,
    json: Json = False,
) -> None:
    """Explain why labels are suggested: words, blocks, similar training rows, reranker. With --label: why not."""
    estimator = loaded(model, extra)
    classifier: Any = on_features(estimator)
    if not hasattr(classifier, "explain"):
        raise BlockXMCError(f"{model}: a {type(classifier).__name__} has no weights that say why")
    wanted = None if not label else [_known(classifier, name) for name in label]
    vectorizer = getattr(estimator, "vectorizer_", None)
    words = None if vectorizer is None else vectorizer.feature_names
    results = []
    for said, row in _rows(estimator, text):
        found = classifier.explain(row, label=wanted, k=top_k, feature_names=words)
        if json:
            results.append({"text": said, "labels": [why.to_dict() for why in found]})
        else:
            _show(said, found)
    if json:
        print_json(results[0] if len(results) == 1 else results)


def _known(classifier: Any, label: str) -> Any:
    """A label as the model knows it: a name, or a number where labels have no text for a name."""
    names = classifier.label_names_
    return int(label) if label.isdigit() and (names is None or label not in classifier.targets_.ids_by_name) else label


def _rows(estimator: Any, text: str) -> Any:
    """Each text (None: features alone) and its row."""
    vectorizer = getattr(estimator, "vectorizer_", None)
    if _is_data(text):
        X = read_for(estimator, text, require_labels=False).X
        return ((None, X[[i]]) for i in range(X.shape[0]))
    if not text.strip():
        raise BlockXMCError("the text is empty; give words, or a file with rows")
    if vectorizer is None:
        raise BlockXMCError(f"{text}: no such file; the model was trained on features, so give a file with rows")
    row = vectorizer.transform([text])
    if not row.nnz:
        print("note: the model knows no word of this text; these are its guesses without any", file=sys.stderr)
    return [(text, row)]


def _is_data(text: str) -> bool:
    """Whether this names a file or shards: a long text, or one with a zero byte, is no path at all."""
    from blockxmc.data.shards import is_shards

    try:
        return Path(text).is_file() or is_shards(text)
    except (OSError, ValueError):
        return False


def _show(text: str | None, found: list[Explanation]) -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    for why in found:
        if text is not None and why.features:
            console.print(_highlighted(text, why))
        console.print(str(why), markup=False)
        console.print()


def _highlighted(text: str, why: Explanation) -> Any:
    """The text with the words that count: green where they speak for the label, red where they speak against it."""
    from rich.text import Text

    marked = Text(text)
    for feature in [part for part in why.features if part.name and part.part][:HIGHLIGHTED]:
        words = r"\W+".join(re.escape(word) for word in str(feature.name).split())
        style = "bold green" if feature.part > 0 else "red"
        marked.highlight_regex(re.compile(rf"(?i)\b{words}\b"), style)
    return marked
