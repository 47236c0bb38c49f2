"""Suites: what to measure, read from TOML files into cases."""
