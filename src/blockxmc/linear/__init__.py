"""One-vs-all linear training, and weights: what a solver hands over."""
