"""Trains a small network around a module on one task, with one recipe for all modules."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic  # bound before a module can replace it

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.errors import UsageError
from ctxbench.recall.scenes import DIGITS, NONE, Part, Scenes, Task, inputs_of, scenes

HIDDEN = 128
BATCH, DECAY, CLIP = 32, 1e-2, 1.0
# Learning rates that are tried for each module and task, in this order, until one has learned.
RATES = (3e-3, 1e-3, 1e-2)
# The share of the steps in which the learning rate rises.
RISE = 0.1
# Scenes that a trained network is tested on, and those that tell during training whether it has learned.
TESTED, GLANCED = 256, 32
# Batches over which running statistics are taken anew before a test, as means.
STATISTICS_BATCHES = 20
# Steps that are done twice to see whether the training repeats.
REPEATED_STEPS = 3
# Accuracy at which a task counts as learned, and how often that is looked at.
LEARNED, GLANCE_STEPS = 0.9, 100

MakeModule = Callable[[], nn.Module]


class CellNorm(nn.LayerNorm):
    """Layer norm over the channels of each cell alone: one over the whole scene would be a vector of context."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.movedim(1, -1)).movedim(-1, 1).contiguous()


class Network(nn.Module):
    """Two 1x1 convolutions that see a cell, the module, and a 1x1 classifier that sees the cell and the module's
    output.

    Auxiliary classifiers read the cell's own digit before the module, and the other digit behind it; without them the
    sum of two unknown digits teaches neither.
    """

    def __init__(self, make_module: MakeModule, channels: int, height: int, width: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(inputs_of(height, width), HIDDEN, 1),
            nn.ReLU(),
            nn.Conv2d(HIDDEN, channels, 1),
            CellNorm(channels),
        )
        try:
            self.module = make_module()
            with torch.no_grad():
                outputs = self.module.eval()(torch.zeros(1, channels, height, width)).shape[1]
        except Exception as error:
            raise UsageError(
                f"recall takes the module with {channels} channels and {height} x {width} positions (recall_shape), "
                f"where it fails: {error}"
            ) from error
        self.own, self.other = nn.Conv2d(channels, DIGITS, 1), nn.Conv2d(outputs, DIGITS, 1)
        self.sum = nn.Sequential(nn.Conv2d(channels + outputs, HIDDEN, 1), nn.ReLU(), nn.Conv2d(HIDDEN, DIGITS, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scores of the label, of the own digit and of the other one: [B, 10, H, W] each."""
        cells = self.stem(x)
        seen = self.module(cells)
        return self.sum(torch.cat([cells, seen], 1)), self.own(cells), self.other(seen)


@dataclass(frozen=True)
class Trained:
    """A training: accuracy on the test images and on those that choose the learning rate, steps to LEARNED (None: not
    reached), seconds, why it broke off.
    """

    rate: float
    accuracy: float
    selected: float
    steps_to_learned: int | None
    seconds: float
    diverged: str = ""
    losses: list[float] = field(default_factory=list)


def trainings(
    make_module: MakeModule, shape: tuple[int, int, int], task: Task, seeds: int, steps: int
) -> list[Trained]:
    """A training for each seed, with the learning rate of RATES that is best with the first seed.

    It is chosen on images that are neither trained nor tested on.
    """
    tried: list[Trained] = []
    for rate in RATES:
        tried.append(train(make_module, shape, task, 0, steps, rate))
        if tried[-1].selected >= LEARNED:
            break
    best = max(tried, key=lambda each: -1.0 if each.diverged else each.selected)
    return [best, *(train(make_module, shape, task, seed, steps, best.rate) for seed in range(1, seeds))]


def train(
    make_module: MakeModule, shape: tuple[int, int, int], task: Task, seed: int, steps: int, rate: float = RATES[0]
) -> Trained:
    """Train on `shape` (channels, height, width) and test. The same seed gives the same on one machine."""
    start = monotonic()
    run = _Run(make_module, shape, task, seed, steps, rate)
    diverged = run.train()
    accuracy, selected = (math.nan if diverged else run.accuracy(TESTED, part) for part in ("test", "select"))
    return Trained(rate, accuracy, selected, run.learned, monotonic() - start, diverged, run.losses)


def repeats(make_module: MakeModule, shape: tuple[int, int, int], task: Task) -> bool:
    """Whether a few steps give the same losses twice: a module that draws outside of torch's generator does not."""
    first, second = (_Run(make_module, shape, task, 0, REPEATED_STEPS, RATES[0]) for _ in range(2))
    for run in (first, second):
        torch.manual_seed(0)
        run.train()
    return first.losses == second.losses or not all(map(math.isfinite, first.losses))


class _Run:
    def __init__(
        self, make_module: MakeModule, shape: tuple[int, int, int], task: Task, seed: int, steps: int, rate: float
    ) -> None:
        torch.manual_seed(seed)
        self.task, self.shape, self.steps = task, shape, steps
        self.generator = torch.Generator().manual_seed(seed)
        self.network = Network(make_module, *shape)
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=rate, weight_decay=DECAY)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, rate, total_steps=steps, pct_start=RISE, cycle_momentum=False
        )
        self.learned: int | None = None
        self.losses: list[float] = []

    def scenes(self, count: int, part: Part) -> Scenes:
        generator = self.generator if part == "train" else torch.Generator().manual_seed(2)
        return scenes(self.task, count, *self.shape[1:], part, generator)

    def train(self) -> str:
        """All steps; why they broke off, or ""."""
        for step in range(1, self.steps + 1):
            self.network.train()
            loss = self._loss_of(self.scenes(BATCH, "train"))
            self.losses.append(loss.item())
            if not math.isfinite(self.losses[-1]):
                return f"the loss was {self.losses[-1]} at step {step}"
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.network.parameters(), CLIP)
            self.optimizer.step()
            self.schedule.step()
            if self.learned is None and step % GLANCE_STEPS == 0 and self.accuracy(GLANCED, "select") >= LEARNED:
                self.learned = step
        return ""

    def _loss_of(self, batch: Scenes) -> Tensor:
        label, own, other = self.network(batch.x)
        targets = ((label, batch.label), (own, batch.own), (other, batch.other))
        return torch.stack([functional.cross_entropy(*each, ignore_index=NONE) for each in targets]).sum()

    def accuracy(self, count: int, part: Part) -> float:
        """The share of cells with a label whose label is found."""
        self._settle_statistics()
        self.network.eval()
        batch = self.scenes(count, part)
        with torch.no_grad():
            found = self.network(batch.x)[0].argmax(1)
        known = batch.label != NONE
        return float((found == batch.label)[known].float().mean())

    def _settle_statistics(self) -> None:
        """Running statistics of batch norms as means over training scenes: a slow momentum would lag behind."""
        norms = [each for each in self.network.modules() if isinstance(each, nn.modules.batchnorm._BatchNorm)]
        if not norms:
            return
        momenta = [norm.momentum for norm in norms]
        state, self.generator = self.generator, torch.Generator().manual_seed(3)
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None
        self.network.train()
        with torch.no_grad():
            for _ in range(STATISTICS_BATCHES):
                self.network(self.scenes(BATCH, "train").x)
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        self.generator = state
