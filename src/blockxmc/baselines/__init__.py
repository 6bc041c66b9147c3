"""The systems BP is compared with."""
