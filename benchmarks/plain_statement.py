"""Times every module against the plain statement of its equations that the tests compare it with.

The statements in tests/reference_*.py are written for reading: one image, one head or one position at a time. A module
that is not faster does by hand what one call of torch does. Both take turns, three times, in one process: the median of
a forward pass in training mode, and of forward and backward.

Run on a machine at rest: python benchmarks/plain_statement.py results/plain-statement-cpu.csv
"""

import argparse
import inspect
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.utils.benchmark import Timer

from ctxbench import registry
from ctxbench.mode import MODES, Mode
from ctxbench.modules._ham import Hamburger

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import reference_attention
import reference_field
import reference_hams

SHAPES = ((1, 64, 8, 8), (1, 64, 12, 12))
THREADS = (1, 2)
TURNS = 3
Forward = Callable[[], Tensor]


@dataclass(frozen=True)
class Pair:
    """A module's forward pass and the plain statement of it, on the same input and weights."""

    module: Forward
    plain: Forward
    weights: list[Tensor]


def pair(key: str, shape: tuple[int, int, int, int]) -> Pair:
    """The default module of a key, in training mode."""
    torch.manual_seed(0)
    module, x = registry.get(key).build(shape[1], {}).train(), torch.randn(shape)
    named = dict(module.named_parameters()) | dict(module.named_buffers())
    return Pair(lambda: module(x), lambda: plain(key, module, named, x), list(module.parameters()))


def plain(key: str, module: nn.Module, named: dict[str, Tensor], x: Tensor) -> Tensor:
    """The plain statement of a module with these weights."""
    if isinstance(module, Hamburger):
        kind = key.removeprefix("ham_")
        start = reference_hams.draw(kind, len(x), module.head_width, module.rank, x.dtype)
        options = reference_hams.Options(kind, module.steps, 1 / module.sharpness)
        return reference_hams.burger(x, named, start, options)[0]
    statements = reference_attention.REFERENCES | reference_field.REFERENCES
    statement = statements[key]
    known = inspect.signature(statement).parameters
    defaults = {each.name: each.default for each in registry.get(key).hyperparameters if each.name in known}
    return statement(named, x, True, **defaults)


def milliseconds(forward: Forward, mode: Mode, weights: list[Tensor], threads: int, seconds: float) -> float:
    """The median of a pass in milliseconds."""

    def infer() -> None:
        with torch.no_grad():
            forward()

    def train() -> None:
        for weight in weights:
            weight.grad = None
        torch.autograd.backward(forward().sum())

    step = train if mode == "train" else infer
    timer = Timer("step()", globals={"step": step}, num_threads=threads)
    return 1e3 * timer.blocked_autorange(min_run_time=seconds).median


def compared(key: str, shape: tuple[int, int, int, int], threads: int, mode: Mode, seconds: float) -> dict[str, Any]:
    """A row: both medians and their ratio."""
    both = pair(key, shape)
    turns = [
        [milliseconds(forward, mode, both.weights, threads, seconds) for forward in (both.module, both.plain)]
        for _ in range(TURNS)
    ]
    module, statement = (statistics.median(column) for column in zip(*turns, strict=True))
    size = "x".join(map(str, shape))
    return {"module": key, "shape": size, "threads": threads, "mode": mode, "module_ms": module, "plain_ms": statement}


def main() -> None:
    """Write a row for each module, shape, number of threads and mode."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--modules", default=",".join(registry.names()))
    parser.add_argument("--seconds", type=float, default=0.05, help="for each of the three turns")
    options = parser.parse_args()
    rows = []
    for key in options.modules.split(","):
        for shape in SHAPES:
            rows += [compared(key, shape, count, mode, options.seconds) for count in THREADS for mode in MODES]
        pd.DataFrame(rows).to_csv(options.out, index=False, float_format="%.4g")
        print(key, *(f"{row['plain_ms'] / row['module_ms']:.1f}" for row in rows[-len(MODES) * 4 :]), flush=True)


if __name__ == "__main__":
    main()
