"""The rate of a large matrix product on the device at hand, the yardstick for a module's MAC/s."""

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from ctxbench.engine.clock import Clock

SIZE = {"cpu": 1024, "cuda": 8192}
SECONDS = 1.0


def matmul_peak(clock: "Clock", device: torch.device, dtype: torch.dtype) -> float:
    """MAC/s of a square matrix product in `dtype`: the best of a second's products, after one to warm up."""
    size = SIZE[device.type]
    a = torch.randn(size, size, device=device).to(dtype)
    b = torch.randn(size, size, device=device).to(dtype)
    out = torch.empty_like(a)

    def step() -> object:
        return torch.mm(a, b, out=out)

    end = clock.now() + SECONDS
    clock.time_block(step, 1)
    fastest = clock.time_block(step, 1)
    while clock.now() < end:
        fastest = min(fastest, clock.time_block(step, 1))
    return size**3 / fastest
