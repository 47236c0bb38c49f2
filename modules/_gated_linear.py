"""Base of rala and mala: projections, positive features, rotary positions per head, a depthwise path and a gate."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._checks import check_heads, check_input, check_positive
from ctxbench.modules._rope import angles, turned

OFFSET = 1e-6
BASE = 10000.0


class GatedLinearAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; C / `heads` is a multiple of 4."""

    name = ""

    def __init__(self, channels: int, *, heads: int = 8) -> None:
        super().__init__()
        check_positive(channels=channels, heads=heads)
        check_heads(self.name, channels, heads)
        if channels // heads % 4:
            raise ValueError(f"{self.name} has {channels // heads} channels a head; it needs a multiple of 4")
        self.channels, self.heads = channels, heads
        self.project = nn.Conv2d(channels, 4 * channels, 1)
        self.detail = nn.Conv2d(channels, channels, 5, padding=2, groups=channels)
        self.output = nn.Conv2d(channels, channels, 1)
        for layer in (self.project, self.detail, self.output):
            nn.init.trunc_normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]  # there is one

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, self.name)
        query, key, value, gate = self.project(x).chunk(4, dim=1)
        wide = torch.promote_types(x.dtype, torch.float32)
        count = self.channels // self.heads // 4
        steps = torch.arange(count, device=x.device, dtype=wide)
        turns = angles(BASE ** (-steps / max(count - 1, 1)), int(x.size(2)), int(x.size(3)))
        query, key = (functional.elu(self._split(each.to(wide))) + 1 for each in (query, key))
        context = self.attend(query, key, self._split(value.to(wide)), turns.cos(), turns.sin()).to(x.dtype)
        context = torch.unflatten(torch.unflatten(context, 0, (-1, self.heads)).flatten(1, 2), 2, x.shape[2:])
        out: Tensor = self.output((context + self.detail(value)) * gate)
        return out

    def attend(self, query: Tensor, key: Tensor, value: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """[B * heads, C / heads, n] each to the same; cosine and sine of the positions' angles."""
        raise AssertionError("each attention defines its own")

    def _split(self, image: Tensor) -> Tensor:
        """[B, C, H, W] to [B * heads, C / heads, n]."""
        return torch.unflatten(image.flatten(2), 1, (self.heads, -1)).flatten(0, 1)


def rotated_memory(query: Tensor, key: Tensor, value: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """sum_r k~_r v_r^T / n, read by the turned queries: [G, c, n] each to [G, c, n]."""
    memory = torch.bmm(turned(key, cosine, sine), value.transpose(1, 2)) / value.size(2)
    return torch.bmm(memory.transpose(1, 2), turned(query, cosine, sine))
