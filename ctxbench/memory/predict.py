"""Peak-memory prediction on the meta device: any module, any size, no data and no GPU."""

import copy
import gc
from typing import Any, Literal

import torch
from torch import nn

from ctxbench.memory.convention import Mode, UnpredictableError, backward, check_mode, forward, prepared, weight_tensors
from ctxbench.memory.kernels import Table
from ctxbench.memory.profile import MemoryProfile
from ctxbench.memory.tracker import Tracker


def on_meta(module, inputs):
    memo: dict[int, Any] = {}
    for _, t in module.named_parameters():
        memo[id(t)] = nn.Parameter(torch.empty_like(t, device="meta"), requires_grad=t.requires_grad)
    for _, t in module.named_buffers():
        memo[id(t)] = torch.empty_like(t, device="meta")
    twin = copy.deepcopy(module, memo)
    xs = tuple(torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta") if isinstance(x, torch.Tensor) else x for x in inputs)
    return twin, xs


def predict_peak(module, *inputs, mode, device="cuda"):
    twin, xs = on_meta(module, inputs)
    tr = Tracker(Table(device))
    for n, t in weight_tensors(twin):
        tr.add_weight(n, t)
    w = tr.live_bytes
    for x in xs:
        tr.ignore(x)
    gc.collect()
    with prepared(twin, mode), tr:
        y = forward(twin, xs, mode)
        tr.mark_category(y, "output")
        if mode == "train":
            tr.phase = "backward"
            backward(y)
        tr.finish()
    return MemoryProfile(type(module).__name__, mode, device, max(s.live_bytes for s in tr.timeline), w, tr.timeline, tr.allocations, tr.marks)
