"""Trains a small network around a module on one task, with one recipe for all modules."""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, median
from time import monotonic  # bound before a module can replace it

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.swa_utils import update_bn

from ctxbench.base.clocks import FORKS, usable_cores
from ctxbench.base.errors import UsageError
from ctxbench.base.forks import Forks
from ctxbench.model.failures import describe_failure
from ctxbench_science.recall.scenes import DIGITS, Scenes, SceneSplit, SceneTask, inputs_of, scenes

HIDDEN = 128
BATCH, DECAY, CLIP = 32, 1e-2, 1.0
# Learning rates that are tried for each module and task, in this order, until one has learned.
RATES = (3e-3, 1e-2)
# The share of the steps in which the learning rate rises.
RISE = 0.1
# Scenes that a trained network is tested on, and those that tell during training whether it has learned.
TESTED, GLANCED = 256, 32
# Seeds of the scenes that choose a learning rate, and of the test.
SEEDS_OF = {"select": 2, "test": 4}
# Batches over which running statistics are taken anew before a test, as means.
STATISTICS_BATCHES = 20
# Steps that are done twice to see whether the training repeats.
REPEATED_STEPS = 3
# Accuracy at which the search for a learning rate ends, and how often a training is looked at.
LEARNED, GLANCE_STEPS = 0.9, 100
# Accuracy from which a training counts as one that has learned its task.
SOLVED = 0.8
# The seed of the trainings that choose a learning rate, and how many others there are where these disagree.
CHOOSING_SEED, MOST_SEEDS = 1000, 8

BlockMaker = Callable[[], nn.Module]
SceneShape = tuple[int, int, int]


class CellNorm(nn.LayerNorm):
    """Layer norm over the channels of each cell alone: one over the whole scene would be a vector of context."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.movedim(1, -1)).movedim(-1, 1).contiguous()


class SceneNetwork(nn.Module):
    """Two 1x1 convolutions that see a cell, the module, and a 1x1 classifier that sees the cell and the module's
    output.

    Auxiliary classifiers read the cell's own digit before the module, and the other digit behind it; without them the
    sum of two unknown digits teaches neither.
    """

    def __init__(self, make_module: BlockMaker, channels: int, height: int, width: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(inputs_of(height, width), HIDDEN, 1),
            nn.ReLU(),
            nn.Conv2d(HIDDEN, channels, 1),
            CellNorm(channels),
        )
        try:
            self.module = make_module()
            cells = torch.zeros(1, channels, height, width)
            with torch.no_grad():
                seen = self.module.eval()(cells)
            outputs = _checked(seen, cells, self.module).shape[1]
        except Exception as error:
            raise UsageError(
                f"recall takes the module with {channels} channels and {height} x {width} positions (recall_shape), "
                f"where it fails: {describe_failure(error).message}"
            ) from error
        self.own, self.other = nn.Conv2d(channels, DIGITS, 1), nn.Conv2d(outputs, DIGITS, 1)
        self.sum = nn.Sequential(nn.Conv2d(channels + outputs, HIDDEN, 1), nn.ReLU(), nn.Conv2d(HIDDEN, DIGITS, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scores of the label, of the own digit and of the other one: [B, 10, H, W] each."""
        cells = self.stem(x)
        seen = _checked(self.module(cells), cells, self.module)
        return self.sum(torch.cat([cells, seen], 1)), self.own(cells), self.other(seen)


def _checked(seen: object, cells: Tensor, module: nn.Module) -> Tensor:
    """An output, which keeps dtype, images and positions. TypeError or ValueError for any other."""
    code = getattr(type(module).forward, "__code__", None)
    where = f" ({Path(code.co_filename).name}, line {code.co_firstlineno}, in forward)" if code else ""
    if not isinstance(seen, Tensor):
        raise TypeError(f"it returns {type(seen).__name__}; a context module returns one tensor{where}")
    if seen.dim() != 4 or seen.shape[0] != cells.shape[0] or seen.shape[2:] != cells.shape[2:]:
        raise ValueError(f"it returns shape {list(seen.shape)} for {list(cells.shape)}{where}")
    if seen.dtype != cells.dtype:
        raise TypeError(f"it returns {seen.dtype} for {cells.dtype}{where}")
    return seen


