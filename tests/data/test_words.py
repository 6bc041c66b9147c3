"""Texts to counts and TF-IDF: the kernels beside scikit-learn's CountVectorizer and TfidfVectorizer."""

import pickle
import re
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sklearn.feature_extraction.text import TfidfVectorizer

from blockxmc.data import TextVectorizer
from blockxmc.data import words as words_module
from blockxmc.data.words import classes
from blockxmc.errors import ModelFormatError

ODD = [
    "",
    " ",
    "a",
    "ab",
    "Red RED red apple, red-apple; apple_pie 3.14 x2",
    "two  spaces\tand\n\nlines \u2003 wide\xa0space\u3000end",
    "Ünïcödé STRASSE straße ǅungla İstanbul ΣΊΣΥΦΟΣ",
    "日本語 テキスト 漢字かな交じり文 と english",
    "emoji 😀😀 x😀y flags 🇩🇪",
    "mixed\x1cseparators\x85here\x00nul",
    "a b c d e",
    "\u0301combining e\u0301 n\u0303o",
    "x" * 300 + " " + "y" * 300,
    "the and of to the",
]
SETTINGS = [
    {},
    {"lowercase": False},
    {"ngram_range": (1, 3)},
    {"ngram_range": (2, 2)},
    {"stop_words": "english", "ngram_range": (1, 2)},
    {"stop_words": ["red", "straße"]},
    {"analyzer": "char", "ngram_range": (1, 4)},
    {"analyzer": "char", "ngram_range": (3, 3), "lowercase": False},
    {"analyzer": "char_wb", "ngram_range": (1, 5)},
    {"analyzer": "char_wb", "ngram_range": (2, 4)},
]


def random_texts(n=300, seed=0):
    rng = np.random.default_rng(seed)
    vocabulary = [f"w{j}" for j in range(200)] + ["Äpfel", "straße", "日本", "naïve", "THE", "of"]
    return [" ".join(rng.choice(vocabulary, rng.integers(0, 40))) for _ in range(n)]


def assert_same_as_scikit_learn(texts, min_df=1, **options):
    ours = TextVectorizer(min_df=min_df, **options)
    X = ours.fit_transform(texts, 2)
    theirs = TfidfVectorizer(sublinear_tf=True, min_df=min_df, **options)
    wanted = theirs.fit_transform(texts)
    assert ours.feature_names == theirs.get_feature_names_out().tolist()
    assert np.abs(ours.idf - theirs.idf_).max() < 1e-6
    wanted.sort_indices()
    for found in (X, ours.transform(texts, 2)):
        assert found.shape == wanted.shape
        assert_array_equal(found.indptr, wanted.indptr)
        assert_array_equal(found.indices, wanted.indices)
        assert np.abs(found.data - wanted.data).max() < 1e-6


@pytest.mark.parametrize("options", SETTINGS, ids=str)
def test_features_are_scikit_learns(options):
    assert_same_as_scikit_learn(ODD, **options)
    assert_same_as_scikit_learn(ODD * 3 + random_texts(), min_df=2, **options)


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.text(st.characters(codec="utf-8"), max_size=30), min_size=1, max_size=8),
    options=st.sampled_from(SETTINGS),
)
def test_any_text_is_cut_as_scikit_learn_cuts_it(texts, options):
    assert_same_as_scikit_learn([*texts, "some words that are always there"], **options)


def test_the_most_frequent_words_are_kept_ties_in_order():
    texts = ["aa aa aa bb bb cc dd", "aa bb dd ee", "cc dd ff"]  # aa 4, bb 3, dd 3, cc 2, ee 1, ff 1
    for most, wanted in ((1, ["aa"]), (2, ["aa", "bb"]), (3, ["aa", "bb", "dd"]), (5, ["aa", "bb", "cc", "dd", "ee"])):
        assert TextVectorizer(max_features=most, min_df=1).fit(texts).feature_names == wanted
    texts = [" ".join(f"word{j:03}" for j in range(200) for _ in range(1 + j) if (i + j) % 3) for i in range(9)]
    ours = TextVectorizer(max_features=50, min_df=2).fit(texts).feature_names
    assert ours == TfidfVectorizer(max_features=50, min_df=2).fit(texts).get_feature_names_out().tolist()


@pytest.mark.parametrize("n_words", [1, 15, 17, 3000])
def test_words_stand_in_order_however_many_share_their_beginning(n_words):
    words = [f"{'long' * (i % 7)}{i * 7919 % 10007:x}w" for i in range(n_words)]
    vectorizer = TextVectorizer(min_df=1).fit([" ".join(words[i::5]) for i in range(5)] * 30, 2)
    assert vectorizer.feature_names == sorted(words)


@pytest.mark.parametrize("options", [{}, {"ngram_range": (1, 2), "max_features": 500}], ids=str)
def test_the_same_bits_for_any_number_of_threads_and_any_batch(options, monkeypatch):
    texts = ODD * 20 + random_texts(2000)
    vectorizer = TextVectorizer(**options)
    X = vectorizer.fit_transform(texts, 1)
    for threads, batch in ((1, 100), (2, 8192), (3, 100), (8, 1000)):
        monkeypatch.setattr(words_module, "BATCH", batch)
        other = TextVectorizer(**options)
        for again in (other.fit_transform(texts, threads), other.transform(texts, threads)):
            for part in ("indptr", "indices"):
                assert_array_equal(getattr(again, part), getattr(X, part))
            assert_array_equal(again.data.view(np.uint32), X.data.view(np.uint32))
        assert other.feature_names == vectorizer.feature_names


def test_the_table_of_code_points_is_that_of_regular_expressions():
    table = classes(sys.maxunicode + 1)
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    for pattern, bit in ((r"\w", 1), (r"\s", 2)):
        found = np.zeros(table.size, bool)
        found[[match.start() for match in re.finditer(pattern, everything)]] = True
        assert_array_equal(found, (table & bit) > 0)
    assert_array_equal(classes(128), table[:128])


def test_half_characters_do_no_harm():
    vectorizer = TextVectorizer().fit(["red \ud800 apple", "green\udfffleaf"])
    assert vectorizer.feature_names == ["apple", "green", "leaf", "red"]
    assert vectorizer.transform(["red\ud800leaf"]).nnz == 2


def test_pickles_and_refuses_a_damaged_vocabulary():
    vectorizer = TextVectorizer(stop_words=["the"]).fit(ODD)
    again = pickle.loads(pickle.dumps(vectorizer))
    assert again.options == vectorizer.options
    assert_array_equal(again.transform(ODD).data, vectorizer.transform(ODD).data)
    state = TextVectorizer().fit(["red apple", "green apple"]).state()
    ends = state["ends"]
    for wrong in (
        {"ends": ends[::-1].copy()},
        {"ends": ends - 1},
        {"ends": ends + 1},
        {"ends": ends - 100},
        {"ends": ends.astype(np.int32)},
        {"words": np.full_like(state["words"], 0xFF)},
        {"words": np.tile(np.frombuffer(b"a", np.uint8), 13)[:13], "ends": np.int64([1, 2, 13])},
    ):
        with pytest.raises(ModelFormatError):
            TextVectorizer.from_state(state | wrong)
