"""Numbers of other counters for blocks, small modules and networks, beside the conventions of ctxbench.

Each real counter is asked in an environment of its own, where it is installed beside what ctxbench needs:
`python research/counters.py ask NAME FILE.csv [CASE ...]` writes what it prints for these cases or kinds of cases, or
for all. `python research/counters.py join FILE.csv ...` writes results/counters: conventions.csv.gz, with the number of
the convention of the same name beside each, and evidence.json. Of a case that is in several files the last one counts;
given conventions.csv.gz itself, the conventions are counted again beside what the packages printed.
"""

import contextlib
import io
import itertools
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any, cast

sys.path.append(sys.path.pop(0))  # some counters import transformers, which is also a file beside this one

import pandas as pd
import torch
from own_modules import OWN
from own_modules import SHAPE as OWN_SHAPE
from prediction_data import PACKED
from stamp import stamp, write_stamp
from torch import Tensor, nn
from torch.nn import functional

from ctxbench import registry
from ctxbench.networks._parts import timm
from ctxbench.registry import networks

OUT = Path(__file__).resolve().parents[1] / "results" / "counters"
SHAPE = (1, 64, 64, 64)
SMALL = (2, 8, 64, 64)


class Of(nn.Module):
    """A module that calls a function of the map, and of its layers."""

    def __init__(self, function: Callable[..., Tensor], *layers: nn.Module) -> None:
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *self.layers)


def _tokens(x: Tensor) -> Tensor:
    return functional.avg_pool2d(x, 8).flatten(2).transpose(1, 2).contiguous()


def _recurrent(layer: nn.Module) -> nn.Module:
    return Of(lambda x, layer: layer(_tokens(x))[0], layer)


def _cell(layer: nn.Module) -> nn.Module:
    return Of(lambda x, layer: layer(x.mean((2, 3)))[0], layer)


