"""Recall: what scenes ask, what a module must do to answer, and what wrong modules and settings get."""

import contextlib
import hashlib
import inspect
import json
import os
import re
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import StatisticsError
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import Done
from fakes import FakeExecutor, counted
from torch import Tensor, nn

pytest.importorskip("sklearn", reason='pip install -c constraints.txt ".[recall]"')

from ctxbench import registry
from ctxbench.base.clocks import FORKS, usable_cores
from ctxbench.base.errors import UsageError
from ctxbench.base.forks import Forks
from ctxbench.base.notes import Note
from ctxbench.engine.one_process import Plan, measure_case
from ctxbench.meta.influence import gradient_reaches
from ctxbench.model.case import Case
from ctxbench.model.read_suite import Overrides
from ctxbench.model.suite_file import MeasureTable
from ctxbench.plugins.recall import RECIPE
from ctxbench.plugins.recall import scenes as scenes_file
from ctxbench.plugins.recall import stored as stored_file
from ctxbench.plugins.recall import training as training_file
from ctxbench.plugins.recall.metric import (
    SEGMENT_BOUNDS,
    STEP_S,
    Recall,
    compute,
    from_histogram,
    full_rank,
    learned_of,
    sentence,
    takes_s,
)
from ctxbench.plugins.recall.scenes import REGIONS, Scenes, Task, inputs_of, prototypes, scenes, task_of
from ctxbench.plugins.recall.suites import recall_rank as rank_claims
from ctxbench.plugins.recall.training import (
    CHOOSING_SEED,
    RATES,
    Network,
    Trained,
    mean_iou,
    plan,
    repeats,
    train,
    trainings,
)
from ctxbench.results.claims import Rows, Verdict
from ctxbench.results.rows import rows_of
from ctxbench.results.run_folder import RunFolder

pytestmark = [pytest.mark.slow, pytest.mark.extra("recall")]  # small trainings, which take seconds together

SHAPE = (16, 4, 4)
ROOT = Path(__file__).resolve().parents[3]


def made(name: str, part: str = "train", seed: int = 0) -> Scenes:
    return scenes(task_of(name, 4, 6), 32, 4, 6, part, torch.Generator().manual_seed(seed))  # type: ignore[arg-type]  # a part


@pytest.mark.parametrize("name", ["global", "lookup-5", "where"])
def test_a_label_is_the_sum_of_the_own_digit_and_the_other_one(name: str) -> None:
    batch = made(name)
    assert batch.x.shape == (32, inputs_of(4, 6), 4, 6)
    assert batch.own is not None
    assert batch.other is not None
    assert torch.equal(batch.label, (batch.own + batch.other) % 10)
    assert torch.equal(batch.other[~batch.counts], batch.own[~batch.counts])
    # pixels of a cell are of an image with that digit: the stem could know it
    assert 0 <= batch.x[:, :64].min() < batch.x[:, :64].max() <= 1


def test_the_framed_digit_is_the_other_one_of_all_cells() -> None:
    batch = made("global")
    frame = batch.x[:, 64 + 16].bool()
    assert (frame.flatten(1).sum(1) == 1).all()
    assert batch.own is not None
    assert batch.other is not None
    assert torch.equal(batch.counts, ~frame)
    assert torch.equal(batch.other, batch.own[frame][:, None, None].expand(32, 4, 6))


def test_two_cells_of_a_scene_have_the_same_mark_and_each_other_s_digit() -> None:
    batch = made("lookup-5")
    assert batch.own is not None
    assert batch.other is not None
    marks, own, other = batch.x[:, 64:80].flatten(2).transpose(1, 2), batch.own.flatten(1), batch.other.flatten(1)
    for scene in range(32):
        used = marks[scene].abs().sum(1).nonzero().flatten().tolist()
        assert len(used) == 10
        assert torch.equal(batch.counts[scene].flatten().nonzero().flatten(), torch.tensor(used))
        for cell in used:
            (partner,) = (c for c in used if c != cell and torch.equal(marks[scene, c], marks[scene, cell]))
            assert other[scene, cell] == own[scene, partner]


