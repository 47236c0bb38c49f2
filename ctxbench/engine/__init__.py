"""The engine: a process that forks one fresh child a case, what the child measures, and who waits for it."""
