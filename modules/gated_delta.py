"""Gated delta rule, in both directions: a state decays, and each position corrects what it reads at its key.

Source: Yang, Kautz and Hatamizadeh, Gated Delta Networks: Improving Mamba2 with Delta Rule, ICLR 2025; the published
layer, joined with a second direction of its own convolutions and decays, as in `ssd`. Positions of a chunk meet in
products, by the inverse of a triangular matrix, and the states of the chunks follow one another: the cost is linear in
n, and the result does not depend on the length of a chunk. Half types take all behind the convolutions in float32.
"""

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._checks import check_input, check_positive
from ctxbench.modules._layers import ChannelLinear, step_bias, without_autocast
from ctxbench.registry import register


@register(
    "gated_delta",
    title="Gated delta rule (Gated DeltaNet)",
    paper="Yang, Kautz and Hatamizadeh, Gated Delta Networks: Improving Mamba2 with Delta Rule, ICLR 2025",
    year=2025,
    family="linear attention",
    params="heads*(2*C + ((2 + 3*expand_v)*C + (2 if bidirectional else 1)*d_conv*(2 + expand_v))"
    "*(head_width if head_width > 0 else C//8) + 2*(2 if bidirectional else 1))"
    " + expand_v*(head_width if head_width > 0 else C//8)",
    macs="N*heads*(2*C + 1 + (2 if bidirectional else 1) + (head_width if head_width > 0 else C//8)*((2 + 3*expand_v)*C"
    " + 3*expand_v + (2 if bidirectional else 1)*d_conv*(2 + expand_v)))"
    " + B*(2 if bidirectional else 1)*heads*((-(-n//chunk_size))*(chunk_size*(chunk_size**2 - 1)//3 + 5*chunk_size**2"
    " + (head_width if head_width > 0 else C//8)*((3 + 2*expand_v)*chunk_size**2 + 5*chunk_size))"
    " + expand_v*(head_width if head_width > 0 else C//8)**2"
    "*((-(-n//chunk_size))*(3*chunk_size + 1) - chunk_size - 1))",
    complexity="n*C**2 + n*C*chunk_size",
    public_code="fla-org/flash-linear-attention, MIT",
)
class GatedDelta(nn.Module):
    """[B, C, H, W] to [B, C, H, W] with `heads` heads, whose keys are `head_width` wide and values `expand_v` times it.

    A `head_width` of 0 is C // 8. `d_conv` is the width of the causal convolutions; `bidirectional` reads the positions
    backwards, too. `chunk_size` is a power of two.
    """

    def __init__(
        self,
        channels: int,
        *,
        heads: int = 6,
        head_width: int = 0,
        expand_v: int = 2,
        d_conv: int = 4,
        chunk_size: int = 64,
        bidirectional: bool = True,
    ) -> None:
        super().__init__()
        check_positive(channels=channels, heads=heads, expand_v=expand_v, d_conv=d_conv, chunk_size=chunk_size)
        if not head_width and channels % 8:
            raise ValueError(f"channels is {channels}; gated_delta needs a multiple of 8, or a head_width")
        if chunk_size & (chunk_size - 1):
            raise ValueError(f"chunk_size is {chunk_size}; gated_delta needs a power of two")
        width = head_width or channels // 8
        check_positive(head_width=width)
        keys, values = heads * width, heads * expand_v * width
        self.channels, self.heads, self.width, self.chunk_size = channels, heads, width, chunk_size
        self.ends = ("", "_b")[: 1 + bidirectional]
        self.q_proj, self.k_proj = (ChannelLinear(channels, keys, bias=False) for _ in range(2))
        self.v_proj, self.g_proj = (ChannelLinear(channels, values, bias=False) for _ in range(2))
        self.a_proj, self.b_proj = (ChannelLinear(channels, heads, bias=False) for _ in range(2))
        for end in self.ends:
            for name, outputs in zip("qkv", (keys, keys, values), strict=True):
                setattr(self, f"{name}_conv1d{end}", nn.Conv1d(outputs, outputs, d_conv, groups=outputs, bias=False))
            setattr(self, f"dt_bias{end}", nn.Parameter(step_bias(heads)))
            setattr(self, f"A{end}_log", nn.Parameter(torch.empty(heads).uniform_(0, 16).log()))
        self.o_norm, self.o_proj = nn.RMSNorm(expand_v * width, eps=1e-5), nn.Linear(values, channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "gated_delta")
        wide = torch.promote_types(x.dtype, torch.float32)
        query, key, value = (self._seen(name, x).to(wide) for name in "qkv")
        step, rate = (self._of_ways(f"{name}{{}}{log}").to(wide) for name, log in (("dt_bias", ""), ("A", "_log")))
        decay = functional.softplus(self._both_ways(self.a_proj(x)).to(wide) + step[:, None]) * -rate.exp()[:, None]
        enter = self._both_ways(self.b_proj(x)).to(wide).sigmoid()
        with without_autocast(x):
            read = self._chunks(query, key, value, decay, enter)  # [B w h, n, V]
        read = torch.unflatten(read, 0, (x.size(0), -1))
        if len(self.ends) == 2:
            read = (read[:, : self.heads] + read[:, self.heads :].flip(2)) / 2
        read = read * torch.rsqrt(read.pow(2).mean(3, keepdim=True) + 1e-5) * self.o_norm.weight.to(wide)
        gate = functional.silu(torch.unflatten(self.g_proj(x).flatten(2).to(wide), 1, (self.heads, -1)))
        out = self.o_proj((read * gate.transpose(2, 3)).transpose(1, 2).flatten(2).to(x.dtype))
        return torch.unflatten(out.transpose(1, 2), 2, x.shape[2:])

    def _of_ways(self, name: str) -> Tensor:
        """The parameters of a name, whose {} is the end of each direction, in one."""
        places = [name.format(end).rpartition(".") for end in self.ends]
        # get_parameter would refuse the plain tensors of torch.func.functional_call
        return torch.cat([getattr(self.get_submodule(layer), last) for layer, _, last in places])

    def _both_ways(self, made: Tensor) -> Tensor:
        """[B, c, H, W] to [B, w c, n]: each direction in its own order."""
        tokens = made.flatten(2)
        return torch.cat([tokens, tokens.flip(2)], dim=1) if len(self.ends) == 2 else tokens

    def _seen(self, name: str, x: Tensor) -> Tensor:
        """Queries, keys or values [B, w c, n] of all directions, behind their causal convolutions."""
        made = self._both_ways(self.get_submodule(f"{name}_proj")(x))
        weight = self._of_ways(f"{name}_conv1d{{}}.weight")
        made = functional.pad(made, (weight.size(2) - 1, 0))
        return functional.silu(functional.conv1d(made, weight, groups=len(weight)))

    def _chunks(self, query: Tensor, key: Tensor, value: Tensor, decay: Tensor, enter: Tensor) -> Tensor:
        """Outputs [P, n, V] of maps [B, P / B c, n]; P are the heads of all images and directions."""
        count, missing = query.size(2), -query.size(2) % self.chunk_size
        parts = [self._cut(each, missing) for each in (query, key, value, decay, enter)]  # [m, P, T, c]
        query, key = (each * torch.rsqrt(each.pow(2).sum(3, keepdim=True) + 1e-6) for each in parts[:2])
        value, decay, enter = parts[2], *parts[3:]
        query = query * self.width**-0.5
        total = decay.cumsum(2)  # [m, P, T, 1]
        later = torch.ones(self.chunk_size, self.chunk_size, dtype=torch.bool, device=query.device).triu(1)
        between = (total - total.transpose(2, 3)).masked_fill(later, -torch.inf).exp()
        moved = (key @ key.transpose(2, 3) * between * enter).tril(-1)
        solved = unit_inverse(moved.flatten(0, 1)).view_as(moved) * enter.transpose(2, 3)
        carried = total.exp()
        new, old = solved @ value, solved * carried.transpose(2, 3) @ key
        kept = ((total[:, :, -1:] - total).exp() * key).transpose(2, 3)
        new, before = _states(new, old, kept, carried[:, :, -1:])
        read = query * carried @ before + query @ key.transpose(2, 3) * between @ new
        return read.transpose(0, 1).flatten(1, 2)[:, :count]

    def _cut(self, made: Tensor, missing: int) -> Tensor:
        """[B, w h c, n] to [m, B w h, T, c], with zeros up to whole chunks."""
        heads = made.reshape(made.size(0) * self.heads * len(self.ends), -1, made.size(2))
        heads = functional.pad(heads, (0, missing)) if missing else heads
        return torch.unflatten(heads, 2, (-1, self.chunk_size)).permute(2, 0, 3, 1).contiguous()


