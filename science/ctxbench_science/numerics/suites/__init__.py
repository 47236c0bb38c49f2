"""The suites of numeric properties, and their claims."""
