"""Context anchor attention: a mean over a small window, then a row and a column of weights, scale each position.

Source: Cai et al., Poly Kernel Inception Network for Remote Sensing Detection, CVPR 2024. The published class gives the
scale, and the networks multiply another branch by it; here the input is multiplied. `norm` False is the form of the
released networks, True that of the class alone. Not global: nothing outside the window is seen.
"""

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._checks import check_input, check_odd, check_positive
from ctxbench.modules._layers import depthwise, gradient_in_order
from ctxbench.registry import register


@register(
    "caa",
    title="Context anchor attention (CAA)",
    paper="Cai et al., Poly Kernel Inception Network for Remote Sensing Detection, CVPR 2024",
    year=2024,
    family="large kernel",
    params="2*C**2 + 2*C + 2*(kernel_size + 1)*C + (2*C if norm else 0)",
    macs="N*(2*C**2 + 2*kernel_size*C + 2*C + (2*C if norm else 0))",
    complexity="n*C**2",
    position_mixing=False,
    reach="min(kernel_size + 6, H)*min(kernel_size + 6, W)",
    public_code="NUST-Machine-Intelligence-Laboratory/PKINet, Apache-2.0",
)
class ContextAnchorAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; strips of `kernel_size`, odd; `norm`: batch norms and SiLU after the 1x1 layers."""

    def __init__(self, channels: int, *, kernel_size: int = 11, norm: bool = False) -> None:
        super().__init__()
        check_positive(channels=channels, kernel_size=kernel_size)
        check_odd("caa", kernel_size=kernel_size)
        self.channels, self.norm = channels, norm
        self.conv1, self.conv2 = self._mixing(), self._mixing()
        self.h_conv = nn.Sequential(OrderedDict(conv=depthwise(channels, (1, kernel_size))))
        self.v_conv = nn.Sequential(OrderedDict(conv=depthwise(channels, (kernel_size, 1))))

    def _mixing(self) -> nn.Sequential:
        layers = OrderedDict[str, nn.Module](conv=nn.Conv2d(self.channels, self.channels, 1, bias=not self.norm))
        if self.norm:
            layers |= {"bn": nn.BatchNorm2d(self.channels, eps=1e-3, momentum=0.03), "act": nn.SiLU()}
        return nn.Sequential(layers)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "caa")
        scale = self.conv1(functional.avg_pool2d(x, 7, stride=1, padding=3))
        scale = gradient_in_order(self.conv2(self.v_conv(self.h_conv(scale))))
        return x * torch.sigmoid(scale)
