"""ResNet-50 whose last two stages are dilated, and a head of 512 channels: where most segmentation modules are tried.

Source: Chen et al., Rethinking Atrous Convolution for Semantic Image Segmentation, 2017 (output stride 8); Zhao et al.,
Pyramid Scene Parsing Network, CVPR 2017. No auxiliary head.
"""

from torch import nn

from ctxbench.networks._parts import Segmentation, backbone
from ctxbench.registry.networks import MakeModule, network


@network(
    "resnet50_d8",
    title="Dilated ResNet-50, output stride 8, head of 512 channels",
    paper="Zhao et al., Pyramid Scene Parsing Network, CVPR 2017",
    shape=(1, 3, 512, 512),
    multiple=8,
)
def resnet50_d8(make_module: MakeModule) -> nn.Module:
    """[B, 3, H, W] to [B, 19, H, W]; the slot has 512 channels at H / 8."""
    features = backbone("resnet50", features_only=True, output_stride=8, out_indices=(4,))
    model: nn.Module = Segmentation(features, make_module(512), 512)
    return model
