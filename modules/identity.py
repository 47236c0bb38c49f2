"""No module: what a network costs without one.

No context module, so that it is in no list and not among `*`. In a network it leaves the slot empty.
"""

from torch import Tensor, nn

from ctxbench.registry import register


@register(
    "identity",
    title="Without",
    family="none",
    params="0",
    macs="0",
    position_mixing=False,
    listed=False,
)
class Identity(nn.Module):
    """[B, C, H, W] to itself."""

    def __init__(self, channels: int) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x
