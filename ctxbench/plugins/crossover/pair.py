"""Two modules whose costs are compared."""

from ctxbench.base.errors import UsageError


def parse_pair(text: str) -> tuple[str, str]:
    """Two modules, named as in tables, from `FIRST:SECOND`. UsageError for anything else."""
    parts = [part.strip() for part in text.split(":")]
    if len(parts) != 2 or not all(parts):
        raise UsageError(f"{text!r} is not FIRST:SECOND, such as ham_nmf:mhsa, with modules named as in the table")
    if parts[0] == parts[1]:
        raise UsageError(f"{text!r} names the same module twice; a crossover is between two modules")
    return parts[0], parts[1]
