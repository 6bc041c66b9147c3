"""The parameters of the backend: they come from projects.cfg as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from blockxmc import BlockwiseClassifier, TextClassifier
from blockxmc.classifier import lean_dismec
from blockxmc.errors import BlockXMCError

_FALSE, _TRUE = ("0", "no", "false", "off"), ("1", "yes", "true", "on")


@dataclass(frozen=True)
class Parameter:
    """What a parameter is by default, how its text is read, and what it means."""

    default: Any
    read: Callable[[str], Any]
    meaning: str


def _or(word: str, read: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: text if text == word else read(text)


def _boolean(text: str) -> bool:
    if text.lower() not in _FALSE + _TRUE:
        raise ValueError(text)
    return text.lower() in _TRUE


# Names are those of Annif's other backends where these have the same thing.
PARAMETERS = {
    "limit": Parameter(100, int, "subjects per document, at most"),
    "ngram": Parameter(1, int, "longest run of words that is a feature: 2 takes word pairs, too"),
    "min_df": Parameter("auto", _or("auto", int), "in how many documents a feature must occur; auto: in two"),
    "max_features": Parameter(None, int, "how many features to keep, the most frequent ones; empty: all"),
    "stop_words": Parameter(None, str.split, "words that are no features, or english"),
    "C": Parameter(0.5, float, "how closely training documents are followed"),
    "n_blocks": Parameter("auto", _or("auto", int), "number of blocks"),
    "keep_rows": Parameter(None, _boolean, "keep training rows for annif learn; empty: where allow_learn is on"),
    "seed": Parameter(0, int, "start of the random numbers"),
}


def read_parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of all parameters; what is not given or empty has its default, what is unknown belongs to others.

    >>> values = read_parameters({"ngram": "2", "min_df": "auto", "cluster_k": "100"})
    >>> values["ngram"], values["min_df"], values["C"], "cluster_k" in values
    (2, 'auto', 0.5, False)
    """
    found = {}
    for name, parameter in PARAMETERS.items():
        text = "" if given.get(name) is None else str(given[name]).strip()
        try:
            found[name] = parameter.read(text) if text else parameter.default
        except ValueError:
            raise BlockXMCError(f"{name}={text} cannot be read; it is: {parameter.meaning}") from None
    return found


def classifier_of(values: Mapping[str, Any], jobs: int) -> TextClassifier:
    """The classifier that these values ask for, unfitted; ``jobs`` of 0 means all cores.

    >>> classifier_of(read_parameters({"ngram": "2", "C": "0.5"}), 1).ngram_range
    (1, 2)
    """
    stop_words = values["stop_words"]
    return TextClassifier(
        BlockwiseClassifier(
            lean_dismec().set_params(C=values["C"]),
            n_blocks=values["n_blocks"],
            n_jobs=jobs or None,
            random_state=values["seed"],
            keep_rows=bool(values["keep_rows"]),
        ),
        ngram_range=(1, values["ngram"]),
        min_df=values["min_df"],
        max_features=values["max_features"],
        stop_words="english" if stop_words == ["english"] else stop_words,
    )
