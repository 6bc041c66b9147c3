"""What can go wrong through no fault of the library: each is one clear line for the user.

The command line turns every one of them into exit code 2 without a traceback.
"""


class BlockXMCError(ValueError):
    """Bad input or usage; the message says what is wrong and what to do."""


class DataFormatError(BlockXMCError):
    """A data file cannot be read as it is; the message names file, line, finding and remedy."""


class ModelFormatError(BlockXMCError):
    """A model directory is damaged, incomplete or from an unknown format version."""


class UpdateError(BlockXMCError):
    """A model cannot be updated as it is; the message says how to get one that can."""


class MissingExtraError(BlockXMCError):
    """An optional dependency is needed for what was asked."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is needed for this: pip install 'blockxmc[{extra}]'")
