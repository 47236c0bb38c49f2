"""Times of blocks beside their public forms, in timm, torchvision and transformers: the same weights and input.

A pair is run A B B A, with the processor's time of one thread; a ratio is of the two of ours over the two of theirs.
Outputs are compared first. Each gets a contiguous map and may return views; in training the map has a gradient, too.
Run: pip install --constraint constraints.txt ".[networks]" --requirement research/requirements.txt in the clone, then
PAPERS=FOLDER python research/public_forms.py [SECONDS [BLOCK ...]]; FOLDER has clones of BiFormer, DAT and LSKNet.
Writes its rows into results/public-forms/speed.csv, each with its commit of ctxbench, its day, and the processes that
ran or waited in the last minute on average (the load).
"""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.append(sys.path.pop(0))  # transformers is also a file beside this one

import numpy as np
import pandas as pd
import torch
from as_maps import Through, last, tokens
from public_sources import (
    HILO,
    LSKA,
    TRIPLET,
    TRIPLET_NAMES,
    bra,
    caa,
    classes,
    dat,
    dcnv3,
    hypergraph,
    lsk,
    one_convolution,
    version_of,
)
from stamp import stamp
from timm.layers.eca import EcaModule
from timm.models.convnext import ConvNeXtBlock
from timm.models.efficientvit_msra import LocalWindowAttention
from timm.models.mambaout import GatedConvBlock
from timm.models.maxxvit import MaxxVitTransformerCfg, PartitionAttentionCl
from timm.models.metaformer import Pooling
from timm.models.shvit import SHSA
from timm.models.swin_transformer import SwinTransformerBlock
from torch import Tensor, nn
from torchvision.models.swin_transformer import ShiftedWindowAttention

from ctxbench import registry
from ctxbench.base.clocks import here
from ctxbench.base.mode import MODES, Mode
from ctxbench.base.statistics import median_interval
from ctxbench.meta.influence import with_noise

# Not imported by name, which for mypy is the file beside this one.
DETR: Any = import_module("transformers.models.deformable_detr.modeling_deformable_detr")
OLMO: Any = import_module("transformers.models.olmo_hybrid.modeling_olmo_hybrid")
MAMBA: Any = import_module("transformers.models.mamba2.modeling_mamba2")
TABLE = Path(__file__).resolve().parents[1] / "results" / "public-forms" / "speed.csv"
# Sides are multiples of the window: at others timm's Swin computes something else.
SHAPES = ((1, 256, 56, 56), (1, 384, 14, 14))
HEAD_WIDTH, WINDOW = 32, 7
# Seconds of each pair, the least of a sample, and the fewest rounds of A B B A.
SECONDS, SAMPLE_S, FEWEST = 6.0, 0.02, 5
AGREES = 1e-4  # in float32; public_equality.py compares in float64


@dataclass(frozen=True)
class Form:
    """A block and its public form: how that is made for a shape, called, and where it has our weights."""

    block: str
    package: str
    name: str
    make: Callable[[tuple[int, ...]], nn.Module]
    call: Callable[[Any, Tensor], Tensor] = lambda inner, x: inner(x)  # of a map, to one
    weights: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    has_residual: bool = False
    names: Callable[[dict[str, Tensor]], dict[str, Tensor]] = lambda ours: ours

    def pair(self, shape: tuple[int, ...]) -> tuple[nn.Module, nn.Module]:
        """Ours and theirs, with the same weights."""
        torch.manual_seed(0)
        ours = with_noise(registry.get(self.block).build(shape[1], self.settings))
        inner = self.make(shape).eval()
        place = inner.get_submodule(self.weights)
        found = place.load_state_dict(self.names(ours.state_dict()), strict=False)
        lacking = {name for name, _ in place.named_parameters()} & set(found.missing_keys)
        if found.unexpected_keys or lacking:
            raise SystemExit(f"{self.name}: other weights: {found}")
        own = Through(ours, lambda block, x: x + block(x)) if self.has_residual else ours
        return own, Through(inner, self.call)


def _gated(shape: tuple[int, ...]) -> nn.Module:
    block: nn.Module = GatedConvBlock(shape[1])
    block.norm = nn.Identity()
    return block


def _grid(shape: tuple[int, ...]) -> nn.Module:
    settings = MaxxVitTransformerCfg(
        dim_head=HEAD_WIDTH,
        window_size=(WINDOW,) * 2,
        grid_size=(WINDOW,) * 2,
        head_first=False,
        rel_pos_type="bias_tf",
    )
    block: nn.Module = PartitionAttentionCl(shape[1], "grid", settings)
    return block


def _deformable(shape: tuple[int, ...]) -> nn.Module:
    config = DETR.DeformableDetrConfig(d_model=shape[1], num_feature_levels=1)
    made: nn.Module = DETR.DeformableDetrMultiscaleDeformableAttention(config, num_heads=8, n_points=4)
    return made


