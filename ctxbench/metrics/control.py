"""The control workload: fixed work in units of which latencies of one machine at two times can be compared."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from ctxbench.engine.clock import Step

WIDTH = 256
POSITIONS = 1024


def control_workload(device: "torch.device") -> "Step":
    """A pass of what context modules are made of: a product, a softmax, a product; float32, no gradients.

    `softmax(x w) w^T` with x `[1024, 256]` and w `[256, 256]`: 134 M MACs, a millisecond or two on one CPU core.
    """
    import torch

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(POSITIONS, WIDTH, generator=generator).to(device)
    w = torch.randn(WIDTH, WIDTH, generator=generator).to(device)

    def step() -> "torch.Tensor":
        with torch.inference_mode():
            return torch.softmax(x @ w, dim=-1) @ w.T

    return step
