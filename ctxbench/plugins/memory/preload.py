"""Values computed before the fork."""

import importlib

import torch

from ctxbench.plugins.memory.predict import predict_peak


def preload() -> None:
    """Predict the inference of a small layer; import what measures one."""
    for name in ("measure", "timeline"):
        importlib.import_module(f"ctxbench.plugins.memory.{name}")
    layer = torch.nn.Conv2d(4, 4, 1, device="meta")
    predict_peak(layer, torch.empty(1, 4, 2, 2, device="meta"), mode="infer")
