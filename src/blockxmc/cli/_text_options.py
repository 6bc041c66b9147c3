"""What commands say about texts: which features they become."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from blockxmc.errors import BlockXMCError

MOST_NGRAM = 100  # as in data/tfidf.py, which is not imported for --help


@dataclass(frozen=True)
class TextSettings:
    """The options of texts as they were typed; None: not typed."""

    ngrams: int | None = None
    min_df: int | None = None
    max_features: int | None = None
    analyzer: str | None = None
    stop_words: str | None = None

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
        return found

    def refuse_for(self, source: object) -> None:
        """Refuse options of texts where there are none."""
        for field in fields(self):
            if getattr(self, field.name) is not None:
                option = "--" + field.name.replace("_", "-")
                raise BlockXMCError(f"{option} is for texts; {source} holds features")
