"""The suite `deploy`, and its claims."""
