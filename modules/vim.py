"""Vision Mamba: a state space model reads the positions row by row, and another, with own weights, backwards.

Source: Zhu et al., Vision Mamba: Efficient Visual Representation Learning with Bidirectional State Space Model, ICML
2024. The form `v2` with the published names of parameters; without class token, norm and residual. As published, the
backward direction starts with long steps, torch's default, so that at the start of training it reaches a few positions
alone; the forward one starts with short steps and reaches all. Half types take steps and states in float32.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.meta.scan import selective_scan
from ctxbench.modules._checks import check_input, check_positive
from ctxbench.modules._layers import ChannelLinear, step_bias
from ctxbench.registry import register


@register(
    "vim",
    title="Vision Mamba (Vim)",
    paper="Zhu et al., Vision Mamba: Efficient Visual Representation Learning with Bidirectional State Space Model, "
    "ICML 2024",
    year=2024,
    family="state space",
    params="expand*C*(3*C + 2*(d_conv + 2*((C + 15)//16) + 3*d_state + 3))",
    macs="N*expand*C*(3*C + 2*(d_conv + 2*((C + 15)//16) + 2*d_state) + 1) + 2*N*expand*C*(4*d_state + 1)",
    complexity="n*C**2 + n*C*d_state",
    public_code="hustvl/Vim, Apache-2.0",
)
class VisionMamba(nn.Module):
    """[B, C, H, W] to [B, C, H, W] with `expand` * C channels of `d_state` states in each direction.

    `d_conv` is the width of the causal convolution.
    """

    def __init__(self, channels: int, *, d_state: int = 16, d_conv: int = 4, expand: int = 2) -> None:
        super().__init__()
        check_positive(channels=channels, d_state=d_state, d_conv=d_conv, expand=expand)
        inner, rank = expand * channels, -(-channels // 16)
        self.channels, self.widths = channels, (rank, d_state, d_state)
        self.in_proj = ChannelLinear(channels, 2 * inner, bias=False)
        self.conv1d, self.conv1d_b = (nn.Conv1d(inner, inner, d_conv, groups=inner) for _ in range(2))
        self.x_proj, self.x_proj_b = (nn.Linear(inner, sum(self.widths), bias=False) for _ in range(2))
        self.dt_proj, self.dt_proj_b = (nn.Linear(rank, inner) for _ in range(2))
        self.A_log, self.A_b_log = (
            nn.Parameter(torch.arange(1.0, d_state + 1).log().repeat(inner, 1)) for _ in range(2)
        )
        self.D, self.D_b = (nn.Parameter(torch.ones(inner)) for _ in range(2))
        self.out_proj = nn.Linear(inner, channels, bias=False)
        nn.init.uniform_(self.dt_proj.weight, -(rank**-0.5), rank**-0.5)
        with torch.no_grad():
            self.dt_proj.bias.copy_(step_bias(inner))

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "vim")
        tokens, gate = self.in_proj(x).flatten(2).chunk(2, 1)
        context = self._scan(tokens, self.conv1d, self.x_proj, self.dt_proj, self.A_log, self.D)
        back = tokens.flip(2), self.conv1d_b, self.x_proj_b, self.dt_proj_b, self.A_b_log, self.D_b
        context = (context + self._scan(*back).flip(1)) / 2
        out = self.out_proj(context.to(x.dtype) * functional.silu(gate).transpose(1, 2))
        return torch.unflatten(out.transpose(1, 2), 2, x.shape[2:])

    def _scan(
        self, tokens: Tensor, conv: nn.Conv1d, x_proj: nn.Module, dt_proj: nn.Module, rate_log: Tensor, skip: Tensor
    ) -> Tensor:
        """[B, D, n] to [B, n, D] in float32 at least, in the order of the tokens."""
        wide = torch.promote_types(tokens.dtype, torch.float32)
        tokens = functional.silu(conv(functional.pad(tokens, (conv.kernel_size[0] - 1, 0))))
        tokens = tokens.transpose(1, 2).contiguous()
        rank, enter, leave = x_proj(tokens).split(self.widths, 2)
        step = functional.softplus(dt_proj(rank).to(wide))
        rate = -rate_log.to(wide).exp()[None]
        value, step, enter, leave = (each.to(wide).unsqueeze(1) for each in (tokens, step, enter, leave))
        read: Tensor = selective_scan(value, step, rate, enter, leave, skip.to(wide)[None])
        return read.squeeze(1)  # one route
