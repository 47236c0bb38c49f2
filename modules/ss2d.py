"""2D selective scan: a state space model reads the image along four routes, rows and columns, forwards and backwards.

Source: Liu et al., VMamba: Visual State Space Model, NeurIPS 2024. The released form `v05_noz`, without gate, with the
settings of VMamba-T `s1l8` and the published names of parameters. The rank of a step is C / 16, whatever `ssm_ratio`
is. Half types take steps, states and the sum of the routes in float32.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.meta.scan import selective_scan
from ctxbench.modules._checks import check_input, check_odd, check_positive
from ctxbench.modules._layers import ChannelLinear, depthwise, normalised, start_small, step_bias
from ctxbench.registry import register

ROUTES = 4


@register(
    "ss2d",
    title="2D selective scan (VMamba)",
    paper="Liu et al., VMamba: Visual State Space Model, NeurIPS 2024",
    year=2024,
    family="state space",
    params="ceil(ssm_ratio*C//1)*(2*C + (d_conv**2 if d_conv > 1 else 0) + 8*((C + 15)//16) + 12*d_state + 10)",
    macs="N*ceil(ssm_ratio*C//1)*(2*C + (d_conv**2 if d_conv > 1 else 0) + 8*((C + 15)//16) + 8*d_state + 1)"
    " + 4*N*ceil(ssm_ratio*C//1)*(4*d_state + 1)",
    complexity="n*C**2 + n*C*d_state",
    public_code="MzeroMiko/VMamba, MIT",
)
class SelectiveScan2d(nn.Module):
    """[B, C, H, W] to [B, C, H, W] with D = int(`ssm_ratio` * C) channels of `d_state` states on each route.

    `d_conv` is the size of the depthwise convolution, odd; below 2 there is none.
    """

    def __init__(self, channels: int, *, d_state: int = 1, ssm_ratio: float = 1.0, d_conv: int = 3) -> None:
        super().__init__()
        inner, rank = int(ssm_ratio * channels), -(-channels // 16)
        check_positive(channels=channels, d_state=d_state, **{"int(ssm_ratio * channels)": inner})
        check_odd("ss2d", d_conv=max(d_conv, 1))
        self.channels, self.widths = channels, (rank, d_state, d_state)
        self.in_proj = ChannelLinear(channels, inner, bias=False)
        self.out_proj = nn.Linear(inner, channels, bias=False)
        start_small(self.in_proj, self.out_proj)
        self.conv2d = depthwise(inner, d_conv, bias=False) if d_conv > 1 else nn.Identity()
        self.x_proj_weight = nn.Parameter(torch.empty(ROUTES, sum(self.widths), inner).uniform_(-1, 1) * inner**-0.5)
        self.dt_projs_weight = nn.Parameter(torch.empty(ROUTES, inner, rank).uniform_(-1, 1) * rank**-0.5)
        self.dt_projs_bias = nn.Parameter(step_bias(ROUTES, inner))
        self.A_logs = nn.Parameter(torch.arange(1.0, d_state + 1).log().repeat(ROUTES * inner, 1))
        self.Ds = nn.Parameter(torch.ones(ROUTES * inner))
        self.out_norm = nn.LayerNorm(inner)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "ss2d")
        read = self._scan(self._routes(x))
        rows, columns = (read[:, :2] + read[:, 2:].flip(2)).unbind(1)
        columns = torch.unflatten(columns, 1, (x.size(3), x.size(2))).transpose(1, 2).flatten(1, 2)
        out = self.out_proj(normalised(self.out_norm, rows + columns).to(x.dtype))
        return torch.unflatten(out.transpose(1, 2), 2, x.shape[2:])

    def _routes(self, x: Tensor) -> Tensor:
        """[B, 4, n, D]: the positions by rows, by columns, and both backwards."""
        image = functional.silu(self.conv2d(self.in_proj(x))).permute(0, 2, 3, 1).contiguous()
        there = torch.stack((image.flatten(1, 2), image.transpose(1, 2).flatten(1, 2)), 1)
        return torch.cat((there, there.flip(2)), 1)

    def _scan(self, routes: Tensor) -> Tensor:
        """[B, 4, n, D] to the same in float32 at least, each route in its own order."""
        wide = torch.promote_types(routes.dtype, torch.float32)
        rank, enter, leave = torch.matmul(routes, self.x_proj_weight.transpose(1, 2)).split(self.widths, 3)
        bias = self.dt_projs_bias.to(wide).unsqueeze(1)
        step = functional.softplus(torch.matmul(rank, self.dt_projs_weight.transpose(1, 2)).to(wide) + bias)
        rate = -torch.unflatten(self.A_logs.to(wide).exp(), 0, (ROUTES, -1))
        skip = torch.unflatten(self.Ds.to(wide), 0, (ROUTES, -1))
        read: Tensor = selective_scan(routes.to(wide), step, rate, enter.to(wide), leave.to(wide), skip)
        return read