def _sampled(inner: Any, x: Tensor) -> Tensor:
    height, width = x.shape[2:]
    row, column = ((torch.arange(side) + 0.5) / side for side in (height, width))
    centres = torch.stack(torch.meshgrid(column, row, indexing="xy"), 2).reshape(1, -1, 1, 2)
    sizes = torch.tensor([[height, width]])
    return tokens(
        lambda inner, x: inner(
            x,
            encoder_hidden_states=x,
            reference_points=centres,
            spatial_shapes=sizes,
            spatial_shapes_list=[(height, width)],
            level_start_index=torch.tensor([0]),
        )[0]
    )(inner, x)


def _mamba(shape: tuple[int, ...]) -> nn.Module:
    width = 64
    config = MAMBA.Mamba2Config(
        hidden_size=shape[1],
        num_heads=2 * shape[1] // width,
        head_dim=width,
        state_size=width,
        n_groups=1,
        chunk_size=64,
    )
    made: nn.Module = MAMBA.Mamba2Mixer(config, layer_idx=0)
    return made


def _gated_delta(shape: tuple[int, ...]) -> nn.Module:
    heads, width = 6, shape[1] // 8
    config = OLMO.OlmoHybridConfig(
        hidden_size=shape[1],
        linear_num_key_heads=heads,
        linear_num_value_heads=heads,
        linear_key_head_dim=width,
        linear_value_head_dim=2 * width,
        linear_conv_kernel_dim=4,
        linear_allow_neg_eigval=False,
        num_hidden_layers=2,
        layer_types=["linear_attention", "full_attention"],
    )
    made: nn.Module = OLMO.OlmoHybridGatedDeltaNet(config, layer_idx=0)
    return made


def _normed_convolutions(ours: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.replace(".c.", ".conv."): each for name, each in ours.items()}


