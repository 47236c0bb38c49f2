"""Classes of public code by name, from clones below $PAPERS and from installed packages, and blocks made of them."""

import __future__

import ast
import itertools
import math
import os
import re
import subprocess
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

Named = dict[str, Tensor]
GIVEN = vars(typing) | {
    "torch": torch, "nn": nn, "F": functional, "math": math, "itertools": itertools, "np": np, "Tensor": Tensor,
}  # fmt: skip


def classes(path: str, *names: str, wide: bool = True, **given: Any) -> SimpleNamespace:
    """Functions and classes of a file, without what the file imports; `wide` makes float64 of float32 in them."""
    top, _, rest = path.partition("/")
    text = (_clone(top) or _package(top)).joinpath(rest).read_text(encoding="utf-8")
    if wide:
        text = re.sub(r"torch\.float(32)?\b", "torch.float64", text).replace(".float()", ".double()")
    tree = ast.parse(text)
    tree.body = [part for part in tree.body if getattr(part, "name", None) in names]
    made = GIVEN | given
    later = __future__.annotations.compiler_flag  # names of annotations need not be there
    exec(compile(tree, path, "exec", later), made)  # public code, which is what is compared
    return SimpleNamespace(**{name: made[name] for name in names})


def version_of(top: str) -> str:
    """The commit of a clone below $PAPERS, in twelve digits, or a package and its version."""
    clone = _clone(top)
    if clone is None:
        name = packages_distributions()[top][0]
        return f"{name} {version(name)}"
    command = ["git", "-C", str(clone), "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _clone(top: str) -> Path | None:
    clone = Path(os.environ.get("PAPERS", "")) / top
    return clone if (clone / ".git").exists() else None


def _package(top: str) -> Path:
    found = find_spec(top)
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"{top} is neither a clone below $PAPERS nor an installed package.")
    return Path(found.submodule_search_locations[0])


def plain(*_: Any, **__: Any) -> Callable[[Any], Any]:
    """A decorator that leaves what it gets, in the place of those of registries and of kernels."""
    return lambda inner: inner


@dataclass(frozen=True)
class Form:
    """A block and the class that it is compared with: where that is, how it is made, called, and gets our weights."""

    block: str
    file: str  # its first folder is a repository or a package
    name: str
    make: Callable[[], Any]
    channels: int
    sizes: tuple[tuple[int, int], ...]
    call: Callable[[Any, Tensor], Tensor] = lambda inner, x: inner(x)  # of a map, to one
    names: Callable[[Named], Named] = lambda ours: ours
    settings: Mapping[str, Any] = field(default_factory=dict)
    trains_one: bool = True  # False: its norms of one value a channel end a training step with one image


def moved(**places: str) -> Callable[[Named], Named]:
    """Our names as theirs: of each, the part up to `__` or the end is replaced, `__` standing for a point."""
    own = {name.replace("__", "."): place for name, place in places.items()}

    def theirs(name: str) -> str:
        found = max((each for each in own if f"{name}.".startswith(f"{each}.")), key=len, default="")
        return own[found] + name.removeprefix(found) if found else name

    return lambda ours: {theirs(name): each for name, each in ours.items()}


LSK = "LSKNet/mmrotate/models/backbones/lsknet.py"
LSKA = "Large-Separable-Kernel-Attention/models/van.py"
HILO = "LITv2/detection/mmdet/models/backbones/litv2.py"
TRIPLET = "triplet-attention/triplet_attention.py"
TRIPLET_NAMES = ("BasicConv", "ZPool", "AttentionGate", "TripletAttention")
CORE = ("_get_reference_points", "_generate_dilation_grids", "remove_center_sampling_locations", "dcnv3_core_pytorch")


