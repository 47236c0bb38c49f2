"""Values computed before the fork."""

import importlib

import torch

from ctxbench.plugins.macs.counter import count_macs


def preload() -> None:
    """Count a small layer; import what counts a step, which a child alone may run."""
    importlib.import_module("ctxbench.plugins.macs.training")
    count_macs(torch.nn.Conv2d(4, 4, 1, device="meta"), torch.empty(1, 4, 2, 2, device="meta"))
