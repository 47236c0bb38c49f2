"""Blocks beside their public code in float64: outputs, gradients at one and at two images, parameters.

Classes are read by name from clones of their repositories below $PAPERS, each in a folder named as the repository, and
from installed packages, with stand-ins for what else their files import; their float32 becomes float64, and dropout is
left out. Our parameters, drawn at random, go into the public class by its own names; both get the same maps. Outputs
are those of both modes, gradients those of training; `differences` are of each gradient, along a random direction, and
of central differences of the public class, for one image. Where a class has a part of our block, `call` has the rest.
Run: PAPERS=FOLDER python research/public_equality.py [BLOCK, REPOSITORY or PACKAGE ...]. It needs einops and what
public_packages.py needs, and writes its rows, each with its commit of ctxbench and its day, into
results/public-equality/equality.csv.
"""

import itertools
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import torch
from as_maps import Through, last, tokens
from public_sources import (
    CORE,
    HILO,
    LSK,
    LSKA,
    TRIPLET,
    TRIPLET_NAMES,
    Form,
    Named,
    bra,
    caa,
    classes,
    dat,
    dcnv3,
    hypergraph,
    lsk,
    plain,
    version_of,
)
from stamp import stamp
from torch import Tensor, nn

from ctxbench import registry
from ctxbench.metrics.params import count_params

TABLE = Path(__file__).resolve().parents[1] / "results" / "public-equality" / "equality.csv"
STEP = 1e-6  # of central differences


def built(form: Form) -> tuple[nn.Module, nn.Module]:
    """Ours and theirs in float64; of ours every parameter and statistic is drawn."""
    torch.manual_seed(0)
    ours = registry.get(form.block).build(form.channels, form.settings).double()
    for name, each in (*ours.named_parameters(), *ours.named_buffers()):
        if each.is_floating_point() and name != "taps":
            nn.init.uniform_(each, 0.5, 1.5) if name.endswith(("running_var", "bases")) else nn.init.normal_(
                each, std=0.3
            )
    return ours, Through(form.make(), form.call).double()


def passed(
    module: nn.Module, weights: Mapping[str, Tensor], x: Tensor, names: Callable[[Named], Named]
) -> list[Tensor]:
    """The output, the gradient of the map and those of our parameters, in their order."""
    leaves = {name: each.detach().clone().requires_grad_() for name, each in weights.items()}
    x = x.detach().clone().requires_grad_()
    y = torch.func.functional_call(module, names(leaves), (x,))
    found = torch.autograd.grad(y, [x, *leaves.values()], drawn(y, 2), allow_unused=True, materialize_grads=True)
    return [y.detach(), found[0], flat(found[1:], x)]


def drawn(like: Tensor, seed: int) -> Tensor:
    """Normal numbers of a shape."""
    return torch.randn(like.shape, dtype=like.dtype, generator=torch.Generator().manual_seed(seed))


def flat(parts: Iterable[Tensor], like: Tensor) -> Tensor:
    """Tensors in one, which may be empty."""
    return torch.cat([like.new_empty(0), *(each.flatten() for each in parts)])


def slope(
    module: nn.Module, weights: Mapping[str, Tensor], x: Tensor, names: Callable[[Named], Named], way: list[Tensor]
) -> float:
    """By central differences, how fast what `passed` differentiates changes along a direction of map and parameters."""
    parts = way[1].split([each.numel() for each in weights.values()]) if weights else ()

    def at(step: float) -> float:
        moved = {
            name: each.detach() + step * change.view_as(each)
            for (name, each), change in zip(weights.items(), parts, strict=True)
        }
        with torch.no_grad():
            y = torch.func.functional_call(module, names(moved), (x + step * way[0],))
        return float((y * drawn(y, 2)).sum())

    return (at(STEP) - at(-STEP)) / (2 * STEP)


