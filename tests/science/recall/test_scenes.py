"""Scenes of recall: what they ask, what their parts allow, and a guess from the histogram."""

import pytest
import torch
from torch import nn

from ctxbench.base.errors import UsageError
from ctxbench_science.recall import scenes as scenes_file
from ctxbench_science.recall.metric import SEGMENT_BOUNDS, from_histogram
from ctxbench_science.recall.scenes import REGIONS, Scenes, SceneTask, inputs_of, prototypes, scenes, task_of
from ctxbench_science.recall.training import mean_iou

pytestmark = pytest.mark.slow  # small trainings, which take seconds together


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
    batch = scenes(SceneTask("segment"), 32, 8, 8, "test", torch.Generator().manual_seed(0))
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
    batch = scenes(SceneTask("segment"), 512, 8, 8, "train", torch.Generator().manual_seed(0))
    off = batch.x[:, :64] - prototypes()[batch.label].movedim(-1, 1)
    assert off.mean().item() == pytest.approx(0, abs=2e-3)
    assert off.std().item() == pytest.approx(scenes_file.NOISE, abs=2e-3)


def test_what_segment_allows_without_context_with_the_histogram_with_neighbours_and_with_the_region() -> None:
    """Bayes's decision for each, since image and noise are known: mean IoU in percent."""
    batch = scenes(SceneTask("segment"), 512, 8, 8, "test", torch.Generator().manual_seed(0))
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
