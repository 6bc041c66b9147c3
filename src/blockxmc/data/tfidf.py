"""Text to TF-IDF features, with a state of plain arrays and words that gives the same bits after a round trip."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc._core import stored
from blockxmc._core.matrix import as_csr
from blockxmc.errors import BlockXMCError

# In a corpus of fewer rows, a word that occurs once is kept.
SMALL_CORPUS = 100
# A word in one of 10^18 texts has an idf of 42.
MOST_IDF = 1000


class TextVectorizer:
    """Words to TF-IDF: 1 + ln(count), times smoothed idf, rows of length one (scikit-learn's definitions).

    >>> vectorizer = TextVectorizer().fit(["red apple", "green apple"])
    >>> vectorizer.feature_names
    ['apple', 'green', 'red']
    >>> again = TextVectorizer.from_state(vectorizer.state())
    >>> bool((again.transform(["red red wine"]) != vectorizer.transform(["red red wine"])).nnz)
    False
    """

    def __init__(self, min_df: int | None = None, ngram_max: int = 1, max_features: int | None = None) -> None:
        """A word must occur in ``min_df`` rows (None: 2, or 1 in a corpus of fewer than 100 rows)."""
        self.min_df = min_df
        self.ngram_max = ngram_max
        self.max_features = max_features
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
        counter = self._counter(vocabulary={word: j for j, word in enumerate(self.feature_names)})
        return self._weigh(counter.transform(texts))

    def state(self) -> dict[str, Any]:
        """Everything learnt, as JSON values, one array and a list of words."""
        params = {"min_df": self.min_df, "ngram_max": self.ngram_max, "max_features": self.max_features}
        return {"params": params, "vocabulary": list(self.feature_names), "idf": self.idf.copy()}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """The vectorizer that ``state`` described."""
        params = stored.mapping(state["params"], "the set of parameters")
        vectorizer = cls(**params)
        for name, value in params.items():
            if value is not None or name == "ngram_max":
                stored.whole(value, name, 1)
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
        min_df = self.min_df if self.min_df is not None else (2 if n_texts >= SMALL_CORPUS else 1)
        counter = self._counter(min_df=min_df, max_features=self.max_features)
        try:
            counts = counter.fit_transform(texts)
        except ValueError as error:  # an empty vocabulary, or nothing as frequent as min_df
            raise BlockXMCError(
                f"no word of two or more letters occurs in at least {min_df} of the {n_texts} texts; nothing to learn"
            ) from error
        self.feature_names = counter.get_feature_names_out().tolist()
        in_rows = np.bincount(counts.indices, minlength=len(self.feature_names))
        self.idf = (np.log((1 + n_texts) / (1 + in_rows)) + 1).astype(np.float32)
        return counts

    def _counter(self, **options: Any) -> Any:
        from sklearn.feature_extraction.text import CountVectorizer

        return CountVectorizer(ngram_range=(1, self.ngram_max), dtype=np.float32, **options)

    def _weigh(self, counts: Any) -> sparse.csr_array:
        """TF-IDF of counts; one code path for training, serving and restored state, so their bits agree."""
        from sklearn.feature_extraction.text import TfidfTransformer

        transformer = TfidfTransformer(norm="l2", use_idf=True, sublinear_tf=True)
        transformer.idf_ = self.idf
        counts.sort_indices()
        return as_csr(transformer.transform(counts, copy=False))
