"""Numbers of other counters, by version and state, for blocks, modules and networks, beside ctxbench's rules.

`make counters` asks all of ctxbench/plugins/macs/tools/counters.toml: each package is installed into a folder of its
own, beside what ctxbench needs, then `counters.py ask NAME VERSION STATE FILE.csv [CASE ...]` writes what it prints
for these cases or kinds of cases, or for all in which the state makes a difference. `counters.py join FILE.csv ...`
writes results/counters: conventions.csv.gz, with the number of ctxbench's rules beside each, and evidence.json. Of a
case that is in several files the last number counts; given conventions.csv.gz itself, the rules are counted again
beside what was printed. A version that cannot be installed or imported has one row, without a case.
"""

import contextlib
import io
import itertools
import logging
import shutil
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.pool import ThreadPool
from pathlib import Path
from subprocess import run
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
from torch.nn.attention import SDPBackend, sdpa_kernel

from ctxbench import registry
from ctxbench.networks._parts import timm
from ctxbench.plugins.macs.tools import declared, not_run, readings
from ctxbench.plugins.macs.tools.calls import Calls
from ctxbench.plugins.macs.tools.reading import reading
from ctxbench.plugins.macs.tools.states import foldable, folded
from ctxbench.plugins.macs.watch import UncountableError
from ctxbench.registry import networks

# What the counters import beyond research/requirements.txt; installed without what it asks for, which is another torch.
BESIDE = ("addict", "yapf", "hjson", "ninja", "py-cpuinfo", "einops", "opencv-python-headless")
# Counters after which PyTorch is another one in the same process.
KEEPERS = ("calflops", "deepspeed")
# So many counters are asked at once.
AT_ONCE = 6
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


class Own(nn.Conv2d):
    """A convolution of another class than PyTorch's."""


def _tied(one: nn.Linear, other: nn.Linear) -> nn.Module:
    other.weight = one.weight
    return Of(lambda x, one, other: other(one(_tokens(x))), one, other)


class Mamba(nn.Module):
    """The products of mamba_ssm's layer; a cumulative sum stands for its scan, which no counter knows.

    Its fast path gives the weights of layers to functions, and those of the convolution to a kernel.
    """

    use_fast_path = False

    def __init__(self, inner: int = 16, states: int = 4) -> None:
        super().__init__()
        self.in_proj, self.out_proj = nn.Linear(8, 2 * inner, bias=False), nn.Linear(inner, 8, bias=False)
        self.conv1d = nn.Conv1d(inner, inner, 4, groups=inner, padding=3)
        self.x_proj, self.dt_proj = nn.Linear(inner, 1 + 2 * states, bias=False), nn.Linear(1, inner)

    def forward(self, x: Tensor) -> Tensor:
        tokens = _tokens(x)
        driven, gate = (self.in_proj.weight @ tokens.transpose(1, 2)).chunk(2, 1)
        if self.use_fast_path:
            driven = driven.cumsum(2).transpose(1, 2)
            projected = functional.linear(driven, self.x_proj.weight)
        else:
            driven = self.conv1d(driven)[..., : tokens.shape[1]].transpose(1, 2)
            projected = self.x_proj(driven)
        step = self.dt_proj.weight @ projected[..., :1].transpose(1, 2)
        read = (driven + step.transpose(1, 2)).cumsum(1) / gate.transpose(1, 2)
        return functional.linear(read, self.out_proj.weight) if self.use_fast_path else self.out_proj(read)


@torch.library.custom_op("counters::product", mutates_args=())
def _opaque(x: Tensor) -> Tensor:
    found: Tensor = torch.ops.aten.bmm(x, x.transpose(1, 2))
    return found


@_opaque.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], x.shape[1], x.shape[1])


