"""Text to TF-IDF features, with a state of plain arrays and words that gives the same bits after a round trip."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc._core import stored
from blockxmc._core.progress import thread_count
from blockxmc._core.versions import draft
from blockxmc._kernels import TextFeatures, Vocabulary, WordLearner, weigh_counts
from blockxmc.data.words import batches, decoded, encoded
from blockxmc.errors import BlockXMCError, ModelFormatError, UpdateError

# In a corpus of fewer rows, a word that occurs once is kept.
SMALL_CORPUS = 100
# A word in one of 10^18 texts has an idf of 42.
MOST_IDF = 1000
# How the name of a feature begins whose word was forgotten: two spaces in a row are in no feature of a text.
_FORGOTTEN = "  "
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


def inverse_frequency(n_texts: int, in_texts: NDArray[np.integer]) -> NDArray[np.float32]:
    """How rare words are that occur in so many of the texts."""
    return np.asarray(np.log((1 + n_texts) / (1 + in_texts)) + 1, np.float32)


def _cut(values: NDArray[Any], ends: NDArray[Any]) -> list[NDArray[Any]]:
    """Stretches of an array that end there, one behind the other."""
    return [values[a:b] for a, b in itertools.pairwise([0, *ends.tolist()])]


@dataclass(frozen=True)
class WordCounts:
    """What it takes to learn more words: how many texts there were, and in how many of them each word occurred."""

    n_texts: int
    in_texts: NDArray[np.int64]  # of each feature
    # Numbers of the texts, in order, in which words of updates occurred before they were features (or are none yet).
    before: dict[str, NDArray[np.int64]] = field(default_factory=dict)

    def of_rows(self, n_rows: int) -> Self:
        """The counts of a model with so many rows; where rows have gone without their texts, it is unknown which."""
        if n_rows >= self.n_texts:
            return replace(self, n_texts=n_rows)
        return replace(self, n_texts=n_rows, in_texts=np.minimum(self.in_texts, n_rows), before={})

    def without(self, dropped: NDArray[np.bool_], features: NDArray[np.int32], names: Sequence[str]) -> Self:
        """The counts less those of some texts, where all others have these features."""
        number, known = np.cumsum(~dropped) - 1, {name: j for j, name in enumerate(names)}
        in_texts, before = np.bincount(features, minlength=self.in_texts.size).astype(np.int64), {}
        for word, texts in self.of_rows(dropped.size).before.items():
            left = number[texts[~dropped[texts]]]
            if left.size:
                before[word] = left
            if word in known:
                in_texts[known[word]] += left.size
        return replace(self, n_texts=int((~dropped).sum()), in_texts=in_texts, before=before)

    def state(self) -> dict[str, Any]:
        """Arrays and JSON values for the model directory."""
        words, ends = encoded(list(self.before))
        texts = list(self.before.values())
        return {
            "n_texts": self.n_texts,
            "in_texts": self.in_texts,
            "words": words,
            "ends": ends,
            "texts": np.concatenate([np.zeros(0, np.int64), *texts]),
            "texts_ends": np.cumsum([part.size for part in texts], dtype=np.int64),
        }

    @classmethod
    def from_state(cls, state: Any, n_features: int) -> Self:
        """Take back what ``state`` gave."""
        state = stored.mapping(state, "the set of word counts")
        n_texts = stored.whole(state["n_texts"], "n_texts", 0, 1 << 62)
        in_texts = stored.array(state["in_texts"], "in_texts", np.int64, (n_features,))
        ends = stored.array(state["ends"], "ends of new words", np.int64, (None,))
        words = stored.array(state["words"], "new words", np.uint8, (ends[-1] if ends.size else 0,))
        stops = stored.array(state["texts_ends"], "ends of texts of new words", np.int64, ends.shape)
        texts = stored.array(state["texts"], "texts of new words", np.int64, (stops[-1] if stops.size else 0,))
        inside = ((in_texts >= 0) & (in_texts <= n_texts)).all() and ((texts >= 0) & (texts < n_texts)).all()
        stored.require(bool(inside), "a word occurs in more texts than there are")
        for rising in (ends, stops):
            stored.require((np.diff(rising, prepend=0) > 0).all(), "ends of new words do not rise")
        return cls(n_texts, in_texts, dict(zip(decoded(words, ends), _cut(texts, stops), strict=True)))


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
        self._set_words(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.float32))
        self.counts: WordCounts | None = None

    def fit(self, texts: Iterable[str], n_jobs: int | None = None, more: Sequence[str] = ()) -> Self:
        """Learn the words of texts and of ``more``, like names of labels; texts alone say how rare words are."""
        self.fit_transform(texts, n_jobs, more)
        return self

    def fit_transform(
        self, texts: Iterable[str], n_jobs: int | None = None, more: Sequence[str] = ()
    ) -> sparse.csr_array:
        """Learn from texts and return their features, and behind them those of ``more``."""
        learner, threads = WordLearner(), thread_count(n_jobs)
        n_texts = self._feed(learner, texts, threads)
        min_df = self.options.least_texts(n_texts)
        for _ in range(min_df):  # so often that all their words are kept
            self._feed(learner, more, threads)
        words, ends, in_texts, counts = self._finished(learner, n_texts, threads)
        if len(more):
            indptr, indices, values = counts
            in_texts = np.bincount(indices[: indptr[n_texts]], minlength=ends.size)
            once = indptr[: n_texts + len(more) + 1]
            counts = once, indices[: once[-1]], values[: once[-1]]
        self._set_words(words, ends, inverse_frequency(n_texts, in_texts))
        self.counts = WordCounts(n_texts, in_texts.astype(np.int64))
        return self._weigh([counts], threads)

    def extended(
        self, texts: Sequence[str], n_jobs: int | None = None, n_before: int | None = None
    ) -> tuple[Self, sparse.csr_array]:
        """A vectorizer that knows the words of more texts, too, and the features of these texts.

        Known words keep their numbers and their idf, so that features of earlier texts stay what they are. A new word is a
        feature, behind all others, once it has occurred in as many new texts as ``min_df`` asks for, these and those of
        earlier calls together; its idf counts all texts. Where ``max_features`` are reached, no word is added.
        ``n_before`` is the number of rows before these texts, if it may be another than that of texts.

        >>> vectorizer = TextVectorizer(min_df=1).fit(["red apple", "green apple"])
        >>> more, X = vectorizer.extended(["red wine"])
        >>> more.feature_names, X.shape, len(vectorizer.feature_names)
        (['apple', 'green', 'red', 'wine'], (1, 4), 3)
        """
        if self.counts is None:
            raise UpdateError("the model does not know how many texts its words were counted in: train it again")
        counts = self.counts if n_before is None else self.counts.of_rows(n_before)
        threads, learner = thread_count(n_jobs), WordLearner()
        n_texts = counts.n_texts + self._feed(learner, texts, threads)
        words, ends, _, (indptr, indices, values) = learner.finish(1, 2**31 - 1, threads)
        by_word = sparse.csr_array((values, indices, indptr), shape=(indptr.size - 1, ends.size)).tocsc()
        found = dict(zip(decoded(words, ends), _cut(by_word.indices, by_word.indptr[1:]), strict=True))
        known = {word: number for number, word in enumerate(self.feature_names) if not word.startswith(_FORGOTTEN)}
        seen, before, waiting = counts.in_texts.copy(), dict(counts.before), {}
        for word, rows in found.items():
            if (number := known.get(word)) is not None:
                seen[number] += rows.size
            else:
                waiting[word] = np.concatenate([before.get(word, rows[:0]), counts.n_texts + rows], dtype=np.int64)
        room = (self.options.max_features or 2**31 - 1) - len(known)
        enough = [word for word in sorted(waiting) if waiting[word].size >= self.options.least_texts(n_texts)]
        new = sorted(sorted(enough, key=lambda word: -waiting[word].size)[: max(room, 0)])
        of_new = np.array([waiting.pop(word).size for word in new], np.int64)
        out = type(self)(self.options)
        more, more_ends = encoded(new)
        last = self._ends[-1] if self._ends.size else 0
        idf = np.concatenate([self.idf, inverse_frequency(n_texts, of_new)])
        out._set_words(np.concatenate([self._words, more]), np.concatenate([self._ends, last + more_ends]), idf)
        out.counts = WordCounts(n_texts, np.concatenate([seen, of_new]), before | waiting)
        return out, out.transform(texts, n_jobs)

    def without(self, X: sparse.csr_array, dropped: NDArray[np.bool_]) -> Self:
        """What is left of it when texts are forgotten and X has the features of all others: words without a text are gone.

        Their features keep their numbers, under names that no text contains.

        >>> vectorizer = TextVectorizer(min_df=1)
        >>> X = vectorizer.fit_transform(["red apple", "green apple"])
        >>> vectorizer.without(X[1:], np.array([True, False])).feature_names
        ['apple', 'green', '  2']
        """
        if self.counts is None:
            raise UpdateError("the model does not know how many texts its words were counted in: train it again")
        names, n_words = decoded(self._words, self._ends), self._ends.size
        out = draft(self)
        out.counts = self.counts.without(dropped, X.indices[X.indices < n_words], names)
        for j in np.flatnonzero((self.counts.in_texts > 0) & (out.counts.in_texts <= 0)).tolist():
            names[j] = f"{_FORGOTTEN}{j}"
        out._set_words(*encoded(names), self.idf)
        return out

    def learn(self, texts: Iterable[str], n_jobs: int | None = None) -> Self:
        """Learn as ``fit`` does from texts that pass by once: memory holds their words, and no counts of texts.

        >>> TextVectorizer().learn(text for text in ["red apple", "green apple"]).feature_names
        ['apple', 'green', 'red']
        """
        learner, threads = WordLearner(), thread_count(n_jobs)
        n_texts = self._feed(learner, texts, threads, keep=False)
        words, ends, in_texts, _ = self._finished(learner, n_texts, threads)
        self._set_words(words, ends, inverse_frequency(n_texts, in_texts))
        self.counts = WordCounts(n_texts, in_texts.astype(np.int64))
        return self

    def _feed(self, learner: WordLearner, texts: Iterable[str], threads: int, *, keep: bool = True) -> int:
        """Show texts to a learner, and count them; it need not ``keep`` their counts."""
        n_texts = 0
        for batch, classes in batches(texts, lowercase=bool(self.options.lowercase)):
            learner.feed(self._cutting, batch, classes, threads)
            n_texts += len(batch)
            if not keep:
                learner.forget_texts()
        return n_texts

    def _finished(self, learner: WordLearner, n_texts: int, threads: int) -> tuple[Any, Any, Any, Any]:
        """What a learner has found in so many texts, which must be something."""
        min_df = self.options.least_texts(n_texts)
        found = learner.finish(min_df, self.options.max_features or 2**31 - 1, threads)
        if not found[1].size:
            what = "word of two or more letters" if self.options.analyzer == "word" else "group of letters"
            raise BlockXMCError(f"no {what} occurs in at least {min_df} of the {n_texts} texts; nothing to learn")
        return found

    def transform(self, texts: Iterable[str], n_jobs: int | None = None) -> sparse.csr_array:
        """Features of texts (float32 CSR); words not learnt are ignored."""
        if not self.n_features:
            raise BlockXMCError("this TextVectorizer has not learnt any words; call fit first")
        threads = thread_count(n_jobs)
        parts = [
            self._vocabulary.count(self._cutting, batch, classes, threads)
            for batch, classes in batches(texts, lowercase=bool(self.options.lowercase))
        ]
        return self._weigh(parts, threads)

    def transform_one(self, text: str) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Indices and values of one text as ``transform`` has them, without a matrix: for the shortest wait.

        >>> vectorizer = TextVectorizer().fit(["red apple", "green apple"])
        >>> vectorizer.transform_one("a red, red wine")
        (array([2], dtype=int32), array([1.], dtype=float32))
        """
        [(batch, classes)] = batches([text], lowercase=bool(self.options.lowercase))
        indptr, indices, values = self._vocabulary.count(self._cutting, batch, classes, 1)
        weigh_counts(indptr, indices, values, self.idf, indices, values, 1)
        return indices, values

    def has_words_of(self, other: TextVectorizer | None) -> bool:
        """Whether texts become the same features by both."""
        if other is None or self.options != other.options:
            return False
        pairs = (self._words, other._words), (self._ends, other._ends), (self.idf, other.idf)
        return all(np.array_equal(a, b) for a, b in pairs)

    @property
    def n_features(self) -> int:
        """Number of features that a text is turned into."""
        return int(self._ends.size)

    @cached_property
    def feature_names(self) -> list[str]:
        """The words (or runs of words, or groups of letters) in order."""
        return decoded(self._words, self._ends)

    # ---- storing ----
    def state(self) -> dict[str, Any]:
        """Everything learnt, as JSON values and arrays: the words as UTF-8, one behind the other, and where each ends."""
        params = asdict(self.options) | {"ngram_range": list(self.options.ngram_range)}
        if isinstance(self.options.stop_words, tuple):
            params["stop_words"] = list(self.options.stop_words)
        learnt = {"params": params, "words": self._words, "ends": self._ends, "idf": self.idf}
        return learnt if self.counts is None else learnt | {"counts": self.counts.state()}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """The vectorizer that ``state`` described."""
        vectorizer = cls(_stored_options(stored.mapping(state["params"], "the set of parameters")))
        words = stored.array(state["words"], "words", np.uint8, (None,))
        ends = stored.array(state["ends"], "ends", np.int64, (None,))
        idf = stored.array(state["idf"], "idf", np.float32, (ends.size,))
        stored.require(((idf >= 0) & (idf < MOST_IDF)).all(), f"an idf lies outside 0..{MOST_IDF}")
        try:
            vectorizer._set_words(words, ends, idf)
            _ = vectorizer._vocabulary
            str(words.data, "utf-8")
        except ValueError as error:  # words that repeat, that end elsewhere, that are no text
            raise ModelFormatError(f"the vocabulary is damaged: {error}") from error
        if "counts" in state:
            vectorizer.counts = WordCounts.from_state(state["counts"], ends.size)
        return vectorizer

    def __reduce__(self) -> Any:
        return type(self).from_state, (self.state(),)

    # ---- inner workings ----
    def _set_words(self, words: NDArray[np.uint8], ends: NDArray[np.int64], idf: NDArray[np.float32]) -> None:
        self._words, self._ends, self.idf = words, ends, idf
        for made in ("feature_names", "_vocabulary"):
            self.__dict__.pop(made, None)

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        """Made when it is first asked for: texts that teach the words need none."""
        return Vocabulary(self._words, self._ends)

    @cached_property
    def _cutting(self) -> TextFeatures:
        options = self.options
        left_out = encoded(sorted(options.left_out))
        return TextFeatures(ANALYZERS.index(options.analyzer), *options.ngram_range, bool(options.lowercase), *left_out)

    def _weigh(self, parts: list[tuple[Any, Any, Any]], threads: int) -> sparse.csr_array:
        """TF-IDF of counts, which are given up; one path for training, serving and restored state, so their bits agree."""
        if len(parts) == 1:
            [(indptr, indices, values)] = parts
            weigh_counts(indptr, indices, values, self.idf, indices, values, threads)
        else:
            stops = np.cumsum([0, *(part[1].size for part in parts)])
            indptr = np.concatenate([[0], *(part[0][1:] + stop for part, stop in zip(parts, stops, strict=False))])
            indices, values = np.empty(stops[-1], np.int32), np.empty(stops[-1], np.float32)
            parts.reverse()
            for start, stop in itertools.pairwise(stops):
                here = slice(start, stop)
                weigh_counts(*parts.pop(), self.idf, indices[here], values[here], threads)
        if indptr[-1] < 2**31:
            indptr = indptr.astype(np.int32)  # foreign learners take no 64-bit indices
        X = sparse.csr_array((values, indices, indptr), shape=(indptr.size - 1, self._ends.size))
        X.has_canonical_format = True  # as the kernels have it: no need to look
        return X
