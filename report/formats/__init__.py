"""How a table is written: one format a file."""
