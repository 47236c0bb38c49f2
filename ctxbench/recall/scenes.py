"""Scenes of handwritten digits, one in each cell, whose labels need the digit in another cell.

The digits are the 1,797 images [8, 8] of scikit-learn's `load_digits` (the test set of E. Alpaydin and C. Kaynak,
Optical Recognition of Handwritten Digits, UCI, 1998). Splits are by image, so that no test image was trained on.
"""

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from ctxbench.errors import UsageError
from ctxbench.extras import lacking

Part = Literal["train", "select", "test"]
DIGITS, PIXELS = 10, 64
# Images for training and for choosing the learning rate; the rest is for the test.
_TRAINING, _CHOOSING = 1200, 300
# A mark is a vector of so many signs, out of MARKS that are the same in every scene.
MARK_SIGNS, MARKS = 16, 32
# The label of a cell that has none.
NONE = -100


@dataclass(frozen=True)
class Task:
    """`global`, `where`, or `lookup-K` with K marks in a scene."""

    kind: Literal["global", "lookup", "where"]
    marks: int = 0

    @property
    def name(self) -> str:
        return f"lookup-{self.marks}" if self.kind == "lookup" else self.kind


def task_of(name: str, height: int, width: int) -> Task:
    """The task of this name in scenes of so many cells. UsageError for an unknown one, and for too small a scene."""
    found = re.fullmatch(r"global|where|lookup-(\d+)", name)
    if not found or found[1] == "0":
        raise UsageError(f"unknown task {name!r}; the tasks are global, where and lookup-K, such as lookup-8")
    if not found[1]:
        if height * width < 2:
            raise UsageError(f"a scene of {height} x {width} cells has no second cell")
        return Task("global" if name == "global" else "where")
    marks = int(found[1])
    if marks > MARKS or 2 * marks > height * width:
        raise UsageError(
            f"{name} needs two cells for each mark: a scene of {height} x {width} cells has room for "
            f"{min(MARKS, height * width // 2)} marks (at most {MARKS})"
        )
    return Task("lookup", marks)


@dataclass(frozen=True)
class Scenes:
    """A batch: `x` [B, inputs, H, W], and for each cell [B, H, W] its label, its own digit and the other one.

    The label is the sum of both digits, modulo 10. A cell without a task has the label NONE.
    """

    x: Tensor
    label: Tensor
    own: Tensor
    other: Tensor


def inputs_of(height: int, width: int) -> int:
    """Channels of the scenes: pixels, mark, frame, and the cell's row and column."""
    return PIXELS + MARK_SIGNS + 1 + height + width


def scenes(task: Task, batch: int, height: int, width: int, part: Part, generator: torch.Generator) -> Scenes:
    """Random scenes; the digits are images of this part alone."""
    images, digits = _images(part)
    n = height * width
    chosen = torch.randint(len(digits), (batch, n), generator=generator)
    own = digits[chosen]
    frame, mark = torch.zeros(batch, n), torch.zeros(batch, n, MARK_SIGNS)
    other = torch.full((batch, n), NONE)
    if task.kind == "global":
        framed = torch.randint(n, (batch, 1), generator=generator)
        frame.scatter_(1, framed, 1.0)
        other = own.gather(1, framed).expand(batch, n).scatter(1, framed, NONE)
    elif task.kind == "lookup":
        cells = torch.rand(batch, n, generator=generator).argsort(1)[:, : 2 * task.marks]
        signs = _marks()[torch.rand(batch, MARKS, generator=generator).argsort(1)[:, : task.marks]]
        first, second = cells.split(task.marks, 1)
        for one, two in ((first, second), (second, first)):
            mark.scatter_(1, one[..., None].expand(-1, -1, MARK_SIGNS), signs)
            other.scatter_(1, one, own.gather(1, two))
    else:
        places = torch.arange(n).view(height, width).flip(1).flatten()
        other = own[:, places]
    rows, columns = torch.arange(n) // width, torch.arange(n) % width
    place = torch.cat([functional.one_hot(rows, height), functional.one_hot(columns, width)], 1).float()
    x = torch.cat([images[chosen], mark, frame[..., None], place.expand(batch, -1, -1)], 2)
    label = torch.where(other == NONE, NONE, (own + other) % DIGITS)
    maps = [each.view(batch, height, width) for each in (label, own, other)]
    return Scenes(x.transpose(1, 2).reshape(batch, -1, height, width).contiguous(), *maps)


@cache
def _images(part: Part) -> tuple[Tensor, Tensor]:
    """Images [count, 64] from 0 to 1, and their digits. UsageError without scikit-learn."""
    if sentence := lacking("recall", "recall"):
        raise UsageError(sentence)
    from sklearn.datasets import load_digits

    data = load_digits()
    order = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(0))
    first, second = _TRAINING, _TRAINING + _CHOOSING
    chosen = {"train": order[:first], "select": order[first:second], "test": order[second:]}[part]
    return torch.tensor(data.images, dtype=torch.float32).flatten(1)[chosen] / 16, torch.tensor(data.target)[chosen]


@cache
def _marks() -> Tensor:
    return torch.randn(MARKS, MARK_SIGNS, generator=torch.Generator().manual_seed(1)).sign()
