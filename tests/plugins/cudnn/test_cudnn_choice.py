"""PyTorch's choice, and the rule for engines that cuDNN refuses without a device, beside what an H200 took.

`answers-9.19.csv` has what cuDNN 9.19 answered about the convolutions of `results/gpu-h200-2/cudnn.csv.gz`, in its
order, on a machine without a driver.
"""

import csv
from pathlib import Path
from typing import Any

import pytest
import torch

from ctxbench.base.disk import read_text
from ctxbench.meta.calls import Operation, Writer
from ctxbench.plugins.cudnn.ask import cards
from ctxbench.plugins.cudnn.choice import asked_of, convolutions, is_own_kernel, not_compared, workspace
from ctxbench.plugins.cudnn.library import CudnnChoice, CudnnConvolution

ROOT = Path(__file__).parents[3]
SHAPES = ("image", "weight", "output", "padding", "stride", "dilation")


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(read_text(path).splitlines()))


def known() -> list[tuple[dict[str, str], CudnnConvolution, CudnnChoice]]:
    """Each convolution that the H200 was asked about: what it took, and what is answered without it."""
    found = []
    answers = rows(Path(__file__).with_name("answers-9.19.csv"))
    for row, told in zip(rows(ROOT / "results/gpu-h200-2/cudnn.csv.gz"), answers, strict=True):
        shapes: dict[str, Any] = {key: tuple(map(int, row[key].split("x"))) for key in SHAPES}
        asked = CudnnConvolution(row["turn"], **shapes, dtype=row["dtype"], tf32=row["tf32"] == "True")
        refused = tuple(map(int, told["refused"].split()))
        found.append((row, asked, CudnnChoice(int(told["engine"]), int(told["bytes"]), refused)))
    return found


