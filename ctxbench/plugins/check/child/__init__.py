"""Tasks of the fresh processes of a check."""
