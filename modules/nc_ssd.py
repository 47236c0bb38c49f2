"""Non-causal state space duality: each position adds to one state of the whole image, and each reads it.

Source: Shi et al., VSSD: Vision Mamba with Non-Causal State Space Duality, arXiv:2407.18559, 2024. From its equations,
with the published names of parameters; the released nets have a head for each 64 inner channels. The state is a sum
over the positions, no mean: half types take it and the convolution before it, whose rounding the sum collects, in
float32. Beyond that convolution the positions are without order.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._checks import check_input, check_odd, check_positive
from ctxbench.modules._layers import ChannelLinear, depthwise, normalised, start_small, step_bias
from ctxbench.registry import register


@register(
    "nc_ssd",
    title="Non-causal state space duality (VSSD)",
    paper="Shi et al., VSSD: Vision Mamba with Non-Causal State Space Duality, arXiv:2407.18559",
    year=2024,
    family="state space",
    params="C*(3*expand*C + 2*d_state + heads) + (d_conv**2 + 1)*(expand*C + 2*d_state) + 3*heads + 2*expand*C",
    macs="N*(C*(3*expand*C + 2*d_state + heads) + d_conv**2*(expand*C + 2*d_state)) + 2*N*d_state*expand*C"
    " + N*(heads + 4*expand*C)",
    complexity="n*C**2 + n*C*d_state",
    public_code="YuHengsss/VSSD, no licence",
)
class NonCausalDuality(nn.Module):
    """[B, C, H, W] to [B, C, H, W] with `expand` * C inner channels, a multiple of `heads`, and `d_state` states.

    `d_conv`, odd, is the size of the depthwise convolution.
    """

    def __init__(self, channels: int, *, heads: int = 16, d_state: int = 64, expand: int = 2, d_conv: int = 3) -> None:
        super().__init__()
        check_positive(channels=channels, heads=heads, d_state=d_state, expand=expand, d_conv=d_conv)
        inner = expand * channels
        if inner % heads:
            raise ValueError(f"expand * channels is {inner}; nc_ssd needs a multiple of heads ({heads})")
        check_odd("nc_ssd", d_conv=d_conv)
        self.channels, self.heads = channels, heads
        self.parts, self.read = (inner, inner + 2 * d_state, heads), (inner, d_state, d_state)
        self.in_proj = ChannelLinear(channels, sum(self.parts), bias=False)
        self.out_proj = ChannelLinear(inner, channels, bias=False)
        start_small(self.in_proj, self.out_proj)
        self.conv2d = depthwise(inner + 2 * d_state, d_conv)
        self.dt_bias = nn.Parameter(step_bias(heads))
        self.A_log = nn.Parameter(torch.empty(heads).uniform_(1, 16).log())
        self.D = nn.Parameter(torch.ones(heads))
        self.norm = nn.LayerNorm(inner)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "nc_ssd")
        wide = torch.promote_types(x.dtype, torch.float32)
        gate, image, step = self.in_proj(x).split(self.parts, 1)
        local = self.conv2d
        weight, bias = local.weight.to(wide), local.bias.to(wide)
        image = functional.conv2d(image.to(wide), weight, bias, padding=local.padding, groups=local.groups)
        value, enter, leave = functional.silu(image).flatten(2).split(self.read, 1)
        step = functional.softplus(step.flatten(2).to(wide) + self.dt_bias.to(wide)[:, None])
        weight = step * self.A_log.to(wide).exp()[:, None]  # [B, heads, n]
        heads = torch.unflatten(value, 1, (self.heads, -1))
        state = torch.bmm((heads * weight.unsqueeze(2)).flatten(1, 2), enter.transpose(1, 2))  # [B, D, d_state]
        skip = (heads * self.D.to(wide)[:, None, None]).flatten(1, 2)
        context = normalised(self.norm, (torch.bmm(state, leave) + skip).transpose(1, 2)).transpose(1, 2).to(x.dtype)
        out: Tensor = self.out_proj(torch.unflatten(context, 2, x.shape[2:]) * gate)
        return out
