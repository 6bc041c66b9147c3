"""Text to TF-IDF features, with a state of plain arrays and words that gives the same bits after a round trip."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc._core import stored
from blockxmc._core.matrix import as_csr
from blockxmc.errors import BlockXMCError, ModelFormatError

# In a corpus of fewer rows, a word that occurs once is kept.
SMALL_CORPUS = 100
# A word in one of 10^18 texts has an idf of 42.
MOST_IDF = 1000
ANALYZERS = ("word", "char", "char_wb")
MOST_NGRAM = 100


@dataclass(frozen=True)
class TextOptions:
    """What counts as a feature of a text; the names and meanings are scikit-learn's.

    ``min_df="auto"`` asks for two texts that hold a word, or one in a corpus of fewer than 100 texts.

    >>> TextOptions(ngram_range=(2, 1))
    Traceback (most recent call last):
        ...
    blockxmc.errors.BlockXMCError: ngram_range must be two whole numbers from 1 to 100, the smaller first, got (2, 1)
    """

    analyzer: str = "word"
    ngram_range: tuple[int, int] = (1, 1)
    min_df: int | str = "auto"
    max_features: int | None = None
    lowercase: bool = True
    stop_words: str | tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse what scikit-learn would not understand either."""
        if self.analyzer not in ANALYZERS:
            raise BlockXMCError(f"analyzer must be one of {', '.join(ANALYZERS)}, got {self.analyzer!r}")
        object.__setattr__(self, "ngram_range", _ngram_range(self.ngram_range))
        for name, words in {"min_df": ("auto",), "max_features": (None,)}.items():
            value = getattr(self, name)
            if value not in words and not (_is_whole(value) and value >= 1):
                raise BlockXMCError(f"{name} must be a whole number of at least 1 or {words[0]!r}, got {value!r}")
        if not isinstance(self.lowercase, (bool, np.bool_)):
            raise BlockXMCError(f"lowercase must be True or False, got {self.lowercase!r}")
        object.__setattr__(self, "stop_words", _stop_words(self.stop_words, self.analyzer))

    def least_texts(self, n_texts: int) -> int:
        """In how many texts a feature must occur."""
        return (2 if n_texts >= SMALL_CORPUS else 1) if self.min_df == "auto" else int(self.min_df)

    @property
    def left_out(self) -> frozenset[str]:
        """The words that are no features."""
        if self.stop_words == "english":
            from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

            return frozenset(ENGLISH_STOP_WORDS)
        return frozenset(self.stop_words or ())


def _stored_options(params: dict[str, Any]) -> TextOptions:
    stored.require(set(params) == {field.name for field in fields(TextOptions)}, "text options are missing or unknown")
    try:
        return TextOptions(**params)
    except BlockXMCError as error:
        raise ModelFormatError(str(error)) from error


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, (bool, np.bool_))


def _ngram_range(value: Any) -> tuple[int, int]:
    pair = tuple(value) if isinstance(value, (tuple, list)) else ()
    if len(pair) != 2 or not all(map(_is_whole, pair)) or not 1 <= pair[0] <= pair[1] <= MOST_NGRAM:
        expected = f"two whole numbers from 1 to {MOST_NGRAM}, the smaller first"
        raise BlockXMCError(f"ngram_range must be {expected}, got {value!r}")
    return int(pair[0]), int(pair[1])


def _stop_words(value: Any, analyzer: str) -> str | tuple[str, ...] | None:
    if value is None:
        return None
    if analyzer != "word":
        raise BlockXMCError(f'stop_words needs analyzer="word": there are no words in analyzer={analyzer!r}')
    if isinstance(value, str):
        if value != "english":
            raise BlockXMCError(f'stop_words must be None, "english" or a list of words, got {value!r}')
        return value
    words = list(value) if isinstance(value, Iterable) else [value]
    if not all(isinstance(word, str) for word in words):
        raise BlockXMCError(f'stop_words must be None, "english" or a list of words, got {value!r:.80}')
    return tuple(sorted(set(words)))


