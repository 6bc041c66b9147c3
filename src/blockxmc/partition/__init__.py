"""Blocks: instance clusters, their label clusters, and how many of them (the paper's sections 3.2 and 3.3)."""
