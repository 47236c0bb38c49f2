"""Scenes of handwritten digits, one in each cell, whose labels need the digits of other cells.

The digits are the 1,797 images [8, 8] of scikit-learn's `load_digits` (the test set of E. Alpaydin and C. Kaynak,
Optical Recognition of Handwritten Digits, UCI, 1998). Splits are by image, so that no test image was trained on.
"""

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from ctxbench.base.errors import UsageError

SceneSplit = Literal["train", "select", "test"]
DIGITS, PIXELS = 10, 64
# Images for training and for choosing the learning rate; the rest is for the test.
_TRAINING, _CHOOSING = 1200, 300
# A mark is a vector of so many signs, out of MARKS that are the same in every scene.
MARK_SIGNS, MARKS = 16, 32
# A scene of `segment`: the plane is divided among SITES random points, of which several have the same mark and digit;
# each cell shows the mean image of this digit under normal noise of this standard deviation.
SITES, REGIONS, NOISE = 24, 4, 1.0


@dataclass(frozen=True)
class SceneTask:
    """`segment`, `global`, `where`, or `lookup-K` with K marks in a scene."""

    kind: Literal["segment", "global", "lookup", "where"]
    marks: int = 0

    @property
    def name(self) -> str:
        return f"lookup-{self.marks}" if self.kind == "lookup" else self.kind


def task_of(name: str, height: int, width: int) -> SceneTask:
    """The task of this name in scenes of so many cells. UsageError for an unknown one, and for too small a scene."""
    found = re.fullmatch(r"(segment|global|where)|lookup-(\d+)", name)
    if not found or found[2] == "0":
        raise UsageError(f"unknown task {name!r}; the tasks are segment, global, where and lookup-K, such as lookup-8")
    if height * width < 2:
        raise UsageError(f"a scene of {height} x {width} cells has no second cell")
    if not found[2]:
        return SceneTask(name)  # type: ignore[arg-type]  # matched above
    marks = int(found[2])
    if marks > MARKS or 2 * marks > height * width:
        raise UsageError(
            f"{name} needs two cells for each mark: a scene of {height} x {width} cells has room for "
            f"{min(MARKS, height * width // 2)} marks (at most {MARKS})"
        )
    return SceneTask("lookup", marks)


@dataclass(frozen=True)
class Scenes:
    """A batch: `x` [B, inputs, H, W], and for each cell [B, H, W] its label, and whether it counts in the test.

    The label is the sum of the cell's `own` digit and the `other` one, modulo 10; a cell that has no other cell to ask
    has its own digit as the other one, and does not count. In `segment` it is the digit of the region; `own` and
    `other` are None.
    """

    x: Tensor
    label: Tensor
    counts: Tensor
    own: Tensor | None = None
    other: Tensor | None = None

    def shuffled(self) -> "Scenes":
        """With the labels of other scenes: who gets these right has read them."""
        return replace(self, label=self.label.roll(1, 0), counts=self.counts.roll(1, 0), own=None, other=None)


def inputs_of(height: int, width: int) -> int:
    """Channels of the scenes: pixels, mark, frame, and the cell's row and column."""
    return PIXELS + MARK_SIGNS + 1 + height + width


def scenes(
    task: SceneTask, batch: int, height: int, width: int, part: SceneSplit, generator: torch.Generator
) -> Scenes:
    """Random scenes; the digits are images of this part alone (in `segment` the means of the training images)."""
    n = height * width
    size = (batch, height, width)
    frame, signs = torch.zeros(batch, n), torch.zeros(batch, n, MARK_SIGNS)
    if task.kind == "segment":
        region, label = segments(batch, height, width, generator)
        signs = _marks_of(batch, generator).gather(1, region[..., None].expand(-1, -1, MARK_SIGNS))
        pixels = prototypes()[label] + NOISE * torch.randn(batch, n, PIXELS, generator=generator)
        x = _inputs(pixels, signs, frame, height, width)
        return Scenes(x, label.view(size), torch.ones(size, dtype=torch.bool))
    images, digits = _images(part)
    chosen = torch.randint(len(digits), (batch, n), generator=generator)
    own = digits[chosen]
    places = torch.arange(n).expand(batch, n)
    asked = places
    if task.kind == "global":
        asked = torch.randint(n, (batch, 1), generator=generator)
        frame.scatter_(1, asked, 1.0)
    elif task.kind == "lookup":
        cells = torch.rand(batch, n, generator=generator).argsort(1)[:, : 2 * task.marks]
        drawn = _marks_of(batch, generator)[:, : task.marks].repeat(1, 2, 1)
        signs.scatter_(1, cells[..., None].expand(-1, -1, MARK_SIGNS), drawn)
        asked = places.scatter(1, cells, cells.roll(task.marks, 1))
    else:
        asked = places.view(size).flip(2).flatten(1)
    asked = asked.expand(batch, n)
    other = own.gather(1, asked)
    maps = [each.view(size) for each in ((own + other) % DIGITS, asked != places, own, other)]
    return Scenes(_inputs(images[chosen], signs, frame, height, width), *maps)


def segments(batch: int, height: int, width: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Voronoi cells of random points: for each cell [B, n] its region, and the digit of this region."""
    rows, columns = torch.arange(height * width) // width, torch.arange(height * width) % width
    places = torch.stack([rows, columns], 1) + 0.5
    sites = torch.rand(batch, SITES, 2, generator=generator) * torch.tensor([height, width])
    nearest = torch.cdist(places.expand(batch, -1, -1), sites).argmin(2)
    region = torch.randint(REGIONS, (batch, SITES), generator=generator).gather(1, nearest)
    digits = torch.rand(batch, DIGITS, generator=generator).argsort(1)[:, :REGIONS]
    return region, digits.gather(1, region)


def _inputs(pixels: Tensor, signs: Tensor, frame: Tensor, height: int, width: int) -> Tensor:
    """All inputs of the cells as [B, inputs, H, W], from tensors [B, n, ...]."""
    n = height * width
    rows, columns = torch.arange(n) // width, torch.arange(n) % width
    place = torch.cat([functional.one_hot(rows, height), functional.one_hot(columns, width)], 1).float()
    x = torch.cat([pixels, signs, frame[..., None], place.expand(len(pixels), -1, -1)], 2)
    return x.transpose(1, 2).reshape(len(pixels), -1, height, width).contiguous()


@cache
def prototypes() -> Tensor:
    """The mean of the training images of each digit: [10, 64]."""
    images, digits = _images("train")
    return torch.stack([images[digits == digit].mean(0) for digit in range(DIGITS)])


def _marks_of(batch: int, generator: torch.Generator) -> Tensor:
    """All marks, for each scene in an order of its own: [B, MARKS, MARK_SIGNS]."""
    return _marks()[torch.rand(batch, MARKS, generator=generator).argsort(1)]


@cache
def _images(part: SceneSplit) -> tuple[Tensor, Tensor]:
    """Images [count, 64] from 0 to 1, and their digits."""
    from sklearn.datasets import load_digits  # slow to import

    data = load_digits()
    order = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(0))
    first, second = _TRAINING, _TRAINING + _CHOOSING
    chosen = {"train": order[:first], "select": order[first:second], "test": order[second:]}[part]
    return torch.tensor(data.images, dtype=torch.float32).flatten(1)[chosen] / 16, torch.tensor(data.target)[chosen]


@cache
def _marks() -> Tensor:
    return torch.randn(MARKS, MARK_SIGNS, generator=torch.Generator().manual_seed(1)).sign()
