"""What all tests share."""

import logging

import pytest
from hypothesis import settings

from blockxmc._core.log import LOG

# A slow machine is no defect: the first example of some tests trains the model that the others share.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture(autouse=True)
def log_as_it_was():
    """Commands show the log on stderr, from a level of their own: the next test begins anew."""
    yield
    LOG.handlers.clear()
    LOG.setLevel(logging.NOTSET)
