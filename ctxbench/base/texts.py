"""Words for lists."""

from collections.abc import Sequence


def listed(phrases: Sequence[str]) -> str:
    """`a, b and c`."""
    return phrases[0] if len(phrases) == 1 else f"{', '.join(phrases[:-1])} and {phrases[-1]}"
