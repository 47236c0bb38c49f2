"""Networks of papers of 2025 and 2026, by their own public code in clones below $PAPERS, for the tables in papers/.

Of `mamba_ssm`, whose kernels need CUDA, there is a stand-in with its documented layers, which scans nothing. That a
kernel runs in the place of these layers is a state of a counter, which knows them by the name of their class. Other
operators that need CUDA have stand-ins that read their inputs and compute nothing, or products of the same sizes.
Detectors need opencv-python, scipy and what else their code imports, RF-DETR an environment with transformers 4.57.1.
"""

import importlib
import math
import os
import sys
import warnings
from argparse import Namespace
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parent))  # audit imports this file by its path

from public_sources import classes

from ctxbench.registry.torchvision import with_torchvision


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
        with_torchvision(lambda: importlib.import_module("torchvision"))
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


def edge_crafter(folder: str = "ecdetseg", name: str = "ecdet/ecdet_s") -> nn.Module:
    """EdgeCrafter of a configuration, as deployed. Its logs, data and counter are absent."""
    absent = {each: _Absent(each) for each in ("calflops", "torch.utils.tensorboard", "engine.data", "engine.solver")}
    code = imported(f"EdgeCrafter/{folder}", "engine.core", **absent)
    file = Path(os.environ["PAPERS"]) / "EdgeCrafter" / folder / "configs" / f"{name}.yml"
    return _network(code.YAMLConfig(str(file), ViTAdapter={"skip_load_backbone": True}).model.deploy())


def rf_detr(size: str = "Nano") -> nn.Module:
    """RF-DETR of a size, with transformers 4.57; its training, which imports other packages, is absent."""
    importlib.import_module("transformers.pytorch_utils")  # which looks whether there is a peft
    package = _module("rfdetr", __path__=[str(Path(os.environ["PAPERS"]) / "rf-detr" / "rfdetr")])
    names = ("peft", "rfdetr.detr", "rfdetr.models.matcher", "rfdetr.models.segmentation_head")
    code = imported("rf-detr", "rfdetr.models.lwdetr", rfdetr=package, **{each: _Absent(each) for each in names})
    configs = importlib.import_module("rfdetr.platform.models" if "XL" in size else "rfdetr.config")
    config = getattr(configs, f"RFDETR{size}Config")(device="cpu")
    # The defaults of its main.py of what no configuration has.
    own: dict[str, Any] = dict.fromkeys(("pretrained_encoder", "window_block_indexes"))
    own |= dict.fromkeys(("use_cls_token", "freeze_encoder", "rms_norm", "backbone_lora"), False)
    own |= dict.fromkeys(("force_no_pretrain", "encoder_only", "backbone_only"), False)
    own |= {"vit_encoder_num_layers": 12, "dropout": 0, "drop_path": 0, "position_embedding": "sine"}
    own |= {"dim_feedforward": 2048, "decoder_norm": "LN", "aux_loss": True, "num_queries": 300}
    return _network(code.build_model(Namespace(**own | config.model_dump())))


def yolov13(size: str = "n") -> nn.Module:
    """YOLOv13 of a size."""
    return _detector("yolov13", f"yolov13{size}.yaml")


def yolo_master(name: str = "v0/det/yolo-master-n") -> nn.Module:
    """YOLO-Master of a file, without the loss of its experts' load, which a forward pass computes beside its output."""
    file = Path(os.environ["PAPERS"]) / "YOLO-Master" / "ultralytics" / "cfg" / "models" / "master" / f"{name}.yaml"
    network = _detector("YOLO-Master", str(file))
    for each in network.modules():
        if hasattr(each, "_compute_load_balancing_loss"):
            vars(each)["_compute_load_balancing_loss"] = lambda *weights: None
    return network


def _detector(folder: str, config: str) -> nn.Module:
    """A detector of a repository's own copy of ultralytics, whose norms are a part of convolutions, as in val()."""
    os.environ |= {"YOLO_OFFLINE": "true", "YOLO_VERBOSE": "false", "YOLO_AUTOINSTALL": "false"}
    code = imported(folder, "ultralytics.nn.tasks")

    class Kept(code.DetectionModel):  # type: ignore[misc, name-defined]  # of code without types
        """Keeps the strides of its maps, whose values it reads, where they are."""

        def _apply(self, fn: Any, recurse: bool = True) -> Any:
            return nn.Module._apply(self, fn, recurse)

    with torch.device("cpu"):  # it reads values as it is made
        return _network(Kept(config, verbose=False).eval().fuse(verbose=False))


