"""Multiply-accumulates: torchprofile's convention operator by operator, without data."""
