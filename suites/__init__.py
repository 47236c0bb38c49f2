"""The suites that come with ctxbench, one TOML file each."""
