"""The suite `portable`."""
