"""A trained model that answers rows. Nothing here trains."""