# Small modules of 8 channels: a layer, or a function, of each kind that counters treat in their own way.
MODULES: dict[str, Callable[[], nn.Module]] = {
    "conv": lambda: nn.Conv2d(8, 16, 3),
    "conv, no bias": lambda: nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False),
    "conv, groups": lambda: nn.Conv2d(8, 16, 3, groups=4),
    "conv, depthwise": lambda: nn.Conv2d(8, 8, 7, padding=3, groups=8),
    "conv, dilated": lambda: nn.Conv2d(8, 8, 3, dilation=2),
    "transposed conv": lambda: nn.ConvTranspose2d(8, 4, 2, stride=2),
    "linear layer": lambda: Of(lambda x, linear: linear(_tokens(x)), nn.Linear(8, 24)),
    "linear of a vector": lambda: Of(lambda x, linear: linear(x.mean((2, 3))), nn.Linear(8, 24)),
    "batch norm": lambda: nn.BatchNorm2d(8),
    "batch norm, no weights": lambda: nn.BatchNorm2d(8, affine=False),
    "group norm": lambda: nn.GroupNorm(2, 8),
    "layer norm": lambda: Of(lambda x, norm: norm(_tokens(x)), nn.LayerNorm(8)),
    "instance norm": lambda: nn.InstanceNorm2d(8, affine=True),
    "ReLU": lambda: nn.ReLU(),
    "GELU": lambda: nn.GELU(),
    "sigmoid layer": lambda: nn.Sigmoid(),
    "leaky ReLU": lambda: nn.LeakyReLU(),
    "PReLU": lambda: nn.PReLU(8),
    "average pooling": lambda: nn.AvgPool2d(2),
    "global pooling": lambda: nn.AdaptiveAvgPool2d(1),
    "max pooling": lambda: nn.MaxPool2d(2),
    "upsampling, bilinear": lambda: nn.Upsample(scale_factor=2, mode="bilinear"),
    "upsampling, nearest": lambda: nn.Upsample(scale_factor=2),
    "softmax layer": lambda: nn.Softmax(1),
    "softmax function": lambda: Of(lambda x: x.softmax(1)),
    "product by @": lambda: Of(lambda x: _tokens(x) @ _tokens(x).transpose(1, 2)),
    "torch.matmul": lambda: Of(lambda x: torch.matmul(_tokens(x), _tokens(x).transpose(1, 2))),
    "torch.bmm": lambda: Of(lambda x: torch.bmm(_tokens(x), _tokens(x).transpose(1, 2))),
    "einsum": lambda: Of(lambda x: torch.einsum("bnc,bmc->bnm", _tokens(x), _tokens(x))),
    "functional.linear": lambda: Of(lambda x, linear: functional.linear(_tokens(x), linear.weight), nn.Linear(8, 24)),
    "functional.conv2d": lambda: Of(lambda x, conv: functional.conv2d(x, conv.weight), nn.Conv2d(8, 16, 3)),
    "scaled_dot_product_attention": lambda: Of(
        lambda x: functional.scaled_dot_product_attention(_tokens(x)[:, None], _tokens(x)[:, None], _tokens(x)[:, None])
    ),
    "nn.MultiheadAttention": lambda: Of(
        lambda x, attention: attention(*[_tokens(x)] * 3)[0], nn.MultiheadAttention(8, 2, batch_first=True)
    ),
    "a layer called twice": lambda: Of(lambda x, conv: conv(conv(x)), nn.Conv2d(8, 8, 1)),
    "RNN": lambda: _recurrent(nn.RNN(8, 16, batch_first=True)),
    "RNN, two layers": lambda: _recurrent(nn.RNN(8, 16, 2, batch_first=True)),
    "GRU": lambda: _recurrent(nn.GRU(8, 16, batch_first=True)),
    "GRU, two ways": lambda: _recurrent(nn.GRU(8, 16, batch_first=True, bidirectional=True)),
    "LSTM": lambda: _recurrent(nn.LSTM(8, 16, batch_first=True)),
    "LSTM, two layers, no bias": lambda: _recurrent(nn.LSTM(8, 16, 2, bias=False, batch_first=True)),
    "RNN cell": lambda: _cell(nn.RNNCell(8, 16)),
    "GRU cell": lambda: _cell(nn.GRUCell(8, 16)),
    "LSTM cell": lambda: _cell(nn.LSTMCell(8, 16)),
    "squeeze and excitation": lambda: Of(
        lambda x, *layers: x * nn.Sequential(*layers)(x),
        nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 2, 1), nn.ReLU(), nn.Conv2d(2, 8, 1), nn.Sigmoid(),
    ),
}  # fmt: skip


# Blocks that came after the rules.
LATER = (
    *("area", "deformable", "dwconv", "eca", "ema_multiscale", "gated_cnn", "grid", "neighborhood", "pool", "simam"),
    *("ssd", "swin", "ttt"),
)
# The module of `own_modules.py` that rules were corrected by.
SEEN = "Recurrent"
# Networks of ctxbench, each with a block; the whole heads of mmsegmentation; networks of the two libraries.
NETWORKS = {"vit_small": "mhsa", "convnext_tiny": "lka", "resnet18_os32": "gc", "resnet50_d8": "sa"}
HEADS = ("EMANet", "gc")
TORCHVISION = ("swin_t", "resnet50", "mobilenet_v3_large")
TIMM = ("seresnet50", "efficientnet_b0", "poolformer_s12", "edgenext_small", "mambaout_femto")
IMAGE, SMALL_IMAGE = (1, 3, 128, 128), (1, 3, 64, 64)


def _network(name: str, block: str, shape: tuple[int, int, int, int]) -> nn.Module:
    return networks.get(name).build(registry.get(block).build, shape)


def _torchvision(name: str) -> nn.Module:
    timm()  # which imports a torchvision that is of another torch, too
    return cast(nn.Module, getattr(import_module("torchvision.models"), name)())


