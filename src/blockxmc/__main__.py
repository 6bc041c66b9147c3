"""``python -m blockxmc`` is the command line."""

from blockxmc.cli import main

main()
