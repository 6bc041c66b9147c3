"""The default beyond the paper: one vector per label, shared by all its blocks."""