def _libraries() -> "Cases":
    builders = {"torchvision": (TORCHVISION, _torchvision), "timm": (TIMM, timm().create_model)}
    for library, (names, build) in builders.items():
        for name in names:
            yield f"network of {library}", f"{library} {name}", partial(build, name), SMALL_IMAGE


Cases = Iterator[tuple[str, str, Callable[[], nn.Module], tuple[int, ...]]]


def cases() -> Cases:
    """Kind, name, builder and input of each case."""
    for key in registry.names():
        yield "later block" if key in LATER else "block", key, partial(registry.get(key).build, SHAPE[1]), SHAPE
    for name, build in MODULES.items():
        yield "small module", name, build, SMALL
    for name, build in OWN.items():
        yield "small module" if name == SEEN else "own module", name, build, OWN_SHAPE
    for name, block in NETWORKS.items():
        yield "network", f"{name} with {block}", partial(_network, name, block, IMAGE), IMAGE
    for head in HEADS:
        block = head if head in registry.names() else f"ctxbench.networks.mmsegmentation:{head}"
        build = partial(_network, "mmsegmentation", block, SMALL_IMAGE)
        yield "network of mmsegmentation", f"mmsegmentation {head}", build, SMALL_IMAGE
    yield from _libraries()


def of_thop(module: nn.Module, x: Tensor) -> float:
    from thop import profile

    return float(profile(module, inputs=(x,), verbose=False)[0])


def of_thop_at_32(module: nn.Module, x: Tensor) -> float:
    area = x.shape[2] * x.shape[3] / 32**2
    return 2 * of_thop(module, torch.zeros(1, x.shape[1], 32, 32)) * area


def of_fvcore(module: nn.Module, x: Tensor) -> float:
    from fvcore.nn import FlopCountAnalysis

    return float(FlopCountAnalysis(module, x).total())


def of_ptflops(module: nn.Module, x: Tensor, backend: str = "aten") -> float:
    from ptflops import get_model_complexity_info

    image = tuple(x.shape[1:])
    return float(
        get_model_complexity_info(module, image, as_strings=False, print_per_layer_stat=False, backend=backend)[0]
    )


def of_ptflops_layers(module: nn.Module, x: Tensor) -> float:
    return of_ptflops(module, x, "pytorch")


def of_mmengine(module: nn.Module, x: Tensor) -> float:
    from mmengine.analysis import get_model_complexity_info

    return float(get_model_complexity_info(module, tuple(x.shape[1:]), show_table=False, show_arch=False)["flops"])


def of_torchprofile(module: nn.Module, x: Tensor) -> float:
    from torchprofile import profile_macs

    return float(cast(int, profile_macs(module, x)))


def of_calflops(module: nn.Module, x: Tensor) -> float:
    from calflops import calculate_flops

    return float(calculate_flops(module, args=[x], kwargs={}, print_results=False, output_as_string=False)[0])


def of_deepspeed(module: nn.Module, x: Tensor) -> float:
    from deepspeed.profiling.flops_profiler import get_model_profile

    return float(get_model_profile(module, args=[x], print_profile=False, detailed=False, as_string=False)[0])


def of_torchinfo(module: nn.Module, x: Tensor) -> float:
    from torchinfo import summary

    return float(summary(module, input_data=x, verbose=0).total_mult_adds)


def of_flop_counter_mode(module: nn.Module, x: Tensor) -> float:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        module(x)
    return float(counter.get_total_flops())


ASKED: dict[str, tuple[str, Callable[[nn.Module, Tensor], float]]] = {
    "thop": ("thop", of_thop),
    "thop-at-32": ("thop", of_thop_at_32),
    "ptflops": ("ptflops", of_ptflops),
    "ptflops-layers": ("ptflops", of_ptflops_layers),
    "fvcore": ("fvcore", of_fvcore),
    "mmengine": ("mmengine", of_mmengine),
    "torchprofile": ("torchprofile", of_torchprofile),
    "calflops": ("calflops", of_calflops),
    "deepspeed": ("deepspeed", of_deepspeed),
    "torchinfo": ("torchinfo", of_torchinfo),
    "flop-counter-mode": ("torch", of_flop_counter_mode),
}


