"""Mixed local channel attention: each of 25 cells of the map scales its channels, by its own means and by those of all.

Source: Wan et al., Mixed local channel attention for object detection, Engineering Applications of Artificial
Intelligence 2023. As published: the means of the cells are one row of numbers, so that a window over channels reaches
from the last ones of a cell to the first ones of the next.
"""

import torch
from torch import Tensor, nn

from ctxbench.modules._checks import check_input, check_odd, check_positive
from ctxbench.modules._onnx import pooled
from ctxbench.registry import register


@register(
    "mlca",
    title="Mixed local channel attention (MLCA)",
    paper="Wan et al., Mixed local channel attention for object detection, Engineering Applications of Artificial "
    "Intelligence 2023",
    year=2023,
    family="pooling",
    params="2*(kernel_size if kernel_size > 0 else 1 if C < 8 else 3 if C < 128 else 5 if C < 2048 else 7)",
    macs="2*N*C + B*C*(local_size**2 + 1)*("
    "2 + (kernel_size if kernel_size > 0 else 1 if C < 8 else 3 if C < 128 else 5 if C < 2048 else 7))",
    complexity="n*C",
    public_code="wandahangFY/MLCA, GPL-3.0",
)
class MixedLocalChannelAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W], C below 32768; `local_size` squared cells, whose own weight is `local_weight`.

    A weight is made from `kernel_size` means, odd, or 0: by C.
    """

    def __init__(self, channels: int, *, local_size: int = 5, local_weight: float = 0.5, kernel_size: int = 0) -> None:
        super().__init__()
        kernel_size = kernel_size or channels.bit_length() // 2 | 1  # (log2(C) + 1) / 2, made odd
        check_positive(channels=channels, local_size=local_size, kernel_size=kernel_size)
        check_odd("mlca", kernel_size=kernel_size)
        self.channels, self.local_size, self.local_weight = channels, local_size, local_weight
        self.conv, self.conv_local = (
            nn.Conv1d(1, 1, kernel_size, padding=kernel_size // 2, bias=False) for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "mlca")
        size = self.local_size
        cells = pooled(x, size)
        row = cells.flatten(2).transpose(1, 2).reshape(x.size(0), 1, -1)  # cell by cell
        local = torch.unflatten(torch.sigmoid(self.conv_local(row)).squeeze(1), 1, (size * size, -1)).transpose(1, 2)
        whole = torch.sigmoid(self.conv(cells.mean((2, 3)).unsqueeze(1))).transpose(1, 2)  # [B, C, 1]
        gate = local * self.local_weight + whole * (1 - self.local_weight)
        return torch.mul(x, pooled(torch.unflatten(gate, 2, (size, size)), x.size(2), x.size(3)))
