"""The suite `precision`, and its claims."""