FORMS = (
    Form(
        "gated_delta",
        "transformers",
        "OlmoHybridGatedDeltaNet",
        _gated_delta,
        tokens(lambda inner, x: inner(x)),
        names=one_convolution,
        settings={"bidirectional": False},
    ),
    Form(
        "cga",
        "timm",
        "LocalWindowAttention",
        lambda shape: LocalWindowAttention(
            shape[1], 16, 4, shape[1] / 64, resolution=shape[2], window_resolution=WINDOW, kernels=[5] * 4
        ),
        weights="attn",
        names=_normed_convolutions,
    ),
    Form(
        "bra",
        "BiFormer",
        "BiLevelRoutingAttention",
        lambda shape: bra(shape[1], wide=False),
        last(lambda inner, x: inner(x)),
    ),
    Form(
        "dat",
        "DAT",
        "DAttentionBaseline",
        lambda shape: dat(14, shape[1] // HEAD_WIDTH, HEAD_WIDTH, shape[1] // 64, wide=False),
        lambda inner, x: inner(x)[0],
    ),
    Form("lsk", "LSKNet", "Attention", lambda shape: lsk(shape[1], wide=False)),
    Form("caa", "PKINet", "CAA", lambda shape: caa(False, shape[1], wide=False), lambda inner, x: x * inner(x)),
    Form(
        "dcnv3",
        "InternImage",
        "DCNv3_pytorch",
        lambda shape: dcnv3(shape[1], wide=False),
        last(lambda inner, x: inner(x)),
    ),
    Form("mlca", "MLCA", "MLCA", lambda shape: classes("MLCA/MLCA.py", "MLCA", wide=False).MLCA(shape[1])),
    Form(
        "triplet",
        "triplet-attention",
        "TripletAttention",
        lambda shape: classes(TRIPLET, *TRIPLET_NAMES, wide=False).TripletAttention(),
    ),
    Form(
        "hilo",
        "LITv2",
        "HiLo",
        lambda shape: classes(HILO, "HiLo", wide=False).HiLo(
            shape[1], num_heads=shape[1] // HEAD_WIDTH, qkv_bias=True, alpha=0.9
        ),
        lambda inner, x: tokens(lambda inner, row: inner(row, *x.shape[2:]))(inner, x),
    ),
    Form(
        "lska",
        "Large-Separable-Kernel-Attention",
        "Attention",
        lambda shape: classes(LSKA, "LSKA", "Attention", wide=False).Attention(shape[1], 23),
    ),
    Form("hypergraph", "yolov13", "C3AH", lambda shape: hypergraph(shape[1], wide=False)),
    Form("shsa", "timm", "SHSA", lambda shape: SHSA(shape[1], 16, 3 * shape[1] // 14)),
    Form("eca", "timm", "EcaModule", lambda shape: EcaModule(shape[1])),
    Form("pool", "timm", "Pooling", lambda shape: Pooling()),
    Form(
        "dwconv",
        "timm",
        "ConvNeXtBlock.conv_dw",
        lambda shape: nn.ModuleDict({"dwconv": ConvNeXtBlock(shape[1]).conv_dw}),
        lambda inner, x: inner["dwconv"](x),
    ),
    Form("gated_cnn", "timm", "GatedConvBlock", _gated, last(lambda inner, x: inner(x)), has_residual=True),
    Form(
        "swin",
        "timm",
        "SwinTransformerBlock._attn",
        lambda shape: SwinTransformerBlock(
            shape[1], (shape[2], shape[3]), shape[1] // HEAD_WIDTH, window_size=WINDOW, shift_size=WINDOW // 2
        ),
        last(lambda inner, x: inner._attn(x)),
        "attn",
    ),
    Form(
        "swin",
        "torchvision",
        "ShiftedWindowAttention",
        lambda shape: ShiftedWindowAttention(shape[1], [WINDOW] * 2, [WINDOW // 2] * 2, shape[1] // HEAD_WIDTH),
        last(lambda inner, x: inner(x)),
    ),
    Form(
        "grid",
        "timm",
        "PartitionAttentionCl._partition_attn",
        _grid,
        last(lambda inner, x: inner._partition_attn(x)),
        "attn",
    ),
    Form("deformable", "transformers", "DeformableDetrMultiscaleDeformableAttention", _deformable, _sampled),
    Form(
        "ssd",
        "transformers",
        "Mamba2Mixer",
        _mamba,
        tokens(lambda inner, x: inner(x)),
        settings={"bidirectional": False},
    ),
)


def step_of(module: nn.Module, x: Tensor, mode: Mode) -> Callable[[], object]:
    """A pass, in evaluation mode; a training step drops the gradients first."""
    if mode == "infer":
        return torch.inference_mode()(lambda: module(x))
    leaves = [x, *module.parameters()]

    def step() -> None:
        for leaf in leaves:
            leaf.grad = None
        module(x).sum().backward()

    return step


def times(ours: Callable[[], object], theirs: Callable[[], object], seconds: float) -> list[tuple[float, float]]:
    """Seconds of a pass of ours and of theirs, for each round of A B B A."""
    passes = [max(1, round(SAMPLE_S / here.time_work(step, 2).cpu_s * 2)) for step in (ours, theirs)]
    found: list[tuple[float, float]] = []
    until = here.now() + seconds
    while len(found) < FEWEST or here.now() < until:
        first, second, third, fourth = (
            here.time_work(step, count).cpu_s / count
            for step, count in zip(
                (ours, theirs, theirs, ours), (passes[0], passes[1], passes[1], passes[0]), strict=True
            )
        )
        found.append(((first + fourth) / 2, (second + third) / 2))
    return found


def _named(package: str) -> str:
    """A package and its version, or a repository and its commit."""
    found = version_of(package)
    return found if found.partition(" ")[2] else f"{package} {found}"


def compared(form: Form, shape: tuple[int, ...], mode: Mode, seconds: float) -> dict[str, Any]:
    """A row: the difference of the outputs, the times, and their ratio with the interval of its median."""
    ours, theirs = form.pair(shape)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        mine, public = ours(x), theirs(x)
    error = float((mine - public).abs().max() / public.abs().max())
    if error > AGREES:
        raise SystemExit(f"{form.block} and {form.name} differ by {error:.2g} of the largest output")
    x.requires_grad_(mode == "train")
    rounds = times(step_of(ours, x, mode), step_of(theirs, x, mode), seconds)
    each = [mine_s / public_s for mine_s, public_s in rounds]
    ours_s, public_s = (float(np.median(column)) for column in zip(*rounds, strict=True))
    interval = median_interval(each)
    return {
        "block": form.block, "public": form.name, "package": _named(form.package),
        "shape": "x".join(map(str, shape)), "mode": mode, "difference": f"{error:.1e}",
        "ours_ms": round(ours_s * 1e3, 4), "public_ms": round(public_s * 1e3, 4),
        "ratio": round(float(np.median(each)), 3), "low": round(interval.low, 3), "high": round(interval.high, 3),
        "rounds": len(rounds),
    }  # fmt: skip


if __name__ == "__main__":
    evidence, asked = stamp(), {*sys.argv[2:]}
    torch.set_num_threads(1)
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    forms = [form for form in FORMS if not asked or form.block in asked]
    about = {"ctxbench": evidence["commit"], "date": evidence["date"]}
    rows = [
        compared(form, shape, mode, seconds) | about | {"load": f"{os.getloadavg()[0]:.1f}"}
        for form in forms
        for shape in SHAPES
        for mode in MODES
    ]
    print(pd.DataFrame(rows).to_string(index=False))
    stored = pd.read_csv(TABLE, dtype=str, keep_default_na=False)
    joined = pd.concat([stored, pd.DataFrame(rows).astype(str)])
    joined.drop_duplicates(["block", "public", "shape", "mode"], keep="last").to_csv(TABLE, index=False)
