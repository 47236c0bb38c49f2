"""Counts of other tools for the same blocks: PyTorch's MemTracker, fvcore, calflops and torchinfo.

MemTracker, under fake tensors, is asked for the peak of the blocks of Table 3, which the paper prints, and of all
blocks on the CPU, which `torch.profiler` measures (one thread, oneDNN and NNPACK off). The counters are asked for
parameters and multiply-adds at one small size; the counts of ctxbench stand beside them.
Run: make research, then python research/other_tools.py.
Writes memory.csv, counts.csv and evidence.json into results/other-tools.
"""

import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.append(sys.path.pop(0))  # calflops imports transformers, which is also a file beside this one

import pandas as pd
import torch
from calflops import calculate_flops
from fvcore.nn import FlopCountAnalysis, parameter_count
from stamp import stamp, write_stamp
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torchinfo import summary

from ctxbench import registry
from ctxbench.base.mode import MODES, Mode
from ctxbench.metrics.params import count_params
from ctxbench.plugins.macs.counter import count_macs
from ctxbench.plugins.memory.measure import measure_peak
from ctxbench.plugins.memory.predict import predict_peak

OUT = Path(__file__).resolve().parents[1] / "results" / "other-tools"
VERSIONS = ("torch", "fvcore", "calflops", "torchinfo")
TABLE3, AT_TABLE3 = ("sa", "da", "a2", "apc", "dm", "acf", "ham_cd", "ham_nmf"), (1, 512, 128, 128)
SMALL = (2, 32, 16, 16)


def built(key: str, channels: int) -> nn.Module:
    """A block; hams of few channels have a rank below these."""
    return registry.get(key).build(channels, {"rank": 8} if key.startswith("ham") and channels < 64 else {})


def tracked_peak(key: str, shape: tuple[int, ...], mode: Mode) -> dict[str, Any]:
    """MemTracker's peak in bytes of a pass under `ctxbench.plugins.memory.CONVENTION`, or its error."""
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    module = built(key, shape[1]).train(mode == "train")  # some draw their weights from values, which fakes have not
    with FakeTensorMode() as fake:
        module._apply(fake.from_tensor)
        x, tracker = torch.empty(shape), MemTracker()
        tracker.track_external(module)
        try:
            with tracker, torch.set_grad_enabled(mode == "train"):
                out = module(x)
                if mode == "train":
                    out.sum().backward()
        except RuntimeError as error:
            return {"error": str(error).partition("\n")[0]}
        return {"tracker": tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]}


def memory_rows() -> Iterator[dict[str, Any]]:
    """Table 3 at its size, predicted for the PyTorch of 2020; all blocks at a small size, measured on the CPU."""
    for key in TABLE3:
        for mode in MODES:
            with torch.device("meta"):
                ours = predict_peak(built(key, AT_TABLE3[1]), torch.empty(AT_TABLE3), mode=mode, device="cuda-2020")
            tracked = tracked_peak(key, AT_TABLE3, mode)
            yield {"block": key, "mode": mode, "of": "table3", "ctxbench": ours.allocated_bytes, **tracked}
    torch.set_num_threads(1)
    torch.backends.nnpack.set_flags(False)
    for key in registry.names():
        for mode in MODES:
            module, x = built(key, SMALL[1]), torch.randn(SMALL)
            with torch.backends.mkldnn.flags(enabled=False):
                measured = measure_peak(module, x, mode=mode)
                ours = predict_peak(module, x, mode=mode, device="cpu")
            tracked = tracked_peak(key, SMALL, mode)
            yield {
                "block": key,
                "mode": mode,
                "of": "cpu",
                "ctxbench": ours.allocated_bytes,
                "measured": measured,
                **tracked,
            }


def of_fvcore(module: nn.Module, x: Tensor) -> tuple[int, int]:
    """MACs by fvcore, which calls them flops."""
    return parameter_count(module)[""], int(FlopCountAnalysis(module, x).total())


def of_calflops(module: nn.Module, x: Tensor) -> tuple[int, int]:
    _, macs, params = calculate_flops(module, args=[x], output_as_string=False, print_results=False)
    return int(params), int(macs)


def of_torchinfo(module: nn.Module, x: Tensor) -> tuple[int, int]:
    found = summary(module, input_data=x, verbose=0)
    return int(found.total_params), int(found.total_mult_adds)


TOOLS: dict[str, Callable[[nn.Module, Tensor], tuple[int, int]]] = {
    "fvcore": of_fvcore, "calflops": of_calflops, "torchinfo": of_torchinfo,
}  # fmt: skip


def count_row(key: str) -> dict[str, Any]:
    """Parameters and MACs of a block in inference, by each tool; a tool that fails has its error instead."""
    shape = (1, 64, 32, 32)
    module, x = built(key, shape[1]).eval(), torch.randn(shape)
    ours = count_macs(module, x)
    row = {"block": key, "params": count_params(module), "macs": ours.macs, "macs_matmul": ours.macs_matmul}
    for name, tool in TOOLS.items():
        with contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
            try:
                row[f"{name}_params"], row[f"{name}_macs"] = tool(built(key, shape[1]).eval(), x)
            except Exception as error:  # another tool's, whatever it is, is what is reported
                row[f"{name}_error"] = f"{type(error).__name__}: {error}".partition("\n")[0]
    return row


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    evidence = stamp() | {name: version(name) for name in VERSIONS}
    write = partial(pd.DataFrame.to_csv, index=False, lineterminator="\n")
    OUT.mkdir(parents=True, exist_ok=True)
    peaks = pd.DataFrame(memory_rows()).astype(dict.fromkeys(("tracker", "measured"), "Int64"))
    write(peaks, OUT / "memory.csv")
    counts = pd.DataFrame(map(count_row, registry.names()))
    numbers = [column for column in counts if column != "block" and not column.endswith("_error")]
    write(counts.astype(dict.fromkeys(numbers, "Int64")), OUT / "counts.csv")
    write_stamp(OUT, evidence)


if __name__ == "__main__":
    main()
