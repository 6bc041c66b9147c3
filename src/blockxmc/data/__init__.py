"""Reading, writing and making data sets."""
