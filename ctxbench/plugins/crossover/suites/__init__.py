"""The suites `crossover` and `scan`."""
