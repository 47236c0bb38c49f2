"""The suite `portable`, and its claims."""
