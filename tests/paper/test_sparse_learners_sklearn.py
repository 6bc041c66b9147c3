"""scikit-learn's own checks on the two sparse learners."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from blockxmc import PDSparse, PPDSparse


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([PDSparse(), PPDSparse()])
def test_estimator_check(estimator: Any, check: Any) -> None:
    check(estimator)