def _twice_held(layer: nn.Module) -> nn.Module:
    return Of(lambda x, one, other: other(one(x)), nn.Sequential(layer), nn.Sequential(layer))


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
    "conv, padded by a word": lambda: nn.Conv2d(8, 16, 3, padding="same"),
    "a result that nobody reads": lambda: Of(
        lambda x, conv, other: (conv(x), other(x))[0], nn.Conv2d(8, 16, 3), nn.Conv2d(8, 16, 3)
    ),
    "resized by two factors": lambda: Of(
        lambda x, conv: functional.interpolate(conv(x), scale_factor=(2.0, 2.0)), nn.Conv2d(8, 8, 1)
    ),
    "one weight in two layers": lambda: _tied(nn.Linear(8, 8), nn.Linear(8, 8)),
    "a layer in two places": lambda: _twice_held(nn.Conv2d(8, 8, 1)),
    "a chain called twice": lambda: Of(
        lambda x, chain: chain(chain(x)),
        nn.Sequential(nn.Conv2d(8, 8, 1), nn.Sequential(nn.Conv2d(8, 8, 3, padding=1)))
    ),
    "a product in a custom operator": lambda: Of(lambda x: _opaque(_tokens(x))),
    "Mamba": lambda: Mamba(),
    "conv, norm": lambda: nn.Sequential(nn.Conv2d(8, 16, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
    "conv, norm of a sum": lambda: Of(
        lambda x, conv, norm: norm(x + conv(x)), nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8)
    ),
    "conv, pooling, linear": lambda: nn.Sequential(
        nn.Conv2d(8, 16, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 8)
    ),
    "a layer of a class of its own": lambda: Own(8, 16, 3),
    "softmax families": lambda: nn.Sequential(nn.LogSoftmax(1), nn.Softmax2d()),
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
    *(
        "area",
        "bra",
        "caa",
        "cga",
        "dcnv3",
        "deformable",
        "dwconv",
        "eca",
        "ela",
        "ema_multiscale",
        "gated_cnn",
        "grid",
    ),
    *(
        "hilo",
        "hypergraph",
        "lsk",
        "lska",
        "mlca",
        "neighborhood",
        "pool",
        "rope_attention",
        "shsa",
        "simam",
        "ssd",
        "swin",
    ),
    *("triplet", "ttt"),
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


Counted = tuple[float, float | None]


def of_thop(module: nn.Module, x: Tensor) -> Counted:
    from thop import profile

    macs, params = profile(module, inputs=(x,), verbose=False)
    return float(macs), float(params)


def of_thop_by_stride(module: nn.Module, x: Tensor) -> Counted:
    from thop import profile

    macs, params = profile(module, inputs=(x,), verbose=False, stride=32)
    return float(macs), float(params)


def of_thop_at_32(module: nn.Module, x: Tensor) -> Counted:
    area = x.shape[2] * x.shape[3] / 32**2
    macs, params = of_thop(module, torch.zeros(1, x.shape[1], 32, 32))
    return 2 * macs * area, params


def of_fvcore(module: nn.Module, x: Tensor) -> Counted:
    from fvcore.nn import FlopCountAnalysis, parameter_count

    return float(FlopCountAnalysis(module, x).total()), float(parameter_count(module)[""])


def of_ptflops(module: nn.Module, x: Tensor, **options: str) -> Counted:
    from ptflops import get_model_complexity_info

    image = tuple(x.shape[1:])
    macs, params = get_model_complexity_info(module, image, as_strings=False, print_per_layer_stat=False, **options)
    if macs is None:
        raise ValueError("it prints None")
    return float(macs), float(params)


def of_ptflops_aten(module: nn.Module, x: Tensor) -> Counted:
    return of_ptflops(module, x, backend="aten")


def of_mmengine(module: nn.Module, x: Tensor) -> Counted:
    from mmengine.analysis import get_model_complexity_info

    found = get_model_complexity_info(module, tuple(x.shape[1:]), show_table=False, show_arch=False)
    return float(found["flops"]), float(found["params"])


def of_torchprofile(module: nn.Module, x: Tensor) -> Counted:
    from torchprofile import profile_macs

    return float(cast(int, profile_macs(module, x))), None


def of_calflops(module: nn.Module, x: Tensor) -> Counted:
    from calflops import calculate_flops

    flops, _, params = calculate_flops(module, args=[x], kwargs={}, print_results=False, output_as_string=False)
    return float(flops), float(params)


def of_deepspeed(module: nn.Module, x: Tensor) -> Counted:
    from deepspeed.profiling.flops_profiler import get_model_profile

    flops, _, params = get_model_profile(module, args=[x], print_profile=False, detailed=False, as_string=False)
    return float(flops), float(params)


def of_torchinfo(module: nn.Module, x: Tensor) -> Counted:
    from torchinfo import summary

    found = summary(module, input_data=x, verbose=0)
    return float(found.total_mult_adds), float(found.total_params)


def of_flop_counter_mode(module: nn.Module, x: Tensor) -> Counted:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        module(x)
    return float(counter.get_total_flops()), None


# By the name of the counter: what is imported, and how it is called.
ASKED: dict[str, tuple[str, Callable[[nn.Module, Tensor], Counted]]] = {
    "thop": ("thop", of_thop),
    "thop-at-32": ("thop", of_thop_at_32),
    "ultralytics-thop": ("thop", of_thop),
    "ptflops": ("ptflops", of_ptflops),
    "ptflops-aten": ("ptflops", of_ptflops_aten),
    "fvcore": ("fvcore", of_fvcore),
    "mmengine": ("mmengine", of_mmengine),
    "torchprofile": ("torchprofile", of_torchprofile),
    "calflops": ("calflops", of_calflops),
    "deepspeed": ("deepspeed", of_deepspeed),
    "torchinfo": ("torchinfo", of_torchinfo),
    "flop-counter-mode": ("torch", of_flop_counter_mode),
}


# Reasons of differences, by the counter and the case.
# Its trace, of `reduction=None`, has as many as it differs by: aten::mul whose output has no axes.
_SIZES = "it counts products of sizes, too"
_OF_SIZES = (
    "Encoder",
    "Scanned",
    "area",
    "bra",
    "cga",
    "dat",
    "dcnv2",
    "dcnv3",
    "dcnv4",
    "gated_delta",
    "grid",
    "hilo",
    "nn.MultiheadAttention",
    "rope_attention",
    "simam",
    "swin",
    "timm edgenext_small",
    "torchvision swin_t",
    "ttt",
)
_SHARED = "a layer has two places: what its containers leave counts again"
_IN_TWO_PLACES = ("a layer in two places", "mmsegmentation EMANet", "mmsegmentation gc")
WHY = {
    **{("torchprofile", case): _SIZES for case in _OF_SIZES},
    **{("torchinfo", case): _SHARED for case in _IN_TWO_PLACES},
}


def ask(name: str, release: str, state: str, only: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Numbers that a counter prints for each case, or for those of these names and kinds; one that fails has its error.

    With KEEPERS each case has a process of its own: they leave their functions in the place of PyTorch's.
    """
    about = {"tool": name, "version": release, "state": state}
    timm()  # before a counter imports torchvision, whose operators may be of another torch
    try:
        import_module(ASKED[name][0])
    except ImportError as error:
        yield about | {"error": _in_a_line(error)}
        return
    torch.set_num_threads(1)
    for place, (kind, case, _, _) in enumerate(cases()):
        if only and not {kind, case} & {*only}:
            continue
        if found := _alone(_asked, name, state, place) if name in KEEPERS else _asked(name, state, place):
            yield {"kind": kind, "case": case} | about | found


def _alone(function: Callable[..., dict[str, Any]], *args: Any) -> dict[str, Any]:
    """Call a function in a process of its own."""
    with get_context("fork").Pool(1) as pool:
        return pool.apply(function, args)


@cache
def _built(place: int) -> tuple[nn.Module, tuple[int, ...]]:
    """The module of a case, which each counter meets in a process of its own, and its input."""
    _, _, build, shape = next(itertools.islice(cases(), place, None))
    torch.manual_seed(0)
    return build().eval(), shape


def _asked(name: str, state: str, place: int) -> dict[str, Any]:
    """Ask a counter about a case: its numbers or its error, nothing where the state makes no difference."""
    built, shape = _built(place)
    count = of_thop_by_stride if state == "stride-32" else ASKED[name][1]
    module = _CHANGES.get(state, _unchanged)(built, shape)
    if module is None:
        return {}
    kernels = sdpa_kernel(SDPBackend.MATH) if state == "unfused-attention" else contextlib.nullcontext()
    with contextlib.redirect_stdout(io.StringIO()), torch.set_grad_enabled(state != "no-grad"), kernels:
        try:
            printed, params = count(module, torch.randn(shape))
            return {"printed": printed, "params": params}
        except Exception as error:  # another tool's, whatever it is, is what is reported
            return {"error": _in_a_line(error)}


def _in_a_line(error: Exception) -> str:
    """Its first line, without the place of a file on this machine."""
    return f"{type(error).__name__}: {error}".partition("\n")[0].partition(" (/")[0]


def _unchanged(module: nn.Module, shape: Sequence[int]) -> nn.Module | None:
    return module


def _folded(module: nn.Module, shape: Sequence[int]) -> nn.Module | None:
    has_norms = any(isinstance(each, nn.modules.batchnorm._BatchNorm) for each in module.modules())
    pairs = foldable(Calls(module, shape)) if has_norms else []
    return folded(module, pairs) if pairs else None


def _fused(module: nn.Module, shape: Sequence[int]) -> nn.Module | None:
    found = [each for each in module.modules() if isinstance(each, Mamba)]
    for each in found:
        each.use_fast_path = True
    return module if found else None


def _with_attention(module: nn.Module, shape: Sequence[int]) -> nn.Module | None:
    names = {each.name for each in Calls(module, shape).operators}
    return module if "aten::scaled_dot_product_attention" in names else None


_CHANGES = {"folded-norms": _folded, "fused-mamba": _fused, "unfused-attention": _with_attention}


KEYS = ["case", "tool", "version", "state"]


def join(files: list[str]) -> pd.DataFrame:
    """The numbers of real counters beside those of ctxbench's rules."""
    found = pd.concat([pd.read_csv(file, dtype={"version": str}) for file in files], ignore_index=True)
    found = found.fillna(dict.fromkeys(("kind", "case", "state"), ""))
    found = found.drop_duplicates(KEYS, keep="last", ignore_index=True)
    known = {case: (kind, place, shape) for place, (kind, case, _, shape) in enumerate(cases())}
    found["kind"] = [known[case][0] if case else "" for case in found["case"]]
    names = found["tool"] + "@" + found["version"] + ("+" + found["state"]).where(found["state"] != "", "")
    asked = [(known[str(case)], own) for case, own in names[found["case"] != ""].groupby(found["case"])]
    with get_context("fork").Pool(AT_ONCE) as pool:
        counted = [each for found_of_case in pool.starmap(_counted, asked, 1) for each in found_of_case]
    columns = ["convention", "own_params", "fails"]
    found = found.drop(columns=[*columns, "why"], errors="ignore").join(
        pd.DataFrame.from_dict(dict(counted), orient="index", columns=columns)
    )
    found = found.astype(dict.fromkeys(("params", "convention", "own_params"), "Int64"))
    differs = found["printed"].notna() & (found["printed"] != found["convention"])
    differs |= found["params"].notna() & (found["params"] != found["own_params"])
    found["why"] = [
        WHY.get((row.tool, row.case)) if odd else None for row, odd in zip(found.itertuples(), differs, strict=True)
    ]
    return found


def _counted(
    case: tuple[str, int, tuple[int, ...]], own: "pd.Series[str]"
) -> list[tuple[int, dict[str, int | str | None]]]:
    """Count a case by the rules of its readings, which are in these rows."""
    _, place, shape = case
    calls, found = Calls(_built(place)[0], shape), []
    for row, name in own.items():
        counted: dict[str, int | str | None]
        try:
            counted = {"convention": reading(name).count(calls), "own_params": reading(name).params(calls)}
        except UncountableError as error:
            counted = {"fails": str(error)}
        found.append((cast(int, row), counted))
    return found


def everything() -> list[str]:
    """Install each counter's package, and ask it about all cases: the files of what each printed."""
    home = Path(sys.prefix) / "counters"
    shutil.rmtree(home, ignore_errors=True)
    for place, _ in enumerate(cases()):
        _built(place)
    if failure := _install(home / "beside", *BESIDE):
        raise SystemExit(failure)
    packages: dict[str, list[str]] = {}
    for name in (*not_run(), *readings()):
        tool, _, release = name.partition("+")[0].partition("@")
        packages.setdefault(declared()[tool][release].get("package") or reading(name).about["package"], []).append(name)
    with ThreadPool(AT_ONCE) as pool:
        return [file for files in pool.starmap(partial(_everything_of, home), packages.items(), 1) for file in files]


def _everything_of(home: Path, package: str, names: Sequence[str]) -> list[str]:
    place = home / package.replace(" ", "-")
    is_torch = package.startswith("torch ")
    failure = "" if is_torch else _install(place, package.replace(" ", "=="))
    files = {name: str(home / f"{name}.csv") for name in names}
    for name, file in files.items():
        child = get_context("fork").Process(target=_ask_beside, args=((place, home / "beside"), name, file, failure))
        child.start()
        child.join()
        if child.exitcode:
            _write([_about(name) | {"error": f"its process ended with code {child.exitcode}"}], file)
        print(file, failure, flush=True)
    return [*files.values()]


def _ask_beside(places: Sequence[Path], name: str, file: str, failure: str) -> None:
    """Ask a counter whose package, and what it imports, is in these folders; each comes before what is installed."""
    sys.path[:0] = map(str, places)
    _write([_about(name) | {"error": failure}] if failure else ask(*_about(name).values()), file)


def _about(name: str) -> dict[str, str]:
    plain, _, state = name.partition("+")
    tool, _, release = plain.partition("@")
    return {"tool": tool, "version": release, "state": state}


def _write(rows: Iterable[Mapping[str, Any]], file: str) -> None:
    frame = pd.DataFrame(rows, columns=["kind", *KEYS, "printed", "params", "error"])
    frame.to_csv(file, index=False, lineterminator="\n")


def _install(place: Path, *packages: str) -> str:
    """Install packages into a folder, without what they ask for; pip's last line where it cannot."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    done = run([*pip, "--target", str(place), *packages], capture_output=True, text=True)
    return f"not installed: {done.stderr.strip().rpartition(chr(10))[2]}" if done.returncode else ""


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    if sys.argv[1] == "ask":
        name, release, state, file, *only = sys.argv[2:]
        _write(ask(name, release, state, only), file)
        return
    evidence = stamp()
    files = sys.argv[2:]
    if sys.argv[1] == "all":
        files = everything()
    found = join(files)
    write_stamp(OUT, evidence)
    found.to_csv(OUT / "conventions.csv.gz", index=False, lineterminator="\n", compression=PACKED)


if __name__ == "__main__":
    main()
