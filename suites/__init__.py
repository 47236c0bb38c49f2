"""The suites that come with ctxbench: NAME.toml says what is measured, NAME.py what a run says of its claims."""