def test_cells_with_one_mark_have_one_digit_and_regions_hang_together() -> None:
    batch = scenes(Task("segment"), 32, 8, 8, "test", torch.Generator().manual_seed(0))
    marks, label = batch.x[:, 64:80].flatten(2).transpose(1, 2), batch.label.flatten(1)
    digits = []
    for scene in range(32):
        same = (marks[scene, :, None] == marks[scene]).all(2)
        assert torch.equal(same, label[scene][:, None] == label[scene])
        digits.append(label[scene].unique().numel())
    assert max(digits) == REGIONS
    right = (batch.label[:, :, 1:] == batch.label[:, :, :-1]).float().mean()
    apart = (batch.label[:, :, 4:] == batch.label[:, :, :-4]).float().mean()
    assert right > apart + 0.2


def test_the_pixels_of_a_region_are_the_mean_image_of_its_digit_under_noise() -> None:
    batch = scenes(Task("segment"), 512, 8, 8, "train", torch.Generator().manual_seed(0))
    off = batch.x[:, :64] - prototypes()[batch.label].movedim(-1, 1)
    assert off.mean().item() == pytest.approx(0, abs=2e-3)
    assert off.std().item() == pytest.approx(scenes_file.NOISE, abs=2e-3)


def test_what_segment_allows_without_context_with_the_histogram_with_neighbours_and_with_the_region() -> None:
    """Bayes's decision for each, since image and noise are known: mean IoU in percent."""
    batch = scenes(Task("segment"), 512, 8, 8, "test", torch.Generator().manual_seed(0))
    pixels, label = batch.x[:, :64].flatten(2).transpose(1, 2), batch.label.flatten(1)
    marks = batch.x[:, 64:80].flatten(2).transpose(1, 2)
    scores = -torch.cdist(pixels, prototypes().expand(512, -1, -1)).square() / (2 * scenes_file.NOISE**2)
    histogram = nn.functional.one_hot(label, 10).float().mean(1)
    same = (torch.cdist(marks, marks) < 1e-3).float()
    rows, columns = torch.arange(64) // 8, torch.arange(64) % 8
    near = ((rows[:, None] - rows).abs() <= 1) & ((columns[:, None] - columns).abs() <= 1)
    answers = [scores, scores + histogram.clamp(min=1e-9).log()[:, None], (same * near) @ scores, same @ scores]
    found = [100 * mean_iou(each.argmax(2), label) for each in answers]
    assert found == pytest.approx([*SEGMENT_BOUNDS.values()], abs=1)


def test_labels_of_other_scenes_are_right_by_chance_alone() -> None:
    batch = scenes(task_of("where", 4, 6), 4096, 4, 6, "test", torch.Generator().manual_seed(0))
    other = batch.shuffled()
    assert torch.equal(other.x, batch.x)
    assert (other.label == batch.label).float().mean().item() == pytest.approx(0.1, abs=0.01)
    assert other.own is None


def test_the_mirrored_place_is_in_the_same_row() -> None:
    batch = made("where")
    assert batch.own is not None
    assert batch.other is not None
    assert torch.equal(batch.other, batch.own.flip(2))
    assert batch.counts.all()
    rows, columns = batch.x[:, 81:85], batch.x[:, 85:]
    assert torch.equal(rows.argmax(1)[0], torch.arange(4)[:, None].expand(4, 6))
    assert torch.equal(columns.argmax(1)[0], torch.arange(6).expand(4, 6))


def test_no_image_is_in_two_parts_and_a_seed_gives_the_same_scenes() -> None:
    parts = [scenes_file._images(part)[0] for part in ("train", "select", "test")]
    assert [len(images) for images in parts] == [1200, 300, 297]
    rows = [{tuple(row) for row in images.tolist()} for images in parts]
    assert not rows[0] & rows[1]
    assert not rows[0] & rows[2]
    assert torch.equal(made("where").x, made("where").x)
    assert not torch.equal(made("where").x, made("where", seed=1).x)


