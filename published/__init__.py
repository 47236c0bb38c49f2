"""Tables as papers and repositories print them, one source a file; docs/plugins/audit.md says what is found in them."""
