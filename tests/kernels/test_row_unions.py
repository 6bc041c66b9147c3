"""Unions of row lists against sets, short and long ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blockxmc import _kernels


def as_lists(lists):
    indptr = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    return indptr, np.array([i for numbers in lists for i in numbers], np.int32)


@st.composite
def problems(draw):
    # Many rows and short lists are sorted, few rows are swept.
    n = draw(st.sampled_from([1, 63, 64, 65, 5_000]))
    numbers = st.lists(st.integers(0, n - 1), max_size=6)
    blocks = draw(st.lists(numbers, min_size=1, max_size=5))
    pairs = draw(st.lists(st.tuples(st.lists(st.integers(0, len(blocks) - 1), max_size=4), numbers), max_size=600))
    return n, blocks, pairs


@given(problems(), st.sampled_from([1, 3]))
@settings(max_examples=100)
def test_rows_of_labels_are_those_of_their_blocks_and_their_own(problem, threads):
    n, blocks, pairs = problem
    indptr, rows = _kernels.rows_of_labels(
        *as_lists(blocks), n, *as_lists([some for some, _ in pairs]), *as_lists([own for _, own in pairs]), threads
    )
    assert (indptr[0], indptr[-1], indptr.size) == (0, rows.size, len(pairs) + 1)
    for j, (some, own) in enumerate(pairs):
        wanted = sorted(set(own).union(*(blocks[block] for block in some)))
        assert rows[indptr[j] : indptr[j + 1]].tolist() == wanted


def test_more_labels_than_a_work_item_holds():
    pairs = [([j % 3], [j]) for j in range(1_000)]
    blocks = [[0, 1], [], [7]]
    args = (*as_lists(blocks), 1_000, *as_lists([some for some, _ in pairs]), *as_lists([own for _, own in pairs]))
    indptr, rows = _kernels.rows_of_labels(*args, 2)
    for j, (some, own) in enumerate(pairs):
        assert rows[indptr[j] : indptr[j + 1]].tolist() == sorted({*own, *blocks[some[0]]})


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        (([[5]], [[0]], [[0]]), "out of range"),
        (([[0]], [[1]], [[0]]), "out of range"),
        (([[0]], [[0]], [[-1]]), "out of range"),
        (([[0]], [[0]], [[0], [1]]), "own rows"),
    ],
)
def test_lists_that_make_no_sense(lists, message):
    blocks, some, own = map(as_lists, lists)
    with pytest.raises(ValueError, match=message):
        _kernels.rows_of_labels(*blocks, 5, *some, *own, 1)