@pytest.mark.parametrize(
    ("name", "size", "sentence"),
    [
        ("lookup-9", (4, 4), "lookup-9 needs two cells for each mark: a scene of 4 x 4 cells has room for 8 marks"),
        ("lookup-33", (16, 16), "room for 32 marks"),
        ("lookup-0", (4, 4), "unknown task 'lookup-0'"),
        ("find", (4, 4), "the tasks are segment, global, where and lookup-K, such as lookup-8"),
        ("where", (1, 1), "a scene of 1 x 1 cells has no second cell"),
    ],
)
def test_a_task_that_cannot_be_asked_is_told(name: str, size: tuple[int, int], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        task_of(name, *size)


@pytest.mark.parametrize(("others", "percent"), [(1, 100), (2, 55), (3, 43)])
def test_a_guess_from_the_histogram_worked_by_hand(others: int, percent: float) -> None:
    # of 2 digits: equal with 1/10; of 3: all different with 72/100, all equal with 1/100
    assert from_histogram(others) == pytest.approx(percent)


def test_a_guess_from_the_histogram_against_a_simulation() -> None:
    digits = torch.randint(10, (20_000, 15), generator=torch.Generator().manual_seed(0))
    share = torch.nn.functional.one_hot(digits, 10).sum(1).amax(1).float().mean() / 15
    assert from_histogram(15) == pytest.approx(100 * share.item(), abs=0.3)


def found_on(*accuracies: float) -> dict[str, object]:
    """A task of 64 cells as a row holds it."""
    learned = sum(each >= 80 for each in accuracies)
    value = sorted(accuracies)[len(accuracies) // 2]
    return {"accuracy": value, "accuracies": accuracies, "learned": learned, "trained_steps": 800, "cells": 64}


def test_a_module_that_only_pools_did_not_learn_to_look_up() -> None:
    curve = {"segment": found_on(40, 41, 42), "global": found_on(95, 94, 10), "lookup-8": found_on(24, 24, 25)}
    row = {"recall_curve": json.dumps(curve)}
    assert sentence(row) == (
        "segments with a mean IoU of 41 [39, 43] %; learned global in 800 steps (94 %, 2 of 3 seeds); did not learn "
        "lookup-8 in 800 steps (24 %, 0 of 3 seeds): accuracy on small tasks, chance is 10 %."
    )
    assert "learned in part lookup-32" in sentence({"recall_curve": json.dumps({"lookup-32": found_on(24, 24, 25)})})


def test_the_share_of_seeds_that_learned_has_an_exact_interval() -> None:
    share = learned_of(found_on(*[90] * 5, *[10] * 3))
    # Clopper and Pearson: the roots of the binomial tails at 2.5 %
    assert (share.value, share.low, share.high) == pytest.approx((62.5, 24.49, 91.48), abs=0.01)


class Mirror(nn.Module):
    """Solution of the task `where`, without a weight."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flip(-1)


class Framed(nn.Module):
    """A sum over all positions: one vector of context, as the task `global` needs."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Conv2d(16, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        weights = torch.softmax(10 * self.score(x).flatten(2), -1)
        return (x.flatten(2) @ weights.transpose(1, 2))[..., None].expand_as(x)


def accuracy(make: Callable[[], nn.Module], task: str, steps: int = 500) -> float:
    return train(make, SHAPE, task_of(task, *SHAPE[1:]), 0, steps).accuracy


def test_a_cell_sees_no_other_before_the_module() -> None:
    network = Network(nn.Identity, *SHAPE).eval()
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
    assert accuracy(Framed, "global") > 0.7
    assert accuracy(Framed, "where", 200) < 0.2


def test_a_seed_gives_the_same_training() -> None:
    one, two, other = (train(nn.Identity, SHAPE, Task("where"), seed, 5) for seed in (0, 0, 1))
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
    found = train(Breaks, SHAPE, Task("where"), 0, 20)
    assert found.diverged == "the loss was nan at step 4"
    assert found.accuracy != found.accuracy
    assert isinstance(found, Trained)
    assert not repeats(OwnDice, SHAPE, Task("where"))
    assert repeats(nn.Identity, SHAPE, Task("where"))
    assert repeats(Breaks, SHAPE, Task("where"))


def of(rate: float, found: float) -> Trained:
    """A training that reached this accuracy; nan: it diverged."""
    return Trained(rate, found, found, 0.1, None, 1.0, "" if found == found else "the loss was nan at step 1")


@pytest.mark.parametrize(
    ("found", "tried", "chosen"),
    [
        ((0.95, 0.1), 1, 3e-3),
        ((0.3, 0.2), 2, 3e-3),
        ((0.3, 0.4), 2, 1e-2),
        ((float("nan"), 0.2), 2, 1e-2),
    ],
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
    tasks = {Task("where"): 5, Task("global"): 4}
    found = trainings(partial(nn.Conv2d, 16, 16, 1), SHAPE, tasks, 2, told.append)
    assert [len(found[task]) for task in tasks] == [2, 2]
    one = train(partial(nn.Conv2d, 16, 16, 1), SHAPE, Task("global"), 1, 4, found[Task("global")][1].rate)
    assert one.losses == found[Task("global")][1].losses
    done, *known = told[-1].split("; ")
    assert done == "8 trainings done, 0 asked for"
    assert {re.fullmatch(r"(\w+) \d+ %", each)[1] for each in known} == {"global", "where"}  # type: ignore[index]  # each matches


class Fails(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            raise RuntimeError("in training alone")
        return x


@pytest.mark.parametrize("forks", [True, False])
def test_a_training_that_fails_names_the_line_of_the_module(forks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_file, "FORKS", forks)
    line = r"RuntimeError: in training alone \(test_recall\.py, line \d+, in forward\)"
    with pytest.raises(UsageError, match=rf"^the training on where failed: {line}$"):
        trainings(Fails, SHAPE, {Task("where"): 5}, 1, lambda text: None)


def test_a_module_that_diverges_with_each_learning_rate_is_told() -> None:
    (found,) = trainings(Breaks, SHAPE, {Task("where"): 20}, 1, lambda text: None).values()
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
    found = train(Peeks, SHAPE, Task("where"), 0, 100)
    assert found.accuracy > 0.9
    assert found.shuffled > 0.9
    assert train(Mirror, SHAPE, Task("where"), 0, 100).shuffled < 0.13


class Stopped(nn.Module):
    """Attention whose keys and values are taken as constants."""

    def forward(self, x: Tensor) -> Tensor:
        cells = x.flatten(2)
        return (cells.detach() @ torch.softmax(cells.detach().transpose(1, 2) @ cells, 1)).view_as(x)


@pytest.mark.parametrize(
    ("make", "reaches"), [(Framed, "yes"), (Stopped, "no"), (partial(nn.Conv2d, 16, 16, 1), ""), (Mirror, "yes")]
)
def test_whether_the_gradient_reaches_other_positions(make: Callable[[], nn.Module], reaches: str) -> None:
    assert gradient_reaches(make, (16, 6, 6)) == reaches


def test_running_statistics_do_not_lag_behind() -> None:
    """A batch norm with the momentum of Hamburger, 3e-4, would be far from its data after so few steps."""

    def make() -> nn.Module:
        return nn.Sequential(Mirror(), nn.BatchNorm2d(16, momentum=3e-4))

    assert accuracy(make, "where") > 0.7


SUITE = """
title = "Mine"
modules = [{modules}]
metrics = ["params", "recall"]
[axes]
shape = [1, 32, 5, 5]
threads = 1
[measure]
recall_shape = [16, 4, 4]
processes = 1
recall_tasks = ["global", "lookup-{marks}"]
recall_steps = 20
recall_seeds = 2
"""


def test_a_module_that_does_not_fit_the_shape_says_so() -> None:
    with pytest.raises(UsageError, match=r"with 16 channels and 4 x 4 positions \(recall_shape\), where it fails: "):
        train(lambda: nn.Conv2d(512, 16, 1), SHAPE, Task("where"), 0, 5)


def test_the_estimate_of_trainings_counts_steps_seeds_and_cores() -> None:
    small = MeasureTable(recall_tasks=["where"], recall_shape=[32, 4, 4], recall_steps=100, recall_seeds=1)
    assert takes_s(small) == pytest.approx(100 * (1 + 2) * STEP_S / 8 / len(usable_cores()))
    usual = MeasureTable(recall_tasks=["segment", "global"], recall_steps=800, recall_segment_steps=300)
    assert takes_s(usual) == pytest.approx((300 + 800) * (5 + 2) * STEP_S / len(usable_cores()))


@pytest.mark.parametrize(
    ("asked", "trains"), [([], False), (["--metrics", "params,recall"], True), (["--metrics", "latency,recall"], True)]
)
@pytest.mark.processes
def test_a_dry_run_counts_the_trainings_if_they_are_asked_for(
    command: Callable[..., Done], asked: list[str], trains: bool
) -> None:
    done = command("run", "--dry-run", "--suite", "quick", "--modules", "sa", "--shape", "1,16,4,4", *asked)
    assert done.returncode == 0, done.stderr
    (seconds,) = re.findall(r"^sa .* (\d+) s", done.stdout, re.MULTILINE)
    least_s = trains * takes_s(MeasureTable())
    assert int(least_s) <= float(seconds) < least_s + 60


@pytest.mark.plugin("compare")
def test_compare_counts_the_trainings_too(suite_file: Callable[..., Path]) -> None:
    from ctxbench.plugins.compare.comparison import Request, expected_s

    suite = str(suite_file(["sa"], metrics=("params",)))
    (cases, plain), (_, trained) = (
        expected_s(Request([], ["sa", "se"]), suite, Overrides(metrics=metrics))
        for metrics in (["params"], ["params", "recall"])
    )
    assert cases == 2
    assert trained - plain == pytest.approx(2 * takes_s(MeasureTable()))


def test_trainings_have_a_time_limit_of_their_own() -> None:
    case = Case("sa", "ctxbench.modules.sa:X", {}, (1, 8, 4, 4))
    script, measure = FakeExecutor(lambda task: counted()), MeasureTable(timeout_s=7, recall_timeout_s=100)
    for metrics in (["params"], ["params", "recall"]):
        measure_case(case, Plan(measure, metrics), script)
    assert script.timeouts == [7, 107]


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A clone with a stored run of `identity` and the code that it trained, committed."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "results" / "recall-cpu").mkdir(parents=True)
    (file := tmp_path / "modules" / "mine.py").write_text("WIDTH = 1\n")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "All"]):
        subprocess.run([*git, *command], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    about = {"commit": commit, "packages": {"torch": "2.13.0"}}
    meta = {"state": "finished", "environment": about, "definition": {"measure": {"recall_tasks": ["global", "where"]}}}
    curve = json.dumps({"global": found_on(10, 11, 12), "where": found_on(90, 91, 92)}).replace('"', '""')
    columns = "reference,hparams,recall_curve,recall_gradient,recall_s,recall_recipe"
    records = f'{columns}\nmine:Mine,{{}},"{curve}",yes,2.5,{RECIPE}\n'
    (tmp_path / "results" / "recall-cpu" / "records.csv").write_bytes(records.encode())
    tables = {"records.csv": {"sha256": hashlib.sha256(records.encode()).hexdigest()}}
    (tmp_path / "results" / "recall-cpu" / "run.json").write_text(json.dumps({**meta, "tables": tables}))
    monkeypatch.setattr(stored_file, "ROOT", tmp_path)
    for each in (stored_file.stored_runs, stored_file._is_same):
        each.cache_clear()
    yield file
    for each in (stored_file.stored_runs, stored_file._is_same):
        each.cache_clear()


@dataclass
class Asked:
    """A measurement of `mine:Mine`, and what was reported of it."""

    file: Path
    settings: MeasureTable
    values: dict[str, object] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.entry = SimpleNamespace(reference="mine:Mine", file=str(self.file), build=lambda *_: nn.Identity())
        self.case = SimpleNamespace(hparams={}, hparams_json="{}")

    def report(self, values: Mapping[str, object], *notes: Note) -> None:
        self.values |= values
        self.notes += [note.code for note in notes]

    def emit(self, message: object) -> None: ...


def read_or_trained(file: Path, monkeypatch: pytest.MonkeyPatch, **settings: object) -> Asked:
    """Report of `compute`; where it trains, its trainings find nothing."""
    monkeypatch.setattr(training_file, "trainings", lambda *_: {})
    asked = Asked(file, MeasureTable.model_validate({"recall_tasks": ["global"], **settings}))
    with contextlib.suppress(StatisticsError):  # of no trainings
        compute(asked)  # type: ignore[arg-type]  # a part of a measurement
    return asked


def test_what_the_stored_run_has_with_the_same_code_and_recipe_is_not_trained(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = read_or_trained(stored, monkeypatch)
    assert asked.notes == ["recall_stored"]
    assert (asked.values["recall_global"], asked.values["recall_gradient"], asked.values["recall_s"]) == (
        11,
        "yes",
        2.5,
    )
    assert asked.values["recall_where_reason"] == "not asked for"
    assert list(json.loads(str(asked.values["recall_curve"]))) == ["global"]


@pytest.mark.parametrize("changed", [{"recall_steps": 7}, {"recall_seeds": 2}, {"recall_stored": False}])
def test_with_other_settings_it_is_trained(
    stored: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, object]
) -> None:
    assert "recall_stored" not in read_or_trained(stored, monkeypatch, **changed).notes


def test_another_recipe_of_the_trainings_is_trained(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_file, "RECIPE", RECIPE + 1)
    assert "recall_stored" not in read_or_trained(stored, monkeypatch).notes


def test_what_a_damaged_run_has_is_trained(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = stored.parents[1] / "results" / "recall-cpu" / "records.csv"
    records.write_bytes(records.read_bytes()[:-20])
    assert "recall_stored" not in read_or_trained(stored, monkeypatch).notes


def test_other_code_is_trained(stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def is_read(path: Path, code: str) -> bool:
        path.write_text(code)
        stored_file._is_same.cache_clear()
        return "recall_stored" in read_or_trained(path if path.parent != stored.parent else stored, monkeypatch).notes

    assert is_read(stored.parent / "_new.py", "WIDTH = 2  # what no old code imports\n")
    subprocess.run(["git", "-C", str(tmp_path), "add", "."], check=True)
    assert is_read(stored, "# a comment\nWIDTH = 1\n\n\ndef added() -> None: ...\n")
    assert not is_read(stored, "WIDTH = 3\n")
    assert not is_read(stored, "WIDTH = (\n")
    assert is_read(stored, "WIDTH = 1\n")
    assert not is_read(tmp_path.parent / "mine.py", "WIDTH = 1\n")


@pytest.mark.processes
def test_a_row_has_the_accuracies_of_its_seeds_and_why_there_is_none(
    command: Callable[..., Done], tmp_path: Path
) -> None:
    broken = tmp_path / "mine.py"
    broken.write_text(
        "import torch\n\n\nclass Breaks(torch.nn.Module):\n    def __init__(self, channels: int) -> None:\n"
        "        super().__init__()\n        self.scale = torch.nn.Parameter(torch.ones(1))\n\n"
        "    def forward(self, x):\n        return self.scale * x * (torch.nan if self.training else 1)\n"
    )
    suite = tmp_path / "mine.toml"
    suite.write_text(SUITE.format(modules=f'"identity", "{broken}:Breaks"', marks=4))
    done = command("run", "--suite", suite, "--device", "cpu", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "the training on global diverged: the loss was nan at step 1" in done.stdout
    first, second = rows_of(RunFolder.open(tmp_path / "run").frame())
    curve = json.loads(first["recall_curve"])
    assert list(curve) == ["global", "lookup-4"]
    assert len(curve["lookup-4"]["accuracies"]) == 2
    assert min(curve["lookup-4"]["accuracies"]) <= first["recall_lookup"] <= max(curve["lookup-4"]["accuracies"])
    assert first["recall_gradient"] == ""
    assert curve["global"]["steps"] is None
    assert curve["global"]["rate"] in RATES
    assert first["recall_where_reason"] == "not asked for"
    assert [second[f"recall_{kind}_reason"] for kind in ("global", "lookup")] == ["its training diverged"] * 2
    assert (second["status"], json.loads(second["recall_curve"])) == ("ok", {})
    assert sentence(first).startswith("did not learn global in 20 steps (")
    assert sentence(first).endswith("0 of 2 seeds): accuracy on small tasks, chance is 10 %.")
    assert sentence(second) == "has no recall: its training diverged"
    suite.write_text(SUITE.format(modules='"identity"', marks=20))
    done = command("run", "--suite", suite, "--device", "cpu", "--out", tmp_path / "other")
    (row,) = RunFolder.open(tmp_path / "other").frame().to_dict("records")
    assert row["recall_lookup_reason"].endswith("has room for 8 marks (at most 32)")


def test_the_page_names_every_key_of_a_suite() -> None:
    page = (ROOT / "docs" / "plugins" / "recall.md").read_text(encoding="utf-8")
    keys = tomllib.loads(page.split("```toml\n")[1].split("```")[0])["measure"]
    assert keys.keys() == Recall.model_fields.keys()


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (lambda x: x[9], r"IndexError: index 9 is out of bounds .* \(test_recall\.py, line \d+, in <lambda>\)"),
        (lambda x: x[:, :, :2], r"it returns shape \[1, 3, 2, 5\] for \[1, 3, 4, 5\]"),
        (lambda x: x.flatten(1), r"it returns shape \[1, 60\] for"),
        (lambda x: x.double(), "it returns torch.float64 for torch.float32"),
        (lambda x: (x, x), "it returns tuple; a context module returns one tensor"),
    ],
)
def test_a_module_of_another_output_is_told_so(output: Callable[[Tensor], Any], reason: str, tmp_path: Path) -> None:
    class Other(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return output(x)

    settings = {"recall_tasks": ["global"], "recall_shape": [3, 4, 5], "recall_stored": False}
    asked = Asked(tmp_path / "mine.py", MeasureTable.model_validate(settings))
    asked.entry.build = lambda *_: Other()
    compute(asked)  # type: ignore[arg-type]  # a part of a measurement
    assert re.search(reason, str(asked.values["recall_global_reason"]))


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
        ("return x.flatten(1)", r"it returns shape \[1, 256\] for \[1, 16, 4, 4\] \(other.py, line 9, in forward\)"),
    ],
)
def test_an_error_names_the_line_of_the_module(line: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=sentence):
        train(lined(line, tmp_path), SHAPE, Task("where"), 0, 2)


def test_an_error_of_a_training_names_the_task_and_the_line(tmp_path: Path) -> None:
    (folder := tmp_path / "double").mkdir()
    make = lined("if self.training: x[:, :, 9]", tmp_path)
    sentence = r"the training on where failed: IndexError: index 9 is .* \(other.py, line 10, in forward\)"
    with pytest.raises(UsageError, match=sentence):
        trainings(make, SHAPE, {Task("where"): 2}, 1, lambda text: None)
    double = lined("if self.training: return x.double()", folder)
    with pytest.raises(
        UsageError, match=r"it returns torch.float64 for torch.float32 \(other.py, line 9, in forward\)"
    ):
        train(double, SHAPE, Task("where"), 0, 2)


@pytest.mark.skipif(not FORKS, reason="nothing forks here")
def test_the_forks_of_trainings_are_not_those_of_the_module() -> None:
    before = Forks.count
    trainings(nn.Identity, SHAPE, {Task("where"): 1}, 1, lambda text: None)
    assert Forks.count == before
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert Forks.count == before + 1


@pytest.mark.parametrize(
    ("hparams", "cells", "full"),
    [
        ({"rank": 64}, 64, True),
        ({"rank": 63}, 64, False),
        ({"rank": 64}, 256, True),  # D = 64
        ({"rank": 32}, 256, False),
        ({"rank": 64, "d": 128}, 256, False),
        ({"rank": 32, "heads": 2}, 256, True),
        ({"rank": 16}, 16, True),
        ({"bases": 64}, 64, True),
        ({"bases": 8}, 64, False),
        ({}, 64, False),
        ({"rank": None}, 64, False),
    ],
)
def test_a_rank_that_leaves_nothing_out_is_told(hparams: dict[str, Any], cells: int, full: bool) -> None:
    assert bool(full_rank(hparams, 64, cells)) == full
    # a matrix of this rank can be any matrix of these sides
    if full and "heads" not in hparams:
        rank = hparams.get("rank") or hparams["bases"]
        whole = torch.randn(64, cells, generator=torch.Generator().manual_seed(0))
        assert int(torch.linalg.matrix_rank(whole)) <= rank


def test_a_row_of_full_rank_says_so(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(stored, MeasureTable.model_validate({"recall_tasks": ["global"]}))
    asked.case.hparams = {"rank": 64}
    monkeypatch.setattr(training_file, "trainings", lambda *_: {})
    compute(asked)  # type: ignore[arg-type]  # a part of a measurement
    assert asked.notes[0] == "recall_full_rank"


def test_the_claims_on_rank_are_decided_from_rows() -> None:
    def rows(step: float) -> Rows:
        return Rows(
            [
                {
                    "module": "ham_nmf", "status": "ok", "hparams.rank": rank, "hparams.gradient": gradient,
                    "recall_curve": json.dumps({"segment": found_on(*(base + rank / 8 + each for each in range(5)))}),
                }
                for rank in (4, 8, 16, 32, 64) for gradient, base in (("one_step", 40), ("bptt", 40 + step))
            ]
        )  # fmt: skip

    assert rank_claims.one_step(rows(30)).verdict is Verdict.SUPPORTED
    assert rank_claims.one_step(rows(1)).verdict is Verdict.NOT_SUPPORTED
    assert "all steps: 72 [71, 74], " in rank_claims.ranks(rows(30)).text
