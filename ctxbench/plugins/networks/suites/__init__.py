"""The suite `networks`."""
