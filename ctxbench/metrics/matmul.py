"""The rate of a large matrix product: what a module's own rate is compared with."""

from statistics import median
from typing import TYPE_CHECKING

from ctxbench.model.metric import Column, Metric

if TYPE_CHECKING:
    import torch

    from ctxbench.devices import Device
    from ctxbench.devices.clock import Clock

# At most, and no longer than the samples of a mode.
SECONDS = 1.0
# Products wait in the queue of a device that has one, in blocks that last so long.
BLOCK_S = 0.1


def matmul_rate(clock: "Clock", device: "Device", dtype: "torch.dtype", sample_s: float = SECONDS) -> float:
    """MAC/s of a square matrix product in `dtype`, over the products of `sample_s` seconds.

    The first warms up, where it is shorter than that. On a device that queues: the median of blocks. On the CPU: the
    best single product.
    """
    import torch

    size = device.matmul_size
    a = torch.randn(size, size, device=device.torch).to(dtype)
    b = torch.randn(size, size, device=device.torch).to(dtype)
    out = torch.empty_like(a)

    def step() -> object:
        return torch.mm(a, b, out=out)

    limit = min(sample_s, SECONDS)
    end = clock.now() + limit
    once = clock.time_block(step, 1)
    if once < limit:
        once = clock.time_block(step, 1)
    products = max(1, round(BLOCK_S / once)) if device.queues else 1
    seconds = [clock.time_block(step, products) / products if device.queues else once]
    while clock.now() < end:
        seconds.append(clock.time_block(step, products) / products)
    return size**3 / (median(seconds) if device.queues else min(seconds))


METRIC = Metric(
    name="matmul",
    order=50,
    about="the rate of a large matrix product, once a run for each device, dtype and thread count",
    columns=[Column("matmul_macs_per_s", float)],
    quantities=[],
    convention="Matmul: MAC/s of a large square matrix product",
    asked_for=False,
    default=False,
)
