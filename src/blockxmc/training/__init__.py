"""From data to a served model."""
