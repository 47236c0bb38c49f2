"""The suite `networks`, and its claims."""
