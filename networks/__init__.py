"""Networks with a slot for a module, one a file; see docs/networks.md."""
