"""Linear weights: how they are solved, and how they are packed to score rows."""