def apart(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference, of the largest value."""
    return float((ours - theirs).abs().max() / theirs.abs().max()) if theirs.numel() else 0.0


def compared(form: Form) -> dict[str, Any]:
    """The row of a form; ends the command where a parameter of the public class is none of ours."""
    ours, theirs = built(form)
    weights: Named = dict(ours.named_parameters())

    def renamed(leaves: Named) -> Named:
        return {f"inner.{name}": each for name, each in form.names(dict(leaves)).items()}

    statistics = {name: each for name, each in ours.named_buffers() if name in ours.state_dict()}
    missed = theirs.load_state_dict(renamed(weights | statistics), strict=False)
    lacking = {name for name, _ in theirs.named_parameters()} & set(missed.missing_keys)
    if lacking or missed.unexpected_keys:
        raise SystemExit(f"{form.name}: {sorted(lacking)} is none of ours, {missed.unexpected_keys} none of theirs")
    found = dict.fromkeys((f"{what}_{images}" for images in (1, 2) for what in ("output", "gradient")), 0.0)
    found |= dict.fromkeys(("differences_ours", "differences_public"), 0.0)
    if not form.trains_one:
        found |= dict.fromkeys(("gradient_1", "differences_ours", "differences_public"), float("nan"))
    for (height, width), images, training in itertools.product(form.sizes, (1, 2), (False, True)):
        if training and images == 1 and not form.trains_one:
            continue
        x = torch.randn(images, form.channels, height, width, dtype=torch.float64)
        both = []
        for module, names in ((ours, dict), (theirs, renamed)):
            module.train(training)
            state = {name: each.clone() for name, each in module.named_buffers()}
            both.append(passed(module, weights, x, names))
            for name, each in module.named_buffers():
                each.copy_(state[name])  # a second pass has the same statistics
        if training and images == 1:
            way = [drawn(each, 3) for each in both[0][1:]]
            state = {name: each.clone() for name, each in theirs.named_buffers()}
            true = slope(theirs, weights, x, renamed, way)
            for name, each in theirs.named_buffers():
                each.copy_(state[name])
            for who, (_, *gradient) in zip(("ours", "public"), both, strict=True):
                told = sum(float((each * change).sum()) for each, change in zip(gradient, way, strict=True))
                wrong = abs(told - true) / float(flat(both[0][1:], x).norm())
                found[f"differences_{who}"] = max(found[f"differences_{who}"], wrong)
        output, *gradients = itertools.starmap(apart, zip(*both, strict=True))
        found[f"output_{images}"] = max(found[f"output_{images}"], output)
        if training:
            found[f"gradient_{images}"] = max(found[f"gradient_{images}"], *gradients)
    return {
        "block": form.block, "public": form.name, "file": form.file,
        "commit": version_of(form.file.partition("/")[0]), "channels": form.channels,
        "settings": " ".join(f"{name}={value}" for name, value in form.settings.items()),
        "maps": " ".join(f"{height}x{width}" for height, width in form.sizes),
        "parameters": count_params(ours), "public_parameters": count_params(theirs),
        **{name: "" if math.isnan(value) else f"{value:.1e}" for name, value in found.items()},
    }  # fmt: skip


def _dcnv4() -> Any:
    core = classes("DCNv4/classification/ops_dcnv3/functions/dcnv3_func.py", *CORE).dcnv3_core_pytorch

    def instead(x: Tensor, made: Tensor, *sizes: Any) -> Any:
        """The kernel's arguments as those of the plain form, as in the authors' own test of it."""
        kernel, groups, center = sizes[0], sizes[8], sizes[12]
        taps = kernel**2 - center
        by_group = made[..., : 3 * groups * taps].unflatten(-1, (groups, 3 * taps))
        offsets, masks = by_group.split((2 * taps, taps), dim=-1)
        return core(x, offsets.flatten(-2), masks.flatten(-2), *sizes[:11], center)

    given: dict[str, Any] = {"constant_": nn.init.constant_, "xavier_uniform_": nn.init.xavier_uniform_}
    kernel = SimpleNamespace(apply=instead)
    found = classes("DCNv4/DCNv4_op/DCNv4/modules/dcnv4.py", "DCNv4", DCNv4Function=kernel, **given)
    return found.DCNv4(32, group=2, output_bias=False)


def _dcnv2() -> Any:
    import torchvision

    def instead(x: Tensor, offset: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, *sizes: Any) -> Any:
        """mmcv's kernel, which has to be built, by torchvision's of the same arguments."""
        stride, padding, dilation, *_ = sizes
        return torchvision.ops.deform_conv2d(x, offset, weight, bias, stride, padding, dilation, mask)

    pair, single = (lambda value: (value, value)), (lambda value: (value,))
    found = classes(
        "mmcv/mmcv/ops/modulated_deform_conv.py", "ModulatedDeformConv2d", "ModulatedDeformConv2dPack",
        MODELS=SimpleNamespace(register_module=plain), deprecated_api_warning=plain, _pair=pair, _single=single,
        modulated_deform_conv2d=instead,
    )  # fmt: skip
    return found.ModulatedDeformConv2dPack(8, 8, 3, padding=1, deform_groups=2)


def _cga(side: int) -> Any:
    names = ("Conv2d_BN", "CascadedGroupAttention", "LocalWindowAttention")
    found = classes("Cream/EfficientViT/classification/model/efficientvit.py", *names)
    return found.LocalWindowAttention(64, 16, num_heads=4, attn_ratio=1, resolution=side, kernels=[5] * 4)


class Rotary(nn.Module):
    """DINOv3's attention of registers and a map, with the angles of its own layer."""

    def __init__(self, channels: int, heads: int, registers: int) -> None:
        super().__init__()
        layers = "dinov3/dinov3/layers"
        names = ("rope_rotate_half", "rope_apply", "LinearKMaskedBias", "SelfAttention")
        attention = classes(f"{layers}/attention.py", *names).SelfAttention
        self.attention = attention(channels, num_heads=heads, qkv_bias=True, mask_k_bias=True)
        self.attention.qkv.bias_mask = torch.tensor([1.0, 0.0, 1.0]).repeat_interleave(channels)
        rope = classes(f"{layers}/rope_position_encoding.py", "RopePositionEmbedding").RopePositionEmbedding
        self.rope = rope(channels, num_heads=heads, dtype=torch.float64)
        self.reg_token = nn.Parameter(torch.empty(1, registers, channels))

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, C, H, W] to [B, C, H, W]."""
        places = x.flatten(2).transpose(1, 2)
        joined = torch.cat([self.reg_token.expand(len(x), -1, -1), places], dim=1)
        found: Tensor = self.attention(joined, rope=self.rope(H=x.shape[2], W=x.shape[3]))
        return torch.unflatten(found.transpose(1, 2)[..., self.reg_token.shape[1] :], 2, x.shape[2:])


def _masked_bias(ours: Named) -> Named:
    """Our names as DINOv3's, whose bias of queries, keys and values is one, with a part that a mask makes zero."""
    query, value = ours.pop("q_bias"), ours.pop("v_bias")
    bias = torch.cat([query, torch.zeros_like(query), value])
    return {"reg_token": ours.pop("reg_token"), "attention.qkv.bias": bias} | {
        f"attention.{name}": each for name, each in ours.items()
    }


