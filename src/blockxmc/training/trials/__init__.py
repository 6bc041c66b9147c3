"""Trial models on a split of the rows: the precision that blocks keep at each lambda."""
