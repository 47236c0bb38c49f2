"""`ctxbench profile`: each cost at its place, sums that agree, and planted slow lines in the first row."""

import pytest
import torch
from torch import Tensor, nn

from ctxbench import registry
from ctxbench.attribution.profile import Costs, Pass, Roof
from ctxbench.attribution.static import known
from ctxbench.macs.counter import count_macs
from ctxbench.macs.training import count_training_macs
from ctxbench.memory import predict_peak
from ctxbench.mode import MODES, Mode

ROOF = Roof(1e12, 1e11, 1e-6)


def on_meta(key: str) -> tuple[nn.Module, Tensor]:
    with torch.device("meta"):
        return registry.get(key).build(64, {}), torch.empty(1, 64, 16, 16)


def counted(module: nn.Module, x: Tensor, mode: Mode) -> Costs:
    return known(module, x, mode=mode, device="cpu", dtype="float32", autocast=None, roof=ROOF).costs


@pytest.mark.parametrize("key", registry.names())
def test_the_macs_of_all_lines_are_those_of_the_module(key: str) -> None:
    module, x = on_meta(key)
    wholes = {"infer": count_macs(module, x).macs, "train": count_training_macs(module, x).macs}
    for mode, whole in wholes.items():
        taken = Pass(mode, counted(module, x, mode).all, ROOF, (1.0, 1.0, 1.0))  # type: ignore[arg-type]
        assert sum(part.macs for part in taken.parts("line")) == whole > 0
        assert sum(part.macs for part in taken.parts("operator")) == whole
        assert taken.parts("submodule")[0].macs == whole
        assert not [cost for cost in taken.costs if cost.macs and cost.place.own is None]


@pytest.mark.parametrize("key", registry.names())
def test_the_bytes_of_all_lines_are_those_of_the_peak_and_of_what_is_saved(key: str) -> None:
    module, x = on_meta(key)
    for mode in MODES:
        memory = predict_peak(module, x, mode=mode, device="cpu")
        parts = Pass(mode, counted(module, x, mode).all, ROOF, (1.0, 1.0, 1.0)).parts("line")
        saved = sum(block.bytes for block in memory.allocations if block.category == "saved for backward")
        assert sum(part.peak_bytes for part in parts) == memory.peak_bytes
        assert sum(part.saved_bytes for part in parts) == saved
        assert bool(saved) == (mode == "train")
