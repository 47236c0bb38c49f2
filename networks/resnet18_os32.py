"""ResNet-18 with its full output stride and a head of 128 channels: small enough for a laptop.

Source: He et al., Deep Residual Learning for Image Recognition, CVPR 2016, with the head of `resnet50_d8`.
"""

from torch import nn

from ctxbench.networks._parts import Segmentation, backbone
from ctxbench.registry.networks import MakeModule, network


@network(
    "resnet18_os32",
    title="ResNet-18, output stride 32, head of 128 channels",
    paper="He et al., Deep Residual Learning for Image Recognition, CVPR 2016",
    shape=(1, 3, 512, 512),
    multiple=32,
)
def resnet18_os32(make_module: MakeModule) -> nn.Module:
    """[B, 3, H, W] to [B, 19, H, W]; the slot has 128 channels at H / 32."""
    model: nn.Module = Segmentation(backbone("resnet18", features_only=True, out_indices=(4,)), make_module(128), 128)
    return model
