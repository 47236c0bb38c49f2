"""State space duality of Mamba-2, in both directions: each head's state decays by one number a position, row by row.

Source: Dao and Gu, Transformers are SSMs: Generalized Models and Efficient Algorithms Through Structured State Space
Duality, ICML 2024; the published block, joined with a second direction of its own weights as in `vim`. Positions of a
chunk meet as in attention, and a scan runs over the states of the chunks: the cost is linear in n, and the result does
not depend on the length of a chunk. Half types take all of it in float32.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.meta.scan import selective_scan
from ctxbench.modules._checks import check_input, check_positive
from ctxbench.modules._layers import ChannelLinear, step_bias, without_autocast
from ctxbench.registry import register

LEAST_STEP = 1e-12  # of a chunk: its decay is 1, and a state that is divided by it stays finite


@register(
    "ssd",
    title="State space duality (Mamba-2)",
    paper="Dao and Gu, Transformers are SSMs: Generalized Models and Efficient Algorithms Through Structured State "
    "Space Duality, ICML 2024",
    year=2024,
    family="state space",
    params="C*(3*expand*C + 2*d_state + expand*C//head_width) + expand*C"
    " + (2 if bidirectional else 1)*((d_conv + 1)*(expand*C + 2*d_state) + 3*(expand*C//head_width))",
    macs="N*(C*(3*expand*C + 2*d_state + expand*C//head_width) + 3*expand*C + 1) + (2 if bidirectional else 1)*("
    "N*(d_conv*(expand*C + 2*d_state) + 2*expand*C + expand*C//head_width) + B*(-(-n//chunk_size))*("
    "chunk_size**2*(d_state + expand*C + expand*C//head_width) + (2*chunk_size*(d_state + 1) + 5*d_state)*expand*C))",
    complexity="n*C**2 + n*C*(chunk_size + d_state)",
    public_code="state-spaces/mamba, Apache-2.0",
)
class StateSpaceDuality(nn.Module):
    """[B, C, H, W] to [B, C, H, W] with `expand` * C inner channels in heads of `head_width`, and `d_state` states.

    `d_conv` is the width of the causal convolution; `bidirectional` reads the positions backwards, too.
    """

    def __init__(
        self,
        channels: int,
        *,
        head_width: int = 64,
        d_state: int = 64,
        d_conv: int = 4,
        expand: int = 2,
        chunk_size: int = 64,
        bidirectional: bool = True,
    ) -> None:
        super().__init__()
        check_positive(channels=channels, head_width=head_width, d_state=d_state, d_conv=d_conv, expand=expand)
        check_positive(chunk_size=chunk_size)
        if (inner := expand * channels) % head_width:
            raise ValueError(f"expand * channels is {inner}; ssd needs a multiple of head_width ({head_width})")
        heads, mixed = inner // head_width, inner + 2 * d_state
        self.channels, self.heads, self.chunk_size, self.bidirectional = channels, heads, chunk_size, bidirectional
        self.parts, self.read = (inner, mixed, heads), (inner, d_state, d_state)
        self.in_proj = ChannelLinear(channels, sum(self.parts), bias=False)
        for end in ("", "_b")[: 1 + bidirectional]:
            setattr(self, f"conv1d{end}", nn.Conv1d(mixed, mixed, d_conv, groups=mixed))
            setattr(self, f"dt_bias{end}", nn.Parameter(step_bias(heads)))
            setattr(self, f"A{end}_log", nn.Parameter(torch.empty(heads).uniform_(1, 16).log()))
            setattr(self, f"D{end}", nn.Parameter(torch.ones(heads)))
        self.norm, self.out_proj = nn.RMSNorm(inner, eps=1e-5), nn.Linear(inner, channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "ssd")
        gate, mixed, step = self.in_proj(x).flatten(2).split(self.parts, 1)
        context = self._direction(mixed, step, "")  # [B, n, D]
        if self.bidirectional:
            context = (context + self._direction(mixed.flip(2), step.flip(2), "_b").flip(1)) / 2
        context = context * functional.silu(gate.to(context.dtype)).transpose(1, 2)
        scale = torch.rsqrt(context.pow(2).mean(2, keepdim=True) + 1e-5)
        out = self.out_proj((context * scale * self.norm.weight.to(context.dtype)).to(x.dtype))
        return torch.unflatten(out.transpose(1, 2), 2, x.shape[2:])

    def _direction(self, mixed: Tensor, step: Tensor, end: str) -> Tensor:
        """[B, D + 2 S, n] and steps [B, heads, n] to [B, n, D] in float32 at least, in the order of the positions."""
        names = (f"conv1d{end}", f"dt_bias{end}", f"A{end}_log", f"D{end}")
        conv, bias, rate_log, skip = (getattr(self, name) for name in names)
        wide = torch.promote_types(mixed.dtype, torch.float32)
        mixed = functional.silu(conv(functional.pad(mixed, (conv.kernel_size[0] - 1, 0))))
        value, enter, leave = mixed.to(wide).transpose(1, 2).split(self.read, 2)
        step = functional.softplus(step.to(wide) + bias.to(wide)[:, None]).transpose(1, 2)  # [B, n, heads]
        decay = step * -rate_log.to(wide).exp()
        heads = torch.unflatten(value, 2, (self.heads, -1))
        with without_autocast(mixed):
            read = self._chunks((heads * step.unsqueeze(3)).flatten(2), decay, enter, leave)
        out: Tensor = read[:, : value.size(1)] + (heads * skip.to(wide)[:, None]).flatten(2)
        return out

    def _chunks(self, driven: Tensor, decay: Tensor, enter: Tensor, leave: Tensor) -> Tensor:
        """[B, n, D], with logarithms of decays [B, n, heads], to [B, n, D] with n filled up to whole chunks."""
        batch, length = driven.size(0), self.chunk_size
        missing = -driven.size(1) % length
        driven, decay, enter, leave = (
            (functional.pad(each, (0, 0, 0, missing)) if missing else each).reshape(-1, length, each.size(2))
            for each in (driven, decay, enter, leave)
        )
        heads = torch.unflatten(driven, 2, (self.heads, -1)).transpose(1, 2)  # [B m, heads, T, D / heads]
        total = decay.transpose(1, 2).cumsum(2)  # [B m, heads, T]
        later = torch.ones(length, length, dtype=torch.bool, device=driven.device).triu(1)
        between = (total.unsqueeze(3) - total.unsqueeze(2)).masked_fill(later, -torch.inf).exp()
        inside = (between * (leave @ enter.transpose(1, 2)).unsqueeze(1)) @ heads
        kept = (heads * (total[..., -1:] - total).exp().unsqueeze(3)).transpose(1, 2).flatten(2)
        before = self._before(enter.transpose(1, 2) @ kept, total[..., -1], batch)  # [B m, S, D]
        carried = torch.unflatten(leave @ before, 2, (self.heads, -1)) * total.exp().transpose(1, 2).unsqueeze(3)
        return (inside.transpose(1, 2) + carried).flatten(2).reshape(batch, -1, driven.size(2))

    def _before(self, states: Tensor, total: Tensor, batch: int) -> Tensor:
        """The state before each chunk, from what each adds [B m, S, D] and its decay's logarithm [B m, heads]."""
        step = (-total).clamp(min=LEAST_STEP).unsqueeze(2).expand(-1, -1, states.size(2) // self.heads)
        step = step.reshape(batch, 1, -1, states.size(2))
        states = torch.unflatten(states, 0, (batch, -1)).transpose(1, 2)  # [B, S, m, D]
        ones, zeros = states.new_ones(1, 1, 1, 1), states.new_zeros(1, 1)
        after = selective_scan(states / step, step, -ones[0], ones, ones, zeros)
        return functional.pad(after, (0, 0, 1, -1)).transpose(1, 2).flatten(0, 1)
