"""Python's garbage collector, kept from running in the middle of a measurement."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_off(collect_first: bool = False) -> Iterator[None]:
    """Switch the cycle collector off for a block; with `collect_first`, collect once before it."""
    was_on = gc.isenabled()
    if collect_first:
        gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
