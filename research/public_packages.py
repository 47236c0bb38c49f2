"""Blocks whose public code is in a package of PyPI, for public_equality.py: FORMS; the pairs of public_forms.py too.

It needs timm, torchvision, transformers, ultralytics, and without their own requirements fightingcv-attention,
mmcv-lite, mmengine, mmpretrain, mmsegmentation, spandrel and torch-encoding, with addict, opencv-python-headless, rich
and yapf for mmcv. A convolution has a bias before its norm where the authors' code has one, and mmcv's class none.
"""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import timm
import torch
from as_maps import tokens
from public_forms import FORMS as PAIRS
from public_forms import Form as Pair
from public_sources import Form, Named, as_trained, classes, moved, one_convolution, plain
from torch import Tensor, nn

HEADS, MMCV = "mmseg/models/decode_heads", "mmcv/cnn/bricks"
NORMED = {"norm_cfg": {"type": "BN"}, "act_cfg": {"type": "ReLU"}, "conv_cfg": None}
REGISTRY = SimpleNamespace(register_module=plain)


class Head(nn.Module):
    """Stand-in for mmsegmentation's BaseDecodeHead: the layers in front and behind leave the map."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.in_channels = self.channels = channels
        self.conv_cfg, self.norm_cfg, self.act_cfg = None, NORMED["norm_cfg"], NORMED["act_cfg"]
        self.cls_seg = nn.Identity()

    def _transform_inputs(self, x: Tensor) -> Tensor:
        return x


def _attention(bias: bool) -> dict[str, Any]:
    """The block of self-attention that mmsegmentation's heads share, and its convolution."""
    from mmcv.cnn import ConvModule
    from mmengine.model.weight_init import constant_init

    class Convolution(ConvModule):  # type: ignore[misc]  # mmcv has no types
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, bias=bias or "auto", **named)

    given = {"ConvModule": Convolution, "constant_init": constant_init}
    shared = classes("mmseg/models/utils/self_attention_block.py", "SelfAttentionBlock", **given).SelfAttentionBlock
    return {"_SelfAttentionBlock": shared, "ConvModule": Convolution}


def _da() -> nn.Module:
    from mmcv.cnn import ConvModule, Scale

    found = classes(f"{HEADS}/da_head.py", "PAM", "CAM", **_attention(False), Scale=Scale)
    outs = (ConvModule(16, 16, 3, padding=1, norm_cfg=NORMED["norm_cfg"]) for _ in range(2))
    parts = zip(("pam", "cam", "pam_out_conv", "cam_out_conv"), (found.PAM(16, 2), found.CAM(), *outs), strict=True)
    return nn.ModuleDict(dict(parts))


def _isa() -> nn.Module:
    given = _attention(False) | {"MODELS": REGISTRY, "BaseDecodeHead": Head}
    made: nn.Module = classes(f"{HEADS}/isa_head.py", "SelfAttentionBlock", "ISAHead", **given).ISAHead(
        8, down_factor=(4, 4), channels=16
    )
    made.in_conv = nn.Identity()
    for name in ("global_relation", "local_relation"):
        made.get_submodule(f"{name}.value_project").register_parameter("bias", None)  # the authors' code has none
    return made


def _non_local(mode: str) -> Any:
    from mmcv.cnn import ConvModule
    from mmengine.model import constant_init, normal_init

    given = {"ConvModule": partial(ConvModule, bias=True), "constant_init": constant_init, "normal_init": normal_init}
    found = classes(
        f"{MMCV}/non_local.py", "_NonLocalNd", "NonLocal2d", MODELS=REGISTRY, ABCMeta=type, **given
    )  # fmt: skip
    return found.NonLocal2d(16, norm_cfg=NORMED["norm_cfg"], mode=mode)


def _gc(*fusions: str) -> Any:
    from mmcv.cnn import ContextBlock

    return ContextBlock(64, 1 / 16, fusion_types=fusions)


def _apnb() -> Any:
    names = ("PPMConcat", "SelfAttentionBlock", "APNB")
    return classes(f"{HEADS}/ann_head.py", *names, **_attention(True)).APNB(16, 8, 16, (1,), (1, 3, 6, 8), **NORMED)


def _ppm() -> Any:
    from mmcv.cnn import ConvModule

    given = {"ConvModule": ConvModule, "resize": nn.functional.interpolate}
    return classes(f"{HEADS}/psp_head.py", "PPM", **given).PPM((1, 2, 3, 6), 16, 4, align_corners=True, **NORMED)


