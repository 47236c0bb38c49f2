"""Pooling: each position becomes the mean of the window around it, less itself; local, without parameters.

Source: Yu et al., MetaFormer Is Actually What You Need for Vision, CVPR 2022 (PoolFormer). The mean is over the
positions inside the map. Without norm, layer scale and residual. A baseline: what no global context costs at least.
"""

from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._checks import check_input, check_odd, check_positive
from ctxbench.registry import register


@register(
    "pool",
    title="Pooling (PoolFormer)",
    paper="Yu et al., MetaFormer Is Actually What You Need for Vision, CVPR 2022",
    year=2022,
    family="large kernel",
    params="0",
    macs="N*C",
    complexity="n*C",
    position_mixing=False,
    reach="min(H, pool_size)*min(W, pool_size)",
    public_code="sail-sg/poolformer, Apache-2.0",
)
class Pooling(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; the window is `pool_size` x `pool_size`, odd."""

    def __init__(self, channels: int, *, pool_size: int = 3) -> None:
        super().__init__()
        check_positive(channels=channels, pool_size=pool_size)
        check_odd("pool", pool_size=pool_size)
        self.channels, self.pool_size = channels, pool_size

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "pool")
        return functional.avg_pool2d(x, self.pool_size, 1, self.pool_size // 2, count_include_pad=False) - x
