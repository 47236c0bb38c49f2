"""Tables as papers and repositories print them, one source a file; docs/audit.md says what is found in them."""
