"""Recall: what scenes ask, what a module must do to answer, and what wrong modules and settings get."""

import inspect
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from wrapped import Wrapped

from ctxbench import registry
from ctxbench.base.clocks import FORKS
from ctxbench.base.errors import UsageError
from ctxbench.base.forks import Forks
from ctxbench.meta.influence import gradient_reaches
from ctxbench_science.recall import training as training_file
from ctxbench_science.recall.scenes import Scenes, SceneTask, inputs_of, task_of
from ctxbench_science.recall.training import (
    CHOOSING_SEED,
    RATES,
    SceneNetwork,
    Trained,
    plan,
    repeats,
    train,
    trainings,
)

pytestmark = pytest.mark.slow  # small trainings, which take seconds together

SHAPE = (16, 4, 4)


Mirror = partial(Wrapped, lambda x: x.flip(-1))  # a solution of the task `where`, without a weight


def framed(x: Tensor, score: nn.Module) -> Tensor:
    """Sum over all positions: one vector of context, as the task `global` needs."""
    weights = torch.softmax(10 * score(x).flatten(2), -1)
    return (x.flatten(2) @ weights.transpose(1, 2))[..., None].expand_as(x)


def make_framed() -> nn.Module:
    return Wrapped(framed, nn.Conv2d(16, 1, 1))


def stopped(x: Tensor) -> Tensor:
    """Attention whose keys and values are taken as constants."""
    cells = x.flatten(2)
    return (cells.detach() @ torch.softmax(cells.detach().transpose(1, 2) @ cells, 1)).view_as(x)


def accuracy(make: Callable[[], nn.Module], task: str, steps: int = 500) -> float:
    return train(make, SHAPE, task_of(task, *SHAPE[1:]), 0, steps).accuracy


def test_a_cell_sees_no_other_before_the_module() -> None:
    network = SceneNetwork(nn.Identity, *SHAPE).eval()
    x = torch.rand(2, inputs_of(4, 4), 4, 4)
    other = x.clone()
    other[:, :, 0, 0] += 1
    with torch.no_grad():
        for one, two in zip(network(x), network(other), strict=True):
            assert not torch.equal(one[:, :, 0, 0], two[:, :, 0, 0])
            one[:, :, 0, 0] = two[:, :, 0, 0]
            torch.testing.assert_close(one, two, rtol=0, atol=0)


@pytest.mark.parametrize("task", ["global", "lookup-4", "where"])
def test_without_a_module_no_task_is_above_chance(task: str) -> None:
    assert accuracy(nn.Identity, task, 200) == pytest.approx(0.1, abs=0.04)


def test_a_module_answers_the_task_that_it_was_made_for_and_no_other() -> None:
    assert accuracy(Mirror, "where") > 0.7
    assert accuracy(Mirror, "lookup-4", 200) < 0.2
    assert accuracy(make_framed, "global") > 0.7
    assert accuracy(make_framed, "where", 200) < 0.2


def test_a_seed_gives_the_same_training() -> None:
    one, two, other = (train(nn.Identity, SHAPE, SceneTask("where"), seed, 5) for seed in (0, 0, 1))
    assert one.losses == two.losses != other.losses


class Breaks(nn.Module):
    """Not a number from the fourth pass in training on."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.passes = nn.Parameter(torch.ones(1)), 0

    def forward(self, x: Tensor) -> Tensor:
        self.passes += self.training
        return self.scale * x * (torch.nan if self.passes > 3 else 1)


class OwnDice(nn.Module):
    """Draws from a generator of its own."""

    dice = torch.Generator().manual_seed(0)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn(x.shape, generator=self.dice)


def test_a_training_that_diverges_or_does_not_repeat_says_so() -> None:
    found = train(Breaks, SHAPE, SceneTask("where"), 0, 20)
    assert found.diverged == "the loss was nan at step 4"
    assert found.accuracy != found.accuracy
    assert isinstance(found, Trained)
    assert not repeats(OwnDice, SHAPE, SceneTask("where"))
    assert repeats(nn.Identity, SHAPE, SceneTask("where"))
    assert repeats(Breaks, SHAPE, SceneTask("where"))


def of(rate: float, found: float) -> Trained:
    """A training that reached this accuracy; nan: it diverged."""
    return Trained(rate, found, found, 0.1, None, 1.0, "" if found == found else "the loss was nan at step 1")


@pytest.mark.parametrize(
    ("found", "tried", "chosen"),
    [((0.95, 0.1), 1, 3e-3), ((0.3, 0.2), 2, 3e-3), ((0.3, 0.4), 2, 1e-2), ((float("nan"), 0.2), 2, 1e-2)],
)
def test_the_learning_rate_is_chosen_with_a_seed_that_is_not_in_the_result(
    found: tuple[float, ...], tried: int, chosen: float
) -> None:
    asked = plan(3)
    wanted = next(asked)
    for rate, accuracy in list(zip(RATES, found, strict=True))[:tried]:
        assert wanted == [(rate, CHOOSING_SEED)]
        wanted = asked.send([of(rate, accuracy)])
    assert wanted == [(chosen, seed) for seed in range(3)]


@pytest.mark.parametrize(
    ("found", "more"), [((0.9, 0.1, 0.9), True), ((0.9, 0.8, 0.95), False), ((0.1, 0.79, 0.2), False)]
)
def test_there_are_eight_seeds_where_some_learn_and_others_do_not(found: tuple[float, ...], more: bool) -> None:
    asked = plan(3)
    next(asked)
    asked.send([of(3e-3, 0.95)])
    first = [of(3e-3, each) for each in found]
    if more:
        assert asked.send(first) == [(3e-3, seed) for seed in range(3, 8)]
        first += (others := [of(3e-3, 0.9)] * 5)
    with pytest.raises(StopIteration) as end:
        asked.send(others if more else first)
    assert end.value.value == first


@pytest.mark.parametrize("forks", [True, False])
def test_trainings_side_by_side_are_those_one_by_one(forks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_file, "FORKS", forks)
    monkeypatch.delattr(training_file, "ThreadPoolExecutor" if forks else "ProcessPoolExecutor")
    told: list[str] = []
    tasks = {SceneTask("where"): 5, SceneTask("global"): 4}
    found = trainings(partial(nn.Conv2d, 16, 16, 1), SHAPE, tasks, 2, told.append)
    assert [len(found[task]) for task in tasks] == [2, 2]
    one = train(partial(nn.Conv2d, 16, 16, 1), SHAPE, SceneTask("global"), 1, 4, found[SceneTask("global")][1].rate)
    assert one.losses == found[SceneTask("global")][1].losses
    done, *known = told[-1].split("; ")
    assert done == "8 trainings done, 0 asked for"
    assert {re.fullmatch(r"(\w+) \d+ %", each)[1] for each in known} == {"global", "where"}  # type: ignore[index]  # each matches


def test_a_module_that_diverges_with_each_learning_rate_is_told() -> None:
    (found,) = trainings(Breaks, SHAPE, {SceneTask("where"): 20}, 1, lambda text: None).values()
    assert found[0].diverged == "the loss was nan at step 4"


class Peeks(nn.Module):
    """Writes what the label asks for, found in the frames of its callers."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        frame = inspect.currentframe()
        while frame and not isinstance(frame.f_locals.get("batch"), Scenes):
            frame = frame.f_back
        y = torch.zeros_like(x)
        if frame and len(x) == len(label := frame.f_locals["batch"].label):
            y[:, :10] = 10 * nn.functional.one_hot(label, 10).movedim(-1, 1)
        return self.scale * y


