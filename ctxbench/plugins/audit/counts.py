"""The counts of a case."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BlockCounts:
    """Numbers of parameters, MACs and bytes by name; `missing` says why one is not known."""

    values: Mapping[str, int]
    missing: Mapping[str, str]
