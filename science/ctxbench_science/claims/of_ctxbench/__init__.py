"""The claims of the suites of ctxbench itself, each suite a file."""
