"""Whole networks named like modules: built without a number of channels where they take none."""

import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ctxbench import registry
from ctxbench.base.errors import UsageError
from ctxbench.registry.constructor import width_argument

NETWORKS = """
from torch import nn

class Net(nn.Module):
    def __init__(self, num_classes: int = 21, make=None):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2)
        self.middle = make(8) if make else nn.Identity()
        self.head = nn.Conv2d(8, num_classes, 1)

    def forward(self, x):
        return self.head(self.middle(self.stem(x)))

class Channels(nn.Module):
    def __init__(self, in_channels=3):
        super().__init__()
        self.head = nn.Conv2d(in_channels, 5, 3, stride=2)

    def forward(self, x):
        return self.head(x)

class Several(Net):
    def forward(self, x):
        middle = self.middle(self.stem(x))
        return {"out": self.head(middle), "features": (middle, None)}

def build(num_classes: int = 21):
    return Net(num_classes)

def with_slot(make_module):
    return Net(21, make_module)

def nothing():
    return 3
"""
# Weights and biases: 3x3 from 3 to 8, 1x1 from 8 to the classes.
STEM, HEAD = 3 * 9 * 8 + 8, 8 + 1


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "networks.py"
    path.write_text(NETWORKS)
    return path


@pytest.mark.parametrize(
    ("name", "hparams", "params"),
    [
        ("Net", {}, STEM + 21 * HEAD),
        ("Net", {"num_classes": 4}, STEM + 4 * HEAD),
        ("Channels", {}, 3 * 9 * 5 + 5),
        ("build", {"num_classes": 4}, STEM + 4 * HEAD),
        ("with_slot", {}, STEM + 21 * HEAD),
    ],
)
def test_a_network_is_built_with_what_it_takes(file: Path, name: str, hparams: Mapping[str, Any], params: int) -> None:
    made = registry.get(f"{file}:{name}").build(3, hparams)
    assert sum(each.numel() for each in made.parameters()) == params


def test_a_function_that_builds_no_module_is_told(file: Path) -> None:
    with pytest.raises(UsageError, match="nothing makes int; it must make an nn"):
        registry.get(f"{file}:nothing").build(3)


@pytest.mark.parametrize(
    ("signature", "told"),
    [
        (lambda channels, heads=4: 0, "channels channels"),
        (lambda inner: 0, "channels inner"),
        (lambda dim=64: 0, "channels dim"),
        (lambda in_chans=None: 0, "channels in_chans"),
        (lambda *sizes: 0, "channels sizes"),
        (lambda: 0, ""),
        (lambda *, channels=3: 0, "channels channels"),
        (lambda stride=4, width=32: 0, "channels width"),
        (lambda spatial_dims, in_channels, ratio=2: 0, "channels in_channels"),
        (lambda heads, inp, oup: 0, "channels inp"),
        (lambda width, in_channels: 0, "channels width"),
        (lambda reduction=4: 0, ""),
        (lambda groups: 0, ""),
        (lambda a, b: 0, ""),
        (lambda num_classes=1000: 0, ""),
        (lambda img_size=224: 0, ""),
        (lambda widths=(32, 64): 0, ""),
        (lambda pretrained=False: 0, ""),
        (lambda make_block: 0, "module make_block"),
        (lambda block_cls: 0, "module block_cls"),
        (lambda block_size: 0, ""),
    ],
)
def test_the_argument_for_the_channels_is_told_by_the_signature(signature: Callable[..., object], told: str) -> None:
    assert " ".join(width_argument([*inspect.signature(signature).parameters.values()])).strip() == told


def test_a_function_of_a_maker_has_a_slot() -> None:
    def build(inner: Callable[[int], object]) -> None: ...

    assert width_argument([*inspect.signature(build).parameters.values()]) == ("module", "inner")


@pytest.mark.slow
def test_commands_take_a_network(command: Callable[..., Any], file: Path) -> None:
    told = command("show", f"{file}:Net", "--shape", "1,3,33,33")
    assert told.returncode == 0
    assert "its hyper-parameters alone" in told.stdout
    assert "position mixing" not in told.stdout
    assert str(STEM + 21 * HEAD) in told.stdout
    assert f"{16 * 16 * (3 * 9 * 8 + 8 * 21):,}" in told.stdout
    peaks = [
        command("memory", *named, "--shape", "1,3,33,33").stdout.splitlines()[0].partition("predicted")[2]
        for named in ([f"{file}:Net"], [f"{file}:with_slot"], ["identity", "--network", f"{file}:with_slot"])
    ]
    assert peaks == [peaks[0]] * 3
    assert "MiB" in peaks[0]
    found = command("predict", f"{file}:Net", "--for", "a100-40gb", "--shape", "1,3,33,33", "--mode", "infer")
    assert found.stdout.startswith("Net [1, 3, 33, 33] tf32-convolutions, infer: predicted for NVIDIA A100")
    profiled = command("profile", f"{file}:Channels", "--for", "a100-40gb", "--shape", "1,3,33,33", "--mode", "infer")
    assert "networks.py:20" in profiled.stdout


def test_the_loss_of_several_outputs_is_of_all(command: Callable[..., Any], file: Path) -> None:
    size = ("--shape", "1,3,513,513")
    stem, head = 256 * 256 * 3 * 9 * 8, 256 * 256 * 8 * 21
    for name, kept in (("Net", 21), ("Several", 21 + 8)):  # channels of the outputs
        shown = command("show", f"{file}:{name}", *size).stdout
        assert re.search(rf"macs_train +{2 * stem + 3 * head:,}\n", shown)  # the image has no gradient
        peak = command("memory", f"{file}:{name}", *size, "--mode", "infer").stdout
        assert f"output {kept * 256 * 256 * 4 / 2**20:.1f} MiB" in peak
    told = command("predict", f"{file}:Several", "--for", "t4", *size, "--loss", "cross-entropy")
    assert (told.returncode, told.stdout) == (2, "")
    assert "--loss cross-entropy is of one output; Several returns dict" in told.stderr


@pytest.mark.processes
def test_a_network_has_no_default_input(command: Callable[..., Any], file: Path) -> None:
    told = command("memory", f"{file}:Net")
    assert (told.returncode, told.stdout) == (2, "")
    assert "Net takes no number of channels; give its input, such as --shape 1,3,224,224" in told.stderr


@pytest.mark.processes
def test_a_network_is_profiled(command: Callable[..., Any], file: Path) -> None:
    told = command("profile", f"{file}:Channels", "--shape", "1,3,33,33", "--mode", "infer", "--device", "cpu")
    assert told.returncode == 0, told.stderr
    assert "networks.py:20" in told.stdout
    several = command("profile", f"{file}:Several", "--shape", "1,3,33,33", "--mode", "train", "--device", "cpu")
    assert several.returncode == 0, several.stderr
    assert "Several [1, 3, 33, 33] float32, training" in several.stdout