@dataclass(frozen=True)
class Trained:
    """A training: accuracy (of `segment` the mean IoU) on the test scenes, on those that choose the learning rate and
    under the labels of other scenes, steps to LEARNED (None: not reached), seconds, why it broke off.
    """

    rate: float
    accuracy: float
    selected: float
    shuffled: float
    steps_to_learned: int | None
    seconds: float
    diverged: str = ""
    losses: list[float] = field(default_factory=list)

    @property
    def learned(self) -> bool:
        return self.accuracy >= SOLVED


Wanted = tuple[float, int]
"""Of one training: learning rate and seed."""


def plan(seeds: int) -> Generator[list[Wanted], list[Trained], list[Trained]]:
    """Asks for trainings on one task, is sent what came of them, and returns one for each seed.

    The learning rate is the one of RATES that is best with CHOOSING_SEED, which is none of the seeds, on scenes that
    are neither trained nor tested on. Where some seeds learned and others did not, there are MOST_SEEDS of them.
    """
    tried: list[Trained] = []
    for rate in RATES:
        tried += yield [(rate, CHOOSING_SEED)]
        if tried[-1].selected >= LEARNED:
            break
    best = max(tried, key=lambda each: -1.0 if each.diverged else each.selected).rate
    found = yield [(best, seed) for seed in range(seeds)]
    if len({each.learned for each in found}) == 2:
        found += yield [(best, seed) for seed in range(seeds, MOST_SEEDS)]
    return found


def trainings(
    make_module: BlockMaker,
    shape: SceneShape,
    tasks: Mapping[SceneTask, int],
    seeds: int,
    say: Callable[[str], object],
) -> dict[SceneTask, list[Trained]]:
    """All trainings of a module on `tasks`, whose values are their steps: as many at a time as there are cores.

    `say` gets a sentence after each, with the median accuracy of the tasks that are done. An accuracy depends on
    nothing but rate and seed.
    """
    plans = {task: plan(seeds) for task in tasks}
    found: dict[SceneTask, list[Trained]] = {}
    with Forks.ours(), _pool() as pool:
        rounds: dict[SceneTask, list[Future[Trained]]] = {}

        def ask(task: SceneTask, wanted: Sequence[Wanted]) -> None:
            rounds[task] = [
                pool.submit(train, make_module, shape, task, seed, tasks[task], rate) for rate, seed in wanted
            ]

        for task, each in plans.items():
            ask(task, next(each))
        done = 0
        while rounds:
            wait([each for own in rounds.values() for each in own if not each.done()], return_when=FIRST_COMPLETED)
            for task, own in list(rounds.items()):
                if not all(each.done() for each in own):
                    continue
                del rounds[task]
                done += len(own)
                try:
                    ask(task, plans[task].send([each.result() for each in own]))
                except StopIteration as end:
                    found[task] = end.value
            known = (f"{each.name} {100 * median(one.accuracy for one in own):.0f} %" for each, own in found.items())
            say("; ".join((f"{done} trainings done, {sum(map(len, rounds.values()))} asked for", *known)))
    return {task: found[task] for task in tasks}


def _pool() -> Executor:
    """A process for each core. Where none is forked, one training follows another: no other way takes any module."""
    return ProcessPoolExecutor(len(usable_cores()), get_context("fork")) if FORKS else ThreadPoolExecutor(1)


def train(
    make_module: BlockMaker, shape: SceneShape, task: SceneTask, seed: int, steps: int, rate: float = RATES[0]
) -> Trained:
    """Train on `shape` (channels, height, width) and test. The same seed gives the same on one machine.

    UsageError with the line of the module that raised: an exception that comes from another process has no line.
    """
    try:
        return _trained(make_module, shape, task, seed, steps, rate)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"the training on {task.name} failed: {describe_failure(error).message}") from error