def test_the_rule_finds_engines_and_bytes_of_an_h200() -> None:
    engines, taken, before, above, below, exact_float32 = 0, 0, 0, 0, 0, []
    for row, asked, choice in known():
        told = workspace(asked, choice, 132)
        is_own = is_own_kernel(asked, asked.image[1] // asked.weight[1])
        engines += told.engine == int(row["live_engine"])
        is_met = int(row["requested_bytes"]) == (0 if is_own else told.bytes)
        taken += is_met
        before += int(row["requested_bytes"]) == choice.bytes
        if asked.dtype == "float32" and not asked.tf32:
            exact_float32.append(is_met)
        above += int(row["requested_bytes"]) - told.most > 2**20
        below += told.least - int(row["requested_bytes"]) > 2**9 and not is_own
    assert (engines, taken, before, above, below) == (1376, 1240, 880, 5, 0)
    assert len(exact_float32) == 353
    assert all(exact_float32)


def test_pytorch_takes_no_workspace_where_it_computes_a_convolution_itself() -> None:
    own = [row for row, asked, _ in known() if is_own_kernel(asked, asked.image[1] // asked.weight[1])]
    assert len(own) > 300
    assert {row["requested_bytes"] for row in own} == {"0"}
    assert sum(row["live_bytes"] != "0" for row in own) == 44


@pytest.mark.parametrize(
    ("change", "is_own"),
    [
        ({}, False),
        ({"dtype": "bfloat16"}, True),
        ({"dilation": (2, 2)}, True),
        ({"weight": (64, 1, 7, 7)}, True),
        ({"weight": (64, 1, 3, 1)}, True),
        ({"image": (1, 64, 6, 6)}, True),
        ({"image": (1, 31, 16, 16), "weight": (31, 1, 3, 3)}, True),
        ({"image": (1, 64, 1, 16), "weight": (64, 1, 1, 4)}, False),
        ({"stride": (2, 2)}, False),
        ({"stride": (2, 2), "image": (2, 64, 16, 16)}, True),
        ({"stride": (2, 2), "image": (2, 512, 16, 16), "weight": (512, 1, 3, 3)}, False),
        ({"stride": (3, 3)}, True),
        ({"stride": (1, 2)}, True),
        ({"last": True, "dtype": "float32"}, False),
    ],
)
def test_depthwise_convolutions_are_of_pytorch_or_of_cudnn(change: dict[str, Any], is_own: bool) -> None:
    usual = {
        "turn": "forward", "image": (1, 64, 16, 16), "weight": (64, 1, 3, 3), "output": (1, 64, 16, 16),
        "padding": (1, 1), "stride": (1, 1), "dilation": (1, 1), "dtype": "float16",
    }  # fmt: skip
    asked = CudnnConvolution(**{**usual, **change})
    assert is_own_kernel(asked, asked.image[1]) == is_own
    assert not is_own_kernel(asked, 1)


def call_of(run: Any, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32, last: bool = False) -> Operation:
    tensors = [torch.empty(shape, device="meta", dtype=dtype) for shape in shapes]
    func, args = run(*(each.to(memory_format=torch.channels_last) if last else each for each in tensors))
    out = func(*args)
    outs = [each for each in (out if isinstance(out, tuple) else (out,)) if each is not None]
    given = tuple(each for each in args if isinstance(each, torch.Tensor))
    return Writer(lambda tensor: True).operation(func, args, given, outs)


def seen(*args: Any, **options: Any) -> list[CudnnConvolution] | None:
    return convolutions(call_of(*args, **options), tf32=True)


def plain(groups: int = 1, transposed: bool = False) -> Any:
    """A convolution without padding, of as many dimensions as its weight."""

    def run(image: Any, weight: Any) -> Any:
        sides = weight.dim() - 2
        steps = ([1] * sides, [0] * sides, [1] * sides)
        return torch.ops.aten.convolution.default, (image, weight, None, *steps, transposed, [0] * sides, groups)

    return run


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (call_of(plain(), (2, 4, 8, 8), (8, 4, 3, 3)), ""),
        (call_of(plain(), (2, 4, 9), (8, 4, 3)), ""),
        (call_of(plain(2), (2, 4, 8, 8), (8, 2, 3, 3)), ""),
        (call_of(plain(), (2, 4, 8, 8), (8, 4, 3, 3), last=True), "channels last"),
        (call_of(plain(), (2, 4, 5, 6, 7), (8, 4, 3, 3, 3)), "three dimensions"),
        (call_of(plain(transposed=True), (2, 8, 8, 8), (8, 4, 2, 2)), "transposed"),
    ],
)
def test_kinds_that_no_gpu_was_compared_with_are_named(call: Operation, kind: str) -> None:
    assert not_compared(call) == kind
    asked = asked_of(call, tf32=True)
    assert asked
    assert [each.last for each in asked] == [kind == "channels last"]


def test_a_depthwise_convolution_is_seen_and_not_asked_about_where_pytorch_computes_it() -> None:
    call = call_of(plain(8), (2, 8, 8, 8), (8, 1, 3, 3))
    assert asked_of(call, tf32=True) == []
    assert [each.weight for each in convolutions(call, tf32=True) or ()] == [(8, 1, 3, 3)]


def test_a_card_with_fewer_processors_splits_a_gradient_less() -> None:
    wide, weight = (1, 512, 128, 128), (512, 512, 1, 1)
    asked = CudnnConvolution("weight", wide, weight, wide, (0, 0), (1, 1), (1, 1), "float32", True)
    parts = [
        workspace(asked, CudnnChoice(30, 0, (62,)), card["multiProcessorCount"]).bytes for card in cards().values()
    ]
    assert [(size - 512) / (4 * 512**2) for size in parts] == [9, 9, 7, 6, 6, 3]


def test_a_backward_pass_asks_for_the_gradients_that_are_wanted() -> None:
    backward = torch.ops.aten.convolution_backward.default

    def run(grad: Any, image: Any, weight: Any) -> Any:
        return backward, (grad, image, weight, [8], [2, 2], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True])

    shapes = ((2, 8, 4, 4), (2, 4, 8, 8), (8, 4, 3, 3))
    common = (shapes[1], shapes[2], shapes[0], (1, 1), (2, 2), (1, 1), "float32", True)
    assert seen(run, *shapes) == [CudnnConvolution("image", *common), CudnnConvolution("weight", *common)]


def test_a_transposed_convolution_is_the_gradient_of_another() -> None:
    def run(image: Any, weight: Any) -> Any:
        return torch.ops.aten.convolution.default, (image, weight, None, [2, 2], [0, 0], [1, 1], True, [0, 0], 1)

    wide, narrow = (2, 4, 16, 16), (2, 8, 8, 8)
    found = seen(run, narrow, (8, 4, 2, 2), dtype=torch.bfloat16)
    assert found == [CudnnConvolution("image", wide, (8, 4, 2, 2), narrow, (0, 0), (2, 2), (1, 1), "bfloat16", False)]


def test_a_map_of_one_dimension_has_one_row_and_three_dimensions_stay() -> None:
    run = plain()
    (line,) = seen(run, (2, 4, 9), (8, 4, 3)) or []
    assert (line.image, line.weight, line.output) == ((2, 4, 1, 9), (8, 4, 1, 3), (2, 8, 1, 7))
    assert (line.padding, line.stride, line.dilation) == ((0, 0), (1, 1), (1, 1))
    (volume,) = seen(run, (2, 4, 5, 6, 7), (8, 4, 3, 3, 3)) or []
    assert volume.output == (2, 8, 3, 4, 5)
    assert seen(run, (2**16, 4, 128, 128), (8, 4, 3, 3)) is None
    assert seen(run, (2, 4, 9), (8, 4, 3), dtype=torch.int8) is None
