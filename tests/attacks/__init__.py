"""The kinds of attack of `tests/attack.py`, one a file."""
