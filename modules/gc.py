"""Global context: one vector, the positions' weighted mean, is transformed and given to every position.

Source: Cao et al., GCNet: Non-local Networks Meet Squeeze-Excitation Networks and Beyond, ICCV Workshops 2019. The
context does not depend on the position that receives it.
"""

import torch
from torch import Tensor, nn

from ctxbench.modules._checks import check_input, reduced
from ctxbench.registry import register

POOLINGS, FUSIONS = ("att", "avg"), ("add", "mul", "both")


def _transform(channels: int, width: int) -> nn.Sequential:
    """The bottleneck of the context; its last convolution starts at zero."""
    last = nn.Conv2d(width, channels, 1)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)  # type: ignore[arg-type]  # there is one
    return nn.Sequential(nn.Conv2d(channels, width, 1), nn.LayerNorm([width, 1, 1]), nn.ReLU(inplace=True), last)


@register(
    "gc",
    title="Global context (GC)",
    paper="Cao et al., GCNet: Non-local Networks Meet Squeeze-Excitation Networks and Beyond, ICCV Workshops 2019",
    year=2019,
    family="pooling",
    params=(
        "(C + 1 if pooling == 'att' else 0)"
        " + (2 if fusion == 'both' else 1)*(2*C*(C//reduction) + 3*(C//reduction) + C)"
    ),
    macs=(
        "(2*N*C if pooling == 'att' else B*C)"
        " + (2 if fusion == 'both' else 1)*B*(2*C*(C//reduction) + C//reduction)"
        " + (N*C if fusion == 'mul' or fusion == 'both' else 0)"
    ),
)
class GlobalContext(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; the bottleneck has C // `reduction` channels.

    `pooling`: `att` (a softmax over the positions) or `avg`. `fusion`: the context is added, multiplied (through a
    sigmoid), or both.
    """

    def __init__(self, channels: int, *, pooling: str = "att", fusion: str = "add", reduction: int = 16) -> None:
        super().__init__()
        for name, value, known in (("pooling", pooling, POOLINGS), ("fusion", fusion, FUSIONS)):
            if value not in known:
                raise ValueError(f"{name} is {value!r}; gc knows {', '.join(known)}")
        width = reduced("gc", channels, reduction)
        if width == 1:
            raise ValueError(f"gc with {channels} channels and reduction {reduction} has one channel to normalise over")
        self.channels = channels
        self.mask = nn.Conv2d(channels, 1, 1) if pooling == "att" else None
        self.multiply = _transform(channels, width) if fusion in ("mul", "both") else None
        self.add = _transform(channels, width) if fusion in ("add", "both") else None
        if self.mask is not None:
            nn.init.kaiming_normal_(self.mask.weight)
            nn.init.zeros_(self.mask.bias)  # type: ignore[arg-type]  # there is one

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "gc")
        context = self._context(x)  # [B, C, 1, 1]
        y = x
        if self.multiply is not None:
            y = y * torch.sigmoid(self.multiply(context))
        return y if self.add is None else y + self.add(context)

    def _context(self, x: Tensor) -> Tensor:
        if self.mask is None:
            return x.mean((2, 3), keepdim=True)
        weights = torch.softmax(self.mask(x).flatten(2), dim=2)  # [B, 1, n]
        return torch.bmm(x.flatten(2), weights.transpose(1, 2)).unsqueeze(3)