def _states(new: Tensor, old: Tensor, kept: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
    """Values that each chunk writes [m, P, T, V], and the states before it [m, P, D, V]."""
    # unbind: the gradient of one chunk's slice would be a map of all of them
    parts = list(zip(new.unbind(), old.unbind(), kept.unbind(), decay.unbind(), strict=True))
    before = [new.new_zeros(new.size(1), kept.size(2), new.size(3))]
    written = [torch.baddbmm(parts[0][0], parts[0][1], before[0], alpha=-1)]
    for (_, _, key, share), (each, read, _, _) in itertools.pairwise(parts):
        before.append(torch.baddbmm(before[-1] * share, key, written[-1]))
        written.append(torch.baddbmm(each, read, before[-1], alpha=-1))
    return torch.stack(written), torch.stack(before)


def unit_inverse(lower: Tensor) -> Tensor:
    """Inverse of I + `lower` [P, T, T], which is zero on and above the diagonal; T is a power of two.

    Both halves of the diagonal are inverted as one batch, and two products give the corner below: T (T^2 - 1) / 3
    multiplications, in log2 T steps, of operators that every exporter has.
    """
    if lower.size(2) == 1:
        return torch.ones_like(lower)
    half = lower.size(2) // 2
    above, below = unit_inverse(torch.cat([lower[:, :half, :half], lower[:, half:, half:]])).chunk(2)
    corner = below @ lower[:, half:, :half] @ above
    return torch.cat([functional.pad(above, (0, half)), torch.cat([-corner, below], dim=2)], dim=1)
