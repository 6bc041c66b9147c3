from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from blockxmc import _kernels

anything = st.floats(width=32)


@settings(max_examples=200)
@given(st.data(), st.integers(1, 3), st.integers(0, 70), st.integers(0, 20))
def test_candidates_equal_the_naive_test_for_any_floats(data, n_filters, n_labels, n_rows):
    lower, upper = (data.draw(arrays(np.float32, (n_filters, n_labels), elements=anything)) for _ in range(2))
    projections = data.draw(arrays(np.float32, (n_rows, n_filters), elements=anything))
    indptr, labels = _kernels.FilterIndex(lower, upper).candidates(projections, 2)
    naive = ((lower[None] < projections[:, :, None]) & (projections[:, :, None] <= upper[None])).all(axis=1)
    np.testing.assert_array_equal(indptr, np.concatenate([[0], np.cumsum(naive.sum(axis=1))]))
    np.testing.assert_array_equal(labels, np.nonzero(naive)[1])
