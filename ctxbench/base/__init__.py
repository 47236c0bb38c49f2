"""Foundations of all layers: errors, files, numbers, statistics, clocks."""
