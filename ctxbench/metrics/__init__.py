"""The metrics that every run has."""
