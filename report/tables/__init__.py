"""The tables of a report, one kind a file."""