def _ham() -> Any:
    from mmcv.cnn import ConvModule

    names = ("Matrix_Decomposition_2D_Base", "NMF2D", "Hamburger")
    settings = {"rand_init": False, "train_steps": 6, "eval_steps": 6, "MD_R": 8}
    made = classes(f"{HEADS}/ham_head.py", *names, ConvModule=ConvModule).Hamburger(16, settings, NORMED["norm_cfg"])
    made.ham.register_buffer("bases", torch.zeros(1, 16, 8))
    return made


def _lka() -> Any:
    from mmcv.cnn import Conv2d, build_activation_layer
    from mmengine.model import BaseModule

    given = {"Conv2d": Conv2d, "build_activation_layer": build_activation_layer, "BaseModule": BaseModule}
    return classes("mmpretrain/models/backbones/van.py", "LKA", "SpatialAttention", **given).SpatialAttention(8)


def _msca() -> Any:
    from mmcv.cnn import build_activation_layer
    from mmengine.model import BaseModule

    given = {"build_activation_layer": build_activation_layer, "BaseModule": BaseModule}
    names = ("MSCAAttention", "MSCASpatialAttention")
    return classes("mmseg/models/backbones/mscan.py", *names, **given).MSCASpatialAttention(8)


def _aspp() -> Any:
    names = ("ASPPConv", "ASPPPooling", "ASPP")
    made = classes("torchvision/models/segmentation/deeplabv3.py", *names).ASPP(8, (2, 4, 6), 12)
    made.project[3].p = 0.0
    return made


def _lite_mla() -> Any:
    from timm.layers import create_conv2d

    given = {"create_conv2d": create_conv2d, "partial": partial}
    names = ("val2list", "val2tuple", "get_same_padding", "ConvNormAct", "LiteMLA")
    return classes("timm/models/efficientvit_mit.py", *names, **given).LiteMLA(16, 16, dim=8, eps=EPSILON)


EPSILON = 1e-15  # of lite_mla's authors; timm gives its own in the networks


def _timm(path: str, *names: str, **given: Any) -> Any:
    return classes(f"timm/{path}.py", *names, use_fused_attn=lambda **_: False, **given)


def _area() -> nn.Module:
    modules = "ultralytics/nn/modules"
    convolution = classes(f"{modules}/conv.py", "autopad", "Conv").Conv
    return as_trained(classes(f"{modules}/block.py", "AAttn", Conv=convolution).AAttn(32, 2, area=4))


def _acf() -> Any:
    file = "encoding/nn/attention.py"
    found = classes(file, "ACFModule", "MixtureOfSoftMaxACF", SyncBatchNorm=nn.BatchNorm2d)
    made = found.ACFModule(1, 1, 8, 8, 8)
    for part in made.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    return made


def _spectral() -> Any:
    file = "spandrel/architectures/LaMa/__arch/LaMa.py"
    return classes(file, "FourierUnit", "SpectralTransform").SpectralTransform(8, 8, enable_lfu=False)


def _twice(inner: Any, x: Tensor) -> Tensor:
    out: Tensor = inner(inner(x))
    return out


def _joined(inner: Any, x: Tensor) -> Tensor:
    return torch.cat([x, *inner(x)], dim=1)


def _branches(inner: Any, x: Tensor) -> Tensor:
    out: Tensor = inner["pam_out_conv"](inner["pam"](x)) + inner["cam_out_conv"](inner["cam"](x))
    return out


def _cga(side: int) -> Any:
    names = ("ConvNorm", "CascadedGroupAttention", "LocalWindowAttention")
    found = classes("timm/models/efficientvit_msra.py", *names, register_notrace_module=lambda made: made)
    return found.LocalWindowAttention(64, 16, num_heads=4, attn_ratio=1, resolution=side, window_resolution=7,
                                      kernels=[5] * 4)  # fmt: skip


def _in_attention(ours: Named) -> Named:
    return {f"attn.{name}".replace(".c.", ".conv."): each for name, each in ours.items()}


MAMBA, OLMO = (f"transformers/models/{name}/modeling_{name}.py" for name in ("mamba2", "olmo_hybrid"))
HUB: dict[str, Any] = {"ACT2FN": {"silu": nn.functional.silu}} | dict.fromkeys(
    ("use_kernel_func_from_hub_with_fallback", "use_kernel_forward_from_hub", "force_accelerate_hooks",
     "deprecate_kwarg", "use_kernelized_func"), plain,
)  # fmt: skip


