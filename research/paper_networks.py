"""Networks of papers of 2025 and 2026, by their own public code in clones below $PAPERS, for the tables in papers/.

Of `mamba_ssm`, whose kernels need CUDA, there is a stand-in with its documented layers, which scans nothing. That a
kernel runs in the place of these layers is a state of a counter, which knows them by the name of their class.
"""

import importlib
import math
import os
import sys
import warnings
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parent))  # audit imports this file by its path

from public_sources import classes


class Mamba(nn.Module):
    """Layers of Mamba; by its slow path, which uses the weights of two of them without calling these."""

    def __init__(self, d_model: int, d_state: int = 16, d_conv: int = 4, expand: int = 2, **others: Any) -> None:
        super().__init__()
        inner, rank = expand * d_model, math.ceil(d_model / 16)
        self.in_proj = nn.Linear(d_model, 2 * inner, bias=False)
        self.conv1d = nn.Conv1d(inner, inner, d_conv, groups=inner, padding=d_conv - 1)
        self.x_proj = nn.Linear(inner, rank + 2 * d_state, bias=False)
        self.dt_proj = nn.Linear(rank, inner)
        self.A_log = nn.Parameter(torch.zeros(inner, d_state))
        self.D = nn.Parameter(torch.ones(inner))
        self.out_proj = nn.Linear(inner, d_model, bias=False)
        self.rank = rank

    def forward(self, tokens: Tensor) -> Tensor:
        """Map [B, N, C] to [B, N, C]."""
        x, gate = (self.in_proj.weight @ tokens.transpose(1, 2)).chunk(2, 1)
        x = self.conv1d(x)[..., : tokens.shape[1]]
        steps = self.x_proj(x.transpose(1, 2))[..., : self.rank]
        x = x + self.dt_proj.weight @ steps.transpose(1, 2)
        found: Tensor = self.out_proj((x + gate).transpose(1, 2))
        return found


def imported(folder: str, name: str, **stand_ins: ModuleType) -> Any:
    """A module of a clone; `stand_ins` take the place of packages that it imports."""
    place = str(Path(os.environ["PAPERS"]) / folder)
    sys.path.insert(0, place)
    sys.modules.update(stand_ins)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(place)


def _with_mamba(folder: str, name: str) -> Any:
    """A module that imports `mamba_ssm`, with the stand-in."""
    module = ModuleType("mamba_ssm")
    module.Mamba = Mamba  # type: ignore[attr-defined]  # a new module has none
    return imported(folder, name, mamba_ssm=module)


def mamba_lite() -> nn.Module:
    """MambaLiteUNet of its default widths."""
    return _network(_with_mamba("MambaLiteUNet", "models.MambaLiteUNet").MambaLiteUNet())


def ultra_lbm(multiplier: float = 1.0) -> nn.Module:
    """UltraLBM-UNet; T has half of the channels."""
    code = _with_mamba("UltraLBM-UNet", "models.UltraLBM_UNet")
    return _network(code.UltraLBM_UNet(channel_multiplier=multiplier))


def mk_unet(name: str = "MK_UNet") -> nn.Module:
    """MK-UNet of a size."""
    return _network(getattr(imported("MK-UNet", "mkunet_network"), name)())


def vit3(width: int = 192, heads: int = 6) -> nn.Module:
    """The plain ViT^3 of a width. Its own function passes an argument that timm has no more."""
    code = imported("ViTTT/vittt", "models.vittt")
    return _network(code.VisionTransformer(patch_size=16, embed_dim=width, depth=12, num_heads=heads))


def h_vit3(name: str = "tiny") -> nn.Module:
    """The hierarchical ViT^3 of a size."""
    return _network(getattr(imported("ViTTT/vittt", "models.h_vittt"), f"h_vittt_{name}")())


def recnext(name: str = "m0") -> nn.Module:
    """RecNeXt of a size with its norms folded, as the repository's flops.py counts it."""
    code = imported("RecNeXt", "model.recattn" if name.startswith("a") else "model.recnext")
    network = _network(getattr(code, f"recnext_{name}")(num_classes=1000))
    imported("RecNeXt", "utils").replace_batchnorm(network)
    return network


def deimv2(name: str = "hgnetv2_atto") -> nn.Module:
    """DEIMv2 of a size as its get_info.py counts it: as deployed. Its logs, data and counter are absent."""
    absent = {each: _Absent(each) for each in ("calflops", "torch.utils.tensorboard", "engine.data")}
    code = imported("DEIMv2", "engine.core", **absent)
    file = Path(os.environ["PAPERS"]) / "DEIMv2" / "configs" / "deimv2" / f"deimv2_{name}_coco.yml"
    own = {"HGNetv2": {"pretrained": False}} if name.startswith("hgnetv2") else {}
    return _network(code.YAMLConfig(str(file), **own).model.deploy())


