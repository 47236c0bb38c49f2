"""Detectors of the ultralytics package without trained weights, which published tables name; no network of ctxbench.

The package is AGPL-3.0 and comes with the extra `detectors`. Where the blocks stand, and what they are: the files
`ultralytics/cfg/models/v8/yolov8_GC.yaml` and `ultralytics/nn/modules/conv.py` of the repositories
RuiyangJu/YOLOv8_Global_Context_Fracture_Detection and RuiyangJu/Fracture_Detection_Improved_YOLOv8.
"""

import os
from typing import Any

import torch
from torch import Tensor, nn

from ctxbench.base.extras import lacking
from ctxbench.devices import Unsupported
from ctxbench.networks._parts import timm
from ctxbench.registry.networks import MakeModule

# The layers of YOLOv8's neck that the papers put a block behind.
_NECK = (12, 15, 18, 21)


def detector(*, config: str, classes: int = 80, fused: bool = True) -> nn.Module:
    """The detector of a file of the package, such as yolo11n.yaml; `fused`: batch norms are a part of convolutions.

    Unsupported, with the command that installs it, where the package is missing.
    """
    if sentence := lacking("this network", "detectors"):
        raise Unsupported(sentence)
    os.environ |= {"YOLO_OFFLINE": "true", "YOLO_VERBOSE": "false"}
    from ultralytics.nn.tasks import DetectionModel

    class Detector(DetectionModel):  # type: ignore[misc]  # of a package without types
        """Keeps the strides of its maps, whose values it reads, where they are."""

        def _apply(self, fn: Any, recurse: bool = True) -> Any:
            return nn.Module._apply(self, fn, recurse)

    with torch.device("cpu"):  # it reads other values as it is made
        model: Any = Detector(config, nc=classes, verbose=False).eval()
        found: nn.Module = model.fuse(verbose=False) if fused else model
    return found


def yolov8l(make_module: MakeModule) -> nn.Module:
    """YOLOv8-L of nine classes, not fused, with a module behind each of the four stages of its neck."""
    model: Any = detector(config="yolov8l.yaml", classes=9, fused=False)
    for place in _NECK:
        stage = model.model[place]
        both = nn.Sequential(stage, make_module(stage.cv2.conv.out_channels))
        both.f, both.i = stage.f, stage.i  # where its input comes from, and its own place
        model.model[place] = both
    found: nn.Module = model
    return found


def global_context(channels: int) -> nn.Module:
    """Global context with a layer norm between two convolutions of a reduction of 8, which scale the map."""
    timm()
    from timm.layers import GlobalContext

    found: nn.Module = GlobalContext(channels)
    return found


class ResCBAM(nn.Module):
    """[B, C, H, W] to [B, C, H, W]: three convolutions, CBAM whose channels have one full layer, and the input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv2d(channels, channels, size, padding=size // 2, bias=False) for size in (1, 3, 1)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in self.convolutions)
        self.pool, self.channels = nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, channels, 1)
        self.places = nn.Conv2d(2, 1, 7, padding=3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            y = norm(convolution(y if y is x else nn.functional.leaky_relu(y, 0.1)))
        y = y * self.channels(self.pool(y)).sigmoid()
        both = torch.cat([y.mean(1, keepdim=True), y.amax(1, keepdim=True)], 1)
        scaled: Tensor = y * self.places(both).sigmoid()
        return (scaled + x).relu()