def uni_conv_net(name: str = "UniConvNet_A", folder: str = "models_A-P2") -> nn.Module:
    """UniConvNet of a size, with the stand-in of its deformable convolutions."""
    code = imported("UniConvNet", f"{folder}.UniConvNet", **_DCNV3)
    return _network(getattr(code, name)())


def a2mamba(name: str = "n") -> nn.Module:
    """A2Mamba of a size, with stand-ins of its scan and its neighbourhood attention; its counter is absent."""
    absent = {each: _Absent(each) for each in ("mmengine.runner", "natten.flops")}
    attention = _module("natten.functional", na2d_qk=_of_neighbours, na2d_av=_from_neighbours)
    code = imported("A2Mamba", "models.a2mamba", **absent, **{"natten.functional": attention}, **_SCAN)
    return _network(getattr(code, f"a2mamba_{name}")())


def damamba(name: str = "T") -> nn.Module:
    """DAMamba of a size, with stand-ins of its scan and its sampling."""
    code = imported("DAMamba/classification", "models.DAMamba", **_DCNV3, **_SCAN)
    return _network(getattr(code, f"DAMamba_{name}")())


def tiny_vim(name: str = "S", distillation: bool = True) -> nn.Module:
    """TinyViM of a size with its norms folded, as it is evaluated, with the stand-in of its scan."""
    helpers = {"timm.models.layers.helpers": _module("helpers", to_2tuple=lambda size: (size, size))}
    code = imported("TinyViM", "model.tinyvim", **helpers, **_SCAN)
    network = _network(getattr(code, f"TinyViM_{name}")(distillation=distillation))
    imported("TinyViM", "utils").replace_batchnorm(network)
    return network


def _module(name: str, **names: Any) -> ModuleType:
    """A module of these names."""
    module = ModuleType(name)
    vars(module).update(names)
    return module


def _read(*tensors: Tensor | None) -> Tensor:
    """A tensor in the shape of the first that reads all of them and computes nothing."""
    first = tensors[0]
    assert first is not None
    parts = [each.flatten() for each in tensors if each is not None]
    return torch.cat(parts)[: first.numel()].view_as(first)


def _scanned(x: Tensor, steps: Tensor, decay: Tensor, b: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    """Outputs and last states of a scan's kernel, in their shapes."""
    found = _read(x, steps, decay, b, *(each for each in others if isinstance(each, Tensor)))
    return found, x[:, :, None, :2]


def _states(*inputs: Any) -> tuple[Tensor, Tensor]:
    """The same of a kernel that returns the state of each position, of which there is one."""
    found, last = _scanned(*inputs)
    return found[:, :, None], last


def _of_neighbours(q: Tensor, k: Tensor, kernel_size: tuple[int, int], rpb: Tensor, **others: Any) -> Tensor:
    """Products of queries [B, h, H, W, d] with as many keys as a window has, in place of its own."""
    keys = k.flatten(2, 3)[:, :, : math.prod(kernel_size)]
    return _read((q.flatten(2, 3) @ keys.transpose(2, 3)).unflatten(2, q.shape[2:4]), rpb)


def _from_neighbours(weights: Tensor, v: Tensor, **others: Any) -> Tensor:
    """Products of weights [B, h, H, W, n] with n values, in place of those of the window."""
    found: Tensor = weights.flatten(2, 3) @ v.flatten(2, 3)[:, :, : weights.shape[-1]]
    out: Tensor = found.unflatten(2, v.shape[2:4])
    return out


_DCNV3 = {
    "DCNv3": _module("DCNv3", dcnv3_forward=lambda x, offsets, mask, *others: _read(x, offsets, mask)),
    "pkg_resources": _module("pkg_resources", get_distribution=lambda name: _module(name, version="1.1")),
}
_SCAN = {
    "selective_scan_cuda": _module("selective_scan_cuda", fwd=_scanned),
    "selective_scan_cuda_oflex_rh": _module("selective_scan_cuda_oflex_rh", fwd=_states),
}


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
