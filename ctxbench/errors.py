"""The error that a user can act on, and the sentence that suggests the nearest valid name."""

import difflib
from collections.abc import Iterable


class UsageError(ValueError):
    """A wrong input. Its text is one clear sentence; the command line prints it and exits with 2."""


def unknown(kind: str, name: str, allowed: Iterable[str]) -> UsageError:
    """The error for a name that is not among the allowed ones, with the nearest of them."""
    choices = sorted(allowed)
    near = difflib.get_close_matches(name, choices, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return UsageError(f"unknown {kind} {name!r}{hint} (known: {', '.join(choices)})")
