"""A module's file may set the precision of products as PyTorch has it: its rows are whole, and say so."""

from pathlib import Path
from typing import Any

import pytest
import torch

import ctxbench
from ctxbench.devices.base import Device
from ctxbench.devices.cpu import Cpu
from ctxbench.worker import global_settings

FILE = """
import torch
from torch import nn
{line}
class {name}(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.mix = nn.Conv2d(channels, channels, 1)
    def forward(self, x):
        return x + self.mix(x)
"""
# What the import of `torch.testing._internal.common_utils` does: attributes of `torch.backends` cannot be set any more.
FROZEN = "torch.backends.disable_global_flags()"
LINES = (
    'torch.set_float32_matmul_precision("high")',
    'torch.set_float32_matmul_precision("medium")',
    'torch.backends.fp32_precision = "tf32"',
    'torch.backends.cudnn.fp32_precision = "tf32"',
    'torch.backends.mkldnn.matmul.fp32_precision = "bf16"',
    "torch.backends.cuda.matmul.allow_tf32 = True",
    "torch.backends.cudnn.allow_tf32 = False",
    FROZEN,
)


@pytest.fixture(autouse=True)
def _kept(monkeypatch: pytest.MonkeyPatch) -> Any:
    backends: Any = torch.backends
    monkeypatch.setitem(vars(backends.m), "__allow_nonbracketed_mutation_flag", True)
    yield
    for backend in (backends, backends.cudnn, backends.mkldnn):
        backend.set_flags(_fp32_precision="none")
    torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("line", LINES)
def test_the_dtype_of_a_case_decides_the_precision(line: str) -> None:
    device = Cpu()
    exec(line)
    device.set_flags("float32", None, False)
    assert (device.flags()["tf32_matmul"], device.flags()["tf32_cudnn"]) == (False, False)
    assert global_settings.settings()["torch.backends.mkldnn.matmul.fp32_precision"] == "ieee"
    assert torch.get_float32_matmul_precision() == "highest"  # PyTorch's own check raises none
    Device.set_flags(device, "tf32", None, False)
    assert (device.flags()["tf32_matmul"], device.flags()["tf32_cudnn"]) == (True, True)


@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
def test_a_file_that_sets_it_has_its_row_and_a_note(tmp_path: Path) -> None:
    files = {"Matmul": (LINES[0], "mkldnn.matmul"), "All": (LINES[2], "fp32_precision"), "Frozen": (FROZEN, "")}
    for name, (line, _) in files.items():
        (tmp_path / f"{name}.py").write_text(FILE.format(line=line, name=name))
    run = ctxbench.run(
        modules=[f"{tmp_path}/{name}.py:{name}" for name in files], shape=[(1, 4, 4, 4)],
        metrics=["params", "latency"], processes=1, measure={"total_s": 5}, out=tmp_path / "run",
    )  # fmt: skip
    rows = {row["module"]: row for row in run.folder.rows()}
    for name, (_, noted) in files.items():
        assert (rows[name]["status"], rows[name]["params"]) == ("ok", 20), rows[name]["message"]
        told = [str(note) for note in rows[name]["notes"] if "fp32_precision" in str(note)]
        assert [noted in each for each in told] == [True] * bool(noted)


def test_autocast_and_flushed_denormals_that_a_file_switches_on_are_changed_settings() -> None:
    before = global_settings.settings()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert global_settings.changed(before) == ["torch.is_autocast_enabled changes from [] to ['cpu']"]
    try:
        can = torch.set_flush_denormal(True)
        assert global_settings.changed(before) == ["torch.set_flush_denormal changes from False to True"] * can
    finally:
        torch.set_flush_denormal(False)
    assert global_settings.changed(before) == []