class Convolution(nn.Sequential):
    """Stand-in for mmcv's ConvModule: a convolution, batch norm and SiLU where they are asked for."""

    def __init__(
        self, inputs: int, outputs: int, *sizes: Any, groups: int = 1, norm_cfg: Any = None, act_cfg: Any = None
    ) -> None:
        super().__init__()
        kernel, stride, padding = sizes
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=norm_cfg is None)
        if norm_cfg:
            self.bn = nn.BatchNorm2d(outputs, eps=norm_cfg["eps"], momentum=norm_cfg["momentum"])
        if act_cfg:
            self.act = nn.SiLU()


class Base(nn.Module):
    """Stand-in for mmengine's BaseModule."""

    def __init__(self, init_cfg: Any = None) -> None:
        super().__init__()


def as_trained(made: nn.Module) -> nn.Module:
    """A block with the norms that networks of ultralytics' code set, without dropout."""
    for part in made.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.eps, part.momentum = 1e-3, 0.03
        elif isinstance(part, nn.Dropout):
            part.p = 0.0
    return made


def one_convolution(ours: Named) -> Named:
    """Our names as those of a layer that has one convolution for queries, keys and values."""
    parts = [ours[f"{name}_conv1d.weight"] for name in "qkv"]
    return {name: each for name, each in ours.items() if "_conv1d" not in name} | {"conv1d.weight": torch.cat(parts)}


def bra(channels: int = 64, wide: bool = True) -> Any:
    import einops

    names = ("TopkRouting", "KVGather", "QKVLinear", "BiLevelRoutingAttention")
    found = classes("BiFormer/ops/bra_legacy.py", *names, wide=wide, rearrange=einops.rearrange)
    return found.BiLevelRoutingAttention(channels, num_heads=channels // 32, side_dwconv=5, auto_pad=True)


def dat(side: int, heads: int, head_width: int, groups: int, reach: float = -1.0, wide: bool = True) -> Any:
    import einops

    given = {"einops": einops, "trunc_normal_": nn.init.trunc_normal_}
    found = classes("DAT/models/dat_blocks.py", "LayerNormProxy", "DAttentionBaseline", wide=wide, **given)
    sizes, no_drop = ((side, side), (side, side), heads, head_width, groups), (0.0, 0.0)
    return found.DAttentionBaseline(*sizes, *no_drop, 2, reach, True, False, False, False, 5, False)


def lsk(channels: int = 16, wide: bool = True) -> Any:
    return classes(LSK, "LSKblock", "Attention", wide=wide).Attention(channels)


def caa(norm: bool, channels: int = 12, wide: bool = True) -> Any:
    path = "PKINet/mmrotate/models/backbones/pkinet.py"
    found = classes(path, "CAA", wide=wide, BaseModule=Base, ConvModule=Convolution)
    return found.CAA(channels) if norm else found.CAA(channels, norm_cfg=None, act_cfg=None)


def dcnv3(channels: int = 32, wide: bool = True) -> Any:
    ops = "InternImage/classification/ops_dcnv3"
    core = classes(f"{ops}/functions/dcnv3_func.py", *CORE, wide=wide).dcnv3_core_pytorch
    layers = ("to_channels_first", "to_channels_last", "build_norm_layer", "build_act_layer", "_is_power_of_2")
    given = {"dcnv3_core_pytorch": core, "constant_": nn.init.constant_, "xavier_uniform_": nn.init.xavier_uniform_}
    found = classes(f"{ops}/modules/dcnv3.py", *layers, "DCNv3_pytorch", wide=wide, **given)
    return found.DCNv3_pytorch(channels, group=channels // 16)


def hypergraph(channels: int = 32, wide: bool = True) -> nn.Module:
    modules = "yolov13/ultralytics/nn/modules"
    convolution = classes(f"{modules}/conv.py", "autopad", "Conv", wide=wide).Conv
    names = ("AdaHyperedgeGen", "AdaHGConv", "AdaHGComputation", "C3AH")
    made: nn.Module = classes(f"{modules}/block.py", *names, wide=wide, Conv=convolution).C3AH(channels, channels)
    return as_trained(made)