def test_a_module_that_reads_the_labels_is_found_out() -> None:
    found = train(Peeks, SHAPE, SceneTask("where"), 0, 100)
    assert found.accuracy > 0.9
    assert found.shuffled > 0.9
    assert train(Mirror, SHAPE, SceneTask("where"), 0, 100).shuffled < 0.13


@pytest.mark.parametrize(
    ("make", "reaches"),
    [(make_framed, "yes"), (partial(Wrapped, stopped), "no"), (partial(nn.Conv2d, 16, 16, 1), ""), (Mirror, "yes")],
)
def test_whether_the_gradient_reaches_other_positions(make: Callable[[], nn.Module], reaches: str) -> None:
    assert gradient_reaches(make, (16, 6, 6)) == reaches


def test_running_statistics_do_not_lag_behind() -> None:
    """A batch norm with the momentum of Hamburger, 3e-4, would be far from its data after so few steps."""

    def make() -> nn.Module:
        return nn.Sequential(Mirror(), nn.BatchNorm2d(16, momentum=3e-4))

    assert accuracy(make, "where") > 0.7


def test_a_module_that_does_not_fit_the_shape_says_so() -> None:
    with pytest.raises(UsageError, match=r"with 16 channels and 4 x 4 positions \(recall_shape\), where it fails: "):
        train(lambda: nn.Conv2d(512, 16, 1), SHAPE, SceneTask("where"), 0, 5)


LINED = """import torch


class Other(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        LINE
        return x * self.weight
"""


def lined(line: str, folder: Path) -> Callable[[], nn.Module]:
    path = folder / "other.py"
    path.write_text(LINED.replace("LINE", line), encoding="utf-8")
    return partial(registry.get(f"{path}:Other").build, 16, {})


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("x[:, :, 9]", r"where it fails: IndexError: index 9 is out of bounds .* \(other.py, line 10, in forward\)"),
        (
            "if self.training: return x.double()",
            r"it returns torch.float64 for torch.float32 \(other.py, line 9, in forward\)",
        ),
        ("return x.flatten(1)", r"it returns shape \[1, 256\] for \[1, 16, 4, 4\] \(other.py, line 9, in forward\)"),
    ],
)
def test_an_error_names_the_line_of_the_module(line: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=sentence):
        train(lined(line, tmp_path), SHAPE, SceneTask("where"), 0, 2)


@pytest.mark.parametrize("forks", [True, False])
def test_an_error_of_a_training_names_the_task_and_the_line(
    forks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_file, "FORKS", forks)
    sentence = r"^the training on where failed: IndexError: index 9 is .* \(other.py, line 10, in forward\)$"
    with pytest.raises(UsageError, match=sentence):
        trainings(lined("if self.training: x[:, :, 9]", tmp_path), SHAPE, {SceneTask("where"): 2}, 1, lambda text: None)


@pytest.mark.skipif(not FORKS, reason="nothing forks here")
def test_the_forks_of_trainings_are_not_those_of_the_module() -> None:
    before = Forks.count
    trainings(nn.Identity, SHAPE, {SceneTask("where"): 1}, 1, lambda text: None)
    assert Forks.count == before
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert Forks.count == before + 1
