"""Recall: what scenes ask, what a module must do to answer, and what wrong modules and settings get."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import Done
from fakes import FakeExecutor, counted
from torch import Tensor, nn

pytest.importorskip("sklearn", reason='pip install "ctxbench[recall]"')

from ctxbench.case import Case
from ctxbench.compare import Request, expected_s
from ctxbench.engine.one_process import Plan, measure_case
from ctxbench.errors import UsageError
from ctxbench.metrics.recall import STEP_S, from_histogram, sentence, takes_s
from ctxbench.recall import scenes as scenes_file
from ctxbench.recall.scenes import NONE, Scenes, Task, inputs_of, scenes, task_of
from ctxbench.recall.training import RATES, Network, Trained, repeats, train, trainings
from ctxbench.results.rows import rows_of
from ctxbench.results.run_folder import RunFolder
from ctxbench.suite.file import MeasureTable
from ctxbench.suite.read import Overrides

pytestmark = pytest.mark.slow  # small trainings, which take seconds together

SHAPE = (16, 4, 4)
ROOT = Path(__file__).resolve().parents[1]


def made(name: str, part: str = "train", seed: int = 0) -> Scenes:
    return scenes(task_of(name, 4, 6), 32, 4, 6, part, torch.Generator().manual_seed(seed))  # type: ignore[arg-type]  # a part


@pytest.mark.parametrize("name", ["global", "lookup-5", "where"])
def test_a_label_is_the_sum_of_the_own_digit_and_the_other_one(name: str) -> None:
    batch = made(name)
    assert batch.x.shape == (32, inputs_of(4, 6), 4, 6)
    known = batch.label != NONE
    assert torch.equal(batch.label[known], (batch.own + batch.other)[known] % 10)
    assert torch.equal(known, batch.other != NONE)
    # pixels of a cell are of an image with that digit: the stem could know it
    assert 0 <= batch.x[:, :64].min() < batch.x[:, :64].max() <= 1


def test_the_framed_digit_is_the_other_one_of_all_cells_but_its_own() -> None:
    batch = made("global")
    frame = batch.x[:, 64 + 16].bool()
    assert (frame.flatten(1).sum(1) == 1).all()
    framed = batch.own[frame]
    assert torch.equal(batch.label == NONE, frame)
    assert (batch.other[~frame].view(32, -1) == framed[:, None]).all()


def test_two_cells_of_a_scene_have_the_same_mark_and_each_other_s_digit() -> None:
    batch = made("lookup-5")
    marks, own, other = batch.x[:, 64:80].flatten(2).transpose(1, 2), batch.own.flatten(1), batch.other.flatten(1)
    for scene in range(32):
        used = marks[scene].abs().sum(1).nonzero().flatten().tolist()
        assert len(used) == 10
        assert torch.equal((other[scene] != NONE).nonzero().flatten(), torch.tensor(used))
        for cell in used:
            (partner,) = (c for c in used if c != cell and torch.equal(marks[scene, c], marks[scene, cell]))
            assert other[scene, cell] == own[scene, partner]


def test_the_mirrored_place_is_in_the_same_row() -> None:
    batch = made("where")
    assert torch.equal(batch.other, batch.own.flip(2))
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
        ("find", (4, 4), "the tasks are global, where and lookup-K, such as lookup-8"),
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


def test_a_module_that_only_pools_did_not_learn_to_look_up() -> None:
    row = {"recall_global": 95.0, "recall_lookup": 24.0, "recall_where": None}
    text = sentence({**row, "recall_curve": '{"global": {}, "lookup-8": {}}'})
    assert text == (
        "learned to pool (95 %); did not learn to look up by content (24 %): accuracy after a short training on small "
        "tasks, chance is 10 %."
    )
    assert "learned in part to look up" in sentence({**row, "recall_curve": '{"lookup-32": {}}'})


class Mirror(nn.Module):
    """What the task `where` asks for, without a weight."""

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


def fake(accuracies: dict[float, float], monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, int]]:
    """Trainings that reach these accuracies by learning rate (nan: it diverged); what was trained."""
    asked: list[tuple[float, int]] = []

    def run(make: object, shape: object, task: object, seed: int, steps: int, rate: float) -> Trained:
        asked.append((rate, seed))
        found = accuracies[rate]
        return Trained(rate, found - 0.01, found, None, 1.0, "" if found == found else "the loss was nan at step 1")

    monkeypatch.setattr("ctxbench.recall.training.train", run)
    return asked


@pytest.mark.parametrize(
    ("found", "tried", "chosen"),
    [
        ((0.95, 0.1, 0.1), 1, 3e-3),
        ((0.1, 0.92, 0.99), 2, 1e-3),
        ((0.3, 0.2, 0.4), 3, 1e-2),
        ((float("nan"), 0.2, float("nan")), 3, 1e-3),
    ],
)
def test_the_learning_rate_is_chosen_on_images_of_its_own_with_the_first_seed(
    found: tuple[float, ...], tried: int, chosen: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = fake(dict(zip(RATES, found, strict=True)), monkeypatch)
    rows = trainings(nn.Identity, SHAPE, Task("where"), 3, 10)
    assert asked == [*((rate, 0) for rate in RATES[:tried]), (chosen, 1), (chosen, 2)]
    assert {row.rate for row in rows} == {chosen}
    assert len(rows) == 3


def test_a_module_that_diverges_with_each_learning_rate_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(dict.fromkeys(RATES, float("nan")), monkeypatch)
    assert trainings(nn.Identity, SHAPE, Task("where"), 1, 10)[0].diverged


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


def test_the_estimate_of_trainings_is_what_they_took() -> None:
    found = [RunFolder.open(ROOT / "results" / name) for name in ("recall_marks-cpu", "recall-cpu")]
    marks, whole = found[0].meta["definition"]["measure"], found[1].frame()
    # These rows have nothing but their trainings.
    assert takes_s(MeasureTable(**marks)) == pytest.approx(found[0].frame()["elapsed_s"].mean(), rel=0.25)
    assert whole["recall_s"].median() / 800 == pytest.approx(STEP_S, rel=0.01)
    small = MeasureTable(recall_tasks=["where"], recall_shape=[32, 4, 4], recall_steps=100, recall_seeds=1)
    assert takes_s(small) == pytest.approx(100 * 2 * STEP_S / 8)


@pytest.mark.parametrize(
    ("asked", "least_s"), [([], 0.0), (["--metrics", "params,recall"], 150.0), (["--metrics", "latency,recall"], 150.0)]
)
@pytest.mark.processes
def test_a_dry_run_counts_the_trainings_if_they_are_asked_for(
    command: Callable[..., Done], asked: list[str], least_s: float
) -> None:
    done = command("run", "--dry-run", "--suite", "quick", "--modules", "sa", "--shape", "1,16,4,4", *asked)
    assert done.returncode == 0, done.stderr
    (seconds,) = re.findall(r"^sa .* (\d+) s", done.stdout, re.MULTILINE)
    assert least_s <= float(seconds) < least_s + 60


def test_compare_counts_the_trainings_too(suite_file: Callable[..., Path]) -> None:
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


@pytest.mark.processes
def test_a_row_has_accuracies_their_interval_and_why_there_is_none(
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
    assert curve["lookup-4"]["low"] <= first["recall_lookup"] <= curve["lookup-4"]["high"]
    assert curve["global"]["steps"] is None
    assert curve["global"]["rate"] in RATES
    assert first["recall_where_reason"] == "not asked for"
    assert [second[f"recall_{kind}_reason"] for kind in ("global", "lookup")] == ["its training diverged"] * 2
    assert (second["status"], json.loads(second["recall_curve"])) == ("ok", {})
    assert sentence(first).startswith("did not learn to pool (")
    assert sentence(first).endswith("%): accuracy after a short training on small tasks, chance is 10 %.")
    assert sentence(second) == "has no recall: its training diverged"
    suite.write_text(SUITE.format(modules='"identity"', marks=20))
    done = command("run", "--suite", suite, "--device", "cpu", "--out", tmp_path / "other")
    (row,) = RunFolder.open(tmp_path / "other").frame().to_dict("records")
    assert row["recall_lookup_reason"].endswith("has room for 8 marks (at most 32)")
