"""What commands say about texts: where they stand in a file, and which features they become."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blockxmc.errors import BlockXMCError

if TYPE_CHECKING:
    from blockxmc.data._source import PathLike
    from blockxmc.data.corpus import Corpus, Fields
    from blockxmc.encoder.options import Encoder

MOST_NGRAM = 100  # as in data/tfidf.py, which is not imported for --help

TextField = Annotated[
    list[str] | None,
    typer.Option("--text-field", help="JSON, CSV: field with the text; repeatable, fields are joined."),
]
LabelField = Annotated[
    str | None, typer.Option("--label-field", help="JSON, CSV: field with the labels.", show_default="labels")
]
LabelSeparator = Annotated[
    str | None, typer.Option("--label-separator", help="Separator between labels in one string, such as ; or |.")
]
FoldLabels = Annotated[
    bool, typer.Option("--fold-labels", help="Take names of labels that differ only in case or spaces for one.")
]
LabelTexts = Annotated[
    str | None,
    typer.Option(
        "--label-texts",
        metavar="auto|names|none|FILE",
        help="Texts: whether names of labels teach (auto: where held-out rows gain by them), or a file with descriptions of"
        " labels: lines of name, tab, texts, JSON {name: text or list}, or a SKOS thesaurus (.ttl, .rdf).",
        show_default="auto",
    ),
]
Ngrams = Annotated[
    int | None,
    typer.Option("--ngrams", min=1, max=MOST_NGRAM, help="Texts: longest sequence of words that is a feature."),
]
MinDf = Annotated[
    int | None,
    typer.Option(
        "--min-df",
        min=1,
        help="Texts: a word must occur in at least this many texts.",
        show_default="2, or 1 for few texts",
    ),
]
MaxFeatures = Annotated[
    int | None, typer.Option("--max-features", min=1, help="Texts: keep only this many words, the most frequent ones.")
]
Analyzer = Annotated[
    str | None,
    typer.Option(
        "--analyzer",
        help="Texts: features are words (word) or sequences of characters (char, char_wb).",
        show_default="word",
    ),
]
StopWords = Annotated[
    str | None,
    typer.Option("--stop-words", help="Texts: words to leave out: english, or a file with one word per line."),
]
ExtraColumns = Annotated[
    str | None,
    typer.Option(
        "--extra", metavar="MODULE:FUNCTION", help="Texts: function that makes extra columns; also FILE.py:FUNCTION."
    ),
]
EncoderModel = Annotated[
    str | None,
    typer.Option("--encoder", metavar="FOLDER|NAME", help="Texts: a transformer that looks at the best labels again."),
]
Epochs = Annotated[
    int | None,
    typer.Option("--epochs", help="Passes of the encoder's training; 0: it stays as it is.", show_default="auto"),
]
Device = Annotated[
    str | None, typer.Option("--device", help="Where the encoder is trained: cuda or cpu.", show_default="auto")
]
IdField = Annotated[
    str | None,
    typer.Option("--id-field", help="JSON, CSV: field with the row's id, copied to the output.", show_default="id"),
]


@dataclass(frozen=True)
class TextSettings:
    """The options of texts as they were typed; None: not typed."""

    ngrams: int | None = None
    min_df: int | None = None
    max_features: int | None = None
    analyzer: str | None = None
    stop_words: str | None = None
    text_field: tuple[str, ...] | None = None
    label_field: str | None = None
    label_separator: str | None = None
    label_texts: str | None = None
    extra: str | None = None
    fold_labels: bool | None = None
    encoder: str | None = None
    epochs: int | None = None
    device: str | None = None

    def fields(self) -> Fields:
        """Where texts and labels stand in a file."""
        from blockxmc.data.corpus import Fields

        return Fields(self.text_field or (), self.label_field, self.label_separator)

    def typed(self) -> list[str]:
        """Where texts and labels stand, as options that can be typed again."""
        found = [part for name in self.text_field or () for part in ("--text-field", name)]
        found += [] if self.label_field is None else ["--label-field", self.label_field]
        return found + ([] if self.label_separator is None else ["--label-separator", self.label_separator])

    def parameters(self) -> dict[str, Any]:
        """They as parameters of a TextClassifier, which are checked here: before texts are read."""
        from blockxmc.data import read_names
        from blockxmc.data.tfidf import TextOptions

        found: dict[str, Any] = {
            name: value for name in ("min_df", "max_features", "analyzer") if (value := getattr(self, name)) is not None
        }
        if self.ngrams is not None:
            found["ngram_range"] = (1, self.ngrams)
        if self.stop_words is not None:
            found["stop_words"] = "english" if self.stop_words == "english" else read_names(self.stop_words)
        TextOptions(**found)
        if self.encoder is not None:
            found["encoder"] = self._encoder()
        elif self.epochs is not None or self.device is not None:
            raise BlockXMCError("--epochs and --device say how an encoder is trained: give --encoder, too")
        return found if self.extra is None else found | {"extra": self._columns()}

    def _encoder(self) -> Encoder:
        from blockxmc.encoder.options import Encoder

        found = Encoder(self.encoder)
        found.set_params(**{name: value for name in ("epochs", "device") if (value := getattr(self, name)) is not None})
        found.check()
        return found

    def _columns(self) -> Any:
        """The function that makes extra columns. A transformer would be fitted, and lost with this process."""
        from blockxmc.data.named import named_function

        found = named_function(str(self.extra))
        if hasattr(found, "transform") or not callable(found):
            raise BlockXMCError(f"--extra {self.extra}: must be a function from a list of texts to an array")
        return found

    def corpus(self, source: PathLike, kind: str, verbose: int) -> Corpus:
        """The texts of a file, read; what people should know of them is told."""
        from blockxmc._core.spelling import fold_labels, remarks, spelled_alike
        from blockxmc.data.corpus import columns_taken, read_corpus

        corpus = read_corpus(source, verbose=verbose, kind=kind, fields=self.fields())
        names = {name for row in corpus.labels for name in row}
        alike = spelled_alike(names)
        if self.fold_labels:
            corpus = replace(corpus, labels=fold_labels(corpus.labels))
        if alike is not None:
            alike += ": each group is taken for one" if self.fold_labels else "; --fold-labels makes them one"
        bare, empty = sum(not row for row in corpus.labels), sum(not text.strip() for text in corpus.texts)
        tell(
            columns_taken(source, self.fields()),
            note_on_uncut(corpus.labels),
            note_on_bare(bare, len(corpus.labels)),
            f"{empty:,} of {len(corpus.texts):,} texts are empty" if empty else None,
            alike,
            *remarks(corpus.texts, corpus.labels),
        )
        return corpus

    def of_labels(self, labels: Sequence[Sequence[str]]) -> dict[str, Any]:
        """What is said about the labels of these texts, for ``TextClassifier.fit``."""
        from blockxmc.data.label_texts import read_label_texts

        if self.label_texts is None:
            return {}
        if self.label_texts in ("auto", "names", "none"):
            return {"label_texts": None if self.label_texts == "none" else self.label_texts}
        return {"label_texts": read_label_texts(self.label_texts, {name for row in labels for name in row})}

    def refuse_for(self, source: object) -> None:
        """Refuse options of texts where there are none."""
        for field in fields(self):
            if getattr(self, field.name) not in (None, (), False):
                option = "--" + field.name.replace("_", "-")
                raise BlockXMCError(f"{option} is for texts; {source} holds features")


def tell(*notes: str | None) -> None:
    """Say what there is to be said about the data, a line each."""
    for note in filter(None, notes):
        print(f"note: {note}", file=sys.stderr)


def note_on_uncut(labels: Sequence[Sequence[str]]) -> str | None:
    """What to say where rows have one label each, and half of these look like several: a separator is missing.

    >>> note_on_uncut([["a|b"], ["b|c"], ["c"]])
    'labels like "a|b" look like several in one: --label-separator "|" cuts them'
    """
    alone = [row[0] for row in labels if len(row) == 1]
    if 20 * len(alone) < 19 * sum(map(bool, labels)):  # some rows have several: labels are cut as they should be
        return None
    lists = [name for name in alone if name[0] == "[" and name[-1] == "]"]
    if 2 * len(lists) > len(alone):
        return f'labels like "{_short(lists[0])}" look like lists: write JSONL, where labels are a list, instead of CSV'
    for sign in "|;,":
        several = [name for name in alone if sign in name]
        if 2 * len(several) > len(alone):
            return f'labels like "{_short(several[0])}" look like several in one: --label-separator "{sign}" cuts them'
    return None


def note_on_bare(without: int, rows: int) -> str | None:
    """What to say where some rows have no labels.

    >>> note_on_bare(2, 300), note_on_bare(0, 300)
    ('2 of 300 rows have no labels: they only teach what labels are not', None)
    """
    if not 0 < without < rows:
        return None
    return f"{without:,} of {rows:,} rows have no labels: they only teach what labels are not"


def _short(name: str, most: int = 40) -> str:
    return name if len(name) <= most else f"{name[: most - 3]}..."
