"""The suite `deploy`."""
