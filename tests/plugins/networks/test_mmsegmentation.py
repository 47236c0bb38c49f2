"""mmsegmentation's networks: their heads, their loss, and the training memory that is published of them."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn
from wrapped import Wrapped

import ctxbench
from ctxbench import registry
from ctxbench.base.errors import UsageError
from ctxbench.base.mode import Mode
from ctxbench.networks import mmsegmentation
from ctxbench.plugins.memory.kernels import MemoryDevice
from ctxbench.plugins.memory.predict import predict_peak
from ctxbench.plugins.memory.profile import MemoryProfile
from ctxbench.registry import networks

FILE = "ctxbench.networks.mmsegmentation"
HEADS = mmsegmentation.__all__
Shape = tuple[int, int, int, int]
pytestmark = pytest.mark.extra("networks")


def network(block: str, function: str, shape: Shape, **hparams: int) -> nn.Module:
    entry = registry.get(f"{FILE}:{block}" if block in HEADS else block)
    return networks.get(f"{FILE}:{function}").build(lambda channels: entry.build(channels, hparams), shape)


@pytest.mark.slow
@pytest.mark.parametrize("block", ["identity", *HEADS])
def test_training_gives_a_loss_and_inference_the_logits(block: str) -> None:
    shape = (2, 3, 33, 49)
    model, image = network(block, "r50_7", shape), torch.randn(shape)
    loss = model(image)
    assert loss.shape == ()
    loss.backward()
    without = [name for name, weight in model.named_parameters() if weight.grad is None]
    assert without == (["head.block.input.weight", "head.block.input.bias"] if block == "EMANet" else [])
    with torch.no_grad():
        assert model.eval()(image).shape == (2, 7, 33, 49)


# GB of 1,024 MiB of `max_memory_allocated` in the metafile.yaml of each method, with ResNet-50 and ResNet-101.
@pytest.mark.slow
@pytest.mark.drawn("networks", "memory")
@pytest.mark.parametrize(
    ("block", "classes", "shape", "hparams", "printed"),
    [
        ("identity", 19, (2, 3, 512, 1024), {}, (5.7, 9.2)),
        ("identity", 19, (2, 3, 769, 769), {}, (6.5, 10.4)),
        ("identity", 150, (4, 3, 512, 512), {}, (8.5, 12.0)),
        ("gc", 19, (2, 3, 512, 1024), {"reduction": 4}, (5.8, 9.2)),
        ("PSPNet", 6, (4, 3, 512, 512), {}, (6.14, 9.61)),
        ("DeepLabV3", 150, (4, 3, 512, 512), {}, (8.9, 12.4)),
        ("EncNet", 19, (2, 3, 769, 769), {}, (9.8, 13.7)),
        ("DANet", 19, (2, 3, 512, 1024), {}, (7.4, 10.9)),
    ],
)
def test_published_training_memory_is_reached(
    block: str, classes: int, shape: Shape, hparams: dict[str, int], printed: tuple[float, float]
) -> None:
    for depth, gigabytes in zip((50, 101), printed, strict=True):
        with torch.device("meta"):
            model, image = network(block, f"r{depth}_{classes}", shape, **hparams), torch.empty(shape)
        profile = predict_peak(model, image, mode="train", device="cuda-2020")
        assert profile.marks == {}
        # Beside the pass: gradients of the step before, momentum and buckets of DistributedDataParallel; the image.
        kept = 12 * sum(weight.numel() for weight in model.parameters()) + 4 * image.numel()
        assert (profile.peak_bytes + kept) / 2**30 == pytest.approx(gigabytes, abs=0.06)


@pytest.mark.slow
def test_a_head_costs_nothing_alone_and_says_why(tmp_path: Path, shared_server: None) -> None:
    asked: dict[str, Any] = {"modules": [f"{FILE}:PSPNet"], "network": "mmsegmentation", "shape": (1, 3, 64, 64)}
    run = ctxbench.run(metrics=["params"], static=True, out=tmp_path / "run", **asked)
    row = run.frame.set_index("module").loc["PSPNet"]
    assert (row["status"], row["slots"]) == ("ok", "")
    assert pd.isna(row["alone_params"])
    assert "no_slot_input" in [note.code for note in row["notes"]]


def test_a_network_that_the_file_lacks_is_a_sentence() -> None:
    with pytest.raises(UsageError, match=r"'r50_20'; did you mean 'r50_60'\? \(known: mmsegmentation, r101_150"):
        networks.get(f"{FILE}:r50_20")


def peak(module: nn.Module, shape: tuple[int, ...], device: MemoryDevice, mode: Mode = "train") -> MemoryProfile:
    with torch.device("meta"):
        return predict_peak(module.to("meta"), torch.empty(shape), mode=mode, device=device)


@pytest.mark.parametrize(("last", "kept"), [(nn.ReLU(), 1), (nn.LogSoftmax(1), 1), (nn.ReLU(inplace=True), 0)])
def test_the_pytorch_of_2020_keeps_an_input_that_no_backward_reads(last: nn.Module, kept: int) -> None:
    module, shape = nn.Sequential(nn.Conv2d(4, 4, 1), last, nn.Conv2d(4, 4, 1)), (1, 4, 64, 64)
    image = 4 * 4 * 64 * 64
    assert peak(module, shape, "cuda-2020").peak_bytes - peak(module, shape, "cuda").peak_bytes == kept * image
    assert peak(module, shape, "cuda-2020", "infer").peak_bytes == peak(module, shape, "cuda", "infer").peak_bytes


def test_the_workspace_of_a_wide_convolution_is_counted_for_2020() -> None:
    module, shape = nn.Conv2d(1024, 8, 3, padding=1, bias=False), (1, 1024, 8, 8)
    then, today = peak(module, shape, "cuda-2020", "infer"), peak(module, shape, "cuda", "infer")
    assert then.peak_bytes == then.high_bytes == today.high_bytes
    assert then.peak_bytes - today.peak_bytes == 4 * 36 * (4 * (1024 + 8) + 1024 * 8)


@pytest.mark.parametrize(("channels", "marks"), [(1024, []), (1025, ["aten.topk"])])
def test_a_long_slice_of_topk_is_marked(channels: int, marks: list[str]) -> None:
    longest = Wrapped(lambda x, weight: weight * x.topk(1, dim=1).values, nn.Parameter(torch.ones(1)))
    assert list(peak(longest, (1, channels, 2, 2), "cuda").marks) == marks


@pytest.mark.parametrize(("dropout", "marks"), [(nn.Dropout2d(0.1), []), (nn.AlphaDropout(0.1), ["aten.bernoulli_"])])
def test_dropout_of_channels_is_as_on_meta(dropout: nn.Module, marks: list[str]) -> None:
    assert list(peak(nn.Sequential(nn.Conv2d(4, 4, 1), dropout), (1, 4, 8, 8), "cuda").marks) == marks
