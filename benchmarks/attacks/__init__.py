"""The kinds of attack of `benchmarks/attack.py`, one a file."""