def _ssd() -> Any:
    names = (
        "pad_tensor_by_size", "reshape_into_chunks", "segment_sum", "apply_mask_to_padding_states",
        "MambaRMSNormGated", "causal_conv1d_update", "causal_conv1d_fn", "mamba2_split_conv1d_scan_combined",
        "mamba2_selective_state_update", "mamba2_chunk_scan", "Mamba2Mixer",
    )  # fmt: skip
    config = SimpleNamespace(
        hidden_size=32, num_heads=4, head_dim=16, state_size=8, n_groups=1, chunk_size=16, expand=2, conv_kernel=4,
        use_conv_bias=True, use_bias=False, hidden_act="silu", layer_norm_epsilon=1e-5, rms_norm=True,
        time_step_rank=2, time_step_limit=(0.0, float("inf")), time_step_min=1e-3, time_step_max=0.1,
        time_step_floor=1e-4, A_initializer_range=(1, 16), residual_in_fp32=True, initializer_range=0.1,
        rescale_prenorm_residual=False, num_hidden_layers=1, layer_types=["mamba"],
    )  # fmt: skip
    given: dict[str, Any] = HUB | {"init": nn.init, "is_torchdynamo_compiling": lambda: False}
    return classes(MAMBA, *names, **given).Mamba2Mixer(config, 0, initialize_mixer_weights=False)


def _gated_delta(recurrence: Any = None) -> Any:
    names = [
        "apply_mask_to_padding_states", "causal_conv1d_fn", "causal_conv1d_update", "l2norm",
        "torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule", "OlmoHybridRMSNormGated",
        "OlmoHybridGatedDeltaNet",
    ]  # fmt: skip
    found = classes(OLMO, *names, **HUB, is_torchdynamo_exporting=lambda: False)
    if recurrence:
        found.OlmoHybridGatedDeltaNet.forward.__globals__["torch_chunk_gated_delta_rule"] = recurrence
    config = SimpleNamespace(
        hidden_size=32, linear_num_value_heads=6, linear_num_key_heads=6, linear_key_head_dim=4,
        linear_value_head_dim=8, linear_conv_kernel_dim=4, linear_allow_neg_eigval=False, rms_norm_eps=1e-5,
        hidden_act="silu", linear_a_log_min=1.0, linear_a_log_max=16.0, linear_dt_min=1e-3, linear_dt_max=0.1,
        linear_dt_init_floor=1e-4, layer_types=[""],
    )  # fmt: skip
    return found.OlmoHybridGatedDeltaNet(config, 0)


NAIVE = "flash-linear-attention/fla/ops/gated_delta_rule/naive.py"


def _naive() -> Any:
    """The layer of transformers with the plain recurrence of Gated DeltaNet's authors."""
    rule = classes(NAIVE, "naive_recurrent_gated_delta_rule").naive_recurrent_gated_delta_rule

    def instead(query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, **_: Any) -> Any:
        query, key = (each * torch.rsqrt(each.pow(2).sum(3, keepdim=True) + 1e-6) for each in (query, key))
        return rule(query, key, value, beta, g)

    return _gated_delta(instead)


def _context_first(names: Callable[[Named], Named]) -> Callable[[Named], Named]:
    """Our output layer reads the map, then the context; mmsegmentation's the other way about."""

    def theirs(ours: Named) -> Named:
        own, context = ours["output.0.weight"].chunk(2, dim=1)
        return names(ours | {"output.0.weight": torch.cat([context, own], dim=1)})

    return theirs


def _as_convolutions(ours: Named) -> Named:
    """Linear layers over the channels, as convolutions."""
    return {name: each[..., None, None] if each.dim() == 2 else each for name, each in ours.items()}


def _of_pair(pair: Pair, channels: int, sides: tuple[int, int]) -> Form:
    """A pair of public_forms.py, which is made for one shape."""

    def call(inner: Any, x: Tensor) -> Tensor:
        return pair.call(inner, x) - x if pair.has_residual else pair.call(inner, x)

    def names(ours: Named) -> Named:
        return {f"{pair.weights}.{name}" if pair.weights else name: each for name, each in ours.items()}

    def make() -> nn.Module:
        inner = pair.make((1, channels, *sides))
        for part in {"mlp", "norm1", "norm2"} & dict(inner.named_children()).keys():
            setattr(inner, part, nn.Identity())  # of a whole block, its attention alone is called
        return inner

    return Form(pair.block, pair.package, pair.name, make, channels, (sides,), call, names, pair.settings)


