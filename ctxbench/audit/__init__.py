"""Published cost tables, recounted: each figure beside what ctxbench counts, with a verdict."""
