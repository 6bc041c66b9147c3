"""Held-out rows as new rows would come: without words that are features by these rows alone."""

import numpy as np
from scipy import sparse

from blockxmc.data.tfidf import TextVectorizer
from blockxmc.training.held_out import labels_short_of_rows, like_new_rows


def texts(rng, n=300):
    """Words by Zipf's law, so that many are rare."""
    return [" ".join(f"w{word}" for word in rng.zipf(1.3, rng.integers(4, 12)) % 5000) for _ in range(n)]


def test_a_held_out_row_has_the_words_that_it_would_have_as_a_new_text():
    """The oracle: the vocabulary made of all other texts."""
    given = texts(np.random.default_rng(0))
    vectorizer = TextVectorizer()
    X = vectorizer.fit_transform(given)
    names = np.array(vectorizer.feature_names)
    lost = 0
    for row in range(0, 300, 7):
        found = like_new_rows(X[[row]], X)
        others = TextVectorizer().fit(given[:row] + given[row + 1 :])
        new = others.transform([given[row]])
        known = np.array(others.feature_names)[new.indices]
        assert set(names[found.indices]) == set(known)
        lost += X[[row]].nnz - found.nnz
        kept = np.isin(X[[row]].indices, found.indices)
        expected = X[[row]].data[kept]
        np.testing.assert_allclose(found.data, expected / max(np.linalg.norm(expected), 1e-9), rtol=1e-5)
    assert lost > 10


def test_rows_stay_where_no_word_was_cut():
    rng = np.random.default_rng(0)
    dense = sparse.csr_array(rng.random((50, 20), np.float32))
    some = dense[:5]
    assert like_new_rows(some, dense) is some
    few = sparse.random_array((50, 200), density=0.05, format="csr", rng=rng, dtype=np.float32)
    assert (np.bincount(few.indices, minlength=200) == 0).any()  # a new row may bring such a feature
    some = few[:5]
    assert like_new_rows(some, few) is some
    nothing = sparse.csr_array((5, 0), dtype=np.float32)
    assert like_new_rows(nothing, nothing) is nothing


def test_counts_keep_their_values():
    """Rows of different lengths were not scaled: what is left of them is not, either."""
    X = sparse.csr_array(np.array([[1, 3, 0], [0, 2, 1], [0, 1, 0]], np.float32))
    assert like_new_rows(X[[0, 1]], X).toarray().tolist() == [[0, 3, 0], [0, 2, 0]]
    assert X.toarray().tolist()[0] == [1, 3, 0]


def test_a_label_that_lost_a_few_hundredths_is_short_of_rows():
    Y = sparse.csr_array(np.array([[1, 0]] * 100 + [[0, 1]] * 100))
    held_out = np.zeros(Y.shape[0], bool)
    held_out[:3] = held_out[100:104] = True
    assert labels_short_of_rows(Y, held_out).tolist() == [1]