# Pairs that make float64 as they are, and have no row of their own.
PAIRED = {"eca", "pool", "dwconv", "gated_cnn", "swin", "grid", "deformable"}
SA = "fightingcv_attention/attention"
RELATIONS = (("long", "global"), ("short", "local"))
FORMS = (
    Form("mhsa", "torch/nn/modules/activation.py", "MultiheadAttention",
         lambda: nn.MultiheadAttention(32, 8, batch_first=True), 32, ((5, 7), (6, 4)),
         lambda inner, x: x + tokens(lambda inner, t: inner(t, t, t)[0])(inner, x),
         moved(project__weight="in_proj_weight", project__bias="in_proj_bias", output="out_proj")),
    Form("da", f"{HEADS}/da_head.py", "PAM and CAM", _da, 16, ((5, 7), (6, 4)), _branches,
         moved(position__query="pam.query_project", position__key="pam.key_project",
               position__value="pam.value_project", position__scale="pam.gamma.scale",
               channel__scale="cam.gamma.scale", position_head__0="pam_out_conv.conv",
               position_head__1="pam_out_conv.bn", channel_head__0="cam_out_conv.conv",
               channel_head__1="cam_out_conv.bn")),
    Form("isa", f"{HEADS}/isa_head.py", "ISAHead", _isa, 16, ((8, 8), (9, 6)), names=_context_first(moved(
         **{f"{own}__{kind}__{place}": f"{name}_relation.{kind}_project.{place // 3}.{('conv', 'bn')[place % 3]}"
            for own, name in RELATIONS for kind in ("query", "key")
            for place in (0, 1, 3, 4)},
         **{f"{own}__value": f"{name}_relation.value_project" for own, name in RELATIONS},
         **{f"{own}__output__{place}": f"{name}_relation.output_project.{part}"
            for own, name in RELATIONS for place, part in enumerate(("conv", "bn"))},
         output__0="out_conv.conv", output__1="out_conv.bn")), settings={"block": 4}),
    *(Form("non_local", f"{MMCV}/non_local.py", "NonLocal2d", partial(_non_local, mode), 16, ((5, 7), (6, 4)),
           names=moved(
             query="theta.conv", key="phi.conv", value="g.conv", output="conv_out.conv", norm="conv_out.bn"),
           settings={"mode": mode}) for mode in ("embedded_gaussian", "dot_product", "gaussian")),
    Form("gc", f"{MMCV}/context_block.py", "ContextBlock", lambda: _gc("channel_add"), 64, ((5, 7), (6, 4)),
         names=moved(mask="conv_mask", add="channel_add_conv")),
    Form("gc", f"{MMCV}/context_block.py", "ContextBlock", lambda: _gc("channel_add", "channel_mul"), 64,
         ((5, 7), (6, 4)), names=moved(mask="conv_mask", add="channel_add_conv", multiply="channel_mul_conv"),
         settings={"fusion": "both"}),
    Form("apnb", f"{HEADS}/ann_head.py", "APNB", _apnb, 16, ((9, 7), (12, 8)), names=moved(
         features__0="stages.0.key_project.conv", features__1="stages.0.key_project.bn",
         value="stages.0.value_project", context="stages.0.out_project", output__0="bottleneck.conv",
         output__1="bottleneck.bn")),
    Form("ppm", f"{HEADS}/psp_head.py", "PPM", _ppm, 16, ((7, 9), (6, 12)), _joined, moved(
         **{f"branches__{place}__{part}": f"{place}.1.{name}"
            for place in range(4) for part, name in enumerate(("conv", "bn"))}), {"fuse": False}, trains_one=False),
    Form("ham_nmf", f"{HEADS}/ham_head.py", "Hamburger", _ham, 16, ((5, 7), (6, 4)), names=moved(
         lower="ham_in.conv", upper="ham_out.conv", norm="ham_out.bn", bases="ham.bases"),
         settings={"rank": 8, "init": "fixed", "gradient": "bptt"}),
    Form("lka", "mmpretrain/models/backbones/van.py", "SpatialAttention", _lka, 8, ((24, 7), (9, 26)), names=moved(
         spatial_gating_unit__conv0="spatial_gating_unit.DW_conv",
         spatial_gating_unit__conv_spatial="spatial_gating_unit.DW_D_conv")),
    Form("msca", "mmseg/models/backbones/mscan.py", "MSCASpatialAttention", _msca, 8, ((24, 7), (9, 26))),
    Form("aspp", "torchvision/models/segmentation/deeplabv3.py", "ASPP", _aspp, 8, ((9, 7), (13, 14)), names=moved(
         point="convs.0", windows__0="convs.1", windows__1="convs.2", windows__2="convs.3", image__0="convs.4.1",
         image__1="convs.4.2", output="project"), settings={"width": 12, "rate": 2}, trains_one=False),
    Form("se", "timm/layers/squeeze_excite.py", "SEModule",
         lambda: timm.layers.SEModule(64, rd_divisor=1), 64, ((5, 7), (1, 1)),
         names=moved(squeeze="fc1", excite="fc2")),
    Form("coord", "timm/layers/coord_attn.py", "CoordAttn",
         lambda: timm.layers.coord_attn.CoordAttn(64, rd_channels=8, bias=True), 64,
         ((5, 7), (1, 4))),
    Form("xca", "timm/models/xcit.py", "XCA", lambda: _timm("models/xcit", "XCA").XCA(32, 8, qkv_bias=True), 32,
         ((5, 7), (6, 4)), tokens(lambda inner, x: inner(x))),
    Form("sra", "timm/models/pvt_v2.py", "Attention",
         lambda: _timm("models/pvt_v2", "Attention").Attention(32, 8, sr_ratio=4), 32, ((8, 12), (4, 4)),
         lambda inner, x: tokens(lambda inner, t: inner(t, x.shape[2:]))(inner, x)),
    Form("focal", "timm/models/focalnet.py", "FocalModulation",
         lambda: _timm("models/focalnet", "FocalModulation", LayerNorm2d=None).FocalModulation(16, 3, 2), 16,
         ((5, 7), (6, 4)), names=_as_convolutions),
    Form("lite_mla", "timm/models/efficientvit_mit.py", "LiteMLA", _lite_mla, 16, ((5, 7), (6, 4)),
         settings={"dim": 8}),
    *(Form("cga", "timm/models/efficientvit_msra.py", "LocalWindowAttention", partial(_cga, side), 64, ((side, side),),
           names=_in_attention) for side in (14, 7)),
    Form("area", "ultralytics/nn/modules/block.py", "AAttn", _area, 32, ((4, 7), (6, 6)), settings={"head_width": 16}),
    Form("acf", "encoding/nn/attention.py", "ACFModule", _acf, 8, ((6, 8), (8, 4)), names=moved(
         query_key="conv_qs", value="conv_vs", output="conv", norm="norm_layer"), settings={"batch_norm": True}),
    Form("spectral", "spandrel/architectures/LaMa/__arch/LaMa.py", "SpectralTransform", _spectral, 8, ((5, 7), (6, 8)),
         names=moved(input="conv1", bins__0="fu.conv_layer", bins__1="fu.bn", output="conv2")),
    Form("simam", f"{SA}/SimAM.py", "SimAM", lambda: classes(f"{SA}/SimAM.py", "SimAM").SimAM(), 8, ((5, 7), (6, 4))),
    Form("criss_cross", f"{SA}/CrissCrossAttention.py", "CrissCrossAttention",
         lambda: classes(f"{SA}/CrissCrossAttention.py", "INF", "CrissCrossAttention",
                         Softmax=nn.Softmax).CrissCrossAttention(16), 16, ((5, 7), (6, 4)), _twice,
         moved(query="query_conv", key="key_conv", value="value_conv")),
    Form("ssd", MAMBA, "Mamba2Mixer", _ssd, 32, ((5, 7), (6, 4)), tokens(lambda inner, x: inner(x)), settings={
         "bidirectional": False, "head_width": 16, "d_state": 8, "chunk_size": 16}),
    Form("gated_delta", OLMO, "OlmoHybridGatedDeltaNet", _gated_delta, 32, ((5, 7), (9, 8)),
         tokens(lambda inner, x: inner(x)), one_convolution, {"bidirectional": False}),
    Form("gated_delta", NAIVE, "naive_recurrent_gated_delta_rule", _naive, 32, ((5, 7), (9, 8)),
         tokens(lambda inner, x: inner(x)), one_convolution, {"bidirectional": False}),
    *(_of_pair(pair, 64, (14, 21)) for pair in PAIRS if pair.block in PAIRED),
)  # fmt: skip
