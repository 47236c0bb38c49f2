"""Counts of a module that draws its structure, such as which of its layers a pass leaves out."""

import os
import pickle
import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

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


@contextmanager
def asked_of_the_system() -> Iterator[list[int]]:
    """The sizes of what the block takes from os.urandom, which `secrets`, SystemRandom and numpy's default_rng ask."""
    asked: list[int] = []
    original = os.urandom

    def urandom(size: int) -> bytes:
        asked.append(size)
        return original(size)

    os.urandom = random._urandom = urandom  # type: ignore[attr-defined]  # random has a name of its own for it
    try:
        yield asked
    finally:
        os.urandom = random._urandom = original  # type: ignore[attr-defined]  # the same


def holds_generator(module: nn.Module) -> bool:
    """Return whether a part of a module, or a file that has its class, has a generator of its own."""
    kinds: list[type] = [torch.Generator, random.Random]
    if numpy := sys.modules.get("numpy"):
        kinds += [numpy.random.Generator, numpy.random.RandomState]
    parts = [*module.modules()]
    files = {type(part).__module__ for part in parts}
    places = [vars(owner) for owner in (*parts, *(sys.modules[name] for name in files if name in sys.modules))]
    return any(isinstance(value, (*kinds,)) for place in places for value in [*place.values()])


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[Note]:
    """A note for each number that is another one, or none, under another seed."""
    for column, value in first.items():
        if isinstance(value, int | float) and second.get(column) != value:
            yield Note(DRAWN, {"column": column, "first": value, "second": second.get(column, "none")})