# Reasons of differences, by the counter and the case.
_SIZES = "it counts products of sizes, too"
_MASK = "a mask that needs a gradient is not fused, and its products are seen; the convention has no gradients"
_SHARED = "the block has two names in the network: it is hooked for each, and both are summed"
WHY = {
    ("torchprofile", "nn.MultiheadAttention"): f"the mean of the affinity, which nobody uses, is not traced; {_SIZES}",
    **{("torchprofile", case): _SIZES for case in ("Encoder", "area", "grid", "simam", "swin", "ttt")},
    **{(tool, case): _MASK for tool in ("ptflops", "flop-counter-mode") for case in ("grid", "swin")},
    **{(tool, f"mmsegmentation {head}"): _SHARED for tool in ("thop", "thop-at-32", "calflops") for head in HEADS},
}


def ask(name: str, only: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Numbers that a counter prints for each case, or for those of these names and kinds; one that fails has its error.

    Each case has a process of its own: calflops leaves its functions in the place of PyTorch's where it fails.
    """
    package, _ = ASKED[name]
    timm()  # before a counter imports torchvision, whose operators may be of another torch
    import_module(package)
    torch.set_num_threads(1)
    with get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        for place, (kind, case, _, _) in enumerate(cases()):
            if only and not {kind, case} & {*only}:
                continue
            row = {"kind": kind, "case": case, "tool": name, "package": package, "version": version(package)}
            yield row | pool.apply(_asked, (name, place))


def _asked(name: str, place: int) -> dict[str, Any]:
    _, _, build, shape = next(itertools.islice(cases(), place, None))
    torch.manual_seed(0)
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            return {"printed": ASKED[name][1](build().eval(), torch.randn(shape))}
        except Exception as error:  # another tool's, whatever it is, is what is reported
            return {"error": f"{type(error).__name__}: {error}".partition("\n")[0]}


def join(files: list[str]) -> pd.DataFrame:
    """The numbers of real counters beside those of ctxbench's conventions."""
    from ctxbench.plugins.macs.tools.calls import Calls
    from ctxbench.plugins.macs.tools.table import TOOLS

    found = pd.concat([pd.read_csv(file) for file in files], ignore_index=True)
    found = found.drop_duplicates(["case", "tool"], keep="last")
    known = {case: (kind, build, shape) for kind, case, build, shape in cases()}
    found["kind"] = [known[case][0] for case in found["case"]]
    counted: dict[tuple[str, str], int] = {}
    for case, own in found[found["printed"].notna()].groupby("case"):
        _, build, shape = known[str(case)]
        calls = Calls(build(), shape)
        counted |= {(str(case), tool): TOOLS[tool].count(calls) for tool in own["tool"]}
    numbers = [counted.get((row.case, row.tool)) for row in found.itertuples()]
    found["convention"] = pd.array(numbers, dtype="Int64")
    differs = found["printed"].notna() & (found["printed"] != found["convention"])
    found["why"] = [
        WHY.get((row.tool, row.case)) if odd else None for row, odd in zip(found.itertuples(), differs, strict=True)
    ]
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    if sys.argv[1] == "ask":
        pd.DataFrame(ask(sys.argv[2], sys.argv[4:])).to_csv(sys.argv[3], index=False, lineterminator="\n")
        return
    evidence = stamp()
    found = join(sys.argv[2:])
    write_stamp(OUT, evidence)
    found.to_csv(OUT / "conventions.csv.gz", index=False, lineterminator="\n", compression=PACKED)


if __name__ == "__main__":
    main()
