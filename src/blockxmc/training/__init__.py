"""From data to a served model: per block (the paper), or with one vector per label (`fit`, the default)."""
