"""What all tests share."""

from hypothesis import settings

# A slow machine is no defect: the first example of some tests trains the model that the others share.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
