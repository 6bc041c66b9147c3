"""Running a command inside a test."""

import pytest

from blockxmc.cli import main


def run(capsys, *args):
    """Exit code, stdout and stderr of a command."""
    with pytest.raises(SystemExit) as caught:
        main([str(arg) for arg in args])
    out, err = capsys.readouterr()
    return caught.value.code or 0, out, err
