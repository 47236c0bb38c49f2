"""A training step beside its pass: the optimizer's state and its step; the largest batch that fits."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import Done
from torch import nn

import ctxbench
from ctxbench import devices
from ctxbench.base.errors import UsageError
from ctxbench.plugins.memory.one_pass import run_pass
from ctxbench.plugins.memory.predict import predict_peak
from ctxbench.plugins.memory.step import MOST_IMAGES, OPTIMIZERS, largest_batch
from ctxbench.plugins.memory.training import stepped, with_loss

CONVOLUTIONS = nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 300, 1))


@pytest.mark.processor
@pytest.mark.usefixtures("plain_kernels")
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("module", "shape", "at"), [(CONVOLUTIONS, (1, 4, 6, 6), "backward"), (nn.Linear(200, 90), (2, 200), "optimizer")]
)
def test_a_step_on_the_cpu_is_that_of_the_profiler_to_the_byte(
    module: nn.Module, shape: tuple[int, ...], at: str, dtype: torch.dtype, optimizer: str
) -> None:
    module, x = module.to(dtype), torch.randn(shape).to(dtype)
    predicted = predict_peak(module, x, mode="train", device="cpu", optimizer=optimizer)
    made = stepped([*module.parameters()], optimizer, "cpu")
    module.zero_grad(set_to_none=True)
    held = [value for state in made.state.values() for value in state.values() if isinstance(value, torch.Tensor)]
    held += [*module.parameters(), *module.buffers()]

    def step() -> torch.Tensor:
        output: torch.Tensor = run_pass(module, (x,), "train")
        made.step()
        return output

    measured = devices.device("cpu").peak_bytes(step) + sum(each.nbytes for each in held)
    module.zero_grad(set_to_none=True)
    assert (predicted.peak_bytes, predicted.marks) == (measured, {})
    assert predicted.phase == at or optimizer == "sgd"


def test_on_cuda_adamw_keeps_two_maps_of_the_weights_and_takes_a_third_in_its_step() -> None:
    layer, x = nn.Linear(1024, 1024, bias=False), torch.randn(2, 1024)
    weights = 1024 * 1024 * 4
    peaks = {name: predict_peak(layer, x, mode="train", optimizer=name) for name in ("", *OPTIMIZERS)}
    output, loss = 2 * 1024 * 4, 512
    assert peaks["adamw"].peak_bytes - peaks["adamw"].by_category()["output"] == 5 * weights
    assert peaks["adamw"].phase == "optimizer"
    assert peaks["adamw"].by_category()["optimizer state"] == 2 * weights
    assert peaks["sgd"].by_category()["optimizer state"] == weights
    assert peaks[""].peak_bytes == 2 * weights + 2 * output + 2 * loss  # the sum's gradient is copied for the product
    assert all(not peak.marks for peak in peaks.values())


def test_the_loss_of_a_step_is_in_its_peak() -> None:
    layer, x = nn.Conv2d(8, 64, 1), torch.empty(2, 8, 16, 16, device="meta")
    profile = predict_peak(with_loss(layer, "cross-entropy"), x, mode="train", optimizer="sgd")
    (kept,) = [block for block in profile.allocations if block.op == "aten._log_softmax.default"]
    assert (kept.bytes, kept.category) == (2 * 64 * 256 * 4, "saved for backward")
    assert profile.peak_bytes > predict_peak(layer, x, mode="train", optimizer="sgd").peak_bytes


@pytest.mark.parametrize("room", [0, 1, 7, 8, 100, 12345, 10**9])
def test_the_largest_batch_is_bisected(room: int) -> None:
    asked: list[int] = []

    def peak_of(batch: int) -> int:
        asked.append(batch)
        return 7 * batch + 1

    assert largest_batch(peak_of, peak_of, room) == min(MOST_IMAGES, max(0, (room - 1) // 7))
    assert len(asked) <= 2 * 17 + 2


@pytest.mark.parametrize(("less", "more"), [(7, 9), (9, 7), (7, 7)])
def test_what_libraries_take_decides_the_largest_batch_and_is_asked_at_few(less: int, more: int) -> None:
    asked: list[int] = []

    def peak_of(batch: int) -> int:
        asked.append(batch)
        return more * batch

    assert largest_batch(lambda batch: less * batch, peak_of, 63) == 63 // more
    assert len(asked) <= 8


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch": "auto"}, "add --for a100-40gb"),
        pytest.param(
            {"batch": "8", "target": "t4"}, "A number is the first of --shape", marks=pytest.mark.plugin("predict")
        ),
        ({"optimizer": "adam"}, "did you mean 'adamw'"),
        ({"loss": "entropy"}, "unknown loss 'entropy'"),
        ({"optimizer": "sgd", "mode": "infer"}, "add --mode train"),
    ],
)
def test_a_wrong_step_is_told(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ctxbench.predict_memory("se", (1, 64, 32, 32), **options)


@pytest.mark.processes
@pytest.mark.plugin("predict")
def test_the_command_finds_the_largest_batch(command: Callable[..., Done]) -> None:
    step = ("memory", "se", "--optimizer", "adamw", "--loss", "cross-entropy", "--for", "t4", "--batch", "auto")
    done = command(*step, "--shape", "1,512,128,128")
    assert done.returncode == 0, done.stderr
    first, _, fits, *_ = lines = done.stdout.splitlines()
    assert "float32, train with cross-entropy and adamw: predicted peak on cuda" in first
    assert "it fits" in fits
    (limit,) = [line for line in lines if line.startswith("- The largest batch within 14,681.60 MiB: ")]
    batch = int(limit.split(": ")[1].split(";")[0])
    assert f"se [{batch}, 512, 128, 128]" in first
    done = command(*step, "--shape", "1,512,4096,4096")
    assert (done.returncode, done.stdout) == (2, "")
    assert "a batch of one takes" in done.stderr