def _trained(
    make_module: BlockMaker, shape: SceneShape, task: SceneTask, seed: int, steps: int, rate: float
) -> Trained:
    start = monotonic()
    run = _Run(make_module, shape, task, seed, steps, rate)
    diverged = run.train()
    none = (math.nan, math.nan, math.nan)
    accuracy, selected, shuffled = none if diverged else (run.score("test"), run.score("select"), run.shuffled())
    return Trained(rate, accuracy, selected, shuffled, run.learned, monotonic() - start, diverged, run.losses)


def repeats(make_module: BlockMaker, shape: SceneShape, task: SceneTask) -> bool:
    """True if a few steps give the same losses twice: a module that draws outside of torch's generator does not."""
    first, second = (_Run(make_module, shape, task, 0, REPEATED_STEPS, RATES[0]) for _ in range(2))
    for run in (first, second):
        torch.manual_seed(0)
        run.train()
    return first.losses == second.losses or not all(map(math.isfinite, first.losses))


def mean_iou(found: Tensor, label: Tensor) -> float:
    """Intersection over union of the cells of a digit, the mean over the digits that are found or there."""
    pairs = [(found == digit, label == digit) for digit in range(DIGITS)]
    unions = [(int((one & other).sum()), int((one | other).sum())) for one, other in pairs]
    return fmean(common / union for common, union in unions if union)


def _share(found: Tensor, batch: Scenes) -> float:
    return float((found == batch.label)[batch.counts].float().mean())


class _Run:
    def __init__(
        self, make_module: BlockMaker, shape: SceneShape, task: SceneTask, seed: int, steps: int, rate: float
    ) -> None:
        torch.manual_seed(seed)
        self.task, self.shape, self.steps = task, shape, steps
        self.generator = torch.Generator().manual_seed(seed)
        self.network = SceneNetwork(make_module, *shape)
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=rate, weight_decay=DECAY)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, rate, total_steps=steps, pct_start=RISE, cycle_momentum=False
        )
        self.learned: int | None = None
        self.losses: list[float] = []

    def scenes(self, count: int, part: SceneSplit) -> Scenes:
        generator = self.generator if part == "train" else torch.Generator().manual_seed(SEEDS_OF[part])
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
            if self.learned is None and step % GLANCE_STEPS == 0 and self.score("select", GLANCED) >= LEARNED:
                self.learned = step
        return ""

    def _loss_of(self, batch: Scenes) -> Tensor:
        scores, targets = self.network(batch.x), (batch.label, batch.own, batch.other)
        losses = [
            functional.cross_entropy(score, target)
            for score, target in zip(scores, targets, strict=True)
            if target is not None
        ]
        return torch.stack(losses).sum()

    def score(self, part: SceneSplit, count: int = TESTED) -> float:
        """Score in scenes of this part, from 0 to 1: the mean IoU of `segment`, else the share of cells."""
        batch = self.scenes(count, part)
        found = self._answers(batch)
        return mean_iou(found, batch.label) if self.task.kind == "segment" else _share(found, batch)

    def shuffled(self) -> float:
        """The share of cells that get the label of another scene: more than chance only for a module that reads it."""
        batch = self.scenes(TESTED, "test").shuffled()
        return _share(self._answers(batch), batch)

    def _answers(self, batch: Scenes) -> Tensor:
        self._settle_statistics()
        self.network.eval()
        with torch.no_grad():
            scores: Tensor = self.network(batch.x)[0]
        return scores.argmax(1)

    def _settle_statistics(self) -> None:
        """Running statistics of batch norms as means over training scenes: a slow momentum would lag behind."""
        generator = torch.Generator().manual_seed(3)
        batches = (scenes(self.task, BATCH, *self.shape[1:], "train", generator).x for _ in range(STATISTICS_BATCHES))
        update_bn(batches, self.network)
