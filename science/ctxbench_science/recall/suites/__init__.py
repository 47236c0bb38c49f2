"""The suite `recall`, and its claims."""
