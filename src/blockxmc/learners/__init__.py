"""Base classifiers: each trains the labels of a block (or, alone, all labels)."""
