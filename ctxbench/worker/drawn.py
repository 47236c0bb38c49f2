"""Counts of a module that draws its structure, such as which of its layers a pass leaves out."""

import pickle
import random
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ctxbench.base.notes import DRAWN, Note


def seed(number: int) -> None:
    """Seed each generator that a module on the CPU draws from by itself."""
    torch.manual_seed(number)
    random.seed(number)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(number % 2**32)


def states() -> tuple[Any, ...]:
    """The states of these generators: as long as they are equal, nothing was drawn."""
    numpy = sys.modules.get("numpy")
    own = pickle.dumps(numpy.random.get_state()) if numpy else b""
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), own


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[Note]:
    """A note for each number that is another one, or none, under another seed."""
    for column, value in first.items():
        if isinstance(value, int | float) and second.get(column) != value:
            yield Note(DRAWN, {"column": column, "first": value, "second": second.get(column, "none")})
