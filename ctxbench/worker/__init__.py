"""Code of a fresh process: the tasks, a case's measurement, one side of a pair, the listing of a source tree."""