class TextVectorizer:
    """Words to TF-IDF: 1 + ln(count), times smoothed idf, rows of length one (scikit-learn's definitions).

    >>> vectorizer = TextVectorizer().fit(["red apple", "green apple"])
    >>> vectorizer.feature_names
    ['apple', 'green', 'red']
    >>> again = TextVectorizer.from_state(vectorizer.state())
    >>> bool((again.transform(["red red wine"]) != vectorizer.transform(["red red wine"])).nnz)
    False
    """

    def __init__(self, options: TextOptions | None = None, **more: Any) -> None:
        """``options``, or their values by name."""
        self.options = options or TextOptions(**more)
        self.feature_names: list[str] = []
        self.idf: NDArray[np.float32] = np.empty(0, np.float32)

    def fit(self, texts: Iterable[str]) -> Self:
        """Learn the words and how rare they are."""
        self._learn(texts)
        return self

    def fit_transform(self, texts: Iterable[str]) -> sparse.csr_array:
        """Learn from texts and return their features."""
        return self._weigh(self._learn(texts))

    def transform(self, texts: Iterable[str]) -> sparse.csr_array:
        """Features of texts (float32 CSR); words not learnt are ignored."""
        if not self.feature_names:
            raise BlockXMCError("this TextVectorizer has not learnt any words; call fit first")
        return self._weigh(self._known_counter.transform(texts))

    def state(self) -> dict[str, Any]:
        """Everything learnt, as JSON values, one array and a list of words."""
        params = asdict(self.options) | {"ngram_range": list(self.options.ngram_range)}
        if isinstance(self.options.stop_words, tuple):
            params["stop_words"] = list(self.options.stop_words)
        return {"params": params, "vocabulary": list(self.feature_names), "idf": self.idf.copy()}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """The vectorizer that ``state`` described."""
        vectorizer = cls(_stored_options(stored.mapping(state["params"], "the set of parameters")))
        words = list(state["vocabulary"])
        stored.require(all(isinstance(word, str) for word in words), "a word is not text")
        stored.require(len(set(words)) == len(words), "a word stands in the vocabulary twice")
        idf = stored.array(state["idf"], "idf", np.float32, (len(words),))
        stored.require(((idf >= 0) & (idf < MOST_IDF)).all(), f"an idf lies outside 0..{MOST_IDF}")
        vectorizer.feature_names, vectorizer.idf = words, idf.copy()
        return vectorizer

    @property
    def n_features(self) -> int:
        """Number of features that a text is turned into."""
        return len(self.feature_names)

    def _learn(self, texts: Iterable[str]) -> Any:
        """Set the words and their idf; return the counts of the texts."""
        texts = texts if isinstance(texts, Sized) else list(texts)
        n_texts = len(texts)
        min_df = self.options.least_texts(n_texts)
        counter = self._counter(min_df=min_df, max_features=self.options.max_features)
        try:
            counts = counter.fit_transform(texts)
        except ValueError as error:  # an empty vocabulary, or nothing as frequent as min_df
            what = "word of two or more letters" if self.options.analyzer == "word" else "group of letters"
            raise BlockXMCError(
                f"no {what} occurs in at least {min_df} of the {n_texts} texts; nothing to learn"
            ) from error
        self.feature_names = counter.get_feature_names_out().tolist()
        self.__dict__.pop("_known_counter", None)
        in_rows = np.bincount(counts.indices, minlength=len(self.feature_names))
        self.idf = (np.log((1 + n_texts) / (1 + in_rows)) + 1).astype(np.float32)
        return counts

    @cached_property
    def _known_counter(self) -> Any:
        return self._counter(vocabulary={word: j for j, word in enumerate(self.feature_names)})

    def _counter(self, **more: Any) -> Any:
        from sklearn.feature_extraction.text import CountVectorizer

        options = self.options
        return CountVectorizer(
            analyzer=options.analyzer,
            ngram_range=options.ngram_range,
            lowercase=bool(options.lowercase),
            stop_words=sorted(options.left_out) or None,
            dtype=np.float32,
            **more,
        )

    def _weigh(self, counts: Any) -> sparse.csr_array:
        """TF-IDF of counts; one code path for training, serving and restored state, so their bits agree."""
        from sklearn.preprocessing import normalize

        counts.sort_indices()
        counts.data = (np.log(counts.data) + np.float32(1)) * self.idf[counts.indices]
        return as_csr(normalize(counts, copy=False) if counts.shape[0] else counts)