class _Absent(ModuleType):
    """A module whose names are there, and nothing behind them."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return object


def vit5(name: str = "small") -> nn.Module:
    """ViT-5 of a size."""
    return _network(getattr(imported("ViT-5", "models_vit5"), f"vit5_{name}")())


def biformer(name: str = "tiny") -> nn.Module:
    """BiFormer of a size. Its checkpoints during training are absent."""
    code = imported("BiFormer", "models.biformer", **{"fairscale.nn.checkpoint": _Absent("fairscale.nn.checkpoint")})
    return _network(getattr(code, f"biformer_{name}")())


def intern_image() -> nn.Module:
    """InternImage-T by its configuration, with the plain form of its deformable convolution in the kernel's place."""
    versions = ModuleType("pkg_resources")
    versions.get_distribution = lambda name: SimpleNamespace(version="1.0")  # type: ignore[attr-defined]
    stand_ins = {"DCNv3": _Absent("DCNv3"), "pkg_resources": versions}
    code = imported("InternImage/classification", "models.intern_image", **stand_ins)
    return _network(code.InternImage("DCNv3_pytorch", 64, [4, 4, 18, 4], [4, 8, 16, 32]))


class Neighbours:
    """The products of natten's kernels in windows that end at the border with zeros, where natten's stay in the map."""

    @staticmethod
    def logits(query: Tensor, key: Tensor, bias: Tensor, size: int, dilation: int) -> Tensor:
        return (query.unsqueeze(-2) @ Neighbours.around(key, size, dilation).transpose(-2, -1)).squeeze(-2)

    @staticmethod
    def mixed(weights: Tensor, value: Tensor, size: int, dilation: int) -> Tensor:
        return (weights.unsqueeze(-2) @ Neighbours.around(value, size, dilation)).squeeze(-2)

    @staticmethod
    def around(maps: Tensor, size: int, dilation: int) -> Tensor:
        """[B, heads, H, W, d] to [B, heads, H, W, size squared, d]."""
        image = maps.flatten(0, 1).permute(0, 3, 1, 2)
        found = nn.functional.unfold(image, size, dilation, padding=size // 2 * dilation)
        return found.view(*maps.shape[:2], maps.shape[4], size**2, *maps.shape[2:4]).permute(0, 1, 4, 5, 3, 2)


def dat(name: str = "tiny") -> nn.Module:
    """DAT++ of a size. Neighbourhood attention is a kernel of natten; a stand-in has its products."""
    import yaml

    kernels = _Absent("natten.functional")
    kernels.NATTEN2DQKRPBFunction = SimpleNamespace(apply=Neighbours.logits)  # type: ignore[attr-defined]
    kernels.NATTEN2DAVFunction = SimpleNamespace(apply=Neighbours.mixed)  # type: ignore[attr-defined]
    code = imported("DAT", "models.dat", **{"natten.functional": kernels, "natten": _Absent("natten")})
    file = Path(os.environ["PAPERS"]) / "DAT" / "configs" / f"dat_{name}.yaml"
    return _network(code.DAT(**yaml.safe_load(file.read_text(encoding="utf-8"))["MODEL"]["DAT"]))


def lsknet() -> nn.Module:
    """The backbone LSKNet-T of its configuration, whose normalisation is batch norm."""
    from mmcv.cnn import build_norm_layer
    from mmengine.model import BaseModule, constant_init, normal_init, trunc_normal_init
    from timm.layers import DropPath, to_2tuple, trunc_normal_

    names = ("Mlp", "LSKblock", "Attention", "Block", "OverlapPatchEmbed", "DWConv", "LSKNet")
    found = classes(
        "LSKNet/mmrotate/models/backbones/lsknet.py", *names, build_norm_layer=build_norm_layer, BaseModule=BaseModule,
        constant_init=constant_init, normal_init=normal_init, trunc_normal_init=trunc_normal_init, DropPath=DropPath,
        to_2tuple=to_2tuple, trunc_normal_=trunc_normal_, ROTATED_BACKBONES=REGISTRY, partial=partial,
        warnings=warnings,
    )  # fmt: skip
    return _network(found.LSKNet(embed_dims=[32, 64, 160, 256], depths=[3, 3, 5, 2], norm_cfg={"type": "BN"}))


def pkinet(arch: str = "T") -> nn.Module:
    """The backbone PKINet of a size."""
    from mmcv.cnn import ConvModule, build_norm_layer
    from mmcv.cnn.bricks import DropPath
    from mmengine.model import BaseModule, constant_init, normal_init, trunc_normal_init

    places = classes("PKINet/mmrotate/models/utils/cnn.py", "autopad", "make_divisible", "BHWC2BCHW", "BCHW2BHWC")
    names = (
        "GSiLU", "CAA", "ConvFFN", "Stem", "DownSamplingLayer", "InceptionBottleneck", "PKIBlock", "PKIStage", "PKINet",
    )  # fmt: skip
    found = classes(
        "PKINet/mmrotate/models/backbones/pkinet.py", *names, **vars(places), ConvModule=ConvModule,
        build_norm_layer=build_norm_layer, DropPath=DropPath, BaseModule=BaseModule, constant_init=constant_init,
        normal_init=normal_init, trunc_normal_init=trunc_normal_init, ROTATED_BACKBONES=REGISTRY,
        _BatchNorm=nn.modules.batchnorm._BatchNorm,
    )  # fmt: skip

    class Returned(found.PKINet):  # type: ignore[misc,name-defined]  # public code
        def train(self, mode: bool = True) -> "Returned":
            """As theirs, which returns nothing."""
            super().train(mode)
            return self

    return _network(Returned(arch, out_indices=(1, 2, 3, 4)))


REGISTRY = SimpleNamespace(register_module=lambda *_, **__: lambda made: made)


def _network(found: Any) -> nn.Module:
    assert isinstance(found, nn.Module)
    return found