def _in_attention(ours: Named) -> Named:
    return {f"attn.{name}": each for name, each in ours.items()}


PKINET = "PKINet/mmrotate/models/backbones/pkinet.py"
FORMS = (
    Form("mlca", "MLCA/MLCA.py", "MLCA", lambda: classes("MLCA/MLCA.py", "MLCA").MLCA(64), 64, ((9, 7), (3, 4))),
    Form("triplet", TRIPLET, "TripletAttention", lambda: classes(TRIPLET, *TRIPLET_NAMES).TripletAttention(), 12,
         ((9, 7), (5, 12))),
    Form("hilo", HILO, "HiLo", lambda: classes(HILO, "HiLo").HiLo(128, num_heads=4, qkv_bias=True, alpha=0.9), 128,
         ((7, 6), (4, 8)), lambda inner, x: tokens(lambda inner, row: inner(row, *x.shape[2:]))(inner, x)),
    Form("bra", "BiFormer/ops/bra_legacy.py", "BiLevelRoutingAttention", bra, 64, ((15, 9), (14, 14)),
         last(lambda inner, x: inner(x))),
    Form("shsa", "SHViT/model/shvit.py", "SHSA",
         lambda: classes("SHViT/model/shvit.py", "GroupNorm", "Conv2d_BN", "SHSA").SHSA(128, 16, 27), 128,
         ((7, 5), (4, 6))),
    Form("caa", PKINET, "CAA", lambda: caa(False), 12, ((9, 12), (14, 5)), lambda inner, x: x * inner(x)),
    Form("caa", PKINET, "CAA", lambda: caa(True), 12, ((9, 12), (14, 5)), lambda inner, x: x * inner(x),
         settings={"norm": True}),
    Form("dcnv3", "InternImage/classification/ops_dcnv3/modules/dcnv3.py", "DCNv3_pytorch", dcnv3, 32,
         ((6, 7), (9, 5)), last(lambda inner, x: inner(x))),
    Form("dcnv4", "DCNv4/DCNv4_op/DCNv4/modules/dcnv4.py", "DCNv4", _dcnv4, 32, ((6, 7), (9, 5)),
         lambda inner, x: tokens(lambda inner, row: inner(row, x.shape[2:]).flatten(1, -2))(inner, x)),
    Form("dcnv2", "mmcv/mmcv/ops/modulated_deform_conv.py", "ModulatedDeformConv2dPack", _dcnv2, 8, ((6, 7), (9, 5)),
         settings={"deform_groups": 2}),
    Form("cga", "Cream/EfficientViT/classification/model/efficientvit.py", "LocalWindowAttention", lambda: _cga(14), 64,
         ((14, 14),), names=_in_attention),
    Form("cga", "Cream/EfficientViT/classification/model/efficientvit.py", "LocalWindowAttention", lambda: _cga(7), 64,
         ((7, 7),), names=_in_attention),
    *(Form("dat", "DAT/models/dat_blocks.py", "DAttentionBaseline", partial(dat, 6, 4, 8, 2, reach), 32,
           ((6, 6), (7, 10)), lambda inner, x: inner(x)[0],
           settings={"head_width": 8, "group_width": 16, "table_size": 6, "offset_range": reach})
      for reach in (-1.0, 2.0)),
    Form("hypergraph", "yolov13/ultralytics/nn/modules/block.py", "C3AH", hypergraph, 32, ((7, 5), (6, 8))),
    Form("rope_attention", "dinov3/dinov3/layers/attention.py", "SelfAttention", lambda: Rotary(64, 2, 5), 64,
         ((5, 7), (6, 4)), names=_masked_bias, settings={"head_width": 32, "registers": 5}),
    Form("lsk", LSK, "Attention", lsk, 16, ((9, 12), (24, 7))),
    Form("lska", LSKA, "Attention", lambda: classes(LSKA, "LSKA", "Attention").Attention(16, 23), 16,
         ((9, 12), (30, 7))),
)  # fmt: skip


def joined(old: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
    """A table with the rows of another in the place of those of the same forms."""
    form = ["block", "public", "file", "settings", "maps"]
    rows = pd.concat([old, new]).astype(object).fillna("").astype(str)
    return rows.drop_duplicates(form, keep="last").sort_values("block", kind="stable")


if __name__ == "__main__":
    from public_packages import FORMS as OF_PACKAGES  # which imports these packages

    evidence, asked = stamp(), {*sys.argv[1:]}
    torch.set_default_dtype(torch.float64)  # constants of public code, too
    forms = [form for form in (*FORMS, *OF_PACKAGES) if not asked or asked & {form.block, form.file.partition("/")[0]}]
    found = pd.DataFrame(
        [compared(form) | {"ctxbench": evidence["commit"], "date": evidence["date"]} for form in forms]
    )
    print(found.to_string(index=False))
    old = pd.read_csv(TABLE, dtype=str, keep_default_na=False)
    joined(old, found).to_csv(TABLE, index=False, lineterminator="\n")
