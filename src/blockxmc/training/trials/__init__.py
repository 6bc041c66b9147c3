"""Trial models on a split of the rows: what precision blocks would keep at each lambda."""
